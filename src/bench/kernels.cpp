#include "bench/kernels.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/buffer.h"
#include "bench/machine.h"
#include "bench/operations.h"
#include "bench/timing.h"
#include "kernels/ops.h"

namespace cedra::bench {
namespace {

constexpr double kSecondsPerSample = 0.05;

struct Samples {
  std::vector<double> seconds, gb_s, of_read, gflop_s, of_peak, of_ceiling;
};

class Measurement {
 public:
  Measurement(Team& team, const kernels::Ops& ops, const Buffer& weights)
      : team_(team), ops_(ops), weights_(weights) {}

  void ceilings() {
    read_ = read_rate(team_, weights_.data(), weights_.size());
    const Peak peak = peak_rate(team_, ops_);
    peak_ = peak.flops;
    instruction_ = peak.instruction;
    reads_.push_back(read_ * 1e-9);
    peaks_.push_back(peak_ * 1e-9);
  }

  void sample(const Operation& operation, int64_t rows, int64_t& next_call, Samples& out) {
    const auto run = [&](int64_t calls) {
      const int64_t first = next_call;
      next_call += calls;
      return team_seconds(team_, [&](int member) {
        for (int64_t call = first; call < first + calls; ++call) operation.run(rows, call, member);
      });
    };
    const double once = std::max(run(1), 1e-8);
    const auto calls = static_cast<int64_t>(std::clamp(kSecondsPerSample / once, 1.0, 1e6));
    const double seconds = run(calls) / static_cast<double>(calls);
    const auto per_row = static_cast<double>(rows);
    const double bytes = operation.bytes + operation.bytes_per_row * per_row;
    const double flops = operation.flops_per_row * per_row;
    const double read_time = bytes / read_;
    const double multiply_time = peak_ > 0 ? flops / peak_ : 0;
    out.seconds.push_back(seconds);
    out.gb_s.push_back(bytes / seconds * 1e-9);
    out.of_read.push_back(read_time / seconds);
    out.gflop_s.push_back(flops / seconds * 1e-9);
    out.of_peak.push_back(multiply_time / seconds);
    out.of_ceiling.push_back(std::max(read_time, multiply_time) / seconds);
  }

  void put(KernelReport& report) const {
    report.read_gb_s = median(reads_);
    report.peak_gflop_s = median(peaks_);
    report.instruction = instruction_;
  }

 private:
  Team& team_;
  const kernels::Ops& ops_;
  const Buffer& weights_;
  double read_ = 0, peak_ = 0;
  std::string_view instruction_;
  std::vector<double> reads_, peaks_;
};

// Text inside an SVG element.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

Result<KernelReport> measure_kernels(const KernelOptions& options,
                                     const std::function<void(const std::string&)>& progress) {
  const kernels::Ops* ops = kernels::find_ops(options.isa);
  if (ops == nullptr) {
    std::string names;
    for (const kernels::Ops* level : kernels::available_ops()) {
      names += fmt::format(" {}", level->name);
    }
    return err(Code::kInvalid, "isa '{}' is unknown or not in this processor; it has:{}",
               options.isa, names);
  }
  for (const int64_t rows : options.rows) {
    if (rows < 1 || rows > 4096) {
      return err(Code::kInvalid, "rows must be between 1 and 4096, got {}", rows);
    }
  }
  Team team({.threads = options.threads});
  KernelReport report;
  report.level = ops->name;
  report.processor = processor_name();
  report.threads = team.size();
  report.rounds = options.rounds;
  report.gigabytes = options.gigabytes > 0 ? options.gigabytes : default_gigabytes();
  // At least one of the largest matrix, and of the records of the most rows.
  const auto bytes = std::max(static_cast<int64_t>(report.gigabytes * 1e9), int64_t{200} << 20);
  CEDRA_ASSIGN(Buffer weights, Buffer::create(bytes / 4096 * 4096, Pages::kHuge));
  fill_with_weights(team, weights);
  const int64_t most_rows = options.rows.empty() ? 1 : std::ranges::max(options.rows);
  const auto bench = make_workbench(*ops, team.size(), most_rows, weights);

  std::vector<Operation> operations = make_operations(*bench);
  std::erase_if(operations, [&](const Operation& operation) {
    return operation.name.find(options.only) == std::string::npos &&
           operation.use.find(options.only) == std::string::npos;
  });
  if (operations.empty()) {
    return err(Code::kInvalid, "no operation has \"{}\" in its name or use", options.only);
  }
  Measurement measurement(team, *ops, weights);
  std::vector<Samples> samples(operations.size() * options.rows.size());
  std::vector<int64_t> next_call(operations.size());
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < operations.size(); ++i) {
      measurement.ceilings();
      for (size_t r = 0; r < options.rows.size(); ++r) {
        if (progress) {
          progress(fmt::format("round {} of {}: {}, {} rows", round + 1, options.rounds,
                               operations[i].name, options.rows[r]));
        }
        measurement.sample(operations[i], options.rows[r], next_call[i],
                           samples[i * options.rows.size() + r]);
      }
    }
  }
  measurement.put(report);
  for (size_t i = 0; i < operations.size(); ++i) {
    for (size_t r = 0; r < options.rows.size(); ++r) {
      const Samples& s = samples[i * options.rows.size() + r];
      report.results.push_back({operations[i].name, operations[i].use, options.rows[r],
                                median(s.seconds), median(s.gb_s), median(s.of_read),
                                median(s.gflop_s), median(s.of_peak), median(s.of_ceiling)});
    }
  }
  return report;
}

std::string KernelReport::to_text() const {
  std::string out = fmt::format(
      "{}\nlevel {}, {} thread(s), medians of {} rounds over {:.1f} GB; ceilings of the same run: "
      "read {:.1f} GB/s, {} {:.0f} GFLOP/s\n\n{:34} {:>5} {:>12} {:>8} {:>6} {:>9} {:>6} {:>8}\n",
      processor, level, threads, rounds, gigabytes, read_gb_s, instruction, peak_gflop_s,
      "operation", "rows", "us", "GB/s", "x", "GFLOP/s", "x", "ceiling");
  for (const KernelResult& r : results) {
    const auto number = [](double value, const char* wide) {
      return value > 0 ? fmt::format(fmt::runtime(wide), value) : std::string("-");
    };
    out += fmt::format("{:34} {:5} {:12.2f} {:>8} {:>6} {:>9} {:>6} {:>8}\n", r.name, r.rows,
                       r.seconds * 1e6, number(r.gb_s, "{:.2f}"), number(r.of_read, "{:.2f}"),
                       number(r.gflop_s, "{:.1f}"), number(r.of_peak, "{:.2f}"),
                       number(r.of_ceiling, "{:.2f}"));
  }
  return out;
}

std::string KernelReport::to_json() const {
  nlohmann::ordered_json root = {{"processor", processor},
                                 {"level", level},
                                 {"threads", threads},
                                 {"rounds", rounds},
                                 {"gigabytes", gigabytes},
                                 {"read_gb_s", read_gb_s},
                                 {"instruction", instruction},
                                 {"peak_gflop_s", peak_gflop_s},
                                 {"results", nlohmann::ordered_json::array()}};
  for (const KernelResult& r : results) {
    root["results"].push_back({{"operation", r.name},
                               {"use", r.use},
                               {"rows", r.rows},
                               {"seconds", r.seconds},
                               {"gb_s", r.gb_s},
                               {"of_read", r.of_read},
                               {"gflop_s", r.gflop_s},
                               {"of_peak", r.of_peak},
                               {"of_ceiling", r.of_ceiling}});
  }
  return root.dump(1) + "\n";
}

std::string KernelReport::to_svg() const {
  constexpr int kLeft = 330, kTop = 70, kWidth = 58, kHeight = 22;
  std::vector<int64_t> columns;
  std::vector<const KernelResult*> lines;
  for (const KernelResult& r : results) {
    if (std::ranges::find(columns, r.rows) == columns.end()) columns.push_back(r.rows);
    if (lines.empty() || lines.back()->name != r.name || lines.back()->use != r.use) {
      lines.push_back(&r);
    }
  }
  const int width = std::max(800, kLeft + kWidth * static_cast<int>(columns.size()) + 20);
  const int height = kTop + kHeight * static_cast<int>(lines.size()) + 20;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"10\" y=\"20\" font-size=\"14\">Share of the ceiling (reading or multiplying, "
      "whichever is slower), level {}, {} thread(s)</text>\n"
      "<text x=\"10\" y=\"38\">{}: read {:.1f} GB/s, {} {:.0f} GFLOP/s. Where there is no ceiling: "
      "microseconds.</text>\n",
      width, height, level, threads, escaped(processor), read_gb_s, instruction, peak_gflop_s);
  for (size_t c = 0; c < columns.size(); ++c) {
    out += fmt::format("<text x=\"{}\" y=\"60\" text-anchor=\"middle\">{}</text>\n",
                       kLeft + kWidth * static_cast<int>(c) + kWidth / 2, columns[c]);
  }
  for (size_t l = 0; l < lines.size(); ++l) {
    const int y = kTop + kHeight * static_cast<int>(l);
    out += fmt::format("<text x=\"10\" y=\"{}\">{} ({})</text>\n", y + 15, escaped(lines[l]->name),
                       escaped(lines[l]->use));
    for (const KernelResult& r : results) {
      if (r.name != lines[l]->name || r.use != lines[l]->use) continue;
      const auto column = static_cast<int>(std::ranges::find(columns, r.rows) - columns.begin());
      // Red at nothing, green at the ceiling; grey without one.
      const double share = std::clamp(r.of_ceiling, 0.0, 1.0);
      const std::string colour =
          r.of_ceiling > 0 ? fmt::format("hsl({:.0f},60%,75%)", 120 * share) : "hsl(0,0%,90%)";
      const std::string text = r.of_ceiling > 0 ? fmt::format("{:.2f}", r.of_ceiling)
                                                : fmt::format("{:.1f}", r.seconds * 1e6);
      const int x = kLeft + kWidth * column;
      out += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>"
          "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
          x, y, kWidth - 2, kHeight - 2, colour, x + kWidth / 2, y + 15, text);
    }
  }
  return out + "</svg>\n";
}

}  // namespace cedra::bench

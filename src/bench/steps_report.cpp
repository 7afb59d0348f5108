// Text and JSON of measure_steps().
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/steps.h"

namespace cedra::bench {
namespace {

using model::kPhaseNames;
using model::kPhases;

std::string title(const StepResult& r) {
  return r.prompt ? fmt::format("prompt of {} rows, all layers on all rows", r.rows)
                  : fmt::format("decode, {} sequence(s) at {}", r.rows, r.context);
}

double per_second(const StepResult& r, double seconds) {
  return seconds > 0 ? static_cast<double>(r.rows) / seconds : 0;
}

std::string result_text(const StepResult& r) {
  const double gb = r.cost.total_bytes() * 1e-9;
  std::string out = fmt::format("\n{}: {:.2f} ms, {:.2f} tokens/s\n", title(r), r.seconds * 1e3,
                                per_second(r, r.seconds));
  if (r.prompt) {
    out += fmt::format("  {:.1f} GFLOP, {:.1f} GFLOP/s\n", r.cost.total_flops() * 1e-9,
                       r.cost.total_flops() * 1e-9 / r.seconds);
  } else {
    out += fmt::format(
        "  {:.3f} GB, {:.2f} GB/s: {:.2f} of the {:.2f} GB/s of plain reading; {:.0f} "
        "routed experts\n",
        gb, gb / r.seconds, gb / r.seconds / r.read_gb_s, r.read_gb_s, r.experts);
  }
  out += fmt::format("  {:24} {:>10} {:>7} {:>9} {:>8} {:>9} {:>12}\n", "component", "ms", "share",
                     "GB", "GB/s", "GFLOP/s", "ms, release");
  for (size_t i = 1; i < kPhases; ++i) {
    const double seconds = r.by_phase[i];
    const auto rate = [&](double cost) {
      return seconds > 0 && cost > 0 ? fmt::format("{:.2f}", cost * 1e-9 / seconds)
                                     : std::string("-");
    };
    out += fmt::format("  {:24} {:10.3f} {:6.1f}% {:9.4f} {:>8} {:>9} {:12.2f}\n", kPhaseNames[i],
                       seconds * 1e3, r.seconds > 0 ? 100 * seconds / r.seconds : 0,
                       r.cost.bytes[i] * 1e-9, rate(r.cost.bytes[i]), rate(r.cost.flops[i]),
                       r.full_by_phase[i] * 1e3);
  }
  out += fmt::format(
      "  release: {:.1f} ms, {:.3f} tokens/s = {} / sum over components of ms * {} of "
      "the release / {} here ({:.2f} / {:.2f} {})\n",
      r.full_seconds * 1e3, per_second(r, r.full_seconds), r.rows, r.prompt ? "FLOP" : "bytes",
      r.prompt ? "FLOP" : "bytes",
      (r.prompt ? r.full_cost.total_flops() : r.full_cost.total_bytes()) * 1e-9,
      (r.prompt ? r.cost.total_flops() : r.cost.total_bytes()) * 1e-9, r.prompt ? "GFLOP" : "GB");
  return out;
}

nlohmann::ordered_json result_json(const StepResult& r) {
  nlohmann::ordered_json components = nlohmann::ordered_json::array();
  for (size_t i = 1; i < kPhases; ++i) {
    components.push_back({{"component", kPhaseNames[i]},
                          {"seconds", r.by_phase[i]},
                          {"bytes", r.cost.bytes[i]},
                          {"flops", r.cost.flops[i]},
                          {"release_seconds", r.full_by_phase[i]},
                          {"release_bytes", r.full_cost.bytes[i]},
                          {"release_flops", r.full_cost.flops[i]}});
  }
  return {{"kind", r.prompt ? "prompt" : "decode"},
          {"rows", r.rows},
          {"context", r.context},
          {"seconds", r.seconds},
          {"tokens_per_second", per_second(r, r.seconds)},
          {"bytes", r.cost.total_bytes()},
          {"flops", r.cost.total_flops()},
          {"routed_experts", r.experts},
          {"read_gb_s", r.read_gb_s},
          {"of_read", r.cost.total_bytes() * 1e-9 / r.seconds / r.read_gb_s},
          {"release_seconds", r.full_seconds},
          {"release_tokens_per_second", per_second(r, r.full_seconds)},
          {"components", std::move(components)}};
}

}  // namespace

std::string StepReport::to_text() const {
  std::string out = fmt::format(
      "{}: {} layers, {} experts, {} tokens\n{}, level {}, {} thread(s), medians of {} steps\n"
      "opened in {:.2f} s, {:.2f} GB of weights mapped and read in {:.2f} s ({:.2f} GB/s)\n",
      folder, layers, experts, vocab, processor, level, threads, rounds, open_seconds,
      populate_bytes * 1e-9, populate_seconds, populate_bytes * 1e-9 / populate_seconds);
  for (const StepResult& result : results) out += result_text(result);
  return out;
}

std::string StepReport::to_json() const {
  nlohmann::ordered_json root = {{"folder", folder},
                                 {"layers", layers},
                                 {"experts", experts},
                                 {"vocab", vocab},
                                 {"processor", processor},
                                 {"level", level},
                                 {"threads", threads},
                                 {"rounds", rounds},
                                 {"open_seconds", open_seconds},
                                 {"populate_seconds", populate_seconds},
                                 {"populate_bytes", populate_bytes},
                                 {"results", nlohmann::ordered_json::array()}};
  for (const StepResult& result : results) root["results"].push_back(result_json(result));
  return root.dump(1) + "\n";
}

}  // namespace cedra::bench

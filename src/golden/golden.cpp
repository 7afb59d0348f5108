#include "golden/golden.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <ranges>
#include <set>

#include "golden/expected.h"
#include "golden/session.h"
#include "text/tokenizer.h"

namespace cedra::golden {
namespace {

constexpr double kOracleBound = 1e-5;  // absolute, on values of ordinary size
constexpr double kModuleBound = 1e-2;  // relative L2 of a row
constexpr double kNoiseFactor = 1.5;   // of the reference's own float32 noise
constexpr double kArgmaxSlack = 0.05;

using Values = std::vector<float>;

double relative_l2(const float* computed, const float* expected, int64_t n) {
  double difference = 0;
  double size = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double d = static_cast<double>(computed[i]) - expected[i];
    difference += d * d;
    size += static_cast<double>(expected[i]) * expected[i];
  }
  if (std::isnan(difference)) return INFINITY;
  return size == 0 ? (difference == 0 ? 0 : INFINITY) : std::sqrt(difference / size);
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  // Linear between neighbours, as NumPy's percentile.
  const double at = q * static_cast<double>(values.size() - 1);
  const size_t low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

// Records module outputs of one pass; with `forced`, feeds every layer the golden stream and pre of
// the layer before it.
class Recorder : public model::Probe {
 public:
  Recorder(const Expected* forced, std::string sequence)
      : forced_(forced), sequence_(std::move(sequence)) {}

  void enter(int64_t layer, int64_t rows, bf16* stream, float* pre) override {
    if (forced_ == nullptr || layer == 0) return;
    const std::string prefix = fmt::format("{}.layer.{}.", sequence_, layer - 1);
    const Values golden_stream = forced_->floats(prefix + "stream");
    const Values golden_pre = forced_->floats(prefix + "pre");
    if (rows == 0 || golden_stream.empty()) return;
    for (size_t i = 0; i < golden_stream.size(); ++i) stream[i] = to_bf16(golden_stream[i]);
    std::ranges::copy(golden_pre, pre);
  }
  void output(int64_t layer, std::string_view module, int64_t rows, int64_t width,
              const bf16* values) override {
    Values& out = modules[fmt::format("layer.{}.{}", layer, module)];
    out.resize(static_cast<size_t>(rows * width));
    for (size_t i = 0; i < out.size(); ++i) out[i] = to_float(values[i]);
  }
  void pre(int64_t layer, int64_t rows, int64_t copies, const float* values) override {
    modules[fmt::format("layer.{}.pre", layer)].assign(values, values + rows * copies);
  }
  void selected(int64_t layer, int64_t rows, int64_t k, const int32_t* values) override {
    selections[layer].assign(values, values + rows * k);
    selection_width = k;
  }
  void engram_rows(int64_t rows, int64_t width, const int64_t* values) override {
    hash.assign(values, values + rows * width);
  }
  void tap(int64_t layer, int64_t rows, const bf16* values) override {
    Values& out = taps[layer];
    const size_t width = static_cast<size_t>(tap_width);
    out.resize(static_cast<size_t>(rows) * width);
    for (size_t i = 0; i < out.size(); ++i) out[i] = to_float(values[i]);
  }

  std::map<std::string, Values> modules;
  std::map<int64_t, std::vector<int32_t>> selections;
  std::map<int64_t, Values> taps;
  std::vector<int64_t> hash;
  int64_t selection_width = 0;
  int64_t tap_width = 0;

 private:
  const Expected* forced_;
  std::string sequence_;
};

class Runner {
 public:
  Runner(std::filesystem::path folder, const Options& options, const model::Model& model,
         Session& session, const Expected& expected)
      : folder_(std::move(folder)),
        options_(options),
        model_(model),
        session_(session),
        expected_(expected),
        oracle_(session.ops().name == "oracle") {
    report_.level = std::string(session.ops().name);
  }

  Result<Report> run() {
    CEDRA_TRY(token_map());
    for (const std::string& name : expected_.numbered("seq")) sequence(name);
    if (expected_.has("spec.greedy")) greedy();
    if (expected_.has("replay.ids")) replay();
    for (const std::string& name : expected_.numbered("image")) image(name);
    not_run();
    return std::move(report_);
  }

 private:
  bool selected(const std::string& name) const {
    return options_.only.empty() || name.find(options_.only) != std::string::npos;
  }

  void add(Item item) {
    done_.insert(item.name);
    if (selected(item.name)) report_.items.push_back(std::move(item));
  }

  // Integers that must be equal, row by row.
  template <class T>
  void equal(const std::string& name, const std::vector<T>& computed,
             const std::vector<int64_t>& wanted, int64_t rows) {
    Item item;
    item.name = name;
    item.rows = rows;
    item.bound = "equal";
    const int64_t width = rows > 0 ? static_cast<int64_t>(wanted.size()) / rows : 0;
    int64_t same = 0;
    if (computed.size() == wanted.size()) {
      for (int64_t row = 0; row < rows; ++row) {
        same += std::equal(wanted.begin() + row * width, wanted.begin() + (row + 1) * width,
                           computed.begin() + row * width);
      }
    }
    item.agreement = fmt::format("{}/{}", same, rows);
    item.verdict =
        computed.size() == wanted.size() && same == rows ? Verdict::kPass : Verdict::kFail;
    add(std::move(item));
  }

  // Numbers, rows of `width`. Oracle: absolute difference. Otherwise every row's relative L2.
  void close(const std::string& name, const Values& computed, int64_t rows) {
    const Values wanted = expected_.floats(name);
    Item item;
    item.name = name;
    item.rows = rows;
    if (computed.size() != wanted.size()) {
      item.bound = fmt::format("{} values", wanted.size());
      item.agreement = fmt::format("{} values", computed.size());
      item.verdict = Verdict::kFail;
      add(std::move(item));
      return;
    }
    const int64_t width = static_cast<int64_t>(wanted.size()) / std::max<int64_t>(rows, 1);
    std::vector<double> per_row;
    for (int64_t row = 0; row < rows; ++row) {
      per_row.push_back(oracle_ ? largest_difference(computed, wanted, row * width, width)
                                : relative_l2(&computed[row * width], &wanted[row * width], width));
    }
    item.worst = per_row.empty() ? 0 : *std::ranges::max_element(per_row);
    item.median = quantile(per_row, 0.5);
    const double bound = oracle_ ? kOracleBound : kModuleBound;
    item.bound = fmt::format("worst <= {:g}", bound);
    bool pass = item.worst <= bound;
    if (oracle_ && name.ends_with("logits")) pass &= argmax(item, computed, wanted, width) == rows;
    item.verdict = pass ? Verdict::kPass : Verdict::kFail;
    add(std::move(item));
  }

  static double largest_difference(const Values& computed, const Values& wanted, int64_t begin,
                                   int64_t width) {
    double worst = 0;
    for (int64_t i = begin; i < begin + width; ++i) {
      const double d = std::abs(static_cast<double>(computed[i]) - wanted[i]);
      worst = std::isnan(d) ? INFINITY
                            : std::max(worst, d / std::max(1.0, std::abs(double{wanted[i]})));
    }
    return worst;
  }

  static int64_t argmax(Item& item, const Values& computed, const Values& wanted, int64_t width) {
    const int64_t rows = static_cast<int64_t>(wanted.size()) / width;
    int64_t same = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const auto best = [&](const Values& v) {
        return std::max_element(v.begin() + row * width, v.begin() + (row + 1) * width) -
               (v.begin() + row * width);
      };
      same += best(computed) == best(wanted);
    }
    item.agreement = fmt::format("{}/{}", same, rows);
    return same;
  }

  // The reference's float32 noise over the whole folder: the largest of its sequences.
  Noise folder_noise() const {
    Noise noise{};
    for (const std::string& sequence : expected_.numbered("seq")) {
      const std::optional<Noise> one = expected_.noise(sequence);
      if (!one.has_value()) continue;
      noise.median = std::max(noise.median, one->median);
      noise.p90 = std::max(noise.p90, one->p90);
      noise.argmax_agreement = std::min(noise.argmax_agreement, one->argmax_agreement);
    }
    return noise;
  }

  // Logits that compound over a whole sequence at a fast level: judged against what float32 sums do
  // to the reference. A sequence's own noise is one draw: either no rounding tipped (1e-7), or one
  // did early and everything after it differs (1e-2); docs/golden.md shows both for one sequence
  // under two orders of summation. So a sequence that is not within its own bound may still be
  // within the folder's, and the table says which one held.
  void noisy(const std::string& name, const std::string& sequence, const Values& computed,
             int64_t rows) {
    if (oracle_) {
      close(name, computed, rows);
      return;
    }
    const Values wanted = expected_.floats(name);
    Item item;
    item.name = name;
    item.rows = rows;
    if (computed.size() != wanted.size()) {
      item.bound = fmt::format("{} values", wanted.size());
      item.verdict = Verdict::kFail;
      add(std::move(item));
      return;
    }
    const int64_t width = static_cast<int64_t>(wanted.size()) / rows;
    std::vector<double> per_row;
    for (int64_t row = 0; row < rows; ++row) {
      per_row.push_back(relative_l2(&computed[row * width], &wanted[row * width], width));
    }
    item.worst = *std::ranges::max_element(per_row);
    item.median = quantile(per_row, 0.5);
    const double p90 = quantile(per_row, 0.9);
    const double agreement =
        static_cast<double>(argmax(item, computed, wanted, width)) / static_cast<double>(rows);
    const auto holds = [&](const Noise& noise, std::string_view whose) {
      item.bound = fmt::format("{}: median <= {:.2g}, p90 {:.2g} <= {:.2g}, arg-max >= {:.2f}",
                               whose, kNoiseFactor * noise.median, p90, kNoiseFactor * noise.p90,
                               noise.argmax_agreement - kArgmaxSlack);
      return item.median <= kNoiseFactor * noise.median && p90 <= kNoiseFactor * noise.p90 &&
             agreement >= noise.argmax_agreement - kArgmaxSlack;
    };
    const std::optional<Noise> own = expected_.noise(sequence);
    bool pass = own.has_value() && holds(*own, "own");
    if (!pass && own.has_value()) pass = holds(folder_noise(), "folder");
    if (!own.has_value()) {
      // Replays and images have no noise entry: nine rows in ten within the folder's worst.
      const Noise noise = folder_noise();
      item.bound = fmt::format("folder: p90 {:.2g} <= {:.2g}", p90, kNoiseFactor * noise.p90);
      pass = p90 <= kNoiseFactor * noise.p90;
    }
    item.verdict = pass ? Verdict::kPass : Verdict::kFail;
    add(std::move(item));
  }

  Result<> token_map() {
    if (model_.text().engram_layer_ids.empty()) return {};
    CEDRA_ASSIGN(const text::Tokenizer tokenizer, text::Tokenizer::load(folder_));
    const text::CompressedTokenMap map =
        text::compressed_token_map(tokenizer, model_.text().vocab_size);
    CEDRA_ASSIGN(const std::string raw, read_file(folder_ / "engram_token_map.json", 1 << 26));
    const nlohmann::json document = nlohmann::json::parse(raw, nullptr, false);
    if (!document.is_object() || !document.contains("token_map") || !document.contains("size")) {
      return err(Code::kCorrupt, "engram_token_map.json: want an object with token_map and size");
    }
    std::vector<int64_t> wanted;
    for (const auto& id : document["token_map"]) wanted.push_back(id.get<int64_t>());
    equal("engram_token_map", map.map, wanted, static_cast<int64_t>(wanted.size()));
    equal("engram_token_map.size", std::vector<int64_t>{map.size},
          {document["size"].get<int64_t>()}, 1);
    return {};
  }

  Values pick(const Values& all, const std::vector<int64_t>& rows, int64_t width) const {
    Values kept;
    for (const int64_t row : rows) {
      kept.insert(kept.end(), all.begin() + row * width, all.begin() + (row + 1) * width);
    }
    return kept;
  }

  void sequence(const std::string& name) {
    const std::vector<int32_t> ids = expected_.ids(name + ".ids");
    const std::vector<int64_t> rows = expected_.integers(name + ".rows");
    const int64_t vocab = model_.text().vocab_size;
    const bool with_layers = expected_.has(name + ".normed");
    Recorder recorder(nullptr, name);
    recorder.tap_width = model_.text().hidden_size;
    auto sequence = session_.new_sequence();
    const Values logits = session_.run(*sequence, ids, model::Want::kAll, &recorder);
    const int64_t kept = static_cast<int64_t>(rows.size());
    noisy(name + ".logits", name, pick(logits, rows, vocab), kept);
    if (expected_.has(name + ".engram_hash")) {
      equal(name + ".engram_hash", recorder.hash, expected_.integers(name + ".engram_hash"),
            static_cast<int64_t>(ids.size()));
    }
    if (oracle_) selections(name, recorder, rows);
    if (!with_layers) return;
    if (oracle_) {
      Values normed(
          static_cast<size_t>(session_.forward().wanted_rows() * model_.text().hidden_size));
      for (size_t i = 0; i < normed.size(); ++i)
        normed[i] = to_float(session_.forward().normed(0)[i]);
      close(name + ".normed", normed, static_cast<int64_t>(ids.size()));
      modules(name, recorder, static_cast<int64_t>(ids.size()));
      return;
    }
    // Module by module: every layer is fed the golden output of the layer before, so nothing
    // compounds.
    Recorder forced(&expected_, name);
    forced.tap_width = model_.text().hidden_size;
    auto fresh = session_.new_sequence();
    session_.run(*fresh, ids, model::Want::kAll, &forced);
    modules(name, forced, static_cast<int64_t>(ids.size()));
  }

  void selections(const std::string& name, const Recorder& recorder,
                  const std::vector<int64_t>& rows) {
    for (const auto& [layer, chosen] : recorder.selections) {
      const std::string item = fmt::format("{}.index_topk.{}", name, layer);
      if (!expected_.has(item)) continue;
      const int64_t width = expected_.shape(item)[1];
      std::vector<int64_t> kept;
      for (const int64_t row : rows) {
        const auto begin = chosen.begin() + row * recorder.selection_width;
        kept.insert(kept.end(), begin, begin + width);
      }
      equal(item, kept, expected_.integers(item), static_cast<int64_t>(rows.size()));
    }
  }

  void modules(const std::string& name, const Recorder& recorder, int64_t rows) {
    for (const auto& [module, values] : recorder.modules) {
      if (expected_.has(name + "." + module)) close(name + "." + module, values, rows);
    }
    const std::string item = name + ".main_hidden";
    if (!expected_.has(item)) return;
    const int64_t width = model_.text().hidden_size;
    Values joined;
    for (int64_t row = 0; row < rows; ++row) {
      for (const int64_t layer : model_.text().dspark_target_layer_ids) {
        const Values& tap = recorder.taps.at(layer);
        joined.insert(joined.end(), tap.begin() + row * width, tap.begin() + (row + 1) * width);
      }
    }
    close(item, joined, rows);
  }

  int32_t best(const Values& logits) const {
    const auto last = logits.end() - model_.text().vocab_size;
    return static_cast<int32_t>(std::max_element(last, logits.end()) - last);
  }

  // Plain greedy decoding of the drafting prompt.
  void greedy() {
    if (!selected("spec.greedy")) return;
    const std::vector<int64_t> wanted = expected_.integers("spec.greedy");
    std::vector<int32_t> next = expected_.ids("spec.ids");
    auto sequence = session_.new_sequence();
    std::vector<int64_t> tokens;
    while (tokens.size() < wanted.size()) {
      const int32_t token = best(session_.run(*sequence, next, model::Want::kLast));
      tokens.push_back(token);
      next = {token};
    }
    if (oracle_) {
      equal("spec.greedy", tokens, wanted, static_cast<int64_t>(wanted.size()));
    } else {
      // One near-tie that tips changes everything after it: reported, not judged.
      Item item;
      item.name = "spec.greedy";
      item.rows = static_cast<int64_t>(wanted.size());
      const auto [mine, theirs] = std::ranges::mismatch(tokens, wanted);
      item.agreement = fmt::format("{}/{}", mine - tokens.begin(), wanted.size());
      item.bound = "exact at the oracle level only";
      add(std::move(item));
    }
  }

  // Decoder bounded replay of a prompt, then ordinary greedy steps.
  void replay() {
    const std::vector<int32_t> prompt = expected_.ids("replay.ids");
    const std::vector<int64_t> wanted = expected_.integers("replay.greedy");
    if (!selected("replay.")) return;
    auto sequence = session_.new_sequence();
    sequence->begin_prefill();
    model::Segment segment;
    segment.sequence = sequence.get();
    segment.tokens = prompt;
    segment.want = model::Want::kAll;
    segment.bounded = true;
    const Values logits = session_.run(segment);
    const int64_t rows = session_.forward().wanted_rows();
    equal("replay.start", std::vector<int64_t>{sequence->decoder_window_start},
          expected_.integers("replay.start"), 1);
    if (oracle_) {
      close("replay.logits", logits, rows);
    } else {
      noisy("replay.logits", "replay", logits, rows);
    }
    std::vector<int64_t> tokens{best(logits)};
    Values steps;
    while (tokens.size() < wanted.size()) {
      // A fast level follows the golden tokens, so that one near-tie does not end the comparison.
      const int32_t next = oracle_ ? static_cast<int32_t>(tokens.back())
                                   : static_cast<int32_t>(wanted[tokens.size() - 1]);
      const Values row = session_.run(*sequence, std::vector<int32_t>{next}, model::Want::kLast);
      tokens.push_back(best(row));
      steps.insert(steps.end(), row.begin(), row.end());
    }
    if (oracle_) {
      equal("replay.greedy", tokens, wanted, static_cast<int64_t>(wanted.size()));
      close("replay.step_logits", steps, static_cast<int64_t>(wanted.size()) - 1);
    } else {
      noisy("replay.step_logits", "replay", steps, static_cast<int64_t>(wanted.size()) - 1);
    }
  }

  // The text side of an image prompt: the golden embeddings stand in for the vision tower.
  void image(const std::string& name) {
    if (!oracle_ && !selected(name)) return;
    const std::vector<int32_t> ids = expected_.ids(name + ".ids");
    const std::vector<int64_t> types = expected_.integers(name + ".types");
    const Values embeds = expected_.floats(name + ".embeds");
    const int64_t dim = model_.text().hidden_size;
    std::vector<bf16> rows(embeds.size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = to_bf16(embeds[i]);
    std::vector<model::RowKind> kinds;
    std::vector<const bf16*> sources;
    int64_t next = 0;
    const model::Weights& weights = model_.weights();
    for (const int64_t type : types) {
      kinds.push_back(type < 0 ? model::RowKind::kText : model::RowKind::kImage);
      sources.push_back(type == 0   ? weights.image_start
                        : type == 1 ? rows.data() + dim * next++
                        : type == 2 ? weights.image_newline
                        : type == 3 ? weights.image_end
                                    : nullptr);
    }
    Recorder recorder(nullptr, name);
    recorder.tap_width = dim;
    auto sequence = session_.new_sequence();
    model::Segment segment;
    segment.sequence = sequence.get();
    segment.tokens = ids;
    segment.want = model::Want::kAll;
    segment.kinds = kinds;
    segment.embeddings = sources;
    const Values logits = session_.run(segment, &recorder);
    const int64_t count = static_cast<int64_t>(ids.size());
    equal(name + ".engram_hash", recorder.hash, expected_.integers(name + ".engram_hash"), count);
    if (oracle_) {
      close(name + ".logits", logits, count);
    } else {
      noisy(name + ".logits", name, logits, count);
    }
  }

  // What the folder holds and this build does not compute yet.
  void not_run() {
    for (const std::string& name : expected_.names()) {
      const std::string tail = name.substr(name.rfind('.') + 1);
      if (tail == "ids" || tail == "rows" || tail == "types" || done_.contains(name)) continue;
      if (!oracle_ && (name.find(".index_topk.") != std::string::npos || tail == "normed" ||
                       tail == "greedy")) {
        continue;  // compared at the oracle level only: it compounds
      }
      if (!selected(name)) continue;
      Item item;
      item.name = name;
      item.bound = "not yet computed by this build";
      report_.items.push_back(std::move(item));
    }
  }

  std::filesystem::path folder_;
  const Options& options_;
  const model::Model& model_;
  Session& session_;
  const Expected& expected_;
  bool oracle_;
  std::set<std::string> done_;
  Report report_;
};

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "pass";
    case Verdict::kFail:
      return "FAIL";
    case Verdict::kNotRun:
      return "not run";
  }
  return "";
}

}  // namespace

int64_t Report::failed() const { return std::ranges::count(items, Verdict::kFail, &Item::verdict); }

Result<Report> run(const std::filesystem::path& folder, const Options& options) {
  CEDRA_ASSIGN(const Expected expected, Expected::load(folder));
  CEDRA_ASSIGN(const std::unique_ptr<model::Model> model, load_model(folder));
  SessionOptions session_options;
  session_options.isa = options.isa;
  session_options.threads = options.threads;
  session_options.sequences = 2;
  CEDRA_ASSIGN(const std::unique_ptr<Session> session, Session::create(*model, session_options));
  return Runner(folder, options, *model, *session, expected).run();
}

std::string to_text(const Report& report) {
  std::string text =
      fmt::format("level {}\n{:32} {:>6} {:>10} {:>10} {:>9}  {:8} {}\n", report.level, "item",
                  "rows", "worst", "median", "agree", "verdict", "bound");
  int64_t passed = 0;
  int64_t open = 0;
  for (const Item& item : report.items) {
    text += fmt::format("{:32} {:>6} {:>10.3g} {:>10.3g} {:>9}  {:8} {}\n", item.name, item.rows,
                        item.worst, item.median, item.agreement, verdict_name(item.verdict),
                        item.bound);
    passed += item.verdict == Verdict::kPass;
    open += item.verdict == Verdict::kNotRun;
  }
  text += fmt::format("{} passed, {} failed, {} not run\n", passed, report.failed(), open);
  return text;
}

std::string to_json(const Report& report) {
  nlohmann::ordered_json document;
  document["level"] = report.level;
  document["failed"] = report.failed();
  for (const Item& item : report.items) {
    document["items"].push_back({{"name", item.name},
                                 {"rows", item.rows},
                                 {"worst", item.worst},
                                 {"median", item.median},
                                 {"agreement", item.agreement},
                                 {"bound", item.bound},
                                 {"verdict", verdict_name(item.verdict)}});
  }
  return document.dump(2);
}

}  // namespace cedra::golden

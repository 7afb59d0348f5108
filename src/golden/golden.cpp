#include "golden/golden.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ranges>

#include "golden/expected.h"
#include "golden/image_items.h"
#include "golden/judge.h"
#include "golden/recorder.h"
#include "golden/session.h"
#include "text/tokenizer.h"

namespace cedra::golden {
namespace {

class Runner {
 public:
  Runner(std::filesystem::path folder, const Options& options, const model::Model& model,
         Session& session, const Expected& expected)
      : folder_(std::move(folder)),
        model_(model),
        session_(session),
        expected_(expected),
        judge_(expected, session.ops().name, options.only),
        oracle_(judge_.oracle()) {}

  Result<Report> run() {
    CEDRA_TRY(token_map());
    for (const std::string& name : expected_.numbered("seq")) sequence(name);
    if (expected_.has("spec.greedy")) greedy();
    for (const std::string name : {"spec", "spec_short"}) {
      if (expected_.has(name + ".draft_ids")) drafts(name);
    }
    if (expected_.has("replay.ids")) replay();
    for (const std::string& name : expected_.numbered("image")) {
      CEDRA_TRY(image_items(judge_, session_, expected_, folder_, name));
    }
    not_run();
    return judge_.take();
  }

 private:
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
    judge_.equal("engram_token_map", map.map, wanted, static_cast<int64_t>(wanted.size()));
    judge_.equal("engram_token_map.size", std::vector<int64_t>{map.size},
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
    auto sequence = session_.new_sequence();
    const Values logits = session_.run(*sequence, ids, model::Want::kAll, &recorder);
    const int64_t kept = static_cast<int64_t>(rows.size());
    judge_.noisy(name + ".logits", name, pick(logits, rows, vocab), kept);
    if (expected_.has(name + ".engram_hash")) {
      judge_.equal(name + ".engram_hash", recorder.hash, expected_.integers(name + ".engram_hash"),
                   static_cast<int64_t>(ids.size()));
    }
    if (oracle_) selections(name, recorder, rows);
    if (!with_layers) return;
    if (oracle_) {
      Values normed(
          static_cast<size_t>(session_.forward().wanted_rows() * model_.text().hidden_size));
      for (size_t i = 0; i < normed.size(); ++i)
        normed[i] = to_float(session_.forward().normed(0)[i]);
      judge_.close(name + ".normed", normed, static_cast<int64_t>(ids.size()));
      modules(name, recorder, static_cast<int64_t>(ids.size()));
      return;
    }
    // Module by module: every layer is fed the golden output of the layer before, so nothing
    // compounds.
    Recorder forced(&expected_, name);
    auto fresh = session_.new_sequence();
    session_.run(*fresh, ids, model::Want::kAll, &forced);
    modules(name, forced, static_cast<int64_t>(ids.size()));
  }

  void selections(const std::string& name, const Recorder& recorder,
                  const std::vector<int64_t>& rows) {
    for (const auto& [layer, chosen] : recorder.selections) {
      const std::string item = fmt::format("{}.index_topk.{}", name, layer);
      if (!expected_.has(item)) continue;
      // As wide as the last row's selection can be; what lies behind is -1 on our side.
      const int64_t width = std::max(expected_.shape(item)[1], widest(chosen, recorder));
      std::vector<int64_t> kept;
      for (const int64_t row : rows) {
        const auto begin = chosen.begin() + row * recorder.selection_width;
        kept.insert(kept.end(), begin, begin + width);
      }
      judge_.equal(item, kept, expected_.integers(item), static_cast<int64_t>(rows.size()));
    }
  }

  // Columns of a selection that hold a row anywhere.
  static int64_t widest(const std::vector<int32_t>& chosen, const Recorder& recorder) {
    int64_t most = 0;
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (chosen[i] < 0) continue;
      most = std::max(most, static_cast<int64_t>(i) % recorder.selection_width + 1);
    }
    return most;
  }

  void modules(const std::string& name, const Recorder& recorder, int64_t rows) {
    for (const auto& [module, values] : recorder.modules) {
      if (expected_.has(name + "." + module)) judge_.close(name + "." + module, values, rows);
    }
    const std::string item = name + ".main_hidden";
    if (!expected_.has(item)) return;
    const model::Taps taps = session_.forward().taps(0);
    Values joined(static_cast<size_t>(taps.count * tap_width()));
    for (size_t i = 0; i < joined.size(); ++i) joined[i] = to_float(taps.rows[i]);
    judge_.close(item, joined, rows);
  }

  int64_t tap_width() const {
    const TextConfig& text = model_.text();
    return static_cast<int64_t>(text.dspark_target_layer_ids.size()) * text.hidden_size;
  }

  int32_t best(const Values& logits) const {
    const auto last = logits.end() - model_.text().vocab_size;
    return static_cast<int32_t>(std::max_element(last, logits.end()) - last);
  }

  // Plain greedy decoding of the drafting prompt.
  void greedy() {
    if (!judge_.selected("spec.greedy")) return;
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
      judge_.equal("spec.greedy", tokens, wanted, static_cast<int64_t>(wanted.size()));
    } else {
      // One near-tie that tips changes everything after it: reported, not judged.
      Item item;
      item.name = "spec.greedy";
      item.rows = static_cast<int64_t>(wanted.size());
      const auto [mine, theirs] = std::ranges::mismatch(tokens, wanted);
      item.agreement = fmt::format("{}/{}", mine - tokens.begin(), wanted.size());
      item.bound = "exact at the oracle level only";
      judge_.add(std::move(item));
    }
  }

  // Takes the golden draft tokens, so that one near-tie does not end the comparison, and keeps
  // those that the arg-max would have taken.
  class GoldenChooser : public model::DraftChooser {
   public:
    explicit GoldenChooser(std::span<const int64_t> golden) : golden_(golden) {}
    int32_t choose(int64_t, int64_t slot, std::span<const float> logits) override {
      chosen.push_back(std::ranges::max_element(logits) - logits.begin());
      return static_cast<int32_t>(golden_[static_cast<size_t>(slot)]);
    }
    std::vector<int64_t> chosen;

   private:
    std::span<const int64_t> golden_;
  };

  // A draft after the prompt and after every golden token that follows.
  void drafts(const std::string& name) {
    if (!judge_.group_selected(name + ".")) return;
    const std::vector<int64_t> wanted = expected_.integers(name + ".draft_ids");
    const std::vector<int64_t> shape = expected_.shape(name + ".draft_ids");
    const int64_t width = shape[1] - 1;
    auto sequence = session_.new_sequence();
    model::DraftState state(model_.text());
    model::Drafter& drafter = *session_.drafter();
    std::vector<int32_t> next = expected_.ids(name + ".ids");
    std::vector<int64_t> tokens;
    Values logits;
    Values confidence;
    for (int64_t step = 0; step < shape[0]; ++step) {
      const int32_t token = best(session_.run(*sequence, next, model::Want::kLast));
      drafter.commit(std::vector<model::DraftCommit>{{&state, session_.forward().taps(0)}});
      const std::span<const int64_t> golden =
          std::span(wanted).subspan(static_cast<size_t>(step * shape[1]), shape[1]);
      const int32_t anchor = oracle_ ? token : static_cast<int32_t>(golden[0]);
      GoldenChooser chooser(golden.subspan(1));
      drafter.propose(std::vector<model::DraftRequest>{{&state, anchor, width}},
                      oracle_ ? nullptr : &chooser);
      const model::Draft draft = drafter.draft(0);
      tokens.push_back(token);
      if (oracle_) {
        tokens.insert(tokens.end(), draft.tokens.begin(), draft.tokens.end());
      } else {
        tokens.insert(tokens.end(), chooser.chosen.begin(), chooser.chosen.end());
      }
      logits.insert(logits.end(), draft.logits, draft.logits + width * model_.text().vocab_size);
      confidence.insert(confidence.end(), draft.confidence.begin(), draft.confidence.end());
      next = {anchor};
    }
    judge_.noisy(name + ".draft_logits", name, logits, shape[0] * width);
    judge_.noisy(name + ".confidence", name, confidence, shape[0]);
    if (oracle_) {
      judge_.equal(name + ".draft_ids", tokens, wanted, shape[0]);
    } else {
      int64_t same = 0;
      for (size_t i = 0; i < tokens.size(); ++i) same += tokens[i] == wanted[i];
      judge_.add({.name = name + ".draft_ids",
                  .rows = shape[0],
                  .agreement = fmt::format("{}/{}", same, tokens.size()),
                  .bound = "exact at the oracle level only"});
    }
  }

  // Decoder bounded replay of a prompt, then ordinary greedy steps.
  void replay() {
    const std::vector<int32_t> prompt = expected_.ids("replay.ids");
    const std::vector<int64_t> wanted = expected_.integers("replay.greedy");
    if (!judge_.group_selected("replay.")) return;
    auto sequence = session_.new_sequence();
    sequence->begin_prefill();
    model::Segment segment;
    segment.sequence = sequence.get();
    segment.tokens = prompt;
    segment.want = model::Want::kAll;
    segment.bounded = true;
    const Values logits = session_.run(segment);
    const int64_t rows = session_.forward().wanted_rows();
    judge_.equal("replay.start", std::vector<int64_t>{sequence->decoder_window_start},
                 expected_.integers("replay.start"), 1);
    if (oracle_) {
      judge_.close("replay.logits", logits, rows);
    } else {
      judge_.noisy("replay.logits", "replay", logits, rows);
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
      judge_.equal("replay.greedy", tokens, wanted, static_cast<int64_t>(wanted.size()));
      judge_.close("replay.step_logits", steps, static_cast<int64_t>(wanted.size()) - 1);
    } else {
      judge_.noisy("replay.step_logits", "replay", steps, static_cast<int64_t>(wanted.size()) - 1);
    }
  }

  // What the folder holds and this build does not compute yet.
  void not_run() {
    for (const std::string& name : expected_.names()) {
      const std::string tail = name.substr(name.rfind('.') + 1);
      if (tail == "ids" || tail == "rows" || tail == "types" || judge_.done(name)) continue;
      if (!oracle_ && (name.find(".index_topk.") != std::string::npos || tail == "normed" ||
                       tail == "greedy" || tail == "draft_ids")) {
        continue;  // compared at the oracle level only: it compounds
      }
      if (!judge_.selected(name)) continue;
      Item item;
      item.name = name;
      item.bound = "not yet computed by this build";
      judge_.add(std::move(item));
    }
  }

  std::filesystem::path folder_;
  const model::Model& model_;
  Session& session_;
  const Expected& expected_;
  Judge judge_;
  bool oracle_;
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
  CEDRA_TRY(expected.check_inputs(model->text().vocab_size));
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

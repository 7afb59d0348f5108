#include "synth/tokenizer_file.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "synth/counter_random.h"
#include "text/special_tokens.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_split.h"
#include "text/utf8.h"

namespace cedra::synth {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kEarly = {text::kBosText, text::kEosText, text::kPadText};
constexpr std::array kLate = {text::kSystemText,         text::kFimHoleText,  text::kFimBeginText,
                              text::kFimEndText,         text::kUserText,     text::kAssistantText,
                              text::kThinkText,          text::kEndThinkText, text::kDsmlText,
                              text::kLatestReminderText, text::kActionText,   text::kQueryText,
                              text::kAuthorityText,      text::kDomainText,   text::kTitleText,
                              text::kReadUrlText,        text::kImageText};
constexpr size_t kLongestToken = 24;  // bytes of a merged token

struct Merges {
  std::vector<std::string> tokens;
  std::vector<std::string> pairs;  // "left right"
};

// Random pairs of what there is, every result new. Letters and the space are drawn more often.
Merges random_merges(const std::vector<std::string>& bytes, size_t count, uint64_t seed) {
  Merges out;
  std::unordered_set<std::string> known(bytes.begin(), bytes.end());
  std::vector<std::string> pool = bytes;
  std::string space;
  text::append_code_point(text::alphabet_of_byte(' '), &space);
  for (int copy = 0; copy < 8; ++copy) {
    for (const char letter : std::string_view("etaoinshrdluETAOIN")) pool.emplace_back(1, letter);
    pool.push_back(space);
  }
  const uint64_t key = stream_key(seed, "tokenizer");
  for (uint64_t draw = 0; out.pairs.size() < count; ++draw) {
    const uint64_t word = random_word(key, draw);
    const std::string& left = pool[static_cast<uint32_t>(word) % pool.size()];
    const std::string& right = pool[(word >> 32) % pool.size()];
    std::string joined = left + right;
    if (joined.size() > kLongestToken || !known.insert(joined).second) continue;
    out.pairs.push_back(left + " " + right);
    out.tokens.push_back(joined);
    pool.push_back(std::move(joined));
  }
  return out;
}

Json added_token(int64_t id, std::string_view content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

Json split(std::string_view pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

Json byte_level(bool prefix_space, bool trim_offsets, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", prefix_space},
          {"trim_offsets", trim_offsets},
          {"use_regex", use_regex}};
}

}  // namespace

int64_t first_late_token(int64_t vocab) { return vocab - static_cast<int64_t>(kLate.size()); }

int64_t image_token(int64_t vocab) { return vocab - 1; }

std::string tokenizer_file(int64_t vocab, uint64_t seed) {
  std::vector<std::string> bytes(256);
  for (size_t byte = 0; byte < bytes.size(); ++byte) {
    text::append_code_point(text::alphabet_of_byte(static_cast<unsigned char>(byte)), &bytes[byte]);
  }
  const auto merged = static_cast<size_t>(first_late_token(vocab)) - kEarly.size() - bytes.size();
  const Merges merges = random_merges(bytes, merged, seed);

  Json added = Json::array();
  Json ids = Json::object();
  int64_t next = 0;
  for (const std::string_view token : kEarly) {
    added.push_back(added_token(next, token, true));
    ids[std::string(token)] = next++;
  }
  // Straight into the list of pairs that an ordered object is: its operator[] searches linearly.
  auto& entries = ids.get_ref<Json::object_t&>();
  for (const std::string& token : bytes) entries.emplace_back(token, next++);
  for (const std::string& token : merges.tokens) entries.emplace_back(token, next++);
  for (const std::string_view token : kLate) added.push_back(added_token(next++, token, false));

  const Json root = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", std::move(added)},
      {"normalizer", {{"type", "Sequence"}, {"normalizers", Json::array()}}},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers",
         {split(text::kSplitNumbers), split(text::kSplitHanKana), split(text::kSplitWords),
          byte_level(false, true, false)}}}},
      {"post_processor", byte_level(true, false, true)},
      {"decoder", byte_level(true, true, true)},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"vocab", std::move(ids)},
        {"merges", merges.pairs}}},
  };
  return root.dump() + "\n";
}

}  // namespace cedra::synth

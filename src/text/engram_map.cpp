// The compressed token map of Engram: ids whose text differs only in case, accents or spacing share
// a number (spec model.md 5.1). Unicode data: utf8proc.
#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <unordered_map>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace cedra::text {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_mark(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

// utf8proc_map on text that may hold NUL. Empty if utf8proc refuses it, which well-formed UTF-8
// never makes it do.
std::string map_text(std::string_view text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                   static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (length < 0) return {};
  return {reinterpret_cast<const char*>(mapped), static_cast<size_t>(length)};
}

// N of model.md 5.1, step by step.
std::string normalise(std::string_view text) {
  const std::string composed = map_text(text, UTF8PROC_COMPAT | UTF8PROC_COMPOSE);
  const std::string decomposed = map_text(composed, UTF8PROC_DECOMPOSE);
  std::u32string out;
  for (size_t i = 0; i < decomposed.size();) {
    const DecodedChar c = decode_char(decomposed, i);
    i += c.length;
    if (is_mark(c.code_point)) continue;
    // Simple mapping per code point: after NFD no character needs another one.
    const auto lower =
        static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code_point)));
    const bool plain_space = lower == ' ' || lower == '\t' || lower == '\r' || lower == '\n';
    if (!plain_space) {
      out.push_back(lower);
    } else if (out.empty() || out.back() != U' ') {
      out.push_back(U' ');  // a run of the four becomes one space
    }
  }
  std::string result;
  if (out == U" ") return " ";  // a lone space survives the strip below
  size_t begin = 0, end = out.size();
  while (begin < end && is_white_space(out[begin])) ++begin;
  while (begin < end && is_white_space(out[end - 1])) --end;
  for (size_t i = begin; i < end; ++i) {
    // The published rule parks a lone space on U+E000 and turns every U+E000 into a space.
    append_code_point(out[i] == 0xE000 ? U' ' : out[i], &result);
  }
  return result;
}

}  // namespace

CompressedTokenMap compressed_token_map(const Tokenizer& tokenizer, int64_t vocab_size) {
  CompressedTokenMap result;
  result.map.reserve(static_cast<size_t>(vocab_size));
  std::unordered_map<std::string, int32_t> numbers;
  std::string text;
  for (int64_t id = 0; id < vocab_size; ++id) {
    const auto token = static_cast<int32_t>(id);
    text.clear();
    append_lossy(tokenizer.token_bytes(token), &text);
    std::string key;
    if (text.find(kReplacement) != std::string::npos) {
      key = tokenizer.token_string(token);
    } else {
      key = normalise(text);
      if (key.empty()) key = text;
    }
    const auto next = static_cast<int32_t>(numbers.size());
    result.map.push_back(numbers.emplace(std::move(key), next).first->second);
  }
  result.size = static_cast<int64_t>(numbers.size());
  return result;
}

}  // namespace cedra::text

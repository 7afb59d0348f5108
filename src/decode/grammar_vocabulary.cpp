#include "decode/grammar_vocabulary.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "text/special_tokens.h"

namespace cedra::decode {
namespace {

size_t common_prefix(std::string_view a, std::string_view b) {
  const size_t size = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(size), b.begin()).first -
      a.begin());
}

TokenTrie make_trie(const Vocabulary& vocabulary) {
  std::vector<int32_t> ids(static_cast<size_t>(vocabulary.size()));
  std::iota(ids.begin(), ids.end(), 0);
  std::erase_if(ids, [&](int32_t id) { return vocabulary.bytes(id).empty(); });
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return vocabulary.bytes(a) < vocabulary.bytes(b); });
  TokenTrie trie;
  std::vector<size_t> open;  // nodes from the root to the last one
  const auto close = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      trie.nodes[open.back()].after = static_cast<int32_t>(trie.nodes.size());
    }
  };
  std::string_view last;
  for (const int32_t id : ids) {
    const std::string_view bytes = vocabulary.bytes(id);
    const size_t shared = common_prefix(last, bytes);
    close(shared);
    for (size_t i = shared; i < bytes.size(); ++i) {
      open.push_back(trie.nodes.size());
      trie.nodes.push_back({.after = 0,
                            .first_token = static_cast<int32_t>(trie.tokens.size()),
                            .depth = static_cast<uint16_t>(i + 1),
                            .byte = static_cast<uint8_t>(bytes[i])});
    }
    trie.tokens.push_back(id);
    trie.max_depth = std::max(trie.max_depth, static_cast<int64_t>(bytes.size()));
    last = bytes;
  }
  close(0);
  trie.nodes.push_back(
      {.after = 0, .first_token = static_cast<int32_t>(trie.tokens.size()), .depth = 0, .byte = 0});
  return trie;
}

}  // namespace

Result<std::shared_ptr<const Vocabulary>> Vocabulary::create(const text::Tokenizer& tokenizer) {
  constexpr size_t kLongestToken = 1024;  // bytes; a longer one is never needed
  CEDRA_ASSIGN(const text::SpecialTokens special, text::SpecialTokens::find(tokenizer));
  auto out = std::make_shared<Vocabulary>();
  std::vector<uint8_t> added(static_cast<size_t>(tokenizer.size()), 0);
  for (const text::AddedToken& token : tokenizer.added_tokens()) {
    added[static_cast<size_t>(token.id)] = 1;
  }
  std::array<bool, 256> has_byte{};
  out->begin_.push_back(0);
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    std::string_view bytes = tokenizer.token_bytes(id);
    const bool foreign =
        std::ranges::any_of(bytes, [](char c) { return static_cast<uint8_t>(c) >= kFirstSymbol; });
    if (added[static_cast<size_t>(id)] != 0 || foreign || bytes.size() > kLongestToken) bytes = {};
    if (bytes.size() == 1) has_byte[static_cast<uint8_t>(bytes.front())] = true;
    out->bytes_ += bytes;
    if (id == special.end_think) out->bytes_ += static_cast<char>(kThinkEndSymbol);
    if (id == special.dsml) out->bytes_ += static_cast<char>(kDsmlSymbol);
    out->begin_.push_back(static_cast<uint32_t>(out->bytes_.size()));
  }
  for (size_t byte = 0; byte < kFirstSymbol; ++byte) {
    if (byte == 0xC0 || byte == 0xC1 || has_byte[byte]) continue;
    return err(Code::kInvalid,
               "the tokenizer has no token for the single byte 0x{:02X}; structured outputs need "
               "one for every byte of UTF-8",
               byte);
  }
  out->trie_ = make_trie(*out);
  return out;
}

}  // namespace cedra::decode

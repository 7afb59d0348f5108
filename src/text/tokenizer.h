// tokenizer.json of the official kind (spec chat.md 1): added tokens leftmost-longest, three
// isolating splits, byte-level BPE by merge rank. Linear time on any input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cedra::text {

// One stretch of a prompt. Template text may contain added tokens; text that came from a client
// may not (chat.md 2.13). Neighbouring stretches are joined before splitting and merging.
struct Segment {
  std::string text;
  bool trusted = false;  // true: added tokens are recognised inside
};

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;  // hidden by skip-special-tokens on decode
};

class Tokenizer {
 public:
  // Errors name what is wrong in the file and where.
  static Result<Tokenizer> parse(std::string_view tokenizer_json);
  static Result<Tokenizer> load(const std::filesystem::path& file_or_folder);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Number of ids: largest id + 1.
  int64_t size() const;
  std::span<const AddedToken> added_tokens() const;
  // Id of an added token by its exact text, or nullopt.
  std::optional<int32_t> added_id(std::string_view content) const;
  // True for an added token that skip_special hides.
  bool is_special(int32_t id) const;
  // Exact vocabulary entry in byte-alphabet spelling ("\u0120the"), or added token; "" if
  // unassigned.
  std::string_view token_string(int32_t id) const;
  // Bytes that the id stands for ("" if unassigned).
  std::string_view token_bytes(int32_t id) const;

  // Texts are below 4 GiB (the server's limit is far lower). All of these may be called from
  // several threads at once.
  // Whole text with added tokens recognised everywhere. Bytes that are not UTF-8 are kept: they are
  // split like control characters, and decode() gives U+FFFD for them.
  std::vector<int32_t> encode(std::string_view text) const;
  // No added token is recognised.
  std::vector<int32_t> encode_plain(std::string_view text) const;
  // Added tokens only inside trusted segments; all text joined before splits and merges.
  std::vector<int32_t> encode(std::span<const Segment> segments) const;

  // Whole sequence to text; invalid UTF-8 becomes U+FFFD. Unknown ids give nothing.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Streaming decode: bytes of an incomplete UTF-8 sequence (at most 3) are held back until the next
// token completes them; finish() gives the rest as U+FFFD.
class IncrementalDecoder {
 public:
  explicit IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special = false);
  std::string push(int32_t id);  // text that became complete
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;
};

// Compressed token map of Engram (spec model.md 5.1): map[id] for id < vocab_size, and the number
// of distinct keys.
struct CompressedTokenMap {
  std::vector<int32_t> map;
  int64_t size = 0;
};
CompressedTokenMap compressed_token_map(const Tokenizer& tokenizer, int64_t vocab_size);

}  // namespace cedra::text

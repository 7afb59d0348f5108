// tokenizer.json as a plain description, checked: everything in the file that would change a result
// is either understood here or refused by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cedra::text {

struct AddedTokenEntry {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;  // matched after the others, in what they leave
};

struct TokenizerFile {
  struct Merge {
    int32_t left = 0;
    int32_t right = 0;
    int32_t result = 0;
  };
  std::vector<std::string> vocab;  // by id, byte-alphabet spelling; "" where no id is assigned
  std::vector<Merge> merges;       // in rank order
  std::vector<AddedTokenEntry> added;
};

// Largest file, number of ids and length of one token that parse_tokenizer_file accepts. The
// released file has 7.5 MiB, 129280 ids and 256 bytes.
inline constexpr size_t kMaxTokenizerBytes = size_t{64} << 20;
inline constexpr int64_t kMaxTokenIds = int64_t{1} << 20;
inline constexpr size_t kMaxTokenBytes = 4096;

Result<TokenizerFile> parse_tokenizer_file(std::string_view json);

// Byte of a character of the GPT-2 byte alphabet, or -1: printable Latin-1 stands for itself, the
// other bytes for U+0100 onwards in byte order.
int byte_of_alphabet(char32_t code_point);
// The inverse.
char32_t alphabet_of_byte(unsigned char byte);

}  // namespace cedra::text

// encode_ids TOKENIZER: reads records from stdin (u32 little-endian length, then that many bytes of
// text) and writes for each the ids to stdout (u32 count, then i32 ids), for comparison with
// another tokenizer (oracle.mjs).
#include <cstdio>
#include <string>

#include "text/tokenizer.h"

namespace {

bool read_all(void* data, size_t size) { return std::fread(data, 1, size, stdin) == size; }
bool write_all(const void* data, size_t size) { return std::fwrite(data, 1, size, stdout) == size; }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: encode_ids TOKENIZER_JSON < records > ids\n");
    return 2;
  }
  const auto tokenizer = cedra::text::Tokenizer::load(argv[1]);
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  for (uint32_t length = 0; read_all(&length, sizeof length);) {
    std::string text(length, '\0');
    if (!read_all(text.data(), length)) {
      std::fprintf(stderr, "the last record ends early\n");
      return 1;
    }
    const auto ids = tokenizer->encode(text);
    if (tokenizer->decode(ids) != text) {
      std::fprintf(stderr, "decode(encode(text)) is not the text\n");
      return 1;
    }
    const auto count = static_cast<uint32_t>(ids.size());
    if (!write_all(&count, sizeof count) || !write_all(ids.data(), ids.size() * sizeof(int32_t))) {
      std::fprintf(stderr, "cannot write\n");
      return 1;
    }
  }
  return 0;
}

// Foreign bytes as tokenizer.json. The first byte says how much of the input is text; the rest is
// the file. What loads must keep every byte of the text, and decode the same at once and piecemeal.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "text/special_tokens.h"
#include "text/tokenizer.h"

namespace {

using cedra::text::Tokenizer;

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode(text);
  std::string bytes;
  for (const int32_t id : ids) bytes += tokenizer.token_bytes(id);
  require(bytes == text);
  cedra::text::IncrementalDecoder decoder(tokenizer);
  std::string streamed;
  for (const int32_t id : ids) streamed += decoder.push(id);
  streamed += decoder.finish();
  require(streamed == tokenizer.decode(ids));

  const size_t cut = text.size() / 2;
  const std::vector<cedra::text::Segment> segments = {{std::string(text.substr(0, cut)), true},
                                                      {std::string(text.substr(cut)), false}};
  bytes.clear();
  for (const int32_t id : tokenizer.encode(segments)) bytes += tokenizer.token_bytes(id);
  require(bytes == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view text = input.substr(0, data[0]);
  const auto tokenizer = Tokenizer::parse(input.substr(text.size()));
  if (!tokenizer) {
    require(!tokenizer.error().message.empty());
    return 0;
  }
  check(*tokenizer, text);
  check(*tokenizer, "a<think>b \xF0\x9F\x91\x8D\xFF 12345\n\n \xE4\xBD\xA0");
  (void)cedra::text::SpecialTokens::find(*tokenizer);
  (void)cedra::text::compressed_token_map(*tokenizer, tokenizer->size());
  return 0;
}

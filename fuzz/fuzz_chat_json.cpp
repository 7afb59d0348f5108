// Request bodies of all routes to prompts. Any bytes must give a prompt or an error; a prompt
// starts with BOS, and its control tokens are the template's, whatever the body says.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/chat_json.h"
#include "text/markup.h"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

void check_prompt(const cedra::text::Prompt& prompt) {
  namespace markup = cedra::text::markup;
  check(!prompt.segments.empty());
  check(prompt.segments.front().trusted);
  check(prompt.segments.front().text.starts_with(markup::kBos));
  size_t images = 0;
  for (const auto& segment : prompt.segments) {
    check(!segment.text.empty());
    if (segment.trusted && segment.text.find(markup::kImage) != std::string::npos) {
      check(segment.text == markup::kImage);
      check(images < prompt.images.size());
      check(&segment == &prompt.segments[prompt.images[images].segment]);
      ++images;
    }
  }
  check(images == prompt.images.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using cedra::text::Route;
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data + 1), size - 1);
  const Route route = static_cast<Route>(data[0] % 3);
  cedra::text::RequestRules rules;
  rules.hosted = (data[0] & 4) != 0;
  if (const auto prompt = cedra::text::prompt_from_json(body, route, rules)) check_prompt(*prompt);
  return 0;
}

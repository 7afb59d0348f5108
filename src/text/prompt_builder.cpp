// Joins stretches of one kind, and the prompts that need no conversation.
#include "text/prompt_builder.h"

#include "text/markup.h"

namespace cedra::text {

void PromptBuilder::append(std::string_view text, bool trusted) {
  if (text.empty()) return;
  if (closed_ || prompt_.segments.back().trusted != trusted) {
    prompt_.segments.push_back({std::string(text), trusted});
    closed_ = false;
  } else {
    prompt_.segments.back().text += text;
  }
}

void PromptBuilder::image(const ContentPart& part) {
  prompt_.images.push_back({part.text, part.where, part.low_detail, prompt_.segments.size()});
  prompt_.segments.push_back({std::string(markup::kImage), true});
  closed_ = true;
}

std::string Prompt::text() const {
  size_t size = 0;
  for (const Segment& segment : segments) size += segment.text.size();
  std::string out;
  out.reserve(size);
  for (const Segment& segment : segments) out += segment.text;
  return out;
}

Prompt completion_prompt(std::string_view text, bool add_bos) {
  PromptBuilder builder;
  if (add_bos && !text.starts_with(markup::kBos)) builder.trusted(markup::kBos);
  builder.trusted(text);
  return builder.take();
}

Prompt fim_prompt(std::string_view prefix, std::string_view suffix) {
  PromptBuilder builder;
  builder.trusted(markup::kBos);
  builder.trusted(markup::kFimBegin);
  builder.plain(prefix);
  builder.trusted(markup::kFimHole);
  builder.plain(suffix);
  builder.trusted(markup::kFimEnd);
  return builder.take();
}

}  // namespace cedra::text

// Collects the stretches of a prompt: template text and client text apart, images alone.
#pragma once

#include <string>
#include <string_view>

#include "text/chat.h"

namespace cedra::text {

class PromptBuilder {
 public:
  void trusted(std::string_view text) { append(text, true); }
  void plain(std::string_view text) { append(text, false); }
  void image(const ContentPart& part);

  Prompt take() { return std::move(prompt_); }

 private:
  void append(std::string_view text, bool trusted);

  Prompt prompt_;
  bool closed_ = true;  // the last stretch is an image's, or there is none
};

}  // namespace cedra::text

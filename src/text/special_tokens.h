// The control tokens of DeepSeek-V4.1 by role, found by their text in a loaded tokenizer (spec
// chat.md 1.3). Ids differ between checkpoints, spellings do not.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "text/tokenizer.h"

namespace cedra::text {

// -1 = the tokenizer does not have this token (only the ones under "may be missing").
struct SpecialTokens {
  int32_t bos = -1;
  int32_t eos = -1;
  int32_t system = -1;
  int32_t user = -1;
  int32_t assistant = -1;
  int32_t latest_reminder = -1;
  int32_t think = -1;
  int32_t end_think = -1;
  int32_t dsml = -1;
  int32_t image = -1;  // stands for every embedding of an image

  // May be missing.
  int32_t pad = -1;
  int32_t fim_hole = -1;
  int32_t fim_begin = -1;
  int32_t fim_end = -1;
  int32_t action = -1;  // the quick-instruction tasks (chat.md 2.10)
  int32_t query = -1;
  int32_t authority = -1;
  int32_t domain = -1;
  int32_t title = -1;
  int32_t read_url = -1;

  // Refuses a tokenizer that lacks one of the required tokens, and says so if it is one of an
  // earlier model (V3 and V4 have no system token).
  static Result<SpecialTokens> find(const Tokenizer& tokenizer);
};

// The spellings, as the prompt encoder writes them.
inline constexpr std::string_view kBosText = "<\uff5cbegin\u2581of\u2581sentence\uff5c>";
inline constexpr std::string_view kEosText = "<\uff5cend\u2581of\u2581sentence\uff5c>";
inline constexpr std::string_view kPadText = "<\uff5c\u2581pad\u2581\uff5c>";
inline constexpr std::string_view kSystemText = "<\uff5cSystem\uff5c>";
inline constexpr std::string_view kUserText = "<\uff5cUser\uff5c>";
inline constexpr std::string_view kAssistantText = "<\uff5cAssistant\uff5c>";
inline constexpr std::string_view kLatestReminderText = "<\uff5clatest_reminder\uff5c>";
inline constexpr std::string_view kThinkText = "<think>";
inline constexpr std::string_view kEndThinkText = "</think>";
inline constexpr std::string_view kDsmlText = "\uff5cDSML\uff5c";
inline constexpr std::string_view kImageText = "<\uff5cdeepseek_image\uff5c>";
// The vendor toolkit's own copy spells the image token so, with the same id.
inline constexpr std::string_view kImageTextToolkit = "<\uff5cimage\uff5c>";
inline constexpr std::string_view kFimHoleText = "<\uff5cfim\u2581hole\uff5c>";
inline constexpr std::string_view kFimBeginText = "<\uff5cfim\u2581begin\uff5c>";
inline constexpr std::string_view kFimEndText = "<\uff5cfim\u2581end\uff5c>";
inline constexpr std::string_view kActionText = "<\uff5caction\uff5c>";
inline constexpr std::string_view kQueryText = "<\uff5cquery\uff5c>";
inline constexpr std::string_view kAuthorityText = "<\uff5cauthority\uff5c>";
inline constexpr std::string_view kDomainText = "<\uff5cdomain\uff5c>";
inline constexpr std::string_view kTitleText = "<\uff5ctitle\uff5c>";
inline constexpr std::string_view kReadUrlText = "<\uff5cread_url\uff5c>";

}  // namespace cedra::text

// Looking up the control tokens (special_tokens.h).
#include "text/special_tokens.h"

#include <string>

namespace cedra::text {

Result<SpecialTokens> SpecialTokens::find(const Tokenizer& tokenizer) {
  SpecialTokens tokens;
  std::string missing;
  const auto required = [&](std::string_view text, int32_t* id) {
    *id = tokenizer.added_id(text).value_or(-1);
    if (*id < 0) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", text);
  };
  const auto optional = [&](std::string_view text, int32_t* id) {
    *id = tokenizer.added_id(text).value_or(-1);
  };
  required(kBosText, &tokens.bos);
  required(kEosText, &tokens.eos);
  required(kSystemText, &tokens.system);
  required(kUserText, &tokens.user);
  required(kAssistantText, &tokens.assistant);
  required(kLatestReminderText, &tokens.latest_reminder);
  required(kThinkText, &tokens.think);
  required(kEndThinkText, &tokens.end_think);
  required(kDsmlText, &tokens.dsml);
  tokens.image = tokenizer.added_id(kImageTextToolkit).value_or(-1);
  if (tokenizer.added_id(kImageText) || tokens.image < 0) required(kImageText, &tokens.image);
  optional(kPadText, &tokens.pad);
  optional(kFimHoleText, &tokens.fim_hole);
  optional(kFimBeginText, &tokens.fim_begin);
  optional(kFimEndText, &tokens.fim_end);
  optional(kActionText, &tokens.action);
  optional(kQueryText, &tokens.query);
  optional(kAuthorityText, &tokens.authority);
  optional(kDomainText, &tokens.domain);
  optional(kTitleText, &tokens.title);
  optional(kReadUrlText, &tokens.read_url);
  if (missing.empty()) return tokens;
  // The roles of V3 and V4 without a system token: the wrong model's file, not a broken one.
  const bool earlier = tokens.system < 0 && tokens.user >= 0 && tokens.assistant >= 0;
  return err(Code::kUnsupported, "{}: the tokenizer lacks the added token(s) {}",
             earlier ? "this is the tokenizer of DeepSeek-V4 or older, expected the one of V4.1"
                     : "not a DeepSeek-V4.1 tokenizer",
             missing);
}

}  // namespace cedra::text

// The texts of the control tokens that prompts and answers are made of (spec chat.md 1.3, 2, 3).
#pragma once

#include <string_view>

namespace cedra::text::markup {

inline constexpr std::string_view kBos = "<\uff5cbegin\u2581of\u2581sentence\uff5c>";
inline constexpr std::string_view kEos = "<\uff5cend\u2581of\u2581sentence\uff5c>";
inline constexpr std::string_view kSystem = "<\uff5cSystem\uff5c>";
inline constexpr std::string_view kUser = "<\uff5cUser\uff5c>";
inline constexpr std::string_view kAssistant = "<\uff5cAssistant\uff5c>";
inline constexpr std::string_view kReminder = "<\uff5clatest_reminder\uff5c>";
inline constexpr std::string_view kImage = "<\uff5cdeepseek_image\uff5c>";
inline constexpr std::string_view kThink = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
inline constexpr std::string_view kDsml = "\uff5cDSML\uff5c";
inline constexpr std::string_view kFimBegin = "<\uff5cfim\u2581begin\uff5c>";
inline constexpr std::string_view kFimHole = "<\uff5cfim\u2581hole\uff5c>";
inline constexpr std::string_view kFimEnd = "<\uff5cfim\u2581end\uff5c>";

inline constexpr std::string_view kCallsOpen = "<\uff5cDSML\uff5c calls>";
inline constexpr std::string_view kCallsClose = "</\uff5cDSML\uff5c calls>";
inline constexpr std::string_view kInvokeOpen = "<\uff5cDSML\uff5c invoke name=\"";
inline constexpr std::string_view kInvokeClose = "</\uff5cDSML\uff5c invoke>";
inline constexpr std::string_view kParameterOpen = "<\uff5cDSML\uff5c parameter name=\"";
inline constexpr std::string_view kParameterClose = "</\uff5cDSML\uff5c parameter>";

}  // namespace cedra::text::markup

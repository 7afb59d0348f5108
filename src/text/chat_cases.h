// Runs cases of the vectors' formats (tests/data/chat/README.md) and says where one differs. Shared
// by the tests and by `cedra encode|parse|tokenize --check`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/json_value.h"
#include "text/tokenizer.h"

namespace cedra::text {

// How a parse case's text reaches the parser.
struct FeedPlan {
  enum class Kind : uint8_t { kWhole, kPieces, kTwoParts, kRandom };
  Kind kind = Kind::kWhole;
  // kPieces: bytes per piece. kTwoParts: bytes of the first part. kRandom: the seed.
  size_t number = 0;
};
// The pieces of a text under a plan, in order. Joined they are the text.
std::vector<std::string_view> cut(std::string_view text, const FeedPlan& plan);

struct CaseOptions {
  FeedPlan feed;
  // Where ids matter; cases with "ids" or "id_counts" are errors without it.
  const Tokenizer* tokenizer = nullptr;
};

struct CaseReport {
  size_t run = 0;
  struct Difference {
    std::string name;
    std::string text;  // what differs and where
  };
  std::vector<Difference> differences;
};

// A file of cases: a list, or an object whose members are lists. The keys of a case say its kind:
//   messages + prompt    the reference encoder (options: chat_json.h ReferenceCase)
//   path + body + prompt a request and its prompt; hosted rules unless "hosted": false
//   path + body + status + message   a request that is refused
//   path + bodies        requests that must give one and the same prompt
//   text + expect        model text and the message it becomes
//   text + ids           text and its token ids, no added tokens by template
// Optional keys: "warnings" (texts), "images" (sources), "start" (reasoning, content, calls),
// "id_counts" (added token: how often it is in the prompt's ids), "contains_ids" (ids in a row).
Result<CaseReport> check_cases(std::string_view file, const CaseOptions& options);

// One case; "" if it holds, else what differs.
std::string check_case(const JsonValue& test, const CaseOptions& options);

// "" if equal, else the byte offset of the first difference with both sides around it.
std::string first_difference(std::string_view expected, std::string_view actual);

}  // namespace cedra::text

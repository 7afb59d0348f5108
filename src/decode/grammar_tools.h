// Tool calls in the model's markup (spec chat.md 2.8, 3.6): which tools, with which arguments.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "decode/grammar_json.h"
#include "decode/grammar_rules.h"

namespace cedra::decode {

struct GrammarTool {
  std::string name;
  std::string parameters;  // JSON Schema
  // The arguments must be valid under the schema: what it says and cannot be held to is an error.
  // Otherwise they are held to it where that is possible, and to the markup's form in any case.
  bool strict = false;
};

// The calls of a block, from behind its opening tag to its closing one. `most`: 0 = any number.
// Errors name the tool.
Result<NodeId> add_calls(JsonRules& json, const std::vector<GrammarTool>& tools, int most,
                         NodeId from);

}  // namespace cedra::decode

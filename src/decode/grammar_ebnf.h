// Grammars in the EBNF that llama.cpp and XGrammar read: `name ::= ...`, starting at the rule
// "root"; literals, character classes, groups, | * + ? {n,m}, # comments.
#pragma once

#include <string_view>

#include "base/result.h"
#include "decode/grammar_rules.h"

namespace cedra::decode {

// Adds the grammar's rules to `builder` and returns "root". Errors: kInvalid with the line and what
// was expected or which rule is missing, kTooLarge past the depth of groups.
Result<RuleId> add_ebnf(RuleBuilder& builder, std::string_view text);

}  // namespace cedra::decode

// What a request asks its answer to be, and the grammar it becomes (docs/structured_output.md).
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "decode/grammar.h"
#include "decode/grammar_tools.h"
#include "decode/grammar_vocabulary.h"

namespace cedra::decode {

struct GrammarSpec {
  enum class Format : uint8_t { kText, kJsonObject, kJsonSchema, kRegex, kEbnf, kChoice };
  enum class Calls : uint8_t { kNone, kMay, kMust };

  Format format = Format::kText;
  std::string text;                  // the schema, regex or EBNF
  std::vector<std::string> choices;  // kChoice
  std::string where;                 // what errors call it: "response_format.json_schema.schema"

  // Where the answer begins: in its reasoning, which is free up to the token that ends it; or in a
  // block of calls that the prompt has opened. At most one of them.
  bool in_reasoning = false;
  bool in_calls = false;
  std::string prefix;  // what the prompt has of the answer already
  // Chat: the answer's markup is looked for, so nothing may look like it that is none.
  bool markup = false;

  Calls calls = Calls::kNone;      // besides or instead of `format`
  std::vector<GrammarTool> tools;  // that may be called
  int max_calls = 0;               // 0: any number

  // False: any answer will do, there is nothing to compile.
  bool constrains() const;
  // Equal for equal grammars.
  std::string key() const;
};

inline constexpr size_t kMaxGrammarBytes = size_t{1} << 20;  // of source

// kInvalid, kUnsupported, kTooLarge: all the client's to mend; the message names `where`, or the
// tool. Work and memory are bounded by the limits of the parts (RuleBuilder, kMaxDfaStates, ...).
Result<std::shared_ptr<const Grammar>> compile_grammar(
    const GrammarSpec& spec, std::shared_ptr<const Vocabulary> vocabulary);

// The grammars that were used last, so that a request whose grammar is known compiles nothing and
// finds the masks that others have computed. Thread-safe.
class GrammarCache {
 public:
  static constexpr size_t kGrammars = 32;
  static constexpr int64_t kBytes = static_cast<int64_t>(kGrammars) * Grammar::kCacheBytes;

  // `bytes`: of all grammars together, those included that only requests hold. One alone may have
  // more. What answers find out while they are written is noticed with the next new grammar.
  GrammarCache(std::shared_ptr<const Vocabulary> vocabulary, int64_t bytes = kBytes,
               size_t grammars = kGrammars)
      : vocabulary_(std::move(vocabulary)), most_bytes_(bytes), most_(grammars) {}

  // Errors: those of compile_grammar(), and kExhausted while requests under way hold too much.
  Result<std::shared_ptr<const Grammar>> get(const GrammarSpec& spec);
  size_t size() const;
  // Of all grammars that are alive.
  int64_t bytes();

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Grammar> grammar;
  };
  int64_t bytes_alive();  // under the mutex

  std::shared_ptr<const Vocabulary> vocabulary_;
  int64_t most_bytes_;
  size_t most_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the last used first
  std::unordered_map<std::string, std::list<Entry>::iterator> index_;
  std::vector<std::weak_ptr<const Grammar>> alive_;  // and some that are not any more
};

}  // namespace cedra::decode

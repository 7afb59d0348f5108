#include "decode/grammar_compile.h"

#include <algorithm>

#include "decode/grammar_ebnf.h"
#include "decode/grammar_regex.h"
#include "decode/grammar_schema.h"

namespace cedra::decode {
namespace {

constexpr size_t kMaxChoices = 1 << 14;

std::string symbol(uint8_t byte) { return std::string(1, static_cast<char>(byte)); }

// Free text, in which nothing is markup.
void add_text(RuleBuilder& out, NodeId from, NodeId to) {
  add_language(out, from, CharDfa::avoiding(markup_beginnings()), to, Spelling::kText);
}

Result<NodeId> add_format(const GrammarSpec& spec, JsonRules& json, NodeId from) {
  RuleBuilder& out = json.builder();
  const NodeId to = out.node(from);
  switch (spec.format) {
    case GrammarSpec::Format::kText:
      add_text(out, from, to);
      return to;
    case GrammarSpec::Format::kJsonObject:
      return json.object(from);
    case GrammarSpec::Format::kJsonSchema: {
      text::JsonReader reader;
      const Result<text::JsonValue> schema = reader.read(spec.text);
      if (!schema) return wrap(schema.error(), spec.where);
      SchemaCompiler compiler(json, *schema, spec.where);
      return compiler.compile(from);
    }
    case GrammarSpec::Format::kRegex: {
      const Result<CharNfa> nfa = parse_regex(spec.text, false);
      if (!nfa) return wrap(nfa.error(), spec.where);
      const Result<> added = add_regex(out, from, *nfa, to, Spelling::kText);
      if (!added) return wrap(added.error(), spec.where);
      return to;
    }
    case GrammarSpec::Format::kEbnf: {
      const Result<RuleId> root = add_ebnf(out, spec.text);
      if (!root) return wrap(root.error(), spec.where);
      return out.call(from, *root);
    }
    case GrammarSpec::Format::kChoice:
      break;
  }
  if (spec.choices.empty() || spec.choices.size() > kMaxChoices) {
    return err(Code::kInvalid, "{} must hold 1 to {} texts, got {}", spec.where, kMaxChoices,
               spec.choices.size());
  }
  for (const std::string& choice : spec.choices) {
    if (!is_utf8(choice))
      return err(Code::kInvalid, "{} holds a text that is not UTF-8", spec.where);
  }
  out.one_of(from, spec.choices, to);
  return to;
}

}  // namespace

bool GrammarSpec::constrains() const {
  if (format != Format::kText || calls == Calls::kMust) return true;
  return calls == Calls::kMay && std::ranges::any_of(tools, &GrammarTool::strict);
}

std::string GrammarSpec::key() const {
  std::string out;
  const auto add = [&](std::string_view part) {
    out += std::to_string(part.size());
    out += ':';
    out += part;
  };
  out += static_cast<char>('a' + static_cast<int>(format));
  out += static_cast<char>('a' + static_cast<int>(calls));
  out += in_reasoning ? 'r' : in_calls ? 'c' : '-';
  out += markup ? 'm' : '-';
  out += std::to_string(max_calls);
  add(text);
  add(where);
  add(prefix);
  out += std::to_string(choices.size());
  for (const std::string& choice : choices) add(choice);
  for (const GrammarTool& tool : tools) {
    out += tool.strict ? 's' : '-';
    add(tool.name);
    add(tool.parameters);
  }
  return out;
}

Result<std::shared_ptr<const Grammar>> compile_grammar(
    const GrammarSpec& spec, std::shared_ptr<const Vocabulary> vocabulary) {
  size_t bytes = spec.text.size();
  for (const std::string& choice : spec.choices) bytes += choice.size();
  for (const GrammarTool& tool : spec.tools) bytes += tool.parameters.size();
  if (bytes > kMaxGrammarBytes) {
    return err(Code::kTooLarge, "{} has {} bytes, {} is the most",
               spec.where.empty() ? "what the answer must be" : spec.where, bytes,
               kMaxGrammarBytes);
  }
  RuleBuilder out;
  JsonRules json(out, spec.markup ? Spelling::kJsonMarkup : Spelling::kJson);
  const RuleId root = out.rule("the answer");
  const NodeId end = out.end(root);
  NodeId at = out.start(root);
  if (spec.in_reasoning) {
    const NodeId closed = out.node(at);
    add_text(out, at, closed);
    at = out.literal(closed, symbol(kThinkEndSymbol));
  }
  if (spec.calls != GrammarSpec::Calls::kMust) {
    CEDRA_ASSIGN(const NodeId format, add_format(spec, json, at));
    out.jump(format, end);
    // Calls may follow a text, and stand in place of anything else.
    if (spec.format == GrammarSpec::Format::kText) at = format;
  }
  if (spec.calls != GrammarSpec::Calls::kNone) {
    if (!spec.in_calls) {
      const NodeId opening = out.literal(at, "\n\n");
      if (spec.calls == GrammarSpec::Calls::kMay) out.jump(at, opening);
      at = out.literal(opening, fmt::format("<{} calls>\n", symbol(kDsmlSymbol)));
    }
    CEDRA_ASSIGN(const NodeId calls, add_calls(json, spec.tools, spec.max_calls, at));
    out.jump(calls, end);
  }
  Result<Rules> rules = std::move(out).finish(root);
  if (!rules) return wrap(rules.error(), spec.where.empty() ? "tools" : spec.where);
  std::shared_ptr<const Grammar> grammar =
      Grammar::make(*std::move(rules), std::move(vocabulary), spec.prefix);
  const GrammarState start(grammar);
  if (start.too_ambiguous()) {
    return err(Code::kUnsupported,
               "{} can be read in too many ways from the start; make it less "
               "ambiguous",
               spec.where.empty() ? "tools" : spec.where);
  }
  if (start.failed()) {
    return err(Code::kInvalid, "{}: the beginning of the answer in the prompt does not fit it",
               spec.where.empty() ? "tools" : spec.where);
  }
  return grammar;
}

Result<std::shared_ptr<const Grammar>> GrammarCache::get(const GrammarSpec& spec) {
  std::string key = spec.key();
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = index_.find(key); known != index_.end()) {
      entries_.splice(entries_.begin(), entries_, known->second);
      return known->second->grammar;
    }
  }
  CEDRA_ASSIGN(std::shared_ptr<const Grammar> grammar, compile_grammar(spec, vocabulary_));
  const std::lock_guard lock(mutex_);
  if (const auto known = index_.find(key); known != index_.end()) return known->second->grammar;
  const int64_t room = most_bytes_ - grammar->bytes();
  int64_t others = bytes_alive();
  for (auto at = entries_.end(); others > room && at != entries_.begin();) {
    --at;
    if (at->grammar.use_count() > 1) continue;  // dropping it would free nothing
    others -= at->grammar->bytes();
    index_.erase(at->key);
    at = entries_.erase(at);
  }
  if (others > std::max<int64_t>(room, 0)) {
    return err(Code::kExhausted,
               "structured outputs of requests under way take {} MiB, {} MiB is the most; try "
               "again when some of them have ended",
               others >> 20, most_bytes_ >> 20);
  }
  alive_.push_back(grammar);
  if (room < 0) return grammar;
  entries_.push_front({key, grammar});
  index_.emplace(std::move(key), entries_.begin());
  if (entries_.size() > most_) {
    index_.erase(entries_.back().key);
    entries_.pop_back();
  }
  return grammar;
}

int64_t GrammarCache::bytes_alive() {
  int64_t sum = 0;
  std::erase_if(alive_, [&sum](const std::weak_ptr<const Grammar>& one) {
    const std::shared_ptr<const Grammar> grammar = one.lock();
    if (grammar != nullptr) sum += grammar->bytes();
    return grammar == nullptr;
  });
  return sum;
}

size_t GrammarCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

int64_t GrammarCache::bytes() {
  const std::lock_guard lock(mutex_);
  return bytes_alive();
}

}  // namespace cedra::decode

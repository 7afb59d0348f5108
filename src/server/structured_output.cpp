#include "server/structured_output.h"

namespace cedra::server {
namespace {

using Format = decode::GrammarSpec::Format;

void take_fields(const text::StructuredFields& fields, decode::GrammarSpec& spec) {
  switch (fields.kind) {
    case text::StructuredFields::Kind::kNone:
      return;
    case text::StructuredFields::Kind::kJsonObject:
      spec.format = Format::kJsonObject;
      break;
    case text::StructuredFields::Kind::kJsonSchema:
      spec.format = Format::kJsonSchema;
      break;
    case text::StructuredFields::Kind::kRegex:
      spec.format = Format::kRegex;
      break;
    case text::StructuredFields::Kind::kGrammar:
      spec.format = Format::kEbnf;
      break;
    case text::StructuredFields::Kind::kChoice:
      spec.format = Format::kChoice;
      break;
  }
  spec.text = fields.text;
  spec.choices = fields.choices;
  spec.where = fields.where;
}

Result<std::shared_ptr<const decode::Grammar>> compile(const decode::GrammarSpec& spec,
                                                       decode::GrammarCache* grammars) {
  if (!spec.constrains()) return nullptr;
  if (grammars == nullptr) {
    return err(Code::kUnsupported,
               "structured outputs are not possible here: this tokenizer lacks tokens for single "
               "bytes");
  }
  return grammars->get(spec);
}

// Content that the model goes on with.
std::string begun_content(const text::ParsedRequest& request, const text::Prompt& prompt) {
  if (request.conversation.messages.empty()) return {};
  const text::Message& last = request.conversation.messages.back();
  const bool goes_on = request.options.continue_final_message || last.without_eos;
  if (!goes_on || prompt.start != text::ParserStart::kContent) return {};
  std::string out;
  for (const text::ContentPart& part : last.content) out += part.text;
  return out;
}

}  // namespace

Result<std::shared_ptr<const decode::Grammar>> answer_grammar(const text::ParsedRequest& request,
                                                              const text::Prompt& prompt,
                                                              decode::GrammarCache* grammars) {
  decode::GrammarSpec spec;
  spec.markup = true;
  spec.in_reasoning = prompt.start == text::ParserStart::kReasoning;
  spec.in_calls = prompt.start == text::ParserStart::kCalls;
  take_fields(request.structured, spec);
  if (request.response_format.kind != text::StructuredFields::Kind::kNone) {
    if (spec.format != Format::kText) {
      return err(Code::kInvalid, "response_format and {} exclude each other", spec.where);
    }
    take_fields(request.response_format, spec);
  }
  const text::ToolChoice::Kind choice = request.options.tool_choice.kind;
  if (!prompt.tools.empty()) {
    const bool must =
        choice == text::ToolChoice::Kind::kRequired || choice == text::ToolChoice::Kind::kNamed;
    spec.calls = must ? decode::GrammarSpec::Calls::kMust : decode::GrammarSpec::Calls::kMay;
    spec.max_calls = request.fields.parallel_tool_calls ? 0 : 1;
    for (const text::ToolDefinition& tool : prompt.tools) {
      spec.tools.push_back({tool.name, tool.parameters, tool.strict});
    }
  }
  if (spec.constrains()) spec.prefix = begun_content(request, prompt);
  return compile(spec, grammars);
}

Result<std::shared_ptr<const decode::Grammar>> completion_grammar(
    const text::StructuredFields& fields, decode::GrammarCache* grammars) {
  decode::GrammarSpec spec;
  take_fields(fields, spec);
  return compile(spec, grammars);
}

}  // namespace cedra::server

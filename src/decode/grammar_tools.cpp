#include "decode/grammar_tools.h"

#include <algorithm>
#include <optional>

#include "decode/grammar_schema.h"
#include "decode/grammar_vocabulary.h"

namespace cedra::decode {
namespace {

using text::JsonValue;

const std::string kDsml(1, static_cast<char>(kDsmlSymbol));

// In the markup names end at a quote, and nothing is escaped.
bool fits_in_name(const std::string& name) {
  return name.find_first_of("\"<\n\r") == std::string::npos && !name.empty();
}

// Names that the markup can carry and the parser of calls leaves as they are.
Result<CharDfa> name_language(RuleBuilder& builder) {
  CharNfa nfa;
  nfa.nodes = 2;
  nfa.end = 1;
  CharSet bad(0, 0x1F);
  for (const char32_t c : {U'"', U'<'}) bad.add(c, c);
  nfa.sets.push_back(bad.complement());
  nfa.edges = {{0, 1, 0}, {1, 1, 0}};
  CEDRA_ASSIGN(const CharDfa all, determinize(nfa, builder));
  // A lone parameter of such a name would be taken for the arguments as a whole.
  const std::vector<std::string> wrappers{"arguments", "input"};
  return intersect(all, CharDfa::literals(wrappers), builder, true);
}

class CallWriter {
 public:
  CallWriter(JsonRules& json, const GrammarTool& tool, const JsonValue& schema)
      : out_(&json.builder()), schemas_(json, schema, where(tool)) {}

  static std::string where(const GrammarTool& tool) {
    return fmt::format("the parameters of tool \"{}\"", tool.name);
  }

  // Parameters, one per line.
  Result<NodeId> parameters(const JsonValue& schema, NodeId from) {
    CEDRA_ASSIGN(const JsonValue* flat, schemas_.flatten(schema, "#"));
    const bool object = flat->is_object() && flat->find("anyOf") == nullptr &&
                        flat->find("oneOf") == nullptr && flat->find("enum") == nullptr &&
                        flat->find("const") == nullptr;
    if (!object) {
      return err(Code::kUnsupported,
                 "{}: at the top there must be an object's schema, without anyOf, oneOf, enum or "
                 "const",
                 schemas_.where());
    }
    CEDRA_TRY(schemas_.check_keywords(*flat, "#"));
    CEDRA_ASSIGN(const SchemaCompiler::Object rules, schemas_.read_object(*flat, "#"));
    NodeId first = from;
    NodeId rest = out_->node(from);
    for (const SchemaCompiler::Property& property : rules.properties) {
      if (!fits_in_name(property.name)) {
        return err(Code::kUnsupported, "{}: the markup of calls cannot carry the name \"{}\"",
                   schemas_.where(), property.name.substr(0, 100));
      }
      const NodeId begin = out_->node(from);
      out_->jump(first, begin);
      out_->jump(out_->literal(rest, "\n"), begin);
      const NodeId named = out_->literal(begin, open() + property.name);
      CEDRA_ASSIGN(const NodeId after, argument(property.schema, property.path, named));
      const NodeId next_first = out_->node(from);
      const NodeId next_rest = out_->node(from);
      out_->jump(after, next_rest);
      if (!property.required) {
        out_->jump(first, next_first);
        out_->jump(rest, next_rest);
      }
      first = next_first;
      rest = next_rest;
    }
    const NodeId end = out_->node(from);
    if (!rules.not_empty) out_->jump(first, end);
    if (!rules.extras.empty() && rules.most_extras >= 0) {
      return err(Code::kUnsupported, "{}: the keyword \"maxProperties\" at # is not supported here",
                 schemas_.where());
    }
    if (!rules.extras.empty()) {
      const NodeId begin = out_->node(from);
      out_->jump(first, begin);
      out_->jump(out_->literal(rest, "\n"), begin);
      CEDRA_ASSIGN(const CharDfa names, name_language(*out_));
      for (const SchemaCompiler::Extra& extra : rules.extras) {
        CEDRA_ASSIGN(const CharDfa carried, intersect(extra.names, names, *out_));
        const NodeId name = out_->literal(begin, open());
        const NodeId named = out_->node(name);
        add_language(*out_, name, carried, named, Spelling::kText);
        CEDRA_ASSIGN(const NodeId after, argument(extra.schema, extra.path, named));
        out_->jump(after, rest);
      }
    }
    out_->jump(rest, end);
    return end;
  }

 private:
  static std::string open() { return "<" + kDsml + " parameter name=\""; }

  // Behind a parameter's name. Strings stand as they are, everything else as JSON.
  Result<NodeId> argument(const JsonValue* schema, const std::string& path, NodeId from) {
    const NodeId end = out_->node(from);
    CEDRA_ASSIGN(const NodeId text,
                 schemas_.member(schema, path, out_->literal(from, "\" string=\"true\">"),
                                 {kStringType, true}));
    out_->jump(text, end);
    CEDRA_ASSIGN(const NodeId other,
                 schemas_.member(schema, path, out_->literal(from, "\" string=\"false\">"),
                                 {kAnyType & ~kStringType, false}));
    out_->jump(other, end);
    return out_->literal(end, "</" + kDsml + " parameter>");
  }

  RuleBuilder* out_;
  SchemaCompiler schemas_;
};

Result<NodeId> add_arguments(JsonRules& json, const GrammarTool& tool, NodeId from) {
  text::JsonReader reader;
  Result<JsonValue> schema = reader.read(tool.parameters.empty() ? "{}" : tool.parameters);
  if (!schema) return wrap(schema.error(), CallWriter::where(tool));
  CallWriter writer(json, tool, *schema);
  return writer.parameters(*schema, from);
}

}  // namespace

Result<NodeId> add_calls(JsonRules& json, const std::vector<GrammarTool>& tools, int most,
                         NodeId from) {
  RuleBuilder& out = json.builder();
  const RuleId invoke = out.rule("a tool call");
  const NodeId named = out.literal(out.start(invoke), "<" + kDsml + " invoke name=\"");
  const JsonValue anything = JsonValue::object({{"type", JsonValue::string("object")}});
  for (const GrammarTool& tool : tools) {
    if (!fits_in_name(tool.name)) {
      return err(Code::kUnsupported, "the markup of calls cannot carry the tool name \"{}\"",
                 tool.name.substr(0, 100));
    }
    const NodeId begin = out.literal(named, tool.name + "\">\n");
    Result<NodeId> end = add_arguments(json, tool, begin);
    if (!end && tool.strict) return std::unexpected(end.error());
    if (!end) {
      // What was written before the error leads nowhere and falls away.
      const NodeId again = out.literal(named, tool.name + "\">\n");
      CallWriter writer(json, tool, anything);
      end = writer.parameters(anything, again);
      if (!end) return std::unexpected(end.error());
    }
    out.jump(out.literal(*end, "\n</" + kDsml + " invoke>\n"), out.end(invoke));
  }
  const NodeId before = out.node(from);
  out.jump(from, before);
  const NodeId after = out.call(before, invoke);
  if (most == 0) out.jump(after, before);
  NodeId at = after;
  const NodeId end = out.node(from);
  for (int i = 1; i < most && !out.full(); ++i) {
    out.jump(at, end);
    at = out.call(at, invoke);
  }
  out.jump(at, end);
  return out.literal(end, "</" + kDsml + " calls>");
}

}  // namespace cedra::decode

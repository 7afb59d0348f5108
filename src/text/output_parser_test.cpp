// Properties of the output parser that no single vector shows.
#include "text/output_parser.h"

#include <gtest/gtest.h>

#include <random>

#include "text/chat_cases.h"
#include "text/chat_json.h"
#include "text/json_value.h"
#include "text/markup.h"

namespace cedra::text {
namespace {

using Random = std::mt19937_64;

ToolDefinition tool(std::string name, std::vector<ToolProperty> properties) {
  ToolDefinition out;
  out.name = std::move(name);
  out.parameters = "{\"type\": \"object\"}";
  out.properties = std::move(properties);
  return out;
}

ParsedMessage feed(std::string_view text, const ParserOptions& options, OutputEnd end,
                   const FeedPlan& plan) {
  OutputParser parser(options);
  ParsedMessage message;
  for (const std::string_view piece : cut(text, plan)) message.add(parser.push(piece));
  message.add(parser.finish(end));
  message.finish = parser.finish_reason();
  return message;
}

// Texts of pieces that are as near to markup as can be.
std::string random_text(Random& random, const std::vector<std::string_view>& words, int most) {
  std::string out;
  for (int n = static_cast<int>(random() % static_cast<uint64_t>(most + 1)); n > 0; --n) {
    out += words[random() % words.size()];
  }
  return out;
}

const std::vector<std::string_view> kPlainWords = {"a",
                                                   " ",
                                                   "\n",
                                                   "\n\n",
                                                   "<",
                                                   "</",
                                                   "word",
                                                   "\u4e2d\u6587",
                                                   "\"",
                                                   "\\",
                                                   "<b>",
                                                   "</th",
                                                   "<thin",
                                                   "\U0001F600",
                                                   "{\"k\": 1}",
                                                   "<\uff5c",
                                                   "<|",
                                                   "\uff5cDSM",
                                                   "</\uff5cDSML\uff5c",
                                                   "<tool_result>",
                                                   "2>&1",
                                                   "\t",
                                                   "\x01",
                                                   "&lt;",
                                                   "<\uff5cDSML\uff5c x>",
                                                   "\r\n"};

const std::vector<std::string_view> kMarkupWords = {
    "a", "\n", "\n\n", "<", "text", "\"", ">", "<think>", "</think>", markup::kCallsOpen,
    markup::kCallsClose, markup::kInvokeOpen, "f\">", "f\">\n", markup::kInvokeClose,
    markup::kParameterOpen, "city\" string=\"true\">", "n\" string=\"false\">", "arguments\">",
    "{\"city\": \"x\"}", "5", markup::kParameterClose, "</\uff5cDSML\uff5cinvoke>",
    "<\uff5cDSML\uff5cinvoke name=\"", "<\uff5cDSML\uff5c", "</\uff5cDSML\uff5c par", markup::kEos,
    "<|DSML| calls>\n", "<\uff5cDSML\uff5c function_calls>", "\uff5c", "input\" string=\"true\"\n",
    // Halves of tags.
    "</thi", "nk>", "/think>", "</\uff5cDSML\uff5c ca", "lls>"};

ParserOptions options_with_tool(ParserStart start, bool tools) {
  ParserOptions options;
  options.start = start;
  options.eos_in_text = true;
  if (tools) options.tools = {tool("f", {{"city", true}, {"n", false}})};
  return options;
}

TEST(OutputParser, AnyTextGivesTheSameMessageInAnyPieces) {
  Random random(1);
  for (int round = 0; round < 20000; ++round) {
    const std::string text = random_text(random, kMarkupWords, 24);
    const auto start = static_cast<ParserStart>(random() % 3);
    const ParserOptions options = options_with_tool(start, random() % 4 != 0);
    const auto end = static_cast<OutputEnd>(random() % 4);
    const ParsedMessage whole = feed(text, options, end, {});
    ASSERT_EQ(feed(text, options, end, {FeedPlan::Kind::kPieces, 1}), whole) << text;
    ASSERT_EQ(feed(text, options, end, {FeedPlan::Kind::kTwoParts, random() % (text.size() + 1)}),
              whole)
        << text;
    ASSERT_EQ(feed(text, options, end, {FeedPlan::Kind::kRandom, random()}), whole) << text;
  }
}

// Whatever the model writes: content holds no whole tag, calls have names and, unless the model was
// cut off, arguments are a JSON object.
TEST(OutputParser, AnyTextGivesCleanContentAndWholeCalls) {
  Random random(2);
  JsonReader reader;
  size_t calls = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::string text = random_text(random, kMarkupWords, 24);
    const ParserOptions options = options_with_tool(ParserStart::kContent, true);
    const OutputEnd end = random() % 2 == 0 ? OutputEnd::kEos : OutputEnd::kStopToken;
    const ParsedMessage message = feed(text, options, end, {FeedPlan::Kind::kRandom, random()});
    for (const std::string_view tag :
         {markup::kCallsOpen, markup::kCallsClose, markup::kInvokeClose, markup::kParameterClose,
          markup::kThink, markup::kThinkEnd, markup::kEos}) {
      ASSERT_EQ(message.content.find(tag), std::string::npos)
          << text << " gave " << message.content;
    }
    for (const ParsedCall& call : message.calls) {
      ++calls;
      ASSERT_FALSE(call.name.empty()) << text;
      const auto arguments = reader.read(call.arguments);
      ASSERT_TRUE(arguments.has_value()) << text << " gave " << call.arguments;
      ASSERT_TRUE(arguments->is_object()) << text << " gave " << call.arguments;
    }
  }
  EXPECT_GT(calls, 2000u);  // the words do make calls
}

TEST(OutputParser, TextWithoutTagsIsNeverLost) {
  Random random(3);
  for (int round = 0; round < 20000; ++round) {
    const std::string text = random_text(random, kPlainWords, 30);
    const ParserOptions options = options_with_tool(
        random() % 2 == 0 ? ParserStart::kReasoning : ParserStart::kContent, random() % 2 == 0);
    const ParsedMessage message = feed(text, options, static_cast<OutputEnd>(random() % 4),
                                       {FeedPlan::Kind::kRandom, random()});
    ASSERT_EQ(options.start == ParserStart::kReasoning ? message.reasoning : message.content, text);
  }
}

TEST(OutputParser, HoldsBackOnlyWhatCanBecomeAMarker) {
  OutputParser parser(options_with_tool(ParserStart::kContent, true));
  const auto shown = [&](std::string_view piece) {
    std::string out;
    for (const OutputEvent& event : parser.push(piece)) out += event.text;
    return out;
  };
  EXPECT_EQ(shown("hello"), "hello");
  EXPECT_EQ(shown(" <"), " ");
  EXPECT_EQ(shown("b"), "<b");
  EXPECT_EQ(shown("\n\n\n"), "\n");
  EXPECT_EQ(shown("x"), "\n\nx");
  EXPECT_EQ(shown("</th"), "");
  EXPECT_EQ(shown("at"), "</that");
  EXPECT_EQ(shown("<\uff5cDSML\uff5c cal"), "");
  EXPECT_EQ(shown("m>"), "<\uff5cDSML\uff5c calm>");

  // Without tools a line feed or a DSML marker means nothing.
  OutputParser plain(options_with_tool(ParserStart::kContent, false));
  EXPECT_EQ(plain.push("a\n\n").front().text, "a\n\n");
  EXPECT_EQ(plain.push("<\uff5cDSML").size(), 1u);
}

TEST(OutputParser, StringValuesAreStreamed) {
  OutputParser parser(options_with_tool(ParserStart::kCalls, true));
  parser.push(
      " <\uff5cDSML\uff5c invoke name=\"f\">\n<\uff5cDSML\uff5c parameter name=\"city\" "
      "string=\"true\">");
  const auto events = parser.push("Pa\"r");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events.front().kind, OutputEvent::Kind::kArguments);
  EXPECT_EQ(events.front().text, "Pa\\\"r");
  EXPECT_TRUE(parser.push("</").empty());
  EXPECT_TRUE(parser.push("\uff5cDSML\uff5c parameter").empty());
  EXPECT_EQ(parser.push(">").front().text, "\"");
  EXPECT_TRUE(parser.in_call());
  parser.push("\n</\uff5cDSML\uff5c invoke>\n</\uff5cDSML\uff5c calls>");
  EXPECT_TRUE(parser.done());
}

TEST(OutputParser, StopStringsLookAtContentOnly) {
  ParserOptions options = options_with_tool(ParserStart::kReasoning, true);
  options.stop = {"STOP", "OPX", ""};
  for (size_t size = 1; size < 30; ++size) {
    const ParsedMessage message = feed("r STOP r</think>one STO two STOP three", options,
                                       OutputEnd::kEos, {FeedPlan::Kind::kPieces, size});
    EXPECT_EQ(message.reasoning, "r STOP r");
    EXPECT_EQ(message.content, "one STO two ");
    EXPECT_EQ(message.finish, FinishReason::kStop);
  }
  OutputParser parser(options);
  parser.push("</think>x STOPX");
  EXPECT_TRUE(parser.done());
  EXPECT_EQ(parser.matched_stop(), "STOP");
  // What was held back for a stop string is content once the text ends, or a call begins.
  EXPECT_EQ(feed("</think>x STO", options, OutputEnd::kLength, {}).content, "x STO");
  const std::string call =
      "</think>x STO\n\n<\uff5cDSML\uff5c calls>\n<\uff5cDSML\uff5c invoke name=\"f\">\n";
  EXPECT_EQ(feed(call + "STOP", options, OutputEnd::kEos, {}).content, "x STO");
  EXPECT_EQ(feed(call + "STOP", options, OutputEnd::kEos, {}).calls.size(), 1u);
}

TEST(OutputParser, EosTextIsTextUnlessAskedFor) {
  ParserOptions options;
  const std::string text = "the token " + std::string(markup::kEos) + " ends a turn";
  EXPECT_EQ(parse_output(text, options, OutputEnd::kEos).content, text);
  options.eos_in_text = true;
  EXPECT_EQ(parse_output(text, options, OutputEnd::kEos).content, "the token ");
}

TEST(OutputParser, IdsAreTheCallersOrCounted) {
  ParserOptions options = options_with_tool(ParserStart::kCalls, true);
  const std::string text =
      "<\uff5cDSML\uff5c invoke name=\"f\"><\uff5cDSML\uff5c invoke name=\"f\">";
  EXPECT_EQ(parse_output(text, options, OutputEnd::kEos).calls.at(1).id, "call_1");
  options.make_id = [](int index) { return "x" + std::to_string(index); };
  EXPECT_EQ(parse_output(text, options, OutputEnd::kEos).calls.at(0).id, "x0");
}

// ----- encode, then parse back

std::string random_name(Random& random) {
  std::string out;
  for (uint64_t n = 1 + random() % 12; n > 0; --n) out += "abcXYZ_-09"[random() % 10];
  return out;
}

JsonValue random_value(Random& random, int depth) {
  switch (random() % (depth > 0 ? 7 : 5)) {
    case 0:
      return JsonValue();
    case 1:
      return JsonValue::boolean(random() % 2 == 0);
    case 2:
      return JsonValue::number(std::to_string(static_cast<int64_t>(random())));
    case 3:
      return JsonValue::number(python_float(static_cast<double>(random() % 100000) / 64));
    case 4:
      return JsonValue::string(random_text(random, kPlainWords, 10));
    case 5: {
      std::vector<JsonValue> items;
      for (uint64_t n = random() % 4; n > 0; --n) items.push_back(random_value(random, depth - 1));
      return JsonValue::array(std::move(items));
    }
    default: {
      std::vector<JsonValue::Member> members;
      for (uint64_t n = random() % 4; n > 0; --n) {
        members.emplace_back(random_name(random) + std::to_string(n),
                             random_value(random, depth - 1));
      }
      return JsonValue::object(std::move(members));
    }
  }
}

Message random_assistant(Random& random) {
  Message out;
  out.role = Role::kAssistant;
  out.content.push_back({ContentPart::Kind::kText, random_text(random, kPlainWords, 20)});
  out.reasoning = random_text(random, kPlainWords, 20);
  if (random() % 2 == 0) return out;
  for (uint64_t n = 1 + random() % 3; n > 0; --n) {
    std::vector<JsonValue::Member> arguments;
    for (uint64_t k = random() % 4; k > 0; --k) {
      arguments.emplace_back(random_name(random) + std::to_string(k), random_value(random, 2));
    }
    ToolCall call;
    call.id = "id" + std::to_string(n);
    call.name = random_name(random);
    call.arguments = python_json(JsonValue::object(std::move(arguments)));
    out.tool_calls.push_back(std::move(call));
  }
  return out;
}

TEST(OutputParser, EncodedConversationsParseBack) {
  Random random(4);
  for (int round = 0; round < 4000; ++round) {
    ChatOptions options;
    options.thinking = random() % 2 == 0;
    options.drop_thinking = false;
    Conversation conversation;
    conversation.tools = {tool("f", {})};
    std::vector<const Message*> assistants;
    for (uint64_t n = 1 + random() % 3; n > 0; --n) {
      Message user;
      user.content.push_back({ContentPart::Kind::kText, random_text(random, kPlainWords, 20)});
      conversation.messages.push_back(std::move(user));
      conversation.messages.push_back(random_assistant(random));
    }
    const auto prompt = encode_chat(conversation, options);
    ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
    // What the model would have written: from each header to the next user turn.
    const std::string text = prompt->text();
    const std::string header = std::string(markup::kAssistant) +
                               std::string(options.thinking ? markup::kThink : markup::kThinkEnd);
    size_t at = 0;
    for (const Message& message : conversation.messages) {
      if (message.role != Role::kAssistant) continue;
      at = text.find(header, at);
      ASSERT_NE(at, std::string::npos);
      at += header.size();
      const size_t end = text.find(markup::kEos, at) + markup::kEos.size();
      ParserOptions parser_options = options_with_tool(
          options.thinking ? ParserStart::kReasoning : ParserStart::kContent, true);
      const ParsedMessage parsed = feed(text.substr(at, end - at), parser_options, OutputEnd::kEos,
                                        {FeedPlan::Kind::kRandom, random()});
      ASSERT_EQ(parsed.reasoning, options.thinking ? message.reasoning : "");
      ASSERT_EQ(parsed.content, message.content.front().text);
      ASSERT_EQ(parsed.calls.size(), message.tool_calls.size());
      for (size_t i = 0; i < parsed.calls.size(); ++i) {
        ASSERT_EQ(parsed.calls[i].name, message.tool_calls[i].name);
        ASSERT_EQ(parsed.calls[i].arguments, message.tool_calls[i].arguments);
      }
      ASSERT_EQ(parsed.finish == FinishReason::kToolCalls, !message.tool_calls.empty());
    }
  }
}

}  // namespace
}  // namespace cedra::text

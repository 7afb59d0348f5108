// Request bodies and the encoder where no vector reaches: fields, roles of the other routes,
// errors, and that client text never becomes a control token.
#include "text/chat_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "text/markup.h"

namespace cedra::text {
namespace {

using testing::HasSubstr;

Result<ParsedRequest> parse(std::string_view body, Route route = Route::kChatCompletions) {
  return parse_request(route, body, {});
}

Result<Prompt> prompt_of(std::string_view body, Route route = Route::kChatCompletions) {
  CEDRA_ASSIGN(auto request, parse(body, route));
  return encode_chat(request.conversation, request.options);
}

std::string chat(std::string_view extra) {
  return fmt::format(R"({{"messages":[{{"role":"user","content":"x"}}]{}{}}})",
                     extra.empty() ? "" : ",", extra);
}

std::string error_of(std::string_view extra) {
  const auto request = parse(chat(extra));
  return request ? "" : request.error().message;
}

TEST(ChatJson, FieldsAreRead) {
  const auto request = parse(chat(
      R"("model":"m","stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":7,)"
      R"("temperature":0.5,"top_p":1,"presence_penalty":-2,"frequency_penalty":2,"top_k":40,"min_p":0.1,)"
      R"("seed":9223372036854775807,"n":3,"stop":["a","b"],"stop_token_ids":[1,2],"logprobs":true,)"
      R"("logit_bias":{"12":-100,"7":1.5},"top_logprobs":20,"parallel_tool_calls":false,)"
      R"("ignore_eos":true,"cache_salt":"s","priority":-1,"unknown":{"x":1})"));
  ASSERT_TRUE(request.has_value()) << request.error().message;
  const RequestFields& fields = request->fields;
  EXPECT_EQ(fields.model, "m");
  EXPECT_TRUE(fields.stream);
  EXPECT_EQ(fields.include_usage, true);
  EXPECT_EQ(fields.max_tokens, 7);
  EXPECT_EQ(fields.temperature, 0.5);
  EXPECT_EQ(fields.top_p, 1.0);
  EXPECT_EQ(fields.presence_penalty, -2.0);
  EXPECT_EQ(fields.frequency_penalty, 2.0);
  EXPECT_EQ(fields.top_k, 40);
  EXPECT_EQ(fields.min_p, 0.1);
  EXPECT_EQ(fields.seed, 9223372036854775807);
  EXPECT_EQ(fields.n, 3);
  EXPECT_THAT(fields.stop, testing::ElementsAre("a", "b"));
  EXPECT_THAT(fields.stop_token_ids, testing::ElementsAre(1, 2));
  EXPECT_THAT(fields.logit_bias,
              testing::ElementsAre(testing::Pair(12, -100.0), testing::Pair(7, 1.5)));
  EXPECT_TRUE(fields.logprobs);
  EXPECT_EQ(fields.top_logprobs, 20);
  EXPECT_FALSE(fields.parallel_tool_calls);
  EXPECT_TRUE(fields.ignore_eos);
  EXPECT_EQ(fields.cache_salt, "s");
  EXPECT_EQ(fields.priority, -1);

  const auto plain = parse(chat(R"("temperature":null,"stop":null,"tools":null)"));
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->fields.temperature, std::nullopt);
  EXPECT_EQ(plain->fields.n, 1);
}

TEST(ChatJson, FieldsOutOfRangeAreNamed) {
  EXPECT_EQ(error_of(R"("temperature":-0.1)"), "temperature must be in [0, 2]");
  EXPECT_EQ(error_of(R"("top_p":0)"), "top_p must be in (0, 1]");
  EXPECT_EQ(error_of(R"("presence_penalty":2.5)"), "presence_penalty must be in [-2, 2]");
  EXPECT_EQ(error_of(R"("max_tokens":-1)"), "max_tokens must be greater than zero");
  EXPECT_EQ(error_of(R"("n":1000000000)"), "n must be in [1, 128]");
  EXPECT_EQ(error_of(R"("top_logprobs":1000000000)"), "top_logprobs must be in [0, 20]");
  EXPECT_EQ(error_of(R"("seed":-1)"), "seed must be in [0, 9223372036854775807]");
  EXPECT_EQ(error_of(R"("seed":9223372036854775808)"), "seed must be in [0, 9223372036854775807]");
  EXPECT_EQ(error_of(R"("stop":[""])"), "stop must not hold an empty string");
  EXPECT_EQ(error_of(R"("stop":5)"), "stop must be a string or a list of strings, got a number");
  EXPECT_EQ(error_of(R"("temperature":"hot")"), "temperature must be a number, got a string");
  EXPECT_EQ(error_of(R"("temperature":1e999)"), "temperature must be in [0, 2]");
  EXPECT_EQ(error_of(R"("stream":1)"), "stream must be a boolean, got a number");
  EXPECT_EQ(error_of(R"("logit_bias":{"x":1})"), "logit_bias: 'x' is no token id");
  EXPECT_EQ(error_of(R"("thinking":{"type":"on"})"),
            "thinking.type: expected enabled, adaptive or disabled, got 'on'");
  EXPECT_EQ(error_of(R"("tool_choice":"some")"),
            "tool_choice: expected none, auto, required or a named function");
  EXPECT_EQ(error_of(R"("tool_choice":5)"),
            "tool_choice: expected none, auto, required or a named function");
  EXPECT_EQ(error_of(R"("response_format":{"type":"xml"})"),
            "response_format.type: expected text, json_object or json_schema, got 'xml'");
  EXPECT_EQ(error_of(R"("response_format":{"type":"json_schema","json_schema":null})"),
            "response_format.json_schema.schema must be an object");
  EXPECT_EQ(error_of(R"("response_format":{"type":"json_schema","json_schema":{"schema":true}})"),
            "response_format.json_schema.schema must be an object");
}

TEST(ChatJson, WrongShapesAreErrorsAndNotCrashes) {
  for (const char* body :
       {"[]",
        "5",
        "null",
        "{}",
        R"({"messages":5})",
        R"({"messages":[5]})",
        R"({"messages":[{}]})",
        R"({"messages":[{"role":5}]})",
        R"({"messages":[{"role":"x","content":"y"}]})",
        R"({"messages":[{"role":"user","content":5}]})",
        R"({"messages":[{"role":"user","content":[5]}]})",
        R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})",
        R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
        R"({"messages":[{"role":"assistant","tool_calls":5}]})",
        R"({"messages":[{"role":"assistant","tool_calls":[5]}]})",
        R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":""}}]}]})",
        R"({"messages":[{"role":"user","content":"x"}],"tools":5})",
        R"({"messages":[{"role":"user","content":"x"}],"tools":[5]})",
        R"({"messages":[{"role":"user","content":"x"}],"tools":[{"function":5}]})",
        R"({"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":5})",
        R"({"messages":[{"role":"user","content":"x"}],"response_format":5})"}) {
    const auto request = parse(body);
    ASSERT_FALSE(request.has_value()) << body;
    EXPECT_EQ(request.error().code, Code::kInvalid) << body;
    EXPECT_FALSE(parse(body, Route::kMessages).has_value()) << body;
    EXPECT_FALSE(parse(body, Route::kResponses).has_value()) << body;
  }
}

TEST(ChatJson, HostileNestingIsAnError) {
  std::string deep;
  for (int i = 0; i < 60000; ++i) deep += R"({"properties":)";
  EXPECT_FALSE(
      parse(
          R"({"messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":"f","parameters":)" +
          deep)
          .has_value());
  std::string closed;
  for (int i = 0; i < 300; ++i) closed += R"({"a":)";
  closed += "1" + std::string(300, '}');
  const auto request = parse(R"({"messages":[{"role":"user","content":"x"}],"x":)" + closed + "}");
  ASSERT_FALSE(request.has_value());
  EXPECT_EQ(request.error().code, Code::kTooLarge);
}

TEST(ChatJson, JsonSchemaIsShownAndKept) {
  const auto request = parse(chat(
      R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","b":1.0}}})"));
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->response_format.kind, StructuredFields::Kind::kJsonSchema);
  EXPECT_EQ(request->response_format.text, R"({"type": "object", "b": 1.0})");
  const auto prompt = encode_chat(request->conversation, request->options);
  EXPECT_THAT(prompt->text(), HasSubstr("to reply:\n{\"type\": \"object\", \"b\": 1.0}"));
}

TEST(ChatJson, MessagesBlocksBecomeTurns) {
  const auto prompt = prompt_of(
      R"({"max_tokens":5,"thinking":{"type":"disabled"},"system":"s","messages":[)"
      R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QUJD"}}]},)"
      R"({"role":"assistant","content":[{"type":"thinking","thinking":"t1"},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"b"},{"type":"tool_use","id":"i","name":"f","input":{"k":[1]}}]},)"
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":[{"type":"text","text":"r"}],"is_error":true},{"type":"text","text":"c"}]}]})",
      Route::kMessages);
  ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
  const std::string text = prompt->text();
  EXPECT_THAT(text, HasSubstr("a\n\n<\uff5cdeepseek_image\uff5c>"));
  EXPECT_THAT(text, HasSubstr("parameter name=\"k\" string=\"false\">[1]<"));
  EXPECT_THAT(text, HasSubstr("<tool_result>r</tool_result>\n\nc"));
  ASSERT_EQ(prompt->images.size(), 1u);
  EXPECT_EQ(prompt->images[0].source, "data:image/png;base64,QUJD");
  EXPECT_EQ(prompt->segments[prompt->images[0].segment].text, markup::kImage);
}

TEST(ChatJson, ImagesKnowTheirPlaceAndDetail) {
  const auto prompt = prompt_of(
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},)"
      R"({"type":"image_url","image_url":{"url":"data:,x","detail":"low"}},)"
      R"({"type":"image_url","image_url":"data:,y"}]},)"
      R"({"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"1","content":[{"type":"image_url","image_url":{"url":"data:,z","detail":"original"}}]}]})");
  ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
  ASSERT_EQ(prompt->images.size(), 3U);
  EXPECT_EQ(prompt->images[0].where, "messages.0.content.1");
  EXPECT_TRUE(prompt->images[0].low_detail);
  EXPECT_EQ(prompt->images[1].where, "messages.0.content.2");
  EXPECT_FALSE(prompt->images[1].low_detail);
  EXPECT_EQ(prompt->images[2].where, "messages.2.content.0");
  const auto responses = prompt_of(
      R"({"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:,x","detail":"low"}]}]})",
      Route::kResponses);
  ASSERT_TRUE(responses.has_value()) << responses.error().message;
  EXPECT_EQ(responses->images[0].where, "input.0.content.0");
  EXPECT_TRUE(responses->images[0].low_detail);
}

TEST(ChatJson, PartsThatAreNotReadAreNamed) {
  struct Case {
    Route route;
    std::string part;
    std::string message;
  };
  const std::vector<Case> cases = {
      {Route::kChatCompletions, R"({"type":"file","file":{"file_id":"f"}})",
       "messages.0.content.1: parts of type 'file' are not supported"},
      {Route::kChatCompletions, R"({"type":"video_url","video_url":{"url":"x"}})",
       "messages.0.content.1: parts of type 'video_url'"},
      {Route::kChatCompletions, R"({"image_url":"x"})", "messages.0.content.1: a content block"},
      {Route::kChatCompletions, R"({"type":"image_url","image_url":{"url":"x","detail":"huge"}})",
       "messages.0.content.1: detail must be"},
      {Route::kMessages, R"({"type":"document","source":{}})",
       "messages.0.content.1: parts of type 'document'"},
      {Route::kMessages, R"({"type":"image","source":{"type":"file","file_id":"f"}})",
       "messages.0.content.1: files are not kept here"},
      {Route::kResponses, R"({"type":"input_file","file_id":"f"})",
       "input.0.content.1: parts of type 'input_file'"},
      {Route::kResponses, R"({"type":"input_image","file_id":"f"})",
       "input.0.content.1: files are not kept here"}};
  for (const Case& c : cases) {
    const bool responses = c.route == Route::kResponses;
    const auto request = parse(
        fmt::format(R"({{"max_tokens":5,"{}":[{{"role":"user","content":[)"
                    R"({{"type":"{}","text":"a"}},{}]}}]}})",
                    responses ? "input" : "messages", responses ? "input_text" : "text", c.part),
        c.route);
    ASSERT_FALSE(request.has_value()) << c.part;
    EXPECT_EQ(request.error().code, Code::kInvalid);
    EXPECT_THAT(request.error().message, testing::StartsWith(c.message));
  }
  // Earlier answers may hold anything.
  EXPECT_TRUE(parse(R"({"messages":[{"role":"user","content":"x"},)"
                    R"({"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},)"
                    R"({"role":"user","content":"y"}]})")
                  .has_value());
}

TEST(ChatJson, PlaceholdersInTextAreTextUnlessAskedOtherwise) {
  for (const std::string_view marker : {"<\uff5cdeepseek_image\uff5c>", "<\uff5cimage\uff5c>"}) {
    const std::string body =
        fmt::format(R"({{"messages":[{{"role":"user","content":"grep: {}"}}]}})", marker);
    const auto prompt = prompt_of(body);
    ASSERT_TRUE(prompt.has_value());
    EXPECT_TRUE(prompt->images.empty());
    RequestRules strict;
    strict.strict_image_placeholder = true;
    const auto refused = parse_request(Route::kChatCompletions, body, strict);
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().message, testing::HasSubstr("message 0 (user)"));
  }
}

TEST(ChatJson, MessagesChoiceAndPrefill) {
  const std::string_view tools =
      R"("tools":[{"name":"f","input_schema":{"type":"object"}},{"type":"web_search_20250305","name":"web_search"}])";
  const auto request = parse(
      fmt::format(
          R"({{"max_tokens":5,"messages":[{{"role":"user","content":"x"}}],{},"tool_choice":{{"type":"tool","name":"f","disable_parallel_tool_use":true}},"output_config":{{"effort":"low"}},"stop_sequences":["s"]}})",
          tools),
      Route::kMessages);
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_EQ(request->options.tool_choice.kind, ToolChoice::Kind::kNamed);
  EXPECT_EQ(request->options.effort, 50);
  EXPECT_FALSE(request->fields.parallel_tool_calls);
  EXPECT_THAT(request->fields.stop, testing::ElementsAre("s"));
  EXPECT_EQ(request->conversation.tools.size(), 1u);
  EXPECT_FALSE(request->options.thinking) << "a forced tool cannot be thought about";
  EXPECT_THAT(request->warnings, testing::ElementsAre(testing::HasSubstr("web_search"),
                                                      testing::HasSubstr("without thinking")));

  const auto prefill = prompt_of(
      R"({"max_tokens":5,"thinking":{"type":"disabled"},"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"Once"}]})",
      Route::kMessages);
  EXPECT_TRUE(prefill->text().ends_with("</think>Once"));
}

TEST(ChatJson, ResponsesNamespacesAreFlat) {
  const auto request = parse(
      R"({"input":[{"role":"user","content":"q"},)"
      R"({"type":"function_call","call_id":"1","name":"read","namespace":"mcp__fs__","arguments":"{}"},)"
      R"({"type":"function_call_output","call_id":"1","output":"x"},{"type":"web_search_call"}],)"
      R"("tools":[{"type":"namespace","name":"mcp__fs__","tools":[{"type":"function","name":"read"}]},)"
      R"({"type":"namespace","name":"web","tools":[{"type":"custom","name":"get"},{"type":"file_search"}]}]})",
      Route::kResponses);
  ASSERT_TRUE(request.has_value()) << request.error().message;
  const auto& tools = request->conversation.tools;
  ASSERT_EQ(tools.size(), 2u);
  EXPECT_EQ(tools[0].name, "mcp__fs__read");
  EXPECT_EQ(tools[0].space, "mcp__fs__");
  EXPECT_EQ(tools[0].short_name, "read");
  EXPECT_THAT(tools[0].function, testing::HasSubstr("mcp__fs__read"));
  EXPECT_EQ(tools[1].name, "web__get");
  EXPECT_TRUE(tools[1].custom);
  EXPECT_EQ(request->conversation.messages.at(1).tool_calls.at(0).name, "mcp__fs__read");
  EXPECT_EQ(request->warnings.size(), 2u) << "the search and the hosted tool";
}

TEST(ChatJson, FieldsWithoutMeaningAreListed) {
  const auto request = parse(
      R"({"messages":[{"role":"user","content":"q"}],"user":"u","metadata":{"a":1},"n":1,"x":null})",
      Route::kChatCompletions);
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_THAT(request->ignored, testing::ElementsAre("user", "metadata"));
}

TEST(ChatJson, ListsAreBounded) {
  const auto list = [](const std::string& name, const std::string& entry, size_t count) {
    std::string out = "\"" + name + "\":[" + entry;
    for (size_t i = 1; i < count; ++i) out += "," + entry;
    return out + "]";
  };
  const std::string user = R"("messages":[{"role":"user","content":"q"}])";
  std::string bias = R"("logit_bias":{"0":1)";
  for (size_t i = 1; i <= kMaxLogitBias; ++i) bias += fmt::format(",\"{}\":1", i);
  for (const std::string& body :
       {"{" + user + "," + list("stop_token_ids", "7", kMaxStopTokenIds + 1) + "}",
        "{" + user + "," + list("tools", "{}", kMaxTools + 1) + "}", "{" + user + "," + bias + "}}",
        "{" + list("messages", R"({"role":"user","content":"q"})", kMaxMessages + 1) + "}",
        "{" + user + R"(,"best_of":3})"}) {
    const auto request = parse(body, Route::kChatCompletions);
    ASSERT_FALSE(request.has_value()) << body.substr(0, 100);
    EXPECT_THAT(request.error().message,
                testing::AnyOf(testing::HasSubstr("at most"), testing::HasSubstr("best_of")));
  }
}

TEST(ChatJson, ResponsesItemsJoin) {
  const auto request = parse(
      R"({"input":[{"role":"user","content":"q"},)"
      R"({"type":"reasoning","summary":[{"type":"summary_text","text":"r"}]},)"
      R"({"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]},)"
      R"({"type":"function_call","call_id":"1","name":"f","arguments":"{}"},)"
      R"({"type":"custom_tool_call","call_id":"2","name":"p","input":"raw \"x\"\n"},)"
      R"({"type":"function_call_output","call_id":"1","output":"o1"},)"
      R"({"type":"custom_tool_call_output","call_id":"2","output":"o2"},)"
      R"({"type":"reasoning","content":[{"type":"reasoning_text","text":"r2"}]},)"
      R"({"type":"message","role":"assistant","content":"b"},)"
      R"({"type":"message","role":"assistant","content":"c"}],)"
      R"("instructions":"i","reasoning":{"effort":"max"},"max_output_tokens":9,)"
      R"("tools":[{"type":"function","name":"f","parameters":{"type":"object"}},{"type":"custom","name":"p","description":"d"},{"type":"web_search"}],)"
      R"("text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}}})",
      Route::kResponses);
  ASSERT_TRUE(request.has_value()) << request.error().message;
  const auto& messages = request->conversation.messages;
  ASSERT_EQ(messages.size(), 7u);
  EXPECT_EQ(messages[0].role, Role::kSystem);
  EXPECT_EQ(messages[2].reasoning, "r");
  EXPECT_EQ(messages[2].content.front().text, "a");
  ASSERT_EQ(messages[2].tool_calls.size(), 2u);
  EXPECT_EQ(messages[2].tool_calls[1].arguments, "{\"input\": \"raw \\\"x\\\"\\n\"}");
  EXPECT_EQ(messages[4].role, Role::kTool);
  EXPECT_EQ(messages[5].reasoning, "r2");
  EXPECT_EQ(messages[6].content.front().text, "c");
  EXPECT_EQ(request->options.effort, 100);
  EXPECT_EQ(request->fields.max_tokens, 9);
  ASSERT_EQ(request->conversation.tools.size(), 2u);
  EXPECT_TRUE(request->conversation.tools[1].custom);
  EXPECT_EQ(request->conversation.tools[1].properties.front().name, "input");
  EXPECT_EQ(request->response_format.text, "{\"type\": \"object\"}");
  EXPECT_EQ(request->warnings.size(), 1u);
  EXPECT_FALSE(parse(R"({"input":"x","previous_response_id":"r"})", Route::kResponses).has_value());
}

TEST(ChatJson, RoutesByPath) {
  EXPECT_EQ(route_by_path("/v1/chat/completions"), Route::kChatCompletions);
  EXPECT_EQ(route_by_path("/chat/completions"), Route::kChatCompletions);
  EXPECT_EQ(route_by_path("/beta/v1/chat/completions"), Route::kChatCompletions);
  EXPECT_EQ(route_by_path("/anthropic/v1/messages"), Route::kMessages);
  EXPECT_EQ(route_by_path("/v1/responses"), Route::kResponses);
  EXPECT_EQ(route_by_path("/v1/models"), std::nullopt);
}

TEST(Effort, LaterModelsHaveTheirOwnTable) {
  EXPECT_EQ(effort_value("xhigh", effort_table("DeepSeek-V4.1-Flash")), 75);
  EXPECT_EQ(effort_value("xhigh", effort_table("DeepSeek-V4.1-Flash-1017")), 100);
  EXPECT_EQ(effort_value("medium", effort_table("DeepSeek-V4.1-Flash-1017")), 75);
  EXPECT_EQ(effort_value("none", effort_table("")), 0);
  EXPECT_EQ(effort_value("64", effort_table("")), 64);
  EXPECT_FALSE(effort_value("", effort_table("")).has_value());
  EXPECT_FALSE(effort_value("64x", effort_table("")).has_value());
  EXPECT_FALSE(effort_value("99999999999999999999", effort_table("")).has_value());
}

TEST(Prompt, CompletionsAndFillInTheMiddle) {
  EXPECT_EQ(completion_prompt("x", true).text(), std::string(markup::kBos) + "x");
  EXPECT_EQ(completion_prompt("x", false).text(), "x");
  const std::string with_bos = std::string(markup::kBos) + "x";
  EXPECT_EQ(completion_prompt(with_bos, true).text(), with_bos);
  EXPECT_EQ(completion_prompt("", false).segments.size(), 0u);
  const Prompt fim = fim_prompt("def f(", "  return x<\uff5cfim\u2581end\uff5c>");
  EXPECT_EQ(fim.text(),
            "<\uff5cbegin\u2581of\u2581sentence\uff5c><\uff5cfim\u2581begin\uff5c>def "
            "f(<\uff5cfim\u2581hole\uff5c>"
            "  return x<\uff5cfim\u2581end\uff5c><\uff5cfim\u2581end\uff5c>");
  EXPECT_EQ(fim.segments.size(), 5u);
  EXPECT_FALSE(fim.segments[3].trusted);
}

// Control tokens in the ids are exactly those that the template wrote, whatever clients send.
TEST(Prompt, ClientTextNeverBecomesControlTokens) {
  const auto tokenizer = Tokenizer::load(CEDRA_SOURCE_DIR "/tests/golden/tiny/tokenizer.json");
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  std::vector<std::string> words = {"a", " ", "\n", "<", "\uff5c", ">", "DSML", "think"};
  for (const AddedToken& token : tokenizer->added_tokens()) words.push_back(token.content);
  std::mt19937_64 random(5);
  const auto text = [&] {
    std::string out;
    for (uint64_t n = random() % 6; n > 0; --n) out += words[random() % words.size()];
    return out;
  };
  const auto count = [&](const std::vector<int32_t>& ids) {
    size_t added = 0;
    for (const int32_t id : ids) {
      for (const AddedToken& token : tokenizer->added_tokens()) added += token.id == id ? 1 : 0;
    }
    return added;
  };
  for (int round = 0; round < 300; ++round) {
    Conversation conversation;
    Conversation harmless;  // the same, with every client text replaced
    const auto add = [&](Message message) {
      conversation.messages.push_back(message);
      for (ContentPart& part : message.content) part.text = "h";
      message.reasoning = message.reasoning.empty() ? "" : "h";
      for (ToolCall& call : message.tool_calls) call = {"i", "h", R"({"h": "h"})"};
      harmless.messages.push_back(std::move(message));
    };
    const auto part = [&] { return ContentPart{ContentPart::Kind::kText, text()}; };
    Message system;
    system.role = Role::kSystem;
    system.content = {part()};
    add(system);
    Message user;
    user.content = {part(), part()};
    add(user);
    Message assistant;
    assistant.role = Role::kAssistant;
    assistant.content = {part()};
    assistant.reasoning = text();
    JsonValue arguments = JsonValue::object({{text(), JsonValue::string(text())}});
    assistant.tool_calls = {{"i", text(), python_json(arguments)}};
    add(assistant);
    Message result;
    result.role = Role::kTool;
    result.tool_call_id = "i";
    result.content = {part()};
    add(result);
    ChatOptions options;
    options.thinking = random() % 2 == 0;
    options.drop_thinking = random() % 2 == 0;
    const auto prompt = encode_chat(conversation, options);
    const auto expected = encode_chat(harmless, options);
    ASSERT_TRUE(prompt.has_value() && expected.has_value());
    EXPECT_EQ(count(tokenizer->encode(prompt->segments)),
              count(tokenizer->encode(expected->segments)))
        << prompt->text();
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(prompt->segments)), prompt->text());
  }
}

TEST(Prompt, EncoderRefusesWhatItCannotWrite) {
  Conversation conversation;
  conversation.messages.emplace_back();
  ChatOptions options;
  options.effort = 101;
  EXPECT_FALSE(encode_chat(conversation, options).has_value());
  options.effort = 75;
  conversation.messages[0].tool_calls.push_back({"i", "f", "{}"});
  EXPECT_FALSE(encode_chat(conversation, options).has_value());
  conversation.messages[0] = {};
  conversation.messages[0].role = Role::kSystem;
  conversation.messages[0].content = {{ContentPart::Kind::kImage, "a.png"}};
  EXPECT_EQ(encode_chat(conversation, options).error().message,
            "Image in system message is unsupported");
  EXPECT_TRUE(encode_chat({}, options).has_value());
}

TEST(Prompt, ImagesFollowTheirTokensAfterSorting) {
  Conversation conversation;
  Message assistant;
  assistant.role = Role::kAssistant;
  assistant.tool_calls = {{"a", "f", "{}"}, {"b", "f", ""}};
  conversation.messages.push_back(assistant);
  for (const char* id : {"b", "a"}) {
    Message result;
    result.role = Role::kTool;
    result.tool_call_id = id;
    result.content = {{ContentPart::Kind::kImage, std::string("image of ") + id}};
    conversation.messages.push_back(result);
  }
  const auto prompt = encode_chat(conversation, {});
  ASSERT_TRUE(prompt.has_value());
  ASSERT_EQ(prompt->images.size(), 2u);
  EXPECT_EQ(prompt->images[0].source, "image of a");
  EXPECT_EQ(prompt->images[1].source, "image of b");
}

}  // namespace
}  // namespace cedra::text

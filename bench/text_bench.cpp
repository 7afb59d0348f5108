// Speed of the text surface: encoding a conversation (without tokenization) and parsing what the
// model writes, both over sizes that show they are linear.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "text/chat_json.h"
#include "text/markup.h"
#include "text/output_parser.h"

namespace cedra::text {
namespace {

// An agent's history: system, tools, then rounds of question, call and result; about `bytes` long.
std::string request_body(size_t bytes) {
  std::string body =
      R"({"model":"m","tools":[{"type":"function","function":{"name":"read","description":"Read",)"
      R"("parameters":{"type":"object","properties":{"path":{"type":"string"}}}}}],"messages":[)"
      R"({"role":"system","content":"You are helpful."})";
  const std::string line = R"(    if (size < limit) { out += \"<b>\\n\"; } // \u4e2d\u6587 text\n)";
  for (int round = 0; body.size() < bytes; ++round) {
    const std::string id = "call_" + std::to_string(round);
    body += R"(,{"role":"user","content":"Look at this."},{"role":"assistant","content":"",)"
            R"("reasoning_content":"I need the file.","tool_calls":[{"id":")" +
            id +
            R"(","type":"function","function":{"name":"read","arguments":"{\"path\": \"a.cpp\", )"
            R"(\"range\": [1, 20.5, {\"k\": null}]}"}}]},{"role":"tool","tool_call_id":")" +
            id + R"(","content":")";
    for (int i = 0; i < 60; ++i) body += line;
    body += R"("})";
  }
  return body + "]}";
}

void encode_conversation(benchmark::State& state) {
  const std::string body = request_body(static_cast<size_t>(state.range(0)));
  size_t prompt_bytes = 0;
  for (auto _ : state) {
    const auto request = parse_request(Route::kChatCompletions, body, {});
    const auto prompt = encode_chat(request->conversation, request->options);
    prompt_bytes = prompt->segments.size();
    benchmark::DoNotOptimize(prompt_bytes);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(body.size()));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(encode_conversation)
    ->RangeMultiplier(4)
    ->Range(1 << 14, 1 << 22)
    ->Complexity(benchmark::oN)
    ->Unit(benchmark::kMillisecond);

// Reasoning, an answer with code, and a call, cut into tokens of about four bytes.
std::vector<std::string> model_tokens(size_t count) {
  std::string text = "Let me think.\nFirst, 1 < 2.";
  const std::string answer = "The answer is `a < b && c > d`.\n\n* one\n* two <b>bold</b>\n\n";
  while (text.size() < count * 2) text += "and so on, step by step;\n\n";
  text += markup::kThinkEnd;
  while (text.size() < count * 3) text += answer;
  text.append("\n\n").append(markup::kCallsOpen).append("\n").append(markup::kInvokeOpen);
  text.append("f\">\n").append(markup::kParameterOpen).append("code\" string=\"true\">");
  while (text.size() < count * 4) text += "if (a < b) { return \"x\"; }\n";
  text.append(markup::kParameterClose).append("\n").append(markup::kInvokeClose).append("\n");
  text += markup::kCallsClose;
  std::vector<std::string> tokens;
  for (size_t at = 0; at < text.size(); at += 4) tokens.push_back(text.substr(at, 4));
  return tokens;
}

void parse_tokens(benchmark::State& state) {
  const auto tokens = model_tokens(static_cast<size_t>(state.range(0)));
  ParserOptions options;
  options.start = ParserStart::kReasoning;
  options.tools.emplace_back();
  for (auto _ : state) {
    OutputParser parser(options);
    for (const std::string& token : tokens) benchmark::DoNotOptimize(parser.push(token));
    benchmark::DoNotOptimize(parser.finish(OutputEnd::kEos));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(tokens.size()));
  state.counters["ns_per_token"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(tokens.size()) / 1e9,
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.SetComplexityN(state.range(0));
}
BENCHMARK(parse_tokens)->RangeMultiplier(8)->Range(1 << 8, 1 << 17)->Complexity(benchmark::oN);

// The worst a model can write: nothing but beginnings of markers.
void parse_marker_beginnings(benchmark::State& state) {
  std::string text;
  while (text.size() < static_cast<size_t>(state.range(0))) {
    text += "\n\n<\uff5cDSML\uff5c param<</\uff5cDSML";
  }
  ParserOptions options;
  options.tools.emplace_back();
  for (auto _ : state) {
    OutputParser parser(options);
    for (const char& c : text) benchmark::DoNotOptimize(parser.push({&c, 1}));
    benchmark::DoNotOptimize(parser.finish(OutputEnd::kEos));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(parse_marker_beginnings)
    ->RangeMultiplier(8)
    ->Range(1 << 10, 1 << 19)
    ->Complexity(benchmark::oN);

}  // namespace
}  // namespace cedra::text

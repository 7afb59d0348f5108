// Request bodies of every route through parsing, prompt building and rendering, without sockets or
// an engine. The first byte chooses the route; the model's "tokens" are taken from the body's
// bytes. Beyond not crashing: whatever is rendered must be JSON.
#include <cstdlib>
#include <string_view>

#include "engine/script_file.h"
#include "server/choice.h"
#include "server/plan.h"
#include "text/json_value.h"

namespace {

using namespace cedra;
using namespace cedra::server;

struct World {
  text::Tokenizer tokenizer;
  ModelContext model;
};

const World& world() {
  static const World* const made = [] {
    Result<text::Tokenizer> tokenizer =
        text::Tokenizer::load(CEDRA_SOURCE_DIR "/tests/golden/tiny/tokenizer.json");
    if (!tokenizer) std::abort();
    auto* out = new World{*std::move(tokenizer), {}};
    out->model.tokenizer = &out->tokenizer;
    out->model.info.context_length = 4096;
    out->model.info.vocab_size = 512;
    out->model.names = {"m"};
    return out;
  }();
  return *made;
}

void require_json(std::string_view json) {
  if (!text::JsonReader().valid(json)) std::abort();
}

void require_events(std::string_view events) {
  while (!events.empty()) {
    const size_t end = events.find("\n\n");
    if (events.starts_with("event: ")) {
      const size_t line = events.find('\n');
      if (line == std::string_view::npos) std::abort();
      events.remove_prefix(line + 1);
      continue;
    }
    if (!events.starts_with("data: ") || end == std::string_view::npos) std::abort();
    require_json(events.substr(6, end - 6));
    events.remove_prefix(end + 2);
  }
}

void render(const Plan& plan, std::string_view body) {
  const ResponseIdentity identity{"id", 1, "c"};
  std::vector<std::unique_ptr<Choice>> choices;
  ResponseUsage usage;
  for (size_t i = 0; i < plan.choices() && i < 3; ++i) {
    choices.push_back(Choice::make(plan, world().tokenizer, identity, i));
    Choice& choice = *choices.back();
    std::string events;
    choice.begin(events);
    std::vector<engine::Token> prompt(plan.prompts.front().size());
    if (plan.sampling.prompt_logprobs >= 0) choice.prompt_logprobs(prompt, events);
    for (size_t at = 0; at < body.size() && at < 64; ++at) {
      engine::Token token;
      token.id = (static_cast<unsigned char>(body[at]) * 2 + static_cast<int>(at % 2)) % 512;
      token.top.push_back({token.id, -0.5f});
      if (!choice.token(token, events)) break;
    }
    engine::Finish finish;
    finish.reason =
        body.size() % 2 == 0 ? engine::FinishReason::kStop : engine::FinishReason::kLength;
    choice.end(finish, events);
    require_events(events);
  }
  if (!plan.stream) {
    require_json(render_response(plan, identity, choices, usage));
  }
}

Result<std::vector<text::Message>> no_response(std::string_view id) {
  if (id.size() % 2 == 0) return err(Code::kNotFound, "none");
  return std::vector<text::Message>(1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 8) {
    case 0:
      if (const auto plan = plan_chat(body, world().model)) render(*plan, body);
      break;
    case 1:
      if (const auto plan = plan_completion(body, world().model)) render(*plan, body);
      break;
    case 2:
      (void)plan_tokenize(body, world().model);
      break;
    case 4:
      if (const auto plan = plan_messages(body, world().model)) render(*plan, body);
      break;
    case 5:
      if (const auto plan = plan_responses(body, world().model, no_response)) render(*plan, body);
      break;
    case 6:
      (void)plan_count(body, world().model);
      break;
    case 7:
      (void)engine::parse_script_file(body);
      break;
    default:
      if (const auto ids = parse_detokenize(body)) (void)world().tokenizer.decode(*ids);
  }
  return 0;
}

// `cedra serve DIR`: the HTTP server on a checkpoint. SIGINT or SIGTERM ends it gracefully, a
// second one at once.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/text_io.h"
#include "engine/script_file.h"
#include "server/http_server.h"
#include "server/service.h"

namespace cedra::cli {
namespace {

struct ServeFlags {
  EngineFlags engine;
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::vector<std::string> names;
  std::string api_key;
  std::string script;
  int64_t grace_seconds = 30;
  server::HttpLimits limits;
  // Flags of other servers for what is built in here.
  std::string tokenizer_mode, tool_parser, reasoning_parser;
  bool auto_tool_choice = true, trust_remote_code = false;
};

void print_first_request(const ServeFlags& flags, const std::string& name, uint16_t port) {
  const bool any = flags.host == "0.0.0.0" || flags.host == "::";
  const std::string host = any ? "127.0.0.1" : flags.host;
  const bool v6 = host.find(':') != std::string::npos;
  const std::string base = fmt::format("http://{}:{}", v6 ? "[" + host + "]" : host, port);
  fmt::print("cedra {} serves {} on {}\nTry:\n\n", CEDRA_VERSION, name, base);
  fmt::print("curl {}/v1/chat/completions -H 'Content-Type: application/json' \\\n", base);
  if (!flags.api_key.empty()) fmt::print("  -H 'Authorization: Bearer YOUR_KEY' \\\n");
  fmt::print(
      "  -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}], "
      "\"max_tokens\": 64}}'\n\n");
  std::fflush(stdout);
}

// A model's place taken by a script: of the folder, only the tokenizer is read.
Result<engine::Loaded> open_script(const ServeFlags& flags) {
  CEDRA_ASSIGN(engine::ScriptFile file, engine::read_script_file(flags.script));
  CEDRA_ASSIGN(text::Tokenizer tokenizer, text::Tokenizer::load(flags.engine.folder));
  engine::Loaded out;
  out.tokenizer = std::make_shared<const text::Tokenizer>(std::move(tokenizer));
  CEDRA_ASSIGN(engine::ScriptedOptions options,
               engine::script_options(std::move(file), *out.tokenizer));
  out.engine = std::make_unique<engine::ScriptedEngine>(std::move(options));
  out.folder_name = "scripted";
  fmt::print("no model: {} says what is answered\n", flags.script);
  return out;
}

Result<engine::Loaded> open_model(const ServeFlags& flags) {
  CEDRA_ASSIGN(engine::Loaded loaded, open_engine(flags.engine));
  fmt::print("{}", loaded.plan.to_text());
  return loaded;
}

int serve(const ServeFlags& flags) {
  Result<engine::Loaded> loaded = flags.script.empty() ? open_model(flags) : open_script(flags);
  if (!loaded) return fail(loaded.error());
  engine::Engine& engine = *loaded->engine;

  server::ServiceOptions options;
  options.model_names = flags.names;
  if (options.model_names.empty()) options.model_names.push_back(loaded->folder_name);
  options.version = CEDRA_VERSION;
  if (!flags.api_key.empty()) options.api_keys.push_back(flags.api_key);
  options.defaults.temperature = loaded->generation.temperature;
  options.defaults.top_p = loaded->generation.top_p;
  options.defaults.top_k = loaded->generation.top_k;
  server::Service service(engine, *loaded->tokenizer, options);

  Result<std::unique_ptr<server::HttpServer>> listening = server::HttpServer::listen(
      flags.host, flags.port, flags.limits,
      [&service](server::HttpRequest request, std::shared_ptr<server::Exchange> exchange) {
        service.handle(std::move(request), std::move(exchange));
      });
  if (!listening) return fail(listening.error());
  server::HttpServer& http = **listening;

  std::vector<std::thread> stopping;
  http.on_signal([&] {
    const bool first = stopping.empty();
    if (stopping.size() >= 2) return;
    fmt::print(stderr, "{}\n",
               first ? "finishing the requests under way; again to stop at once" : "stopping");
    service.drain();
    http.stop_accepting();
    const auto grace = std::chrono::seconds(first ? flags.grace_seconds : 0);
    stopping.emplace_back([&engine, &http, grace] {
      engine.drain(grace);
      http.stop(std::chrono::seconds(5));
    });
  });
  print_first_request(flags, options.model_names.front(), http.port());
  http.run();
  for (std::thread& thread : stopping) thread.join();
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("serve", "serve the OpenAI HTTP API on a checkpoint");
  const auto flags = std::make_shared<ServeFlags>();
  add_engine_flags(*command, flags->engine);
  command->add_option("--host", flags->host, "address to listen on")->capture_default_str();
  command->add_option("--port", flags->port, "0 = any free one")->capture_default_str();
  command->add_option("--served-model-name", flags->names,
                      "one or several (default: the folder's)");
  command->add_option("--api-key", flags->api_key, "clients must send it");
  command->add_option("--max-queue", flags->engine.options.max_queue, "requests that wait")
      ->capture_default_str();
  command->add_option("--max-connections", flags->limits.connections, "clients connected at once")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--max-body-bytes", flags->limits.body_bytes, "largest request body")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  command
      ->add_option("--grace-seconds", flags->grace_seconds,
                   "time that running requests get on shutdown")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  command
      ->add_option("--script", flags->script,
                   "for trying clients: answer from this JSON file, load no model (docs/server.md)")
      ->check(CLI::ExistingFile);
  const CLI::IsMember ours({"deepseek_v41", "deepseek-v41", "deepseekv41"});
  command->add_option("--tokenizer-mode", flags->tokenizer_mode, "built in")->check(ours);
  command->add_option("--tool-call-parser", flags->tool_parser, "built in")->check(ours);
  command->add_option("--reasoning-parser", flags->reasoning_parser, "built in")->check(ours);
  command->add_flag("--enable-auto-tool-choice", flags->auto_tool_choice, "built in");
  command->add_flag("--trust-remote-code", flags->trust_remote_code,
                    "nothing to trust: no code is loaded");
  command->callback([&action, flags] { action = [flags] { return serve(*flags); }; });
}

}  // namespace cedra::cli

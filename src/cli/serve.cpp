// `cedra serve DIR`: the HTTP server on a checkpoint. It listens before it loads. SIGINT or SIGTERM
// ends it gracefully, a second one at once.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/flag_sources.h"
#include "cli/serve_flags.h"
#include "cli/text_io.h"
#include "engine/script_file.h"
#include "server/start_gate.h"

namespace cedra::cli {
namespace {

void print_first_request(const ServeFlags& flags, const server::ServiceOptions& options,
                         uint16_t port) {
  const bool any = flags.host == "0.0.0.0" || flags.host == "::";
  const std::string host = any ? "127.0.0.1" : flags.host;
  const bool v6 = host.find(':') != std::string::npos;
  const std::string base = fmt::format("http://{}:{}", v6 ? "[" + host + "]" : host, port);
  fmt::print("cedra {} serves {} on {}\nTry:\n\n", CEDRA_VERSION, options.model_names.front(),
             base);
  fmt::print("curl {}/v1/chat/completions -H 'Content-Type: application/json' \\\n", base);
  if (!options.api_keys.empty()) fmt::print("  -H 'Authorization: Bearer YOUR_KEY' \\\n");
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

Result<engine::Loaded> open_model(const ServeFlags& flags, server::StartGate& gate) {
  CEDRA_ASSIGN(engine::Loaded loaded,
               open_engine(flags.engine, nullptr, [&gate](std::string_view stage, int64_t percent) {
                 gate.progress(stage, percent);
               }));
  fmt::print("{}", loaded.plan.to_text());
  return loaded;
}

// The network's thread; ended and joined wherever serving ends.
class IoThread {
 public:
  explicit IoThread(server::HttpServer& http) : http_(&http), thread_([&http] { http.run(); }) {}
  ~IoThread() {
    if (!thread_.joinable()) return;
    http_->stop(std::chrono::seconds(1));
    thread_.join();
  }
  void join() { thread_.join(); }

 private:
  server::HttpServer* http_;
  std::thread thread_;
};

int serve(const ServeFlags& flags) {
  log::set_level(log::level_from_name(flags.log_level).value_or(log::Level::kInfo));
  log::set_json(flags.log_format == "json");
  for (const std::string& warning : flags.foreign->warnings()) log::warning("{}", warning);

  Result<server::ServiceOptions> options = service_options(flags);
  if (!options) return fail(options.error());
  // What is used by the others comes first, so that it goes last.
  std::optional<engine::Loaded> loaded;
  std::optional<server::Service> service;
  server::StartGate gate;
  Result<std::unique_ptr<server::HttpServer>> listening = server::HttpServer::listen(
      flags.host, flags.port, flags.limits,
      [&gate](server::HttpRequest request, std::shared_ptr<server::Exchange> exchange) {
        gate.handle(std::move(request), std::move(exchange));
      });
  if (!listening) return fail(listening.error());
  server::HttpServer& http = **listening;
  IoThread io(http);

  Result<engine::Loaded> opened =
      flags.script.empty() ? open_model(flags, gate) : open_script(flags);
  if (!opened) return fail(opened.error());
  loaded.emplace(*std::move(opened));
  engine::Engine& engine = *loaded->engine;
  take_from_checkpoint(flags, loaded->folder_name, loaded->generation, *options);
  service.emplace(engine, *loaded->tokenizer, *options);
  if (const Result<> ready = service->check(); !ready) return fail(ready.error());
  gate.open(*service);

  std::vector<std::thread> stopping;
  http.on_signal([&] {
    const bool first = stopping.empty();
    if (stopping.size() >= 2) return;
    fmt::print(stderr, "{}\n",
               first ? "finishing the requests under way; again to stop at once" : "stopping");
    service->drain();
    http.stop_accepting();
    const auto grace = std::chrono::seconds(first ? flags.grace_seconds : 0);
    stopping.emplace_back([&engine, &http, grace] {
      engine.drain(grace);
      http.stop(std::chrono::seconds(5));
    });
  });
  print_first_request(flags, *options, http.port());
  io.join();
  for (std::thread& thread : stopping) thread.join();
  return 0;
}

// What the command line left open, from the environment and a file.
void complete(CLI::App& command, ServeFlags& flags) {
  fill_from_environment(command);
  if (!flags.config.empty()) fill_from_file(command, flags.config);
  if (flags.engine.folder.empty() && !flags.print_config) throw CLI::RequiredError("model");
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("serve", "serve the HTTP API on a checkpoint");
  const auto flags = std::make_shared<ServeFlags>();
  add_serve_flags(*command, *flags);
  command->footer(
      "Every flag can also be set as an environment variable (--max-model-len: "
      "CEDRA_MAX_MODEL_LEN) or in the --config file; the command line counts first.");
  command->callback([&action, command, flags] {
    complete(*command, *flags);
    action = [command, flags] {
      if (!flags->print_config) return serve(*flags);
      fmt::print("{}", flags_as_file(*command, {"api-key"}));
      return 0;
    };
  });
}

}  // namespace cedra::cli

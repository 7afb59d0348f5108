#include "cli/serve_flags.h"

#include <fmt/format.h>

#include <fstream>

#include "text/json_value.h"

namespace cedra::cli {
namespace {

constexpr size_t kShortestKey = 1;
constexpr int64_t kMaxKeyFileBytes = 1 << 20;

// One key per line; empty lines and those that begin with # do not count.
Result<std::vector<std::string>> read_keys(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return err(Code::kNotFound, "--api-key-file {}: cannot be read", path);
  std::vector<std::string> keys;
  std::string line;
  int64_t bytes = 0;
  while (std::getline(in, line)) {
    bytes += static_cast<int64_t>(line.size()) + 1;
    if (bytes > kMaxKeyFileBytes) {
      return err(Code::kTooLarge, "--api-key-file {}: more than {} bytes", path, kMaxKeyFileBytes);
    }
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.size() >= kShortestKey && line.front() != '#') keys.push_back(line);
  }
  if (keys.empty()) return err(Code::kInvalid, "--api-key-file {}: holds no key", path);
  return keys;
}

// '{"thinking": false}': whether the model thinks where a request does not say.
Result<bool> default_thinking(const std::string& json) {
  bool thinking = true;
  if (json.empty()) return thinking;
  const auto value = text::JsonReader().read(json);
  if (!value || !value->is_object()) {
    return err(Code::kInvalid, "--default-chat-template-kwargs must be a JSON object, got {}",
               json);
  }
  for (const auto& [key, member] : value->members()) {
    if ((key != "thinking" && key != "enable_thinking") || !member.is_bool()) {
      return err(Code::kInvalid,
                 "--default-chat-template-kwargs: only thinking: true or false is known, got {}",
                 json);
    }
    thinking = member.as_bool();
  }
  return thinking;
}

void add_limits(CLI::App& command, ServeFlags& flags) {
  constexpr const char* kGroup = "Limits";
  command.add_option("--max-queue", flags.engine.options.max_queue, "requests that wait")
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--max-connections", flags.limits.connections, "clients connected at once")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--max-connections-per-address", flags.limits.connections_per_address,
                  "of them, from one address")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--max-requests-per-minute", flags.requests_per_minute,
                  "of one key, or of one address where no key is needed; 0 = no limit")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--max-body-bytes", flags.limits.body_bytes, "largest request body")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--max-header-bytes", flags.limits.header_bytes, "largest request header")
      ->check(CLI::Range(int64_t{1024}, int64_t{16} << 20))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--max-choices", flags.request_limits.max_choices,
                  "answers of one request: prompts times n")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--response-store-bytes", flags.response_store_bytes,
                  "of responses kept for previous_response_id, also 64M; 0 = none")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--grammar-bytes", flags.engine.options.grammar_bytes,
                  "of grammars of structured outputs, in use or kept, also 64M (default: 256M or "
                  "1/16 of the budget)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->group(kGroup);
  command
      .add_option("--grace-seconds", flags.grace_seconds,
                  "time that running requests get on shutdown")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str()
      ->group(kGroup);
}

void add_log_flags(CLI::App& command, ServeFlags& flags) {
  constexpr const char* kGroup = "Log (standard error)";
  command.add_option("--log-level", flags.log_level, "debug, info, warning, error, off")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--log-format", flags.log_format, "text or json, one object a line")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_flag("--access-log,!--no-access-log,!--disable-uvicorn-access-log",
                flags.limits.access_log, "a line per request (default: on)")
      ->group(kGroup);
  command.add_flag("--log-prompts", flags.log_prompts, "also bodies of requests; off by default")
      ->group(kGroup);
}

}  // namespace

void add_serve_flags(CLI::App& command, ServeFlags& flags) {
  add_engine_flags(command, flags.engine);
  add_image_flags(command, flags.images, flags.engine.options);
  add_media_flags(command, flags.images);
  command.get_option("model")->required(false);  // may come from a file or the environment
  command.add_option("--host", flags.host, "address to listen on")->capture_default_str();
  command.add_option("--port", flags.port, "0 = any free one")->capture_default_str();
  command.add_option("--served-model-name", flags.names, "one or several (default: the folder's)");
  command.add_option("--api-key", flags.api_keys, "clients must send it, or one of several")
      ->allow_extra_args(false);
  command.add_option("--api-key-file", flags.api_key_file, "the same, a key per line");
  command
      .add_option("--allowed-origins", flags.allowed_origins,
                  "web pages that may call this server, like https://example.org, or * for all "
                  "(default: none but its own)")
      ->allow_extra_args(false);
  command
      .add_option("--reasoning-field", flags.reasoning_field,
                  "what chat completions call reasoning: reasoning_content, reasoning or both")
      ->check(CLI::IsMember({"reasoning_content", "reasoning", "both"}))
      ->capture_default_str();
  command
      .add_option("--generation-config", flags.generation_config,
                  "sampling where a request says nothing: auto = the checkpoint's, vllm = neutral")
      ->check(CLI::IsMember({"auto", "vllm"}))
      ->capture_default_str();
  command.add_option("--default-chat-template-kwargs", flags.template_kwargs,
                     "'{\"thinking\": false}': no thinking where a request does not say");
  command
      .add_option("--script", flags.script,
                  "for trying clients: answer from this JSON file, load no model (docs/server.md)")
      ->check(CLI::ExistingFile);
  add_limits(command, flags);
  add_log_flags(command, flags);
  command.add_option("--config", flags.config, "file with more flags: name = value");
  command.add_flag("--print-config", flags.print_config,
                   "show all flags as such a file, and do nothing else");
  flags.foreign = std::make_unique<ForeignFlags>(command);
}

Result<server::ServiceOptions> service_options(const ServeFlags& flags) {
  server::ServiceOptions out;
  out.model_names = flags.names;
  out.version = CEDRA_VERSION;
  out.api_keys = flags.api_keys;
  if (!flags.api_key_file.empty()) {
    CEDRA_ASSIGN(const std::vector<std::string> keys, read_keys(flags.api_key_file));
    out.api_keys.insert(out.api_keys.end(), keys.begin(), keys.end());
  }
  for (const std::string& key : out.api_keys) {
    if (key.empty()) return err(Code::kInvalid, "--api-key: a key must not be empty");
  }
  out.allowed_origins = flags.allowed_origins;
  out.requests_per_minute = flags.requests_per_minute;
  out.response_store_bytes = flags.response_store_bytes;
  out.limits = flags.request_limits;
  out.log_prompts = flags.log_prompts;
  out.reasoning_names.content = flags.reasoning_field != "reasoning";
  out.reasoning_names.plain = flags.reasoning_field != "reasoning_content";
  CEDRA_ASSIGN(out.images, image_options(flags.images));
  out.strict_image_placeholder = flags.images.strict_placeholder;
  CEDRA_ASSIGN(out.default_thinking, default_thinking(flags.template_kwargs));
  return out;
}

void take_from_checkpoint(const ServeFlags& flags, const std::string& folder_name,
                          const GenerationConfig& generation, server::ServiceOptions& options) {
  if (options.model_names.empty()) options.model_names.push_back(folder_name);
  const bool neutral = flags.generation_config == "vllm";
  options.defaults.temperature = neutral ? 1 : generation.temperature;
  options.defaults.top_p = neutral ? 1 : generation.top_p;
  options.defaults.top_k = neutral ? 0 : generation.top_k;
}

}  // namespace cedra::cli

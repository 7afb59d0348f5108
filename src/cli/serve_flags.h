// The flags of `cedra serve`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/engine_flags.h"
#include "cli/foreign_flags.h"
#include "cli/image_flags.h"
#include "server/http_server.h"
#include "server/service.h"

namespace cedra::cli {

struct ServeFlags {
  EngineFlags engine;
  ImageFlags images;
  std::string script;
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::vector<std::string> names;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> allowed_origins;
  std::string reasoning_field = "reasoning_content";
  std::string generation_config = "auto";
  std::string template_kwargs;
  std::string log_level = "info";
  std::string log_format = "text";
  bool log_prompts = false;
  int64_t grace_seconds = 30;
  int64_t requests_per_minute = 0;
  server::HttpLimits limits;
  server::RequestLimits request_limits;
  size_t response_store_bytes = size_t{64} << 20;
  std::unique_ptr<ForeignFlags> foreign;
  std::string config;
  bool print_config = false;
};

void add_serve_flags(CLI::App& command, ServeFlags& flags);

// What the service is told; kInvalid for a flag whose content is wrong.
Result<server::ServiceOptions> service_options(const ServeFlags& flags);
// And what comes from the checkpoint: the served name where none was given, the sampling that it
// recommends.
void take_from_checkpoint(const ServeFlags& flags, const std::string& folder_name,
                          const GenerationConfig& generation, server::ServiceOptions& options);

}  // namespace cedra::cli

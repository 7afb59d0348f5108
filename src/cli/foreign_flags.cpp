#include "cli/foreign_flags.h"

#include <fmt/format.h>

namespace cedra::cli {
namespace {

constexpr const char* kGroup = "Flags of other servers";
constexpr const char* kOneProcess = "cedra is one process on one machine";
constexpr const char* kNoDevice = "it is for accelerators, and cedra computes on the CPU";
constexpr const char* kMemory = "memory is planned from the machine; see --memory-budget";
constexpr const char* kOwn = "cedra has its own way of doing this";

struct Row {
  const char* names;
  const char* why;
};

constexpr Row kIgnoredValues[] = {
    {"--tensor-parallel-size,--tp,--tp-size", kOneProcess},
    {"--pipeline-parallel-size,--pp", kOneProcess},
    {"--data-parallel-size,--dp", kOneProcess},
    {"--data-parallel-size-local", kOneProcess},
    {"--data-parallel-address", kOneProcess},
    {"--data-parallel-rpc-port", kOneProcess},
    {"--data-parallel-start-rank", kOneProcess},
    {"--nnodes", kOneProcess},
    {"--master-addr", kOneProcess},
    {"--master-port", kOneProcess},
    {"--distributed-executor-backend", kOneProcess},
    {"--api-server-count", kOneProcess},
    {"--gpu-memory-utilization,--mem-fraction-static", kMemory},
    {"--swap-space", kMemory},
    {"--cpu-offload-gb", kMemory},
    {"--mm-processor-cache-gb", kMemory},
    {"--mm-processor-cache-type", kMemory},
    {"--engram-config", "the tables are mapped from the checkpoint in any case"},
    {"--compilation-config", kNoDevice},
    {"--max-cudagraph-capture-size", kNoDevice},
    {"--cudagraph-capture-sizes", kNoDevice},
    {"--kernel-config", kNoDevice},
    {"--moe-backend", kNoDevice},
    {"--attention-backend", kNoDevice},
    {"--mm-encoder-tp-mode", kNoDevice},
    {"--mm-encoder-attn-backend", kNoDevice},
    {"--device", kNoDevice},
    {"--download-dir", "nothing is downloaded"},
    {"--revision", "nothing is downloaded"},
    {"--uvicorn-log-level", "see --log-level"},
    {"--max-log-len", "prompts are not logged"},
    {"--optimization-level", kOwn},
    {"--scheduling-policy", "requests with a lower priority number always run first"},
    {"--allowed-methods", kOwn},
    {"--allowed-headers", kOwn},
};

constexpr Row kIgnoredSwitches[] = {
    {"--enable-expert-parallel,!--no-enable-expert-parallel", kOneProcess},
    {"--data-parallel-hybrid-lb", kOneProcess},
    {"--disable-custom-all-reduce", kOneProcess},
    {"--enforce-eager,!--no-enforce-eager", kNoDevice},
    {"--enable-dbo", kNoDevice},
    {"--enable-chunked-prefill,!--no-enable-chunked-prefill", "prompts always run in chunks"},
    {"--async-scheduling,!--no-async-scheduling", kOwn},
    {"--disable-log-stats", "there is no such log; see /metrics"},
    {"--enable-log-requests,!--no-enable-log-requests", "see --access-log"},
    {"--disable-log-requests", "see --access-log"},
    {"--allow-credentials", kOwn},
};

// Accepted without a word: it is how cedra works.
constexpr Row kBuiltInSwitches[] = {
    {"--enable-auto-tool-choice", "built in"},
    {"--exclude-tools-when-tool-choice-none", "built in"},
    {"--enable-request-id-headers", "built in"},
    {"--trust-remote-code", "nothing to trust: no code is loaded"},
};

constexpr Row kRefusedValues[] = {
    {"--chat-template", "the model's prompt format is built in; another template cannot be used"},
    {"--quantization", "the checkpoint is used as it is stored"},
    {"--lora-modules", "adapters are not supported"},
    {"--hf-overrides", "the checkpoint's config.json is used as it is"},
    {"--rope-scaling", "the checkpoint's config.json is used as it is"},
    {"--tokenizer", "the tokenizer of the checkpoint folder is used"},
    {"--kv-transfer-config", "prefill and decode cannot be split over processes"},
    {"--node-rank", "cedra is one process on one machine; start it there only"},
    {"--ssl-keyfile", "there is no TLS; put a reverse proxy in front"},
    {"--ssl-certfile", "there is no TLS; put a reverse proxy in front"},
    {"--root-path", "the API stands at the root; let the proxy cut the prefix off"},
    {"--response-role", "answers have the role assistant"},
    {"--middleware", "no code is loaded"},
    {"--logits-processors", "no code is loaded"},
};

constexpr Row kRefusedSwitches[] = {
    {"--enable-lora", "adapters are not supported"},
    {"--headless", "a server without an API would do nothing here"},
    {"--return-tokens-as-token-ids", "tokens are given as text; see return_token_ids"},
};

struct OneOf {
  const char* names;
  std::vector<std::string> values;
  const char* help;
};

const std::vector<OneOf>& checked_values() {
  static const std::vector<std::string> kParsers = {"deepseek_v41", "deepseek-v41", "deepseekv41"};
  static const std::vector<OneOf> kRows = {
      {"--tokenizer-mode", {"deepseek_v41", "deepseek-v41", "deepseekv41", "auto"}, "built in"},
      {"--tool-call-parser", kParsers, "built in"},
      {"--reasoning-parser", kParsers, "built in"},
      {"--kv-cache-dtype",
       {"auto", "fp8", "fp8_e4m3", "fp8_ds_mla"},
       "the cache is stored as the model rounds it"},
      {"--dtype", {"auto", "bfloat16"}, "as the checkpoint has it"},
      {"--load-format", {"auto", "safetensors"}, "safetensors, mapped"},
      {"--chat-template-content-format", {"auto", "string", "openai"}, "both are understood"},
  };
  return kRows;
}

}  // namespace

ForeignFlags::ForeignFlags(CLI::App& command) {
  for (const Row& row : kIgnoredValues) {
    CLI::Option* option = command.add_option(row.names)->expected(1)->group(kGroup);
    option->description("ignored: " + std::string(row.why));
    ignored_.push_back({option, row.why});
  }
  for (const Row& row : kIgnoredSwitches) {
    CLI::Option* option = command.add_flag(row.names)->group(kGroup);
    option->description("ignored: " + std::string(row.why));
    ignored_.push_back({option, row.why});
  }
  for (const Row& row : kBuiltInSwitches) {
    command.add_flag(row.names)->description(row.why)->group(kGroup);
  }
  for (const OneOf& row : checked_values()) {
    command.add_option(row.names)
        ->expected(1)
        ->check(CLI::IsMember(row.values))
        ->description(row.help)
        ->group(kGroup);
  }
  const auto refuse = [](const char* why) {
    return [why](const std::string&) { return fmt::format("refused: {}", why); };
  };
  for (const Row& row : kRefusedValues) {
    command.add_option(row.names)
        ->expected(1)
        ->check(refuse(row.why))
        ->description("refused: " + std::string(row.why))
        ->group(kGroup);
  }
  for (const Row& row : kRefusedSwitches) {
    const auto refused = [names = row.names, why = row.why] {
      throw CLI::ValidationError(names, fmt::format("refused: {}", why));
    };
    command.add_flag_callback(row.names, refused)
        ->description("refused: " + std::string(row.why))
        ->group(kGroup);
  }
}

std::vector<std::string> ForeignFlags::warnings() const {
  std::vector<std::string> out;
  for (const Ignored& row : ignored_) {
    if (row.option->count() == 0) continue;
    out.push_back(fmt::format("--{} is ignored: {}", row.option->get_lnames().front(), row.why));
  }
  return out;
}

}  // namespace cedra::cli

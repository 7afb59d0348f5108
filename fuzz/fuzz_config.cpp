// config.json, generation_config.json and the shard index. A config that is accepted must give an
// inventory whose sizes fit 64 bits.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/config.h"
#include "checkpoint/folder.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/registry.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)cedra::parse_shard_index(text);
  const auto config = cedra::parse_config(text);
  (void)cedra::parse_generation_config(text, config ? *config : cedra::Config{});
  if (!config) return 0;
  (void)config->text.replay_seam();
  // The inventory of a legal but huge model is only slow, not wrong: not here.
  const int64_t experts =
      config->text.num_hidden_layers * config->text.n_routed_experts +
      config->text.num_nextn_predict_layers * config->text.dspark_n_routed_experts;
  if (experts > 1000) return 0;
  for (const cedra::TensorSpec& spec : cedra::tensor_inventory(*config)) {
    if (cedra::tensor_bytes(spec) <= 0) std::abort();
  }
  return 0;
}

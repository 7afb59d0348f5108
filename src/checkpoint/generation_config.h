// generation_config.json: the sampling defaults that come with a checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"

namespace cedra {

struct GenerationConfig {
  double temperature = 1;              // 0 where the file says do_sample: false
  double top_p = 0.95;                 // what the vendor recommends
  int64_t top_k = 0;                   // 0 = off
  std::vector<int64_t> eos_token_ids;  // any of these ends an answer; never empty after loading
};

// Absent keys keep the defaults above; absent eos_token_id is the config's. Unknown keys are
// ignored: the file is advice, not the model. kCorrupt, kInvalid.
Result<GenerationConfig> parse_generation_config(std::string_view json, const Config& config);
// A missing file is all defaults.
Result<GenerationConfig> load_generation_config(const std::filesystem::path& folder,
                                                const Config& config);

}  // namespace cedra

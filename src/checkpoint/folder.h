// Which files of a checkpoint folder may be read, and what its index says; internal to checkpoint/.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace cedra {

// `folder` / `name`, after following links. Links may lead to files below the folder and, in the
// layout of the Hugging Face cache (snapshots/REVISION/name -> ../../blobs/HASH), into blobs/;
// anywhere else only with follow_symlinks. kNotFound, kInvalid.
Result<std::filesystem::path> resolve_file(const std::filesystem::path& folder,
                                           const std::string& name, bool follow_symlinks);

// model.safetensors.index.json, or the header-only view of a single model.safetensors.
struct ShardIndex {
  std::vector<std::string> shards;  // file names, sorted
  std::map<std::string, size_t>
      tensors;  // stored name -> position in shards; empty without an index
  std::optional<int64_t> total_size;
  bool has_index = false;
};

Result<ShardIndex> load_shard_index(const std::filesystem::path& folder, bool follow_symlinks);

// The text of an index. kCorrupt, kInvalid.
Result<ShardIndex> parse_shard_index(std::string_view json);

}  // namespace cedra

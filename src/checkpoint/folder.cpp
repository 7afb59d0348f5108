#include "checkpoint/folder.h"

#include <simdjson.h>

#include <algorithm>
#include <system_error>

#include "base/mapped_file.h"

namespace cedra {
namespace {

namespace fs = std::filesystem;
using simdjson::dom::element;
using simdjson::dom::element_type;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";
constexpr int64_t kMaxIndexBytes = int64_t{256} << 20;
constexpr size_t kMaxDepth = 8;
constexpr size_t kMaxShards = 65536;

bool is_below(const fs::path& path, const fs::path& folder) {
  const auto [end, ignored] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

// blobs/ of the cache that `folder` is a snapshot of, or empty.
fs::path hub_blobs(const fs::path& folder) {
  if (folder.parent_path().filename() != "snapshots") return {};
  return folder.parent_path().parent_path() / "blobs";
}

simdjson::dom::object object_of(element value) { return value.get_object().value_unsafe(); }

// A plain file name: an index must not reach into other folders.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace

Result<fs::path> resolve_file(const fs::path& folder, const std::string& name,
                              bool follow_symlinks) {
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return err(Code::kNotFound, "{}: {}", folder.string(), error.message());
  if (!fs::is_directory(root, error)) {
    return err(Code::kInvalid, "{}: not a folder", folder.string());
  }
  fs::path file = fs::canonical(root / name, error);
  if (error) {
    const Code code = error == std::errc::no_such_file_or_directory ? Code::kNotFound : Code::kIo;
    return err(code, "{}: {}", (folder / name).string(), error.message());
  }
  if (follow_symlinks || is_below(file, root)) return file;
  const fs::path blobs = hub_blobs(root);
  if (!blobs.empty() && is_below(file, blobs)) return file;
  return err(Code::kInvalid,
             "{}: links to {}, outside of the checkpoint folder; --follow-symlinks allows it",
             (folder / name).string(), file.string());
}

Result<ShardIndex> parse_shard_index(std::string_view json) {
  simdjson::dom::parser parser;
  if (parser.allocate(std::max<size_t>(json.size(), 64), kMaxDepth) != simdjson::SUCCESS) {
    return err(Code::kExhausted, "no memory to parse {} bytes", json.size());
  }
  const simdjson::padded_string padded(json);
  element root;
  if (const auto error = parser.parse(padded).get(root)) {
    return err(Code::kCorrupt, "not JSON of at most {} levels: {}", kMaxDepth,
               simdjson::error_message(error));
  }
  if (root.type() != element_type::OBJECT) return err(Code::kCorrupt, "not a JSON object");

  ShardIndex index;
  index.has_index = true;
  std::optional<element> weight_map;
  for (const auto field : object_of(root)) {
    if (field.key == "weight_map") {
      if (weight_map) return err(Code::kCorrupt, "weight_map stands twice");
      if (field.value.type() != element_type::OBJECT) {
        return err(Code::kCorrupt, "weight_map is not an object");
      }
      weight_map = field.value;
    } else if (field.key == "metadata" && field.value.type() == element_type::OBJECT) {
      for (const auto item : object_of(field.value)) {
        if (item.key != "total_size") continue;
        if (item.value.type() != element_type::INT64) {
          return err(Code::kCorrupt, "metadata.total_size is {}, must be an integer",
                     simdjson::minify(item.value).substr(0, 64));
        }
        index.total_size = int64_t{item.value.get_int64().value_unsafe()};
      }
    }
  }
  if (!weight_map) return err(Code::kCorrupt, "weight_map is missing");

  std::map<std::string, size_t, std::less<>> shards;  // sorted file names -> position
  std::vector<std::pair<std::string, std::string>> entries;
  for (const auto field : object_of(*weight_map)) {
    if (field.value.type() != element_type::STRING) {
      return err(Code::kCorrupt, "weight_map: the shard of {} is not a string", field.key);
    }
    const std::string_view shard = field.value.get_string().value_unsafe();
    if (!is_plain_file_name(shard)) {
      return err(Code::kInvalid,
                 "weight_map: the shard of {} is \"{}\", must be a file name without separators",
                 field.key, shard.substr(0, 128));
    }
    shards.emplace(shard, 0);
    if (shards.size() > kMaxShards) {
      return err(Code::kTooLarge, "weight_map names more than {} shards", kMaxShards);
    }
    entries.emplace_back(field.key, shard);
  }
  if (entries.empty()) return err(Code::kCorrupt, "weight_map is empty");
  for (auto& [name, position] : shards) {
    position = index.shards.size();
    index.shards.push_back(name);
  }
  for (auto& [name, shard] : entries) {
    const auto [at, added] = index.tensors.emplace(std::move(name), shards.find(shard)->second);
    if (!added) return err(Code::kCorrupt, "weight_map: {} stands twice", at->first);
  }
  return index;
}

Result<ShardIndex> load_shard_index(const fs::path& folder, bool follow_symlinks) {
  auto path = resolve_file(folder, kIndexName, follow_symlinks);
  if (path) {
    CEDRA_ASSIGN(const std::string text, read_file(*path, kMaxIndexBytes));
    auto index = parse_shard_index(text);
    if (!index) return wrap(index.error(), (folder / kIndexName).string());
    return index;
  }
  if (path.error().code != Code::kNotFound) return std::unexpected(path.error());

  auto single = resolve_file(folder, kSingleName, follow_symlinks);
  if (!single && single.error().code == Code::kNotFound) {
    return err(Code::kNotFound, "{}: holds neither {} nor {}", folder.string(), kIndexName,
               kSingleName);
  }
  if (!single) return std::unexpected(single.error());
  ShardIndex index;
  index.shards = {kSingleName};
  return index;
}

}  // namespace cedra

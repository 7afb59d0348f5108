#include "synth/folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "checkpoint/config.h"
#include "checkpoint/registry.h"
#include "parallel/team.h"
#include "synth/counter_random.h"
#include "synth/weights.h"

namespace cedra::synth {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kBlockBytes = int64_t{4} << 20;
constexpr int64_t kRoomToSpare = int64_t{64} << 20;  // index, tokenizer, file system
constexpr const char* kMark = "synth.json";

struct Shard {
  std::string name;
  std::vector<TensorSpec> tensors;  // in file order
  int64_t bytes = 0;                // of the data
};

// The part of the model that a tensor's shard holds: embedding, head, each layer, each Engram
// table, each draft stage, the vision tower.
std::string part_of(const TensorSpec& spec) {
  if (spec.component == Component::kEngramTable || spec.name.starts_with("layers.") ||
      spec.name.starts_with("mtp.")) {
    const size_t number = spec.name.find('.') + 1;
    std::string part = spec.name.substr(0, spec.name.find('.', number));
    if (spec.component == Component::kEngramTable) part += ".engram.embed";
    return part;
  }
  return std::string(component_name(spec.component));
}

std::vector<Shard> cut_into_shards(const Config& config) {
  std::vector<Shard> shards;
  std::unordered_map<std::string, size_t> parts;
  for (TensorSpec& spec : tensor_inventory(config)) {
    const auto [found, fresh] = parts.emplace(part_of(spec), shards.size());
    if (fresh) shards.emplace_back();
    Shard& shard = shards[found->second];
    shard.bytes += tensor_bytes(spec);
    shard.tensors.push_back(std::move(spec));
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    // Wide types first, as the usual writers do: every tensor is aligned to its type.
    std::ranges::stable_sort(shards[i].tensors, std::ranges::greater(),
                             [](const TensorSpec& spec) { return dtype_bytes(spec.dtype); });
  }
  return shards;
}

int64_t total_bytes(const std::vector<Shard>& shards) {
  return std::transform_reduce(shards.begin(), shards.end(), int64_t{0}, std::plus<>(),
                               [](const Shard& shard) { return shard.bytes; });
}

std::string system_error() { return std::generic_category().message(errno); }

Result<> write_text(const fs::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) return err(Code::kIo, "{}: cannot be written: {}", path.string(), system_error());
  return {};
}

// ---- one shard

class File {
 public:
  explicit File(fs::path path)
      : path_(std::move(path)),
        descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  Result<> write(const void* data, int64_t bytes, int64_t offset) const {
    const auto* at = static_cast<const uint8_t*>(data);
    while (bytes > 0) {
      const ssize_t done = ::pwrite(descriptor_, at, static_cast<size_t>(bytes), offset);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return failed();
      at += done;
      offset += done;
      bytes -= done;
    }
    return {};
  }
  // A shard gets its name only when its bytes are on the disk.
  Result<> finish(const fs::path& name) const {
    if (::fdatasync(descriptor_) != 0 || ::rename(path_.c_str(), name.c_str()) != 0) {
      return failed();
    }
    return {};
  }

 private:
  std::unexpected<Error> failed() const {
    return err(Code::kIo, "{}: cannot be written: {}", path_.string(), system_error());
  }

  fs::path path_;
  int descriptor_;
};

std::string header_of(const Shard& shard) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  auto& entries = header.get_ref<Json::object_t&>();  // operator[] would search linearly
  int64_t offset = 0;
  for (const TensorSpec& spec : shard.tensors) {
    const int64_t end = offset + tensor_bytes(spec);
    entries.emplace_back(spec.name, Json{{"dtype", dtype_name(spec.dtype)},
                                         {"shape", spec.shape},
                                         {"data_offsets", {offset, end}}});
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // keeps the data aligned
  uint64_t length = text.size();
  std::string out(sizeof length, '\0');
  for (char& byte : out) {
    byte = static_cast<char>(length & 0xFF);
    length >>= 8;
  }
  return out + text;
}

// Rows of one tensor that are made and written at once.
struct Block {
  size_t tensor = 0;
  int64_t begin = 0, end = 0;  // rows
  int64_t offset = 0;          // in the file
};

std::vector<Block> blocks_of(const std::vector<RandomTensor>& tensors, int64_t offset) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t row_bytes = tensors[i].row_bytes();
    const int64_t step = std::max<int64_t>(1, kBlockBytes / row_bytes);
    for (int64_t row = 0; row < tensors[i].rows; row += step) {
      const int64_t end = std::min(row + step, tensors[i].rows);
      blocks.push_back({i, row, end, offset + row * row_bytes});
    }
    offset += tensors[i].rows * row_bytes;
  }
  return blocks;
}

class ShardWriter {
 public:
  ShardWriter(uint64_t seed, Team& team, const Progress& progress, int64_t total)
      : weights_(seed), team_(team), progress_(progress), total_(total) {}

  // Counts bytes that are there already; false: stop.
  bool skip(int64_t bytes) { return report(done_ += bytes); }

  Result<> write(const fs::path& folder, const Shard& shard) {
    std::vector<RandomTensor> tensors;
    for (const TensorSpec& spec : shard.tensors) tensors.push_back(weights_.prepare(spec));
    const std::string header = header_of(shard);
    const std::vector<Block> blocks = blocks_of(tensors, static_cast<int64_t>(header.size()));
    const File file(folder / (shard.name + ".part"));
    CEDRA_TRY(file.write(header.data(), static_cast<int64_t>(header.size()), 0));
    std::atomic<size_t> next = 0;
    std::atomic<bool> stop = false;
    std::mutex mutex;
    Result<> result;
    team_.run([&](int member) {
      std::vector<uint8_t> buffer;
      while (!stop) {
        const size_t index = next++;
        if (index >= blocks.size()) return;
        const Block& block = blocks[index];
        const RandomTensor& tensor = tensors[block.tensor];
        const int64_t bytes = (block.end - block.begin) * tensor.row_bytes();
        buffer.resize(static_cast<size_t>(bytes));
        weights_.fill(tensor, block.begin, block.end, buffer.data());
        Result<> written = file.write(buffer.data(), bytes, block.offset);
        done_ += bytes;
        if (written && member == 0 && !report(done_)) {
          written = err(Code::kCancelled, "stopped; the same command goes on with {}", shard.name);
        }
        if (!written) {
          const std::lock_guard lock(mutex);
          if (result) result = written;
          stop = true;
        }
      }
    });
    CEDRA_TRY(result);
    return file.finish(folder / shard.name);
  }

 private:
  bool report(int64_t done) const { return !progress_ || progress_(done, total_); }

  RandomWeights weights_;
  Team& team_;
  const Progress& progress_;
  int64_t total_;
  std::atomic<int64_t> done_ = 0;
};

// ---- the folder

std::string mark_of(const Content& content) {
  const Json mark = {
      {"what", "random weights, written by cedra synth: a model to measure with, not to use"},
      {"seed", content.seed},
      {"config", fmt::format("{:016x}", stream_key(0, content.config))},
      {"tokenizer", fmt::format("{:016x}", stream_key(0, content.tokenizer))},
      {"version", 1}};
  return mark.dump(1) + "\n";
}

// The folder is new, empty, or an unfinished run of the same content.
Result<> check_folder(const fs::path& folder, const std::string& mark) {
  std::error_code failure;
  const fs::file_status status = fs::status(folder, failure);
  if (!fs::exists(status)) return {};
  if (!fs::is_directory(status)) {
    return err(Code::kInvalid, "{} is no folder", folder.string());
  }
  if (fs::is_empty(folder, failure) && !failure) return {};
  const Result<std::string> found = read_file(folder / kMark, 1 << 16);
  if (!found) {
    return err(Code::kInvalid, "{} is not empty and not of cedra synth: name a new folder",
               folder.string());
  }
  if (*found != mark) {
    return err(Code::kInvalid,
               "{} holds a checkpoint of other sizes or another seed: name a new folder",
               folder.string());
  }
  if (fs::exists(folder / "config.json")) {
    return err(Code::kInvalid, "{} is complete already", folder.string());
  }
  return {};
}

Result<> check_room(const fs::path& folder, int64_t needed) {
  fs::path place = fs::absolute(folder);
  while (!fs::exists(place) && place.has_relative_path()) place = place.parent_path();
  std::error_code failure;
  const fs::space_info space = fs::space(place, failure);
  if (failure) return err(Code::kIo, "{}: {}", place.string(), failure.message());
  const auto available = static_cast<int64_t>(space.available);
  if (needed + kRoomToSpare <= available) return {};
  return err(Code::kExhausted,
             "the checkpoint needs {:.1f} GB, the disk of {} has {:.1f} GB free: lower --layers, "
             "--experts, --vocab or --engram-rows",
             static_cast<double>(needed) * 1e-9, place.string(),
             static_cast<double>(available) * 1e-9);
}

Result<> write_small_files(const fs::path& folder, const Content& content,
                           const std::vector<Shard>& shards, int64_t total) {
  Json map = Json::object();
  auto& entries = map.get_ref<Json::object_t&>();
  for (const Shard& shard : shards) {
    for (const TensorSpec& spec : shard.tensors) entries.emplace_back(spec.name, shard.name);
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
  CEDRA_TRY(write_text(folder / "model.safetensors.index.json", index.dump(1) + "\n"));
  CEDRA_TRY(write_text(folder / "tokenizer.json", content.tokenizer));
  const Json generation = {{"bos_token_id", 0},
                           {"eos_token_id", 1},
                           {"do_sample", true},
                           {"temperature", 1.0},
                           {"top_p", 0.95}};
  CEDRA_TRY(write_text(folder / "generation_config.json", generation.dump(1) + "\n"));
  return write_text(folder / "config.json", content.config);
}

}  // namespace

Result<int64_t> folder_bytes(const Content& content) {
  CEDRA_ASSIGN(const Config config, parse_config(content.config));
  return total_bytes(cut_into_shards(config));
}

Result<Written> write_folder(const fs::path& folder, const Content& content, int threads,
                             const Progress& progress) {
  CEDRA_ASSIGN(const Config config, parse_config(content.config));
  const std::string mark = mark_of(content);
  CEDRA_TRY(check_folder(folder, mark));
  const std::vector<Shard> shards = cut_into_shards(config);
  const int64_t total = total_bytes(shards);
  int64_t there = 0;
  for (const Shard& shard : shards) {
    if (fs::exists(folder / shard.name)) there += shard.bytes;
  }
  CEDRA_TRY(check_room(folder, total - there));

  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) return err(Code::kIo, "{}: {}", folder.string(), failure.message());
  CEDRA_TRY(write_text(folder / kMark, mark));
  Team team({.threads = threads, .pin = false, .spin_us = 0});
  ShardWriter writer(content.seed, team, progress, total);
  Written out{.bytes = total, .shards = static_cast<int64_t>(shards.size())};
  for (const Shard& shard : shards) {
    if (fs::exists(folder / shard.name)) {
      ++out.resumed;
      if (!writer.skip(shard.bytes)) return err(Code::kCancelled, "stopped");
    } else {
      CEDRA_TRY(writer.write(folder, shard));
    }
  }
  CEDRA_TRY(write_small_files(folder, content, shards, total));
  return out;
}

}  // namespace cedra::synth

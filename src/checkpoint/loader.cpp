// Checkpoint::open: maps the shards, compares them with the index and with the registry, looks at
// values. Collects every difference before it gives up.
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/value_check.h"
#include "numerics/bfloat16.h"

namespace cedra {
namespace {

constexpr size_t kMaxListed = 20;
constexpr int kMaxThreads = 8;
constexpr size_t kCheckChunk = size_t{16} << 20;  // bytes; a multiple of every element size

float half_to_float(uint16_t bits) {
  const float sign = (bits & 0x8000) ? -1.0f : 1.0f;
  const int exponent = bits >> 10 & 31;
  const auto mantissa = static_cast<float>(bits & 1023);
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  }
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24)
                               : std::ldexp(1024.0f + mantissa, exponent - 25));
}

// Norm weights and the small draft heads: what other writers store as F32 or F16.
bool is_convertible(const TensorSpec& spec) {
  if (spec.dtype != Dtype::kBf16) return false;
  const bool norm = spec.name.ends_with("norm.weight") || spec.name.ends_with("norm1.weight") ||
                    spec.name.ends_with("norm2.weight");
  return norm || spec.component == Component::kDraft;
}

bool is_wider_float(Dtype dtype) { return dtype == Dtype::kF32 || dtype == Dtype::kF16; }

bool same_type(Dtype expected, Dtype stored) {
  if (expected == stored) return true;
  return stored == Dtype::kU8 && (expected == Dtype::kI8 || expected == Dtype::kF8E8M0);
}

}  // namespace

class CheckpointLoader {
 public:
  CheckpointLoader(const std::filesystem::path& folder, const OpenOptions& options)
      : options_(options) {
    out_.folder_ = folder;
  }

  Result<Checkpoint> load() {
    CEDRA_TRY(resolve_file(out_.folder_, "config.json", options_.follow_symlinks));
    CEDRA_ASSIGN(out_.config_,
                 load_config(out_.folder_, {options_.language_model_only, options_.skip_draft}));
    out_.warnings_ = out_.config_.warnings;
    CEDRA_ASSIGN(index_, load_shard_index(out_.folder_, options_.follow_symlinks));
    out_.inventory_ = tensor_inventory(out_.config_);
    open_shards();
    check_total_size();
    match_inventory();
    if (problems_.empty()) check_values();
    if (!problems_.empty()) return failure();
    return std::move(out_);
  }

 private:
  struct Stored {
    StoredTensor tensor;
    int32_t shard;
  };

  template <class... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  std::unexpected<Error> failure() const {
    const auto shown = static_cast<std::ptrdiff_t>(std::min(problems_.size(), kMaxListed));
    std::string text = fmt::format("{}: {} problem{}:\n  {}", out_.folder_.string(),
                                   problems_.size(), problems_.size() == 1 ? "" : "s",
                                   fmt::join(problems_.begin(), problems_.begin() + shown, "\n  "));
    if (problems_.size() > kMaxListed) {
      text += fmt::format("\n  and {} more", problems_.size() - kMaxListed);
    }
    return err(Code::kCorrupt, "{}", text);
  }

  // Why a tensor of this canonical name is left aside on purpose, or empty.
  std::string_view skip_reason(std::string_view name) const {
    if (options_.language_model_only &&
        (name.starts_with("vision.") || name.starts_with("aligner.") ||
         name.starts_with("image_") || name.ends_with(".ffn.gate.bias_vl"))) {
      return "language model only";
    }
    if (!name.starts_with("mtp.")) return {};
    if (options_.skip_draft) return "draft stages are switched off";
    // Copies of the shared embedding and head that some packagings keep per stage (model.md 2.3).
    const size_t dot = name.find('.', 4);
    const std::string_view rest = dot == std::string_view::npos ? "" : name.substr(dot + 1);
    if (rest == "embed.weight" || rest == "head.weight") return "tied to the backbone's";
    return {};
  }

  void skip(const std::string& name, std::string_view reason) {
    if (skipped_names_.insert(name).second) {
      out_.skipped_.push_back({name, std::string(reason)});
    }
  }

  void open_shards() {
    const size_t count = index_.shards.size();
    out_.files_.resize(count);
    std::vector<bool> needed(count, !index_.has_index);
    for (const auto& [name, shard] : index_.tensors) {
      const std::string_view reason = skip_reason(canonical_tensor_name(name));
      if (reason.empty()) {
        needed[shard] = true;
      } else {
        skip(name, reason);
      }
    }
    for (size_t i = 0; i < count; ++i) {
      out_.shards_.push_back({index_.shards[i], 0, 0});
      if (needed[i]) {
        open_shard(i);
      } else {
        all_opened_ = false;
      }
    }
    for (const auto& [name, shard] : index_.tensors) {
      if (needed[shard] && readable_.contains(shard) && !seen_.contains(name)) {
        problem("{}: the index puts it into {}, which does not hold it", name,
                index_.shards[shard]);
      }
    }
  }

  void open_shard(size_t number) {
    const std::string& name = index_.shards[number];
    auto path = resolve_file(out_.folder_, name, options_.follow_symlinks);
    if (!path) return unreadable(path.error());
    auto file = MappedFile::open(*path);
    if (!file) return unreadable(file.error());
    auto header = parse_safetensors(file->bytes(), name);
    if (!header) return unreadable(header.error());
    readable_.insert(number);
    Shard& shard = out_.shards_[number];
    shard.file_bytes = static_cast<int64_t>(file->bytes().size());
    shard.tensors = static_cast<int64_t>(header->tensors.size());
    out_.files_[number] = std::move(*file);
    for (StoredTensor& tensor : header->tensors) add_stored(std::move(tensor), number);
  }

  void unreadable(const Error& error) {
    problems_.push_back(error.message);
    unreadable_ = true;
  }

  void add_stored(StoredTensor tensor, size_t shard) {
    payload_ += static_cast<int64_t>(tensor.end - tensor.begin);
    const std::string& name = tensor.name;
    if (index_.has_index) {
      const auto entry = index_.tensors.find(name);
      if (entry == index_.tensors.end()) {
        return problem("{}: stands in {} but not in the index", name, index_.shards[shard]);
      }
      if (entry->second != shard) {
        return problem("{}: stands in {}, the index puts it into {}", name, index_.shards[shard],
                       index_.shards[entry->second]);
      }
      seen_.insert(name);
    }
    std::string canonical = canonical_tensor_name(name);
    if (const auto reason = skip_reason(canonical); !reason.empty()) return skip(name, reason);
    const auto [at, added] = stored_.try_emplace(std::move(canonical));
    if (!added) {
      return problem("{} and {} are both {}", at->second.tensor.name, name, at->first);
    }
    at->second = {std::move(tensor), static_cast<int32_t>(shard)};
  }

  void check_total_size() {
    if (!index_.total_size || !all_opened_ || readable_.size() != index_.shards.size()) return;
    if (*index_.total_size != payload_) {
      problem("the index says total_size {}, the tensors have {} bytes", *index_.total_size,
              payload_);
    }
  }

  void match_inventory() {
    for (const TensorSpec& spec : out_.inventory_) {
      const auto found = stored_.find(spec.name);
      if (found == stored_.end()) {
        // With a shard that cannot be read, that one error says enough.
        if (unreadable_) continue;
        problem("{}: missing, expected {} {}", spec.name, dtype_name(spec.dtype), spec.shape);
        continue;
      }
      take(spec, found->second);
      stored_.erase(found);
    }
    std::vector<std::string> rest;
    rest.reserve(stored_.size());
    for (const auto& [name, stored] : stored_) rest.push_back(name);
    std::ranges::sort(rest);
    for (const std::string& name : rest) {
      problem("{}: not a tensor of this config{}", name, unexpected_hint(name));
    }
  }

  std::string_view unexpected_hint(std::string_view name) const {
    if (!out_.config_.vision &&
        (name.starts_with("vision.") || name.starts_with("aligner.") ||
         name.starts_with("image_") || name.ends_with(".ffn.gate.bias_vl"))) {
      return ", which has no vision_config; --language-model-only skips it";
    }
    if (out_.config_.text.num_nextn_predict_layers == 0 && name.starts_with("mtp.")) {
      return ", which has no draft stages; --skip-draft skips it";
    }
    return "";
  }

  void take(const TensorSpec& spec, const Stored& stored) {
    const StoredTensor& tensor = stored.tensor;
    const bool wider = is_convertible(spec) && is_wider_float(tensor.dtype);
    const bool convert = wider && options_.convert_norms;
    if (tensor.shape != spec.shape || (!convert && !same_type(spec.dtype, tensor.dtype))) {
      problem("{}: expected {} {}, {} has {} {}{}", spec.name, dtype_name(spec.dtype), spec.shape,
              index_.shards[static_cast<size_t>(stored.shard)], dtype_name(tensor.dtype),
              tensor.shape,
              wider && tensor.shape == spec.shape ? "; --convert-norms rounds it to BF16" : "");
      return;
    }
    TensorView view;
    view.dtype = spec.dtype;
    view.component = spec.component;
    view.shape = spec.shape;
    view.data = out_.files_[static_cast<size_t>(stored.shard)].bytes().data() + tensor.begin;
    view.bytes = static_cast<int64_t>(tensor.end - tensor.begin);
    view.shard = stored.shard;
    if (convert) to_owned_bf16(spec, tensor.dtype, view);
    out_.tensors_.emplace(spec.name, std::move(view));
  }

  void to_owned_bf16(const TensorSpec& spec, Dtype stored, TensorView& view) {
    const int64_t count = view.bytes / dtype_bytes(stored);
    auto buffer = std::make_unique<uint8_t[]>(static_cast<size_t>(2 * count));
    bool exact = true;
    for (int64_t i = 0; i < count; ++i) {
      float value = 0;
      if (stored == Dtype::kF32) {
        std::memcpy(&value, view.data + 4 * i, 4);
      } else {
        uint16_t half = 0;
        std::memcpy(&half, view.data + 2 * i, 2);
        value = half_to_float(half);
      }
      // A NaN must stay one, for the value check: rounding could carry it into another number.
      const bf16 rounded = std::isnan(value) ? bf16{0x7FC0} : to_bf16(value);
      exact = exact && to_float(rounded) == value;
      std::memcpy(buffer.get() + 2 * i, &rounded.bits, 2);
    }
    out_.warnings_.push_back(fmt::format("{}: stored as {}, converted to BF16{}", spec.name,
                                         dtype_name(stored), exact ? "" : " with rounding"));
    view.data = buffer.get();
    view.bytes = 2 * count;
    view.shard = -1;
    out_.owned_.push_back(std::move(buffer));
  }

  bool is_checked(Component component) const {
    if (options_.verify == Verify::kHeaders) return false;
    if (options_.verify == Verify::kAll) return true;
    return component != Component::kRoutedExperts && component != Component::kDraftExperts &&
           component != Component::kEngramTable;
  }

  void check_values() {
    struct Chunk {
      const TensorSpec* spec;
      Dtype dtype;
      std::span<const uint8_t> bytes;
      int64_t first;  // element
    };
    std::vector<Chunk> chunks;
    for (const TensorSpec& spec : out_.inventory_) {
      if (!is_checked(spec.component)) continue;
      const TensorView& view = out_.tensors_.find(spec.name)->second;
      const std::span<const uint8_t> bytes(view.data, static_cast<size_t>(view.bytes));
      for (size_t at = 0; at < bytes.size(); at += kCheckChunk) {
        chunks.push_back({&spec, view.dtype,
                          bytes.subspan(at, std::min(kCheckChunk, bytes.size() - at)),
                          static_cast<int64_t>(at) / dtype_bytes(view.dtype)});
      }
    }
    std::atomic<size_t> next = 0;
    std::vector<std::optional<int64_t>> bad(chunks.size());
    const auto work = [&] {
      for (size_t i = next++; i < chunks.size(); i = next++) {
        bad[i] = first_bad_value(chunks[i].dtype, chunks[i].bytes);
      }
    };
    {
      std::vector<std::jthread> helpers;
      for (int i = 1; i < threads() && static_cast<size_t>(i) < chunks.size(); ++i) {
        helpers.emplace_back(work);
      }
      work();
    }
    const TensorSpec* reported = nullptr;  // one line per tensor
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (!bad[i] || chunks[i].spec == reported) continue;
      reported = chunks[i].spec;
      problem("{}: element {} is {}, which no {} weight may hold", reported->name,
              chunks[i].first + *bad[i],
              chunks[i].dtype == Dtype::kF8E8M0 || chunks[i].dtype == Dtype::kF8E4M3
                  ? "a NaN code"
                  : "NaN or infinite",
              dtype_name(chunks[i].dtype));
    }
  }

  int threads() const {
    if (options_.threads > 0) return options_.threads;
    return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
  }

  OpenOptions options_;
  Checkpoint out_;
  ShardIndex index_;
  std::vector<std::string> problems_;
  std::unordered_map<std::string, Stored> stored_;  // by canonical name
  std::set<std::string> seen_;                      // indexed names found in their shard
  std::set<std::string> skipped_names_;
  std::set<size_t> readable_;  // shards whose header is good
  int64_t payload_ = 0;        // bytes of all tensors seen
  bool all_opened_ = true;
  bool unreadable_ = false;  // some needed shard could not be opened
};

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& folder,
                                    const OpenOptions& options) {
  return CheckpointLoader(folder, options).load();
}

}  // namespace cedra

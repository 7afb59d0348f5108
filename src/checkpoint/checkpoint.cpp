#include "checkpoint/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

namespace cedra {
namespace {

constexpr int64_t kPopulateChunk = int64_t{64} << 20;

int64_t logical_columns(const TensorView& view) {
  const int64_t stored = view.shape.empty() ? 1 : view.shape.back();
  return view.dtype == Dtype::kI8 ? 2 * stored : stored;
}

}  // namespace

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

Result<WeightRef> Checkpoint::weight(std::string_view name) const {
  const std::string stem(name);
  const TensorView* view = find(stem + ".weight");
  const TensorView* scale = view == nullptr ? nullptr : find(stem + ".scale");
  if (view == nullptr) view = find(name);
  if (view == nullptr) {
    return err(Code::kNotFound, "{}: this checkpoint has no tensor {} or {}.weight",
               folder_.string(), name, name);
  }
  WeightRef ref;
  ref.dtype = view->dtype;
  ref.data = view->data;
  ref.scale = scale == nullptr ? nullptr : scale->data;
  ref.rows = view->shape.size() < 2 ? 1 : view->shape.front();
  ref.cols = logical_columns(*view);
  return ref;
}

Result<> Checkpoint::populate(const std::function<bool(Component)>& wanted, int threads,
                              const std::function<void(int64_t, int64_t)>& progress) const {
  struct Chunk {
    size_t shard;
    size_t offset;
    size_t length;
  };
  std::vector<Chunk> chunks;
  int64_t total = 0;
  for (const TensorSpec& spec : inventory_) {
    if (!wanted(spec.component)) continue;
    const TensorView& view = tensors_.find(spec.name)->second;
    if (view.shard < 0) continue;  // converted: in memory already
    const auto shard = static_cast<size_t>(view.shard);
    const auto start = static_cast<int64_t>(view.data - files_[shard].bytes().data());
    for (int64_t at = 0; at < view.bytes; at += kPopulateChunk) {
      const int64_t length = std::min(kPopulateChunk, view.bytes - at);
      chunks.push_back({shard, static_cast<size_t>(start + at), static_cast<size_t>(length)});
    }
    total += view.bytes;
  }
  std::ranges::sort(chunks, [](const Chunk& a, const Chunk& b) {
    return a.shard != b.shard ? a.shard < b.shard : a.offset < b.offset;
  });

  std::atomic<size_t> next = 0;
  std::mutex mutex;  // guards done, failure and calls of progress
  int64_t done = 0;
  Result<> failure;
  const auto work = [&] {
    for (size_t i = next++; i < chunks.size(); i = next++) {
      auto read = files_[chunks[i].shard].populate(chunks[i].offset, chunks[i].length);
      const std::lock_guard lock(mutex);
      if (!read) {
        if (failure) failure = std::move(read);
        return;
      }
      done += static_cast<int64_t>(chunks[i].length);
      if (progress) progress(done, total);
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int i = 1; i < threads; ++i) helpers.emplace_back(work);
    work();
  }
  return failure;
}

void Checkpoint::advise(Component component, Access access) const {
  for (const TensorSpec& spec : inventory_) {
    if (spec.component != component) continue;
    const TensorView& view = tensors_.find(spec.name)->second;
    if (view.shard < 0) continue;
    const MappedFile& file = files_[static_cast<size_t>(view.shard)];
    file.advise(access, static_cast<size_t>(view.data - file.bytes().data()),
                static_cast<size_t>(view.bytes));
  }
}

std::string canonical_tensor_name(std::string_view name) {
  if (name.starts_with("model.")) name.remove_prefix(6);
  if (name.starts_with("vision.")) return std::string(name);
  std::string result;
  while (true) {
    const size_t dot = name.find('.');
    std::string_view part = name.substr(0, dot);
    if (part == "self_attn") part = "attn";
    if (part == "mlp") part = "ffn";
    if (part == "weight_scale_inv") part = "scale";
    if (part == "e_score_correction_bias") part = "bias";
    result += part;
    if (dot == std::string_view::npos) return result;
    result += '.';
    name.remove_prefix(dot + 1);
  }
}

}  // namespace cedra

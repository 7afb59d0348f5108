// What a forward pass shows of its modules. Internal to golden/.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "golden/judge.h"
#include "model/forward.h"

namespace cedra::golden {

// Records module outputs of one pass; with `forced`, feeds every layer the golden stream and pre of
// the layer before it.
class Recorder : public model::Probe {
 public:
  Recorder(const Expected* forced, std::string sequence)
      : forced_(forced), sequence_(std::move(sequence)) {}

  void enter(int64_t layer, int64_t rows, bf16* stream, float* pre) override {
    if (forced_ == nullptr || layer == 0) return;
    const std::string prefix = fmt::format("{}.layer.{}.", sequence_, layer - 1);
    const Values golden_stream = forced_->floats(prefix + "stream");
    const Values golden_pre = forced_->floats(prefix + "pre");
    if (rows == 0 || golden_stream.empty()) return;
    for (size_t i = 0; i < golden_stream.size(); ++i) stream[i] = to_bf16(golden_stream[i]);
    std::ranges::copy(golden_pre, pre);
  }
  void output(int64_t layer, std::string_view module, int64_t rows, int64_t width,
              const bf16* values) override {
    Values& out = modules[fmt::format("layer.{}.{}", layer, module)];
    out.resize(static_cast<size_t>(rows * width));
    for (size_t i = 0; i < out.size(); ++i) out[i] = to_float(values[i]);
  }
  void pre(int64_t layer, int64_t rows, int64_t copies, const float* values) override {
    modules[fmt::format("layer.{}.pre", layer)].assign(values, values + rows * copies);
  }
  void selected(int64_t layer, int64_t rows, int64_t k, const int32_t* values) override {
    selections[layer].assign(values, values + rows * k);
    selection_width = k;
  }
  void engram_rows(int64_t rows, int64_t width, const int64_t* values) override {
    hash.assign(values, values + rows * width);
  }

  std::map<std::string, Values> modules;
  std::map<int64_t, std::vector<int32_t>> selections;
  std::vector<int64_t> hash;
  int64_t selection_width = 0;

 private:
  const Expected* forced_;
  std::string sequence_;
};

}  // namespace cedra::golden

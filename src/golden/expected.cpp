#include "golden/expected.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "numerics/bfloat16.h"

namespace cedra::golden {

Result<Expected> Expected::load(const std::filesystem::path& folder) {
  Expected expected;
  CEDRA_ASSIGN(expected.file_, MappedFile::open(folder / "expected.safetensors"));
  CEDRA_ASSIGN(const SafetensorsHeader header,
               parse_safetensors(expected.file_.bytes(), "expected.safetensors"));
  for (const StoredTensor& tensor : header.tensors) {
    switch (tensor.dtype) {
      case Dtype::kBf16:
      case Dtype::kF32:
      case Dtype::kI32:
      case Dtype::kI64:
        break;
      default:
        return err(Code::kUnsupported, "expected.safetensors: {} is {}, want BF16, F32, I32 or I64",
                   tensor.name, dtype_name(tensor.dtype));
    }
    expected.tensors_.emplace(tensor.name, tensor);
  }
  CEDRA_ASSIGN(const std::string text, read_file(folder / "expected.json", int64_t{1} << 20));
  const nlohmann::json document = nlohmann::json::parse(text, nullptr, false);
  if (!document.is_object()) return err(Code::kCorrupt, "expected.json is not a JSON object");
  const auto noise = document.find("reference_noise");
  if (noise == document.end()) return expected;
  for (const auto& [name, value] : noise->items()) {
    if (!value.is_object()) continue;
    expected.noise_[name] = {value.value("median", 0.0), value.value("p90", 0.0),
                             value.value("argmax_agreement", 1.0)};
  }
  return expected;
}

namespace {

template <class Stored, class Out, class Convert>
std::vector<Out> convert(const uint8_t* data, size_t bytes, Convert&& one) {
  std::vector<Out> values(bytes / sizeof(Stored));
  for (size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, data + i * sizeof(Stored), sizeof(Stored));
    values[i] = one(stored);
  }
  return values;
}

}  // namespace

std::vector<float> Expected::floats(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return {};
  const StoredTensor& tensor = found->second;
  const uint8_t* data = file_.bytes().data() + tensor.begin;
  const size_t bytes = tensor.end - tensor.begin;
  if (tensor.dtype == Dtype::kBf16) {
    return convert<bf16, float>(data, bytes, [](bf16 x) { return to_float(x); });
  }
  return convert<float, float>(data, bytes, [](float x) { return x; });
}

std::vector<int64_t> Expected::integers(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return {};
  const StoredTensor& tensor = found->second;
  const uint8_t* data = file_.bytes().data() + tensor.begin;
  const size_t bytes = tensor.end - tensor.begin;
  if (tensor.dtype == Dtype::kI32) {
    return convert<int32_t, int64_t>(data, bytes, [](int32_t x) { return int64_t{x}; });
  }
  return convert<int64_t, int64_t>(data, bytes, [](int64_t x) { return x; });
}

std::vector<int32_t> Expected::ids(const std::string& name) const {
  const std::vector<int64_t> wide = integers(name);
  return {wide.begin(), wide.end()};
}

std::vector<std::string> Expected::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

std::vector<std::string> Expected::numbered(const std::string& kind) const {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const auto& [name, tensor] : tensors_) {
    const std::string prefix = name.substr(0, name.find('.'));
    if (!prefix.starts_with(kind)) continue;
    int64_t number = 0;
    const char* begin = prefix.data() + kind.size();
    const char* end = prefix.data() + prefix.size();
    if (std::from_chars(begin, end, number).ptr != end || begin == end) continue;
    found.emplace_back(number, prefix);
  }
  std::ranges::sort(found);
  const auto tail = std::ranges::unique(found);
  found.erase(tail.begin(), tail.end());
  std::vector<std::string> names;
  for (const auto& [number, name] : found) names.push_back(name);
  return names;
}

Result<> Expected::check_inputs(int64_t vocab_size) const {
  std::vector<std::string> groups;
  for (const auto& [name, tensor] : tensors_) {
    const std::string group = name.substr(0, name.find('.'));
    if (groups.empty() || groups.back() != group) groups.push_back(group);
  }
  for (const std::string& group : groups) {
    const std::vector<int64_t> tokens = integers(group + ".ids");
    if (tokens.empty()) {
      return err(Code::kCorrupt, "expected.safetensors: {}.ids is missing or empty", group);
    }
    for (const int64_t id : tokens) {
      if (id < 0 || id >= vocab_size) {
        return err(Code::kCorrupt, "expected.safetensors: {}.ids has {}, the vocabulary is 0..{}",
                   group, id, vocab_size - 1);
      }
    }
    for (const int64_t row : integers(group + ".rows")) {
      if (row < 0 || row >= static_cast<int64_t>(tokens.size())) {
        return err(Code::kCorrupt, "expected.safetensors: {}.rows has {}, positions are 0..{}",
                   group, row, tokens.size() - 1);
      }
    }
  }
  for (const char* name :
       {"spec.greedy", "spec.draft_ids", "spec_short.draft_ids", "replay.greedy"}) {
    for (const int64_t id : integers(name)) {
      if (id >= 0 && id < vocab_size) continue;
      return err(Code::kCorrupt, "expected.safetensors: {} has {}, the vocabulary is 0..{}", name,
                 id, vocab_size - 1);
    }
  }
  return {};
}

std::optional<Noise> Expected::noise(const std::string& sequence) const {
  const auto found = noise_.find(sequence);
  if (found == noise_.end()) return std::nullopt;
  return found->second;
}

}  // namespace cedra::golden

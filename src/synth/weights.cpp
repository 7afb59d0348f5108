#include "synth/weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string_view>

#include "numerics/formats.h"
#include "synth/counter_random.h"

namespace cedra::synth {
namespace {

constexpr double kNormSpread = 0.1;  // standard deviation of a norm weight, relative to its mean
constexpr double kEngramDeviation = 1.0;
// Root mean square of the values of uniform E2M1 codes and of three neighbouring scales: what an
// expert's wanted deviation is divided by.
constexpr double kFp4CodeSize = 3.5;
constexpr int kQuantiles = 1 << 16;
constexpr int kTileValues = 32 * 32;
// Scales that fewer groups than this have are left out.
constexpr double kLeastShare = 1e-5;

struct Statistic {
  enum class Kind : uint8_t { kNorm, kGain, kDeviation } kind;
  double number;
};

// First rule that matches decides. `name` without .weight or .scale where the tensor is quantised.
Statistic statistic(std::string_view name) {
  using enum Statistic::Kind;
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
  if (ends("attn_norm.weight")) return {kNorm, 0.025};
  if (ends("ffn_norm.weight")) return {kNorm, 0.2};
  if (ends("q_norm.weight")) return {kNorm, 0.97};
  if (ends("kv_norm.weight")) return {kNorm, 0.4};
  if (ends("compressor.norm.weight")) return {kNorm, 0.6};
  if (ends("k_norm.weight")) return {kNorm, 0.5};
  if (has("norm") && ends(".weight")) return {kNorm, 1.0};
  if (ends("attn_sink")) return {kDeviation, 0.5};
  if (has("hc_") && (ends("_base") || ends("_scale"))) return {kDeviation, 0.5};
  if (ends("gate.bias") || ends("gate.bias_vl")) return {kDeviation, 0.05};
  if (name.starts_with("image_") || ends(".bias")) return {kDeviation, 0.5};
  if (ends("embed.weight")) return {kDeviation, 0.12};
  if (ends("indexer.wq_b")) return {kGain, 0.95};
  if (ends("attn.wq_a")) return {kGain, 1.6};
  if (ends("attn.wq_b")) return {kGain, 0.95};
  if (ends(".wkv") || ends(".wkv.weight")) return {kGain, 1.8};
  if (ends("attn.wo_a")) return {kGain, 1.6};
  if (ends("attn.wo_b")) return {kGain, 1.9};
  if (ends("ffn.gate.weight")) return {kGain, 2.9};
  if (has("experts.") || has("mlp.") || has("aligner.")) {
    if (has(".w1") || has(".w3")) return {kGain, 1.5};
    if (has(".w2")) return {kGain, 1.05};
  }
  return {kGain, 1.0};
}

std::string_view without_suffix(std::string_view name) {
  for (const std::string_view suffix : {".weight", ".scale"}) {
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return name;
}

// 16 random bits per element, four elements per word.
uint32_t sixteen_bits(uint64_t key, int64_t element) {
  return static_cast<uint32_t>(random_word(key, static_cast<uint64_t>(element / 4)) >>
                               (16 * (element % 4))) &
         0xFFFFu;
}

size_t scale_index(const Fp8Codes& codes, uint64_t key, int64_t group) {
  const auto draw =
      static_cast<uint32_t>(random_word(key ^ 0xA5A5A5A5A5A5A5A5u, static_cast<uint64_t>(group)));
  size_t index = 0;
  while (index + 1 < codes.scales.size() && draw >= codes.scales[index].up_to) ++index;
  return index;
}

int64_t fp4_scale_step(uint64_t key, int64_t group) {
  const auto draw =
      static_cast<uint32_t>(random_word(key ^ 0xA5A5A5A5A5A5A5A5u, static_cast<uint64_t>(group)));
  return static_cast<int64_t>((uint64_t{draw} * 3) >> 32) - 1;
}

}  // namespace

int64_t RandomTensor::row_bytes() const {
  return kind == Kind::kBf16 ? 2 * cols : kind == Kind::kF32 ? 4 * cols : cols;
}

RandomWeights::RandomWeights(uint64_t seed) : seed_(seed), normal_(kQuantiles) {
  // Newton's method on the distribution function, upwards from the middle; the other half mirrors.
  double z = 0;
  for (int i = kQuantiles / 2; i < kQuantiles; ++i) {
    const double above = 1 - (i + 0.5) / kQuantiles;
    for (int step = 0; step < 4; ++step) {
      const double density = std::exp(-z * z / 2) / std::sqrt(2 * M_PI);
      z += (0.5 * std::erfc(z / std::sqrt(2.0)) - above) / density;
    }
    normal_[static_cast<size_t>(i)] = static_cast<float>(z);
    normal_[static_cast<size_t>(kQuantiles - 1 - i)] = static_cast<float>(-z);
  }
}

float RandomWeights::quantile(double probability) const {
  const double at = std::clamp(probability * kQuantiles - 0.5, 0.0, kQuantiles - 1.0);
  const auto low = std::min(static_cast<size_t>(at), size_t{kQuantiles} - 2);
  const auto part = static_cast<float>(at - static_cast<double>(low));
  return normal_[low] + part * (normal_[low + 1] - normal_[low]);
}

// The scale of a group of values is the least power of two that brings its maximum to 448 or less.
std::shared_ptr<const Fp8Codes> RandomWeights::fp8_codes(double deviation, int group) {
  std::shared_ptr<const Fp8Codes>& known = codes_[{deviation, group}];
  if (known) return known;
  const auto out = std::make_shared<Fp8Codes>();
  const auto inside = [&](int exponent) {  // share of normal numbers that the scale can hold
    return std::erf(std::ldexp(double{kE4m3Max}, exponent) / deviation / std::sqrt(2.0));
  };
  int exponent = static_cast<int>(std::floor(std::log2(deviation / double{kE4m3Max})));
  const auto share = [&](int e) { return std::pow(inside(e), group); };
  while (share(exponent) > kLeastShare) --exponent;
  for (bool last = false; !last;) {
    const double held = share(++exponent);
    if (held < kLeastShare) continue;
    last = held > 1 - kLeastShare;
    Fp8Codes::Scale& scale = out->scales.emplace_back();
    scale.byte = static_cast<uint8_t>(exponent + 127);
    scale.up_to = last ? UINT32_MAX : static_cast<uint32_t>(held * 0x1p32);
    scale.codes.resize(kQuantiles);
    const double tail = (1 - inside(exponent)) / 2;
    for (int i = 0; i < kQuantiles; ++i) {
      const float z = quantile(tail + (1 - 2 * tail) * (i + 0.5) / kQuantiles);
      scale.codes[static_cast<size_t>(i)] =
          encode_e4m3(static_cast<float>(std::ldexp(deviation, -exponent)) * z);
    }
  }
  known = out;
  return known;
}

RandomTensor RandomWeights::prepare(const TensorSpec& spec) {
  using Kind = RandomTensor::Kind;
  RandomTensor out;
  out.rows = spec.shape.size() > 1 ? spec.shape.front() : 1;
  out.cols = spec.shape.back();
  const bool table = spec.component == Component::kEngramTable;
  const bool expert = spec.name.find(".experts.") != std::string::npos;
  const bool plain = spec.dtype == Dtype::kBf16 || spec.dtype == Dtype::kF32;
  const std::string_view name = plain ? spec.name : without_suffix(spec.name);
  out.key = stream_key(seed_, name);
  const Statistic wanted = statistic(name);
  // Inputs of the matrix, as many in the scales' tensor as in the codes'.
  int64_t inputs = out.cols;
  if (spec.dtype == Dtype::kI8) inputs *= 2;
  if (spec.dtype == Dtype::kF8E8M0) inputs *= kScaleBlock;
  double deviation = wanted.number;
  if (wanted.kind == Statistic::Kind::kGain) deviation /= std::sqrt(static_cast<double>(inputs));
  if (wanted.kind == Statistic::Kind::kNorm) {
    out.mean = static_cast<float>(wanted.number);
    deviation = kNormSpread * wanted.number;
  }
  out.deviation = static_cast<float>(deviation);
  switch (spec.dtype) {
    case Dtype::kBf16:
      out.kind = Kind::kBf16;
      break;
    case Dtype::kF32:
      out.kind = Kind::kF32;
      break;
    case Dtype::kI8:
      out.kind = Kind::kFp4;
      break;
    default: {
      const bool scales = spec.dtype == Dtype::kF8E8M0;
      if (table) {
        out.kind = scales ? Kind::kFp8RowScale : Kind::kFp8Row;
        out.codes = fp8_codes(kEngramDeviation, kScaleBlock);
      } else if (expert && scales) {
        out.kind = Kind::kFp4Scale;
        out.scale_centre =
            static_cast<uint8_t>(127 + std::lround(std::log2(deviation / kFp4CodeSize)));
      } else {
        out.kind = scales ? Kind::kFp8TileScale : Kind::kFp8Tile;
        out.codes = fp8_codes(deviation, kTileValues);
      }
    }
  }
  return out;
}

void RandomWeights::fill(const RandomTensor& t, int64_t begin, int64_t end, uint8_t* out) const {
  using Kind = RandomTensor::Kind;
  const auto normal = [&](int64_t element) {
    return t.mean + t.deviation * normal_[sixteen_bits(t.key, element)];
  };
  // Codes of the 32 elements from `element` on, which share a scale.
  const auto fill_group = [&](const std::vector<uint8_t>& codes, int64_t element, uint8_t* to) {
    for (int64_t i = 0; i < kScaleBlock; i += 4) {
      const uint64_t word = random_word(t.key, static_cast<uint64_t>((element + i) / 4));
      for (int part = 0; part < 4; ++part) to[i + part] = codes[(word >> (16 * part)) & 0xFFFFu];
    }
  };
  const int64_t groups = t.cols / kScaleBlock;  // of a row of FP8 codes
  for (int64_t row = begin; row < end; ++row, out += t.row_bytes()) {
    const int64_t first = row * t.cols;
    switch (t.kind) {
      case Kind::kBf16:
        for (int64_t i = 0; i < t.cols; ++i) {
          const bf16 value = to_bf16(normal(first + i));
          std::memcpy(out + 2 * i, &value, sizeof value);
        }
        break;
      case Kind::kF32:
        for (int64_t i = 0; i < t.cols; ++i) {
          const float value = normal(first + i);
          std::memcpy(out + 4 * i, &value, sizeof value);
        }
        break;
      case Kind::kFp8Tile:
      case Kind::kFp8Row:
        for (int64_t g = 0; g < groups; ++g) {
          const int64_t group = (t.kind == Kind::kFp8Row ? row : row / kScaleBlock) * groups + g;
          fill_group(t.codes->scales[scale_index(*t.codes, t.key, group)].codes,
                     first + g * kScaleBlock, out + g * kScaleBlock);
        }
        break;
      case Kind::kFp8TileScale:
      case Kind::kFp8RowScale:
        for (int64_t i = 0; i < t.cols; ++i) {
          out[i] = t.codes->scales[scale_index(*t.codes, t.key, first + i)].byte;
        }
        break;
      case Kind::kFp4:
        for (int64_t i = 0; i < t.cols; i += 8) {
          const uint64_t word = random_word(t.key, static_cast<uint64_t>((first + i) / 8));
          std::memcpy(out + i, &word, sizeof word);
        }
        break;
      case Kind::kFp4Scale:
        for (int64_t i = 0; i < t.cols; ++i) {
          out[i] = static_cast<uint8_t>(t.scale_centre + fp4_scale_step(t.key, first + i));
        }
        break;
    }
  }
}

}  // namespace cedra::synth

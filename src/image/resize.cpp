// The plan's arithmetic is IEEE double in the order that the specification writes; the bicubic sums
// are integers of at most 32 bits. Neither may be reordered: single results decide over rounding.
#include "image/resize.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace cedra::image {
namespace {

constexpr uint8_t kPadColour = 127;
constexpr int kWeightBits = 22;  // fixed-point bits of the bicubic weights

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t round_half_even(double x) { return static_cast<int64_t>(std::nearbyint(x)); }

ResizePlan with_grids(const PatchRules& rules, int64_t width, int64_t height) {
  ResizePlan plan;
  plan.width = width;
  plan.height = height;
  plan.vit_rows = height / rules.patch_size;
  plan.vit_columns = width / rules.patch_size;
  plan.llm_rows = ceil_div(plan.vit_rows, rules.downsample_ratio);
  plan.llm_columns = ceil_div(plan.vit_columns, rules.downsample_ratio);
  return plan;
}

// The largest size of about the same aspect that stays within the tokens.
ResizePlan shrink_to_budget(const PatchRules& rules, int64_t width, int64_t height) {
  const int64_t budget = rules.max_image_tokens;
  const int64_t cell = rules.patch_size * rules.downsample_ratio;
  const double w = static_cast<double>(width);
  const double h = static_cast<double>(height);
  const double aspect = h / w;
  const double most_columns = std::sqrt(static_cast<double>(budget - 2) / aspect + 0.25) - 0.5;
  const double most_rows = most_columns * aspect;
  if (most_columns < 1) return with_grids(rules, cell, (budget - 2) / 2 * cell);
  if (most_rows < 1) return with_grids(rules, (budget - 3) * cell, cell);
  const double side = static_cast<double>(cell);
  const double factor =
      std::min(std::floor(most_columns) * side / w, std::floor(most_rows) * side / h);
  const double patch = static_cast<double>(rules.patch_size);
  const auto whole_patches = [&](double length) {
    return std::max<int64_t>(static_cast<int64_t>(std::floor(length * factor / patch)), 1) *
           rules.patch_size;
  };
  return with_grids(rules, whole_patches(w), whole_patches(h));
}

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

// Fixed-point weights of one axis: output i is the sum over inputs from `first`, two at a time. A
// weight is high * 2^kLowBits + low, both 16 bits, because the vector product of 16-bit pairs is
// what every x86-64 has; the sums are the same integers.
constexpr int kLowBits = 9;

struct Filter {
  struct Tap {
    int64_t first;
    int64_t pairs;   // the last one may reach one input too far, with weight 0
    size_t weights;  // index of the first pair
  };
  // Both numbers of two neighbours, the first in the lower half.
  struct Pair {
    int32_t high;
    int32_t low;
  };
  std::vector<Tap> taps;
  std::vector<Pair> weights;
};

int32_t pack_pair(int32_t first, int32_t second) {
  return static_cast<int32_t>((static_cast<uint32_t>(second) << 16) |
                              (static_cast<uint32_t>(first) & 0xFFFFu));
}

Filter make_filter(int64_t n_in, int64_t n_out) {
  Filter filter;
  const double scale = static_cast<double>(n_in) / static_cast<double>(n_out);
  const double filter_scale = std::max(scale, 1.0);
  const double support = 2 * filter_scale;
  const double inverse_scale = 1 / filter_scale;
  std::vector<double> exact;
  std::vector<int32_t> fixed;
  for (int64_t i = 0; i < n_out; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(centre - support + 0.5), 0);
    const int64_t end = std::min(static_cast<int64_t>(centre + support + 0.5), n_in);
    exact.clear();
    double total = 0;
    for (int64_t j = first; j < end; ++j) {
      exact.push_back(cubic((static_cast<double>(j) - centre + 0.5) * inverse_scale));
      total += exact.back();
    }
    filter.taps.push_back({first, (end - first + 1) / 2, filter.weights.size()});
    const double inverse_total = 1 / total;
    fixed.clear();
    for (const double weight : exact) {
      const double scaled = weight * inverse_total * (1 << kWeightBits);
      fixed.push_back(static_cast<int32_t>(scaled + (scaled < 0 ? -0.5 : 0.5)));
    }
    if (fixed.size() % 2 != 0) fixed.push_back(0);
    constexpr int32_t kLowMask = (1 << kLowBits) - 1;
    for (size_t j = 0; j < fixed.size(); j += 2) {
      filter.weights.push_back({pack_pair(fixed[j] >> kLowBits, fixed[j + 1] >> kLowBits),
                                pack_pair(fixed[j] & kLowMask, fixed[j + 1] & kLowMask)});
    }
  }
  return filter;
}

// Four sums that started at zero -> four pixels in 32 bits each, not yet clamped.
__m128i finish(__m128i high, __m128i low) {
  const __m128i half = _mm_set1_epi32(1 << (kWeightBits - 1));
  const __m128i sum = _mm_add_epi32(_mm_slli_epi32(high, kLowBits), _mm_add_epi32(low, half));
  return _mm_srai_epi32(sum, kWeightBits);
}

// kRows rows at a time, so that they share the loading of weights. rows: kRows copies of input
// rows, `stride` bytes apart, with 8 bytes of room behind them: 8 are read for every 6 that count.
template <int kRows>
void resize_rows(const Filter& filter, const uint8_t* rows, size_t stride, uint8_t* to,
                 int64_t width) {
  const __m128i zero = _mm_setzero_si128();
  for (const Filter::Tap& tap : filter.taps) {
    const Filter::Pair* weight = filter.weights.data() + tap.weights;
    const uint8_t* from = rows + 3 * tap.first;
    __m128i high[kRows];
    __m128i low[kRows];
    for (int r = 0; r < kRows; ++r) high[r] = low[r] = zero;
    for (int64_t j = 0; j < tap.pairs; ++j, from += 6) {
      const __m128i weight_high = _mm_set1_epi32(weight[j].high);
      const __m128i weight_low = _mm_set1_epi32(weight[j].low);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m128i bytes = _mm_loadl_epi64(
            reinterpret_cast<const __m128i*>(from + static_cast<size_t>(r) * stride));
        // r0 r1 g0 g1 b0 b1 and two that nobody reads, widened to 16 bits.
        const __m128i pairs =
            _mm_unpacklo_epi8(_mm_unpacklo_epi8(bytes, _mm_srli_si128(bytes, 3)), zero);
        high[r] = _mm_add_epi32(high[r], _mm_madd_epi16(pairs, weight_high));
        low[r] = _mm_add_epi32(low[r], _mm_madd_epi16(pairs, weight_low));
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m128i words = _mm_packs_epi32(finish(high[r], low[r]), zero);
      const int rgb = _mm_cvtsi128_si32(_mm_packus_epi16(words, zero));
      std::memcpy(to + r * 3 * width, &rgb, 3);
    }
    to += 3;
  }
}

Picture resize_width(const Picture& in, int64_t width) {
  const Filter filter = make_filter(in.width, width);
  Picture out{width, in.height, std::vector<uint8_t>(static_cast<size_t>(3 * width * in.height))};
  constexpr int kRows = 4;
  const size_t stride = static_cast<size_t>(3 * in.width) + 8;
  std::vector<uint8_t> rows(kRows * stride);
  for (int64_t y = 0; y < in.height; y += kRows) {
    const int64_t count = std::min<int64_t>(kRows, in.height - y);
    for (int64_t r = 0; r < count; ++r) {
      std::copy_n(in.rgb.data() + 3 * (y + r) * in.width, 3 * in.width,
                  rows.data() + static_cast<size_t>(r) * stride);
    }
    uint8_t* to = out.rgb.data() + 3 * y * width;
    if (count == kRows) {
      resize_rows<kRows>(filter, rows.data(), stride, to, width);
      continue;
    }
    for (int64_t r = 0; r < count; ++r) {
      resize_rows<1>(filter, rows.data() + static_cast<size_t>(r) * stride, stride,
                     to + 3 * r * width, width);
    }
  }
  return out;
}

// 16 neighbours of one output row. `from`: their bytes in the tap's first input row. With `last`,
// the second row of the last pair lies outside the picture and has weight 0: the first stands in.
__m128i sum_rows(const Filter::Tap& tap, const Filter::Pair* weight, const uint8_t* from,
                 size_t stride, bool last) {
  const __m128i zero = _mm_setzero_si128();
  __m128i high[4] = {zero, zero, zero, zero};
  __m128i low[4] = {zero, zero, zero, zero};
  for (int64_t j = 0; j < tap.pairs; ++j, from += 2 * stride) {
    const uint8_t* second = last && j + 1 == tap.pairs ? from : from + stride;
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(second));
    const __m128i left = _mm_unpacklo_epi8(a, b);
    const __m128i right = _mm_unpackhi_epi8(a, b);
    const __m128i pairs[4] = {_mm_unpacklo_epi8(left, zero), _mm_unpackhi_epi8(left, zero),
                              _mm_unpacklo_epi8(right, zero), _mm_unpackhi_epi8(right, zero)};
    const __m128i weight_high = _mm_set1_epi32(weight[j].high);
    const __m128i weight_low = _mm_set1_epi32(weight[j].low);
    for (int i = 0; i < 4; ++i) {
      high[i] = _mm_add_epi32(high[i], _mm_madd_epi16(pairs[i], weight_high));
      low[i] = _mm_add_epi32(low[i], _mm_madd_epi16(pairs[i], weight_low));
    }
  }
  return _mm_packus_epi16(_mm_packs_epi32(finish(high[0], low[0]), finish(high[1], low[1])),
                          _mm_packs_epi32(finish(high[2], low[2]), finish(high[3], low[3])));
}

Picture resize_height(const Picture& in, int64_t height) {
  const Filter filter = make_filter(in.height, height);
  constexpr size_t kStrip = 16;
  const size_t width = static_cast<size_t>(3 * in.width);
  // Rows of whole strips, zeros behind them.
  const size_t stride = (width + kStrip - 1) / kStrip * kStrip;
  std::vector<uint8_t> padded;
  const uint8_t* source = in.rgb.data();
  if (stride != width) {
    padded.resize(stride * static_cast<size_t>(in.height));
    for (size_t y = 0; y < static_cast<size_t>(in.height); ++y) {
      std::copy_n(source + y * width, width, padded.data() + y * stride);
    }
    source = padded.data();
  }
  Picture out{in.width, height, std::vector<uint8_t>(width * static_cast<size_t>(height))};
  uint8_t* to = out.rgb.data();
  for (const Filter::Tap& tap : filter.taps) {
    const Filter::Pair* weight = filter.weights.data() + tap.weights;
    const uint8_t* from = source + stride * static_cast<size_t>(tap.first);
    const bool last = tap.first + 2 * tap.pairs > in.height;
    for (size_t x = 0; x < width; x += kStrip) {
      alignas(16) uint8_t strip[kStrip];
      _mm_store_si128(reinterpret_cast<__m128i*>(strip),
                      sum_rows(tap, weight, from + x, stride, last));
      std::memcpy(to + x, strip, std::min(kStrip, width - x));
    }
    to += width;
  }
  return out;
}

// BF16 bits of (v / 255 - 0.5) / 0.5, every step FP32, for all v.
std::array<uint16_t, 256> make_normalised() {
  std::array<uint16_t, 256> table{};
  for (size_t v = 0; v < table.size(); ++v) {
    const float x = (static_cast<float>(v) / 255.0f - 0.5f) / 0.5f;
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    table[v] = static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
  }
  return table;
}

}  // namespace

ResizePlan plan_resize(const PatchRules& rules, int64_t width, int64_t height) {
  if (width * height < rules.min_pixels) {
    const double factor =
        std::sqrt(static_cast<double>(rules.min_pixels) / static_cast<double>(width * height));
    width = static_cast<int64_t>(static_cast<double>(width) * factor);
    height = static_cast<int64_t>(static_cast<double>(height) * factor);
  }
  const int64_t patch = rules.patch_size;
  const ResizePlan plan =
      with_grids(rules, ceil_div(width, patch) * patch, ceil_div(height, patch) * patch);
  if (plan.span_tokens() <= rules.max_image_tokens) return plan;
  return shrink_to_budget(rules, width, height);
}

Picture resize(const Picture& picture, int64_t width, int64_t height) {
  if (width == picture.width && height == picture.height) return picture;
  if (width == picture.width) return resize_height(picture, height);
  Picture narrowed = resize_width(picture, width);
  return height == picture.height ? narrowed : resize_height(narrowed, height);
}

Picture shrink_to_side(Picture picture, int64_t side) {
  const int64_t longest = std::max(picture.width, picture.height);
  if (longest <= side) return picture;
  const double factor = static_cast<double>(side) / static_cast<double>(longest);
  const auto shrunk = [&](int64_t length) {
    return std::max<int64_t>(std::llround(static_cast<double>(length) * factor), 1);
  };
  return resize(picture, shrunk(picture.width), shrunk(picture.height));
}

Picture fit(const Picture& picture, const ResizePlan& plan) {
  const double width = static_cast<double>(picture.width);
  const double height = static_cast<double>(picture.height);
  const double target_width = static_cast<double>(plan.width);
  const double target_height = static_cast<double>(plan.height);
  int64_t inner_width = plan.width;
  int64_t inner_height = plan.height;
  const double aspect = width / height;
  const double target_aspect = target_width / target_height;
  if (aspect > target_aspect) {
    inner_height = std::max<int64_t>(round_half_even(height / width * target_width), 1);
  } else if (aspect < target_aspect) {
    inner_width = std::max<int64_t>(round_half_even(width / height * target_height), 1);
  }
  Picture inner = resize(picture, inner_width, inner_height);
  if (inner_width == plan.width && inner_height == plan.height) return inner;
  Picture canvas{
      plan.width, plan.height,
      std::vector<uint8_t>(static_cast<size_t>(3 * plan.width * plan.height), kPadColour)};
  int64_t left = 0;
  int64_t top = 0;
  if (inner_width != plan.width) {
    left = round_half_even(static_cast<double>(plan.width - inner_width) * 0.5);
  } else {
    top = round_half_even(static_cast<double>(plan.height - inner_height) * 0.5);
  }
  for (int64_t y = 0; y < inner_height; ++y) {
    std::copy_n(inner.rgb.data() + 3 * y * inner_width, 3 * inner_width,
                canvas.rgb.data() + 3 * ((top + y) * plan.width + left));
  }
  return canvas;
}

std::vector<uint16_t> patchify(const Picture& canvas, int64_t patch) {
  const std::array<uint16_t, 256> normalised = make_normalised();
  std::vector<uint16_t> values(canvas.rgb.size());
  uint16_t* to = values.data();
  for (int64_t top = 0; top + patch <= canvas.height; top += patch) {
    for (int64_t left = 0; left + patch <= canvas.width; left += patch) {
      for (int64_t c = 0; c < 3; ++c) {
        for (int64_t y = top; y < top + patch; ++y) {
          const uint8_t* from = canvas.rgb.data() + 3 * (y * canvas.width + left) + c;
          for (int64_t x = 0; x < patch; ++x) *to++ = normalised[from[3 * x]];
        }
      }
    }
  }
  return values;
}

Patches preprocess(const PatchRules& rules, const Picture& picture) {
  const ResizePlan plan = plan_resize(rules, picture.width, picture.height);
  return {plan, patchify(fit(picture, plan), rules.patch_size)};
}

}  // namespace cedra::image

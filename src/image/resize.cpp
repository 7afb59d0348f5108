// The plan's arithmetic is IEEE double in the order that the specification writes; the bicubic sums
// are 32-bit integers. Neither may be reordered: single results decide over rounding.
#include "image/resize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

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

// Fixed-point weights of one axis: output i is the sum over `count` inputs from `first`.
struct Filter {
  struct Tap {
    int64_t first;
    int64_t count;
    size_t weights;  // index of the first one
  };
  std::vector<Tap> taps;
  std::vector<int32_t> weights;
};

Filter make_filter(int64_t n_in, int64_t n_out) {
  Filter filter;
  const double scale = static_cast<double>(n_in) / static_cast<double>(n_out);
  const double filter_scale = std::max(scale, 1.0);
  const double support = 2 * filter_scale;
  const double inverse_scale = 1 / filter_scale;
  std::vector<double> exact;
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
    filter.taps.push_back({first, end - first, filter.weights.size()});
    const double inverse_total = 1 / total;
    for (const double weight : exact) {
      const double scaled = weight * inverse_total * (1 << kWeightBits);
      filter.weights.push_back(static_cast<int32_t>(scaled + (scaled < 0 ? -0.5 : 0.5)));
    }
  }
  return filter;
}

uint8_t to_pixel(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

Picture resize_width(const Picture& in, int64_t width) {
  const Filter filter = make_filter(in.width, width);
  Picture out{width, in.height, std::vector<uint8_t>(static_cast<size_t>(3 * width * in.height))};
  for (int64_t y = 0; y < in.height; ++y) {
    const uint8_t* row = in.rgb.data() + 3 * y * in.width;
    uint8_t* to = out.rgb.data() + 3 * y * width;
    for (const Filter::Tap& tap : filter.taps) {
      const int32_t* weight = filter.weights.data() + tap.weights;
      const uint8_t* from = row + 3 * tap.first;
      int32_t r = 1 << (kWeightBits - 1), g = r, b = r;
      for (int64_t j = 0; j < tap.count; ++j, from += 3) {
        r += from[0] * weight[j];
        g += from[1] * weight[j];
        b += from[2] * weight[j];
      }
      to[0] = to_pixel(r);
      to[1] = to_pixel(g);
      to[2] = to_pixel(b);
      to += 3;
    }
  }
  return out;
}

Picture resize_height(const Picture& in, int64_t height) {
  const Filter filter = make_filter(in.height, height);
  const size_t stride = static_cast<size_t>(3 * in.width);
  Picture out{in.width, height, std::vector<uint8_t>(stride * static_cast<size_t>(height))};
  std::vector<int32_t> sums(stride);
  uint8_t* to = out.rgb.data();
  for (const Filter::Tap& tap : filter.taps) {
    std::ranges::fill(sums, 1 << (kWeightBits - 1));
    for (int64_t j = 0; j < tap.count; ++j) {
      const int32_t weight = filter.weights[tap.weights + static_cast<size_t>(j)];
      const uint8_t* from = in.rgb.data() + stride * static_cast<size_t>(tap.first + j);
      for (size_t i = 0; i < stride; ++i) sums[i] += from[i] * weight;
    }
    for (size_t i = 0; i < stride; ++i) *to++ = to_pixel(sums[i]);
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

Patches preprocess(const PatchRules& rules, const Picture& picture) {
  const ResizePlan plan = plan_resize(rules, picture.width, picture.height);
  return {plan, patchify(fit(picture, plan), rules.patch_size)};
}

}  // namespace cedra::image

#include "golden/judge.h"

#include <cmath>
#include <ranges>

namespace cedra::golden {
namespace {

constexpr double kOracleBound = 1e-5;  // absolute, on values of ordinary size
constexpr double kModuleBound = 1e-2;  // relative L2 of a row
constexpr double kNoiseFactor = 1.5;   // of the reference's own float32 noise
constexpr double kArgmaxSlack = 0.05;

double relative_l2(const float* computed, const float* expected, int64_t n) {
  double difference = 0;
  double size = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double d = static_cast<double>(computed[i]) - expected[i];
    difference += d * d;
    size += static_cast<double>(expected[i]) * expected[i];
  }
  if (std::isnan(difference)) return INFINITY;
  return size == 0 ? (difference == 0 ? 0 : INFINITY) : std::sqrt(difference / size);
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  // Linear between neighbours, as NumPy's percentile.
  const double at = q * static_cast<double>(values.size() - 1);
  const size_t low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

double largest_difference(const Values& computed, const Values& wanted, int64_t begin,
                          int64_t width) {
  double worst = 0;
  for (int64_t i = begin; i < begin + width; ++i) {
    const double d = std::abs(static_cast<double>(computed[i]) - wanted[i]);
    const double relative = d / std::max(1.0, std::abs(double{wanted[i]}));
    worst = std::isfinite(relative) ? std::max(worst, relative) : INFINITY;
    if (std::isinf(worst)) return worst;
  }
  return worst;
}

int64_t argmax(Item& item, const Values& computed, const Values& wanted, int64_t width) {
  const int64_t rows = static_cast<int64_t>(wanted.size()) / width;
  int64_t same = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const auto best = [&](const Values& v) {
      return std::max_element(v.begin() + row * width, v.begin() + (row + 1) * width) -
             (v.begin() + row * width);
    };
    same += best(computed) == best(wanted);
  }
  item.agreement = fmt::format("{}/{}", same, rows);
  return same;
}

}  // namespace

bool Judge::group_selected(const std::string& prefix) const {
  return std::ranges::any_of(expected_.names(), [&](const std::string& name) {
    return name.starts_with(prefix) && selected(name);
  });
}

void Judge::add(Item item) {
  done_.insert(item.name);
  if (selected(item.name)) report_.items.push_back(std::move(item));
}

void Judge::close(const std::string& name, const Values& computed, int64_t rows) {
  const Values wanted = expected_.floats(name);
  Item item;
  item.name = name;
  item.rows = rows;
  if (computed.size() != wanted.size()) {
    item.bound = fmt::format("{} values", wanted.size());
    item.agreement = fmt::format("{} values", computed.size());
    item.verdict = Verdict::kFail;
    add(std::move(item));
    return;
  }
  const int64_t width = static_cast<int64_t>(wanted.size()) / std::max<int64_t>(rows, 1);
  std::vector<double> per_row;
  for (int64_t row = 0; row < rows; ++row) {
    per_row.push_back(oracle_ ? largest_difference(computed, wanted, row * width, width)
                              : relative_l2(&computed[row * width], &wanted[row * width], width));
  }
  item.worst = per_row.empty() ? 0 : *std::ranges::max_element(per_row);
  item.median = quantile(per_row, 0.5);
  const double bound = oracle_ ? kOracleBound : kModuleBound;
  item.bound = fmt::format("worst <= {:g}", bound);
  bool pass = item.worst <= bound;
  if (oracle_ && name.ends_with("logits")) pass &= argmax(item, computed, wanted, width) == rows;
  item.verdict = pass ? Verdict::kPass : Verdict::kFail;
  add(std::move(item));
}

// The reference's float32 noise over the whole folder: the largest of its sequences.
Noise Judge::folder_noise() const {
  Noise noise{};
  for (const std::string& sequence : expected_.numbered("seq")) {
    const std::optional<Noise> one = expected_.noise(sequence);
    if (!one.has_value()) continue;
    noise.median = std::max(noise.median, one->median);
    noise.p90 = std::max(noise.p90, one->p90);
    noise.argmax_agreement = std::min(noise.argmax_agreement, one->argmax_agreement);
  }
  return noise;
}

void Judge::noisy(const std::string& name, const std::string& sequence, const Values& computed,
                  int64_t rows) {
  if (oracle_) {
    close(name, computed, rows);
    return;
  }
  const Values wanted = expected_.floats(name);
  Item item;
  item.name = name;
  item.rows = rows;
  if (computed.size() != wanted.size()) {
    item.bound = fmt::format("{} values", wanted.size());
    item.verdict = Verdict::kFail;
    add(std::move(item));
    return;
  }
  const int64_t width = static_cast<int64_t>(wanted.size()) / rows;
  std::vector<double> per_row;
  for (int64_t row = 0; row < rows; ++row) {
    per_row.push_back(relative_l2(&computed[row * width], &wanted[row * width], width));
  }
  item.worst = *std::ranges::max_element(per_row);
  item.median = quantile(per_row, 0.5);
  const double p90 = quantile(per_row, 0.9);
  const double agreement =
      static_cast<double>(argmax(item, computed, wanted, width)) / static_cast<double>(rows);
  const auto holds = [&](const Noise& noise, std::string_view whose) {
    item.bound = fmt::format("{}: median <= {:.2g}, p90 {:.2g} <= {:.2g}, arg-max >= {:.2f}", whose,
                             kNoiseFactor * noise.median, p90, kNoiseFactor * noise.p90,
                             noise.argmax_agreement - kArgmaxSlack);
    return item.median <= kNoiseFactor * noise.median && p90 <= kNoiseFactor * noise.p90 &&
           agreement >= noise.argmax_agreement - kArgmaxSlack;
  };
  if (!expected_.has_noise()) {
    item.bound = "not judged: expected.json has no reference_noise";
    add(std::move(item));
    return;
  }
  const std::optional<Noise> own = expected_.noise(sequence);
  bool pass = own.has_value() && holds(*own, "own");
  if (!pass && own.has_value()) pass = holds(folder_noise(), "folder");
  if (!own.has_value()) {
    // Replays and images have no noise entry: nine rows in ten within the folder's worst.
    const Noise noise = folder_noise();
    item.bound = fmt::format("folder: p90 {:.2g} <= {:.2g}", p90, kNoiseFactor * noise.p90);
    pass = p90 <= kNoiseFactor * noise.p90;
  }
  // A NaN or an infinity in one row is a defect, whatever the others are.
  item.verdict = pass && std::isfinite(item.worst) ? Verdict::kPass : Verdict::kFail;
  add(std::move(item));
}

}  // namespace cedra::golden

#include "model/step.h"

namespace cedra::model {
namespace {

// Below this many multiply-adds waking the team costs more than it saves (about 10 us of one core).
constexpr int64_t kAloneBelow = 1 << 17;
constexpr int64_t kRowGrainBytes = 1 << 14;

int64_t row_grain(int64_t k) {
  return std::max<int64_t>(1, kRowGrainBytes / std::max<int64_t>(k, 1));
}

}  // namespace

void linear_part(const kernels::Ops& ops, const kernels::Matrix& w, const bf16* x, int64_t x_stride,
                 int64_t rows, kernels::SumRule rule, Output y, int64_t n_begin, int64_t n_end) {
  kernels::MatmulJob job;
  job.w = w;
  job.x = x;
  job.x_stride = x_stride;
  job.rows = rows;
  job.rule = rule;
  job.n_begin = n_begin;
  job.n_end = n_end;
  job.y_bf16 = y.as_bf16;
  job.y_f32 = y.as_f32;
  job.y_stride = y.stride;
  ops.matmul(job);
}

void linear(Step& step, const kernels::Matrix& w, const bf16* x, int64_t x_stride, int64_t rows,
            kernels::SumRule rule, Output y) {
  if (rows == 0) return;
  if (w.rows * w.cols * rows < kAloneBelow) {
    linear_part(step.ops, w, x, x_stride, rows, rule, y, 0, w.rows);
    return;
  }
  // 64 outputs are one panel of the matrix kernels; the few outputs of hc_*_fn are cut finer.
  const int64_t grain = w.rows >= 64 * step.team.size() ? 64 : 4;
  step.team.for_range(w.rows, grain, [&](int64_t begin, int64_t end, int) {
    linear_part(step.ops, w, x, x_stride, rows, rule, y, begin, end);
  });
}

void quantize_rows(Step& step, const bf16* x, bf16* y, int64_t rows, int64_t k) {
  step.team.for_range(rows, row_grain(k), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) step.ops.quantize_q8(x + t * k, y + t * k, k);
  });
}

void norm_rows(Step& step, const bf16* x, const bf16* weight, bf16* y, int64_t rows, int64_t k) {
  const float eps = static_cast<float>(step.text().rms_norm_eps);
  step.team.for_range(rows, row_grain(k), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) step.ops.rms_norm(x + t * k, weight, k, eps, y + t * k);
  });
}

}  // namespace cedra::model

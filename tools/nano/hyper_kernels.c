/* Hyper-connection kernels of the trainer: plain loops over rows, float32, one pass over memory each.
 *
 * torch needs a pass over the stream [M, C, D] for every operation; these are most of a training step
 * without this file. Semantics: spec/model.md section 4.2; torch_ops.py holds the same in plain torch,
 * and hyper_test.py compares the two.
 *
 * Built by hyper.py: cc -O3 -march=native -ffast-math -shared -fPIC.
 */

#define MAX_COPIES 8
#define MAX_STEPS 128

/* out[m, :] = sum_c pre[m, c] * x[m, c, :] */
void collapse_forward(long rows, int copies, int width, const float* x, const float* pre, float* out) {
  for (long m = 0; m < rows; ++m) {
    float* o = out + m * width;
    for (int i = 0; i < width; ++i) o[i] = 0;
    for (int c = 0; c < copies; ++c) {
      const float p = pre[m * copies + c];
      const float* from = x + (m * copies + c) * width;
      for (int i = 0; i < width; ++i) o[i] += p * from[i];
    }
  }
}

void collapse_backward(long rows, int copies, int width, const float* x, const float* pre,
                       const float* grad, float* grad_x, float* grad_pre) {
  for (long m = 0; m < rows; ++m) {
    const float* g = grad + m * width;
    for (int c = 0; c < copies; ++c) {
      const long at = (m * copies + c) * width;
      const float p = pre[m * copies + c];
      float sum = 0;
      for (int i = 0; i < width; ++i) {
        grad_x[at + i] = p * g[i];
        sum += x[at + i] * g[i];
      }
      grad_pre[m * copies + c] = sum;
    }
  }
}

/* y[m, j, :] = post[m, j] * out[m, :] + sum_i comb[m, i, j] * x[m, i, :] */
void expand_forward(long rows, int copies, int width, const float* out, const float* x,
                    const float* post, const float* comb, float* y) {
  for (long m = 0; m < rows; ++m) {
    const float* o = out + m * width;
    for (int j = 0; j < copies; ++j) {
      float* to = y + (m * copies + j) * width;
      const float p = post[m * copies + j];
      for (int i = 0; i < width; ++i) to[i] = p * o[i];
      for (int s = 0; s < copies; ++s) {
        const float w = comb[(m * copies + s) * copies + j];
        const float* from = x + (m * copies + s) * width;
        for (int i = 0; i < width; ++i) to[i] += w * from[i];
      }
    }
  }
}

void expand_backward(long rows, int copies, int width, const float* out, const float* x,
                     const float* post, const float* comb, const float* grad, float* grad_out,
                     float* grad_x, float* grad_post, float* grad_comb) {
  for (long m = 0; m < rows; ++m) {
    const float* o = out + m * width;
    float* go = grad_out + m * width;
    for (int i = 0; i < width; ++i) go[i] = 0;
    for (int j = 0; j < copies; ++j) {
      const float* g = grad + (m * copies + j) * width;
      const float p = post[m * copies + j];
      float sum = 0;
      for (int i = 0; i < width; ++i) {
        go[i] += p * g[i];
        sum += o[i] * g[i];
      }
      grad_post[m * copies + j] = sum;
    }
    for (int s = 0; s < copies; ++s) {
      const float* from = x + (m * copies + s) * width;
      float* to = grad_x + (m * copies + s) * width;
      for (int i = 0; i < width; ++i) to[i] = 0;
      for (int j = 0; j < copies; ++j) {
        const float* g = grad + (m * copies + j) * width;
        const float w = comb[(m * copies + s) * copies + j];
        float sum = 0;
        for (int i = 0; i < width; ++i) {
          to[i] += w * g[i];
          sum += from[i] * g[i];
        }
        grad_comb[(m * copies + s) * copies + j] = sum;
      }
    }
  }
}

/* One normalisation of a C x C matrix along rows (over the target) or columns (over the source). */
static inline __attribute__((always_inline)) void normalise(int copies, int along_rows, float eps, const float* from, float* to, float* inverse) {
  for (int a = 0; a < copies; ++a) {
    float sum = eps;
    for (int b = 0; b < copies; ++b) sum += along_rows ? from[a * copies + b] : from[b * copies + a];
    inverse[a] = 1 / sum;
  }
  for (int a = 0; a < copies; ++a)
    for (int b = 0; b < copies; ++b)
      to[a * copies + b] = from[a * copies + b] * inverse[along_rows ? a : b];
}

/* Gradient through one normalisation: (g - sum(g * y)) / (sum + eps) along the same lines. */
static inline __attribute__((always_inline)) void normalise_backward(int copies, int along_rows, const float* y, const float* inverse, float* g) {
  float inner[MAX_COPIES];
  for (int a = 0; a < copies; ++a) {
    inner[a] = 0;
    for (int b = 0; b < copies; ++b) {
      const int at = along_rows ? a * copies + b : b * copies + a;
      inner[a] += g[at] * y[at];
    }
  }
  for (int a = 0; a < copies; ++a)
    for (int b = 0; b < copies; ++b) {
      const int line = along_rows ? a : b;
      g[a * copies + b] = (g[a * copies + b] - inner[line]) * inverse[line];
    }
}

/* probability [M, C, C] (a row softmax) -> nearly doubly stochastic; 2 * iterations - 1 steps that
 * begin and end on columns. */
static inline __attribute__((always_inline)) void sinkhorn(long rows, int copies, int iterations, float eps, const float* probability,
                      float* comb) {
  const int size = copies * copies, steps = 2 * iterations - 1;
  float inverse[MAX_COPIES], current[MAX_COPIES * MAX_COPIES];
  for (long m = 0; m < rows; ++m) {
    for (int i = 0; i < size; ++i) current[i] = probability[m * size + i] + eps;
    for (int step = 0; step < steps; ++step) normalise(copies, step & 1, eps, current, current, inverse);
    for (int i = 0; i < size; ++i) comb[m * size + i] = current[i];
  }
}

static inline __attribute__((always_inline)) void sinkhorn_gradient(long rows, int copies, int iterations, float eps, const float* probability,
                       const float* grad, float* grad_probability) {
  const int size = copies * copies, steps = 2 * iterations - 1;
  static _Thread_local float values[MAX_STEPS + 1][MAX_COPIES * MAX_COPIES];
  static _Thread_local float inverse[MAX_STEPS][MAX_COPIES];
  for (long m = 0; m < rows; ++m) {
    for (int i = 0; i < size; ++i) values[0][i] = probability[m * size + i] + eps;
    for (int step = 0; step < steps; ++step)
      normalise(copies, step & 1, eps, values[step], values[step + 1], inverse[step]);
    float* g = grad_probability + m * size;
    for (int i = 0; i < size; ++i) g[i] = grad[m * size + i];
    for (int step = steps - 1; step >= 0; --step)
      normalise_backward(copies, step & 1, values[step + 1], inverse[step], g);
  }
}

/* A constant number of copies lets the compiler unroll the small loops. */
void sinkhorn_forward(long rows, int copies, int iterations, float eps, const float* probability,
                      float* comb) {
  if (copies == 4)
    sinkhorn(rows, 4, iterations, eps, probability, comb);
  else
    sinkhorn(rows, copies, iterations, eps, probability, comb);
}

void sinkhorn_backward(long rows, int copies, int iterations, float eps, const float* probability,
                       const float* grad, float* grad_probability) {
  if (copies == 4)
    sinkhorn_gradient(rows, 4, iterations, eps, probability, grad, grad_probability);
  else
    sinkhorn_gradient(rows, copies, iterations, eps, probability, grad, grad_probability);
}

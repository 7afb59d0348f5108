#include "bench/operations.h"

#include <algorithm>
#include <cmath>

#include "synth/counter_random.h"

namespace cedra::bench {
namespace {

using kernels::Matrix;
using kernels::MatrixFormat;

// Released dims (docs/spec/model.md 1).
constexpr int64_t kHidden = 5120;
constexpr int64_t kCopies = 4;
constexpr int64_t kHeads = 64;
constexpr int64_t kHeadDim = 512;
constexpr int64_t kRopePairs = 32;
constexpr int64_t kExpert = 2304;
constexpr int64_t kExperts = 384;
constexpr int64_t kActive = 6;
constexpr int64_t kIndexHeads = 32;
constexpr int64_t kIndexDim = 128;
constexpr int64_t kWindow = 128;
constexpr int64_t kSelected = 512;
constexpr int64_t kEngramColumns = 24;
constexpr int64_t kEngramDim = 256;
constexpr int64_t kEntries = kWindow + kSelected;
constexpr int64_t kMostInputs = kHeads * kHeadDim;  // of a row of activations
constexpr int64_t kMostOutputs = kHeads * kHeadDim;
constexpr int64_t kHeadSlice = 16384;  // rows of the head that are timed: the whole is 129280
constexpr int64_t kIndexKeys = 4096;   // keys that a row is scored against
constexpr int64_t kIndexRun = 64;      // of them in one block of the cache
constexpr int64_t kHeadsTogether = 8;  // that share the reading of the keys

struct Shape {
  MatrixFormat format;
  int64_t outputs, inputs;
  const char* use;
  int64_t groups = 1;  // grouped projection: outputs and activations are cut into so many groups
};

constexpr Shape kMatrices[] = {
    {MatrixFormat::kFp4Row32, kExpert, kHidden, "routed expert, gate and up"},
    {MatrixFormat::kFp4Row32, kHidden, kExpert, "routed expert, down"},
    {MatrixFormat::kFp8Tile32, kExpert, kHidden, "shared expert, gate and up"},
    {MatrixFormat::kFp8Tile32, kHidden, kExpert, "shared expert, down"},
    {MatrixFormat::kFp8Tile32, 1280, kHidden, "attention wq_a"},
    {MatrixFormat::kFp8Tile32, kHeads* kHeadDim, 1280, "attention wq_b"},
    {MatrixFormat::kFp8Tile32, kHeadDim, kHidden, "attention wkv"},
    {MatrixFormat::kFp8Tile32, 8192, kHeads* kHeadDim / 8, "attention wo_a", 8},
    {MatrixFormat::kFp8Tile32, kHidden, 8192, "attention wo_b"},
    {MatrixFormat::kFp8Tile32, kIndexHeads* kIndexDim, 1280, "indexer wq_b"},
    {MatrixFormat::kFp8Tile32, (kCopies + 1) * kHidden, kEngramColumns* kEngramDim, "Engram wkv"},
    {MatrixFormat::kBf16, kExperts, kHidden, "router"},
    {MatrixFormat::kBf16, kHeadDim, kHidden, "compressor wkv, wgate"},
    {MatrixFormat::kBf16, kHeadSlice, kHidden, "head, an eighth of it"},
    {MatrixFormat::kF32, (2 + kCopies) * kCopies, kCopies* kHidden, "hyper-connections"},
};

const char* format_name(MatrixFormat format) {
  switch (format) {
    case MatrixFormat::kFp4Row32:
      return "fp4";
    case MatrixFormat::kFp8Tile32:
      return "fp8";
    case MatrixFormat::kBf16:
      return "bf16";
    default:
      return "f32";
  }
}

int64_t code_bytes(const Shape& s) {
  const int64_t elements = s.outputs * s.inputs;
  switch (s.format) {
    case MatrixFormat::kFp4Row32:
      return elements / 2;
    case MatrixFormat::kFp8Tile32:
      return elements;
    case MatrixFormat::kBf16:
      return 2 * elements;
    default:
      return 4 * elements;
  }
}

// Place of call number `call`, each of which takes `bytes` out of the working set.
const uint8_t* fresh(const Workbench& bench, int64_t call, int64_t bytes) {
  const int64_t stride = (bytes + 63) / 64 * 64;
  return bench.weights.data() + call % std::max<int64_t>(1, bench.weights.size() / stride) * stride;
}

Operation matrix(Workbench& bench, const Shape& shape) {
  Operation out;
  out.name = fmt::format("{} {}x{}", format_name(shape.format), shape.outputs, shape.inputs);
  out.use = shape.use;
  // Scales are too few to matter where they come from; the matrix' own are counted all the same.
  const int64_t blocks = shape.outputs * shape.inputs / 32;
  const int64_t scales = shape.format == MatrixFormat::kFp4Row32    ? blocks
                         : shape.format == MatrixFormat::kFp8Tile32 ? blocks / 32
                                                                    : 0;
  out.bytes = static_cast<double>(code_bytes(shape) + scales);
  out.flops_per_row = 2.0 * static_cast<double>(shape.outputs * shape.inputs);
  out.run = [&bench, shape](int64_t rows, int64_t call, int member) {
    kernels::MatmulJob job;
    job.w = {shape.format, fresh(bench, call, code_bytes(shape)), bench.e8m0.data(), shape.outputs,
             shape.inputs};
    job.x_stride = shape.inputs * shape.groups;
    job.rows = rows;
    if (shape.format == MatrixFormat::kF32) {
      job.y_f32 = bench.sums.data();
    } else {
      job.y_bf16 = bench.y.data();
    }
    job.y_stride = shape.outputs;
    const int64_t grain = shape.outputs >= 64 * bench.members ? 64 : 4;
    const Range part = static_part(shape.outputs, grain, member, bench.members);
    const int64_t width = shape.outputs / shape.groups;
    for (int64_t begin = part.begin; begin < part.end; begin = job.n_end) {
      const int64_t group = begin / width;
      job.x = bench.x.data() + group * shape.inputs;
      job.n_begin = begin;
      job.n_end = std::min(part.end, (group + 1) * width);
      bench.ops.matmul(job);
    }
  };
  return out;
}

// An operation on rows that are in the cache; the members share the rows.
Operation rows_operation(Workbench& bench, std::string name, std::string use,
                         std::function<void(int64_t row, int member)> one) {
  Operation out;
  out.name = std::move(name);
  out.use = std::move(use);
  out.run = [&bench, one = std::move(one)](int64_t rows, int64_t, int member) {
    const Range part = static_part(rows, 1, member, bench.members);
    for (int64_t row = part.begin; row < part.end; ++row) one(row, member);
  };
  return out;
}

Operation attend(Workbench& bench) {
  Operation out;
  out.name = fmt::format("attend {} heads, {} entries", kHeads, kEntries);
  out.use = "attention of gathered entries";
  out.flops_per_row = 4.0 * static_cast<double>(kHeads * kHeadDim * kEntries);
  out.run = [&bench](int64_t rows, int64_t, int member) {
    constexpr int64_t kParts = kHeads / kHeadsTogether;
    const Range part = static_part(rows * kParts, 1, member, bench.members);
    for (int64_t i = part.begin; i < part.end; ++i) {
      const int64_t row = i / kParts;
      kernels::AttendJob job;
      job.q = bench.x.data() + row * kHeads * kHeadDim;
      job.keys = bench.keys.data();
      job.present = bench.present.data();
      job.entries = kEntries;
      job.head_dim = kHeadDim;
      job.h_begin = i % kParts * kHeadsTogether;
      job.h_end = job.h_begin + kHeadsTogether;
      job.sink = bench.angles.data();
      job.scale = 1 / std::sqrt(static_cast<float>(kHeadDim));
      job.out = bench.y.data() + row * kHeads * kHeadDim;
      job.scratch = bench.scratch[static_cast<size_t>(member)].data();
      bench.ops.attend(job);
    }
  };
  return out;
}

// Records of a row's list out of the working set.
Operation gather(Workbench& bench, std::string name, std::string use, int64_t entries,
                 int64_t record, void (*unpack)(const uint8_t*, const uint8_t*, int64_t, bf16*),
                 const uint8_t* scales) {
  Operation out;
  out.name = std::move(name);
  out.use = std::move(use);
  out.bytes_per_row = static_cast<double>(entries * record);
  out.run = [&bench, entries, record, unpack, scales](int64_t rows, int64_t call, int member) {
    const uint8_t* records = fresh(bench, call, rows * entries * record);
    const Range part = static_part(rows * entries, 16, member, bench.members);
    for (int64_t i = part.begin; i < part.end; ++i) {
      unpack(records + i * record, scales, kHeadDim, bench.y.data() + i % kEntries * kHeadDim);
    }
  };
  return out;
}

Operation index_scores(Workbench& bench) {
  Operation out;
  out.name = fmt::format("index {} heads, {} keys", kIndexHeads, kIndexKeys);
  out.use = "indexer, scores of compressed rows";
  out.flops_per_row = 2.0 * static_cast<double>(kIndexHeads * kIndexDim * kIndexKeys);
  out.bytes_per_row = static_cast<double>(kIndexKeys * kIndexDim / 2);
  out.run = [&bench](int64_t rows, int64_t call, int member) {
    constexpr int64_t kRuns = kIndexKeys / kIndexRun;
    constexpr int64_t kBytes = kIndexDim / 2;
    const uint8_t* keys = fresh(bench, call, rows * kIndexKeys * kBytes);
    const Range part = static_part(rows * kRuns, 1, member, bench.members);
    for (int64_t i = part.begin; i < part.end; ++i) {
      kernels::IndexJob job;
      job.q = bench.x.data() + i / kRuns * kIndexHeads * kIndexDim;
      job.head_weight = bench.angles.data();
      job.heads = kIndexHeads;
      job.dim = kIndexDim;
      job.codes = keys + i * kIndexRun * kBytes;
      job.scales = bench.e8m0.data();
      job.n = kIndexRun;
      job.scores = bench.scratch[static_cast<size_t>(member)].data();
      bench.ops.index_scores(job);
    }
  };
  return out;
}

void add_row_operations(Workbench& b, std::vector<Operation>& all) {
  const kernels::Ops& ops = b.ops;
  bf16* x = b.x.data();
  bf16* y = b.y.data();
  const bf16* norm = b.z.data();
  const float* coefficients = b.angles.data();
  constexpr float kEps = 1e-20f;
  all.push_back(rows_operation(b, "rms_norm 5120", "norms", [=, &ops](int64_t row, int) {
    ops.rms_norm(x + row * kHidden, norm, kHidden, kEps, y + row * kHidden);
  }));
  all.push_back(rows_operation(b, "quantize_q8 5120", "activations", [=, &ops](int64_t row, int) {
    ops.quantize_q8(x + row * kHidden, y + row * kHidden, kHidden);
  }));
  all.push_back(
      rows_operation(b, "collapse 4x5120", "hyper-connections", [=, &ops](int64_t row, int) {
        ops.collapse(x + row * kCopies * kHidden, coefficients, kCopies, kHidden,
                     y + row * kHidden);
      }));
  all.push_back(
      rows_operation(b, "expand 4x5120", "hyper-connections", [=, &ops](int64_t row, int) {
        ops.expand(x + row * kHidden, coefficients, coefficients, kCopies, kHidden,
                   y + row * kCopies * kHidden);
      }));
  all.push_back(rows_operation(
      b, "mixes of 20480", "hyper-connections", [=, &ops, &b](int64_t row, int member) {
        float* out = b.scratch[static_cast<size_t>(member)].data();
        kernels::MixesJob job;
        job.dots = coefficients;
        job.inverse_rms = ops.inverse_rms(x + row * kCopies * kHidden, kCopies * kHidden, kEps);
        job.scale = coefficients;
        job.base = coefficients;
        job.copies = kCopies;
        job.sinkhorn_iters = 20;
        job.eps = 1e-6f;
        job.pre = out;
        job.post = out + 8;
        job.comb = out + 16;
        ops.mixes(job);
      }));
  all.push_back(rows_operation(b, "rope 64 heads", "attention", [=, &ops](int64_t row, int) {
    for (int64_t head = 0; head < kHeads; ++head) {
      ops.rope(y + (row * kHeads + head + 1) * kHeadDim - 2 * kRopePairs, coefficients,
               coefficients + kRopePairs, kRopePairs, false);
    }
  }));
  all.push_back(
      rows_operation(b, "router_scores 384", "router", [=, &ops, &b](int64_t, int member) {
        float* logits = b.scratch[static_cast<size_t>(member)].data();
        std::copy_n(coefficients, kExperts, logits);
        ops.router_scores(logits, kExperts, kernels::RouterScore::kSqrtSoftplus, 1.0f);
      }));
  all.push_back(
      rows_operation(b, "swiglu + quantize 2304 x 7", "experts", [=, &ops](int64_t row, int) {
        for (int64_t k = 0; k <= kActive; ++k) {
          bf16* out = y + (row * (kActive + 1) + k) * kExpert;
          ops.swiglu(x + row * kExpert, x + (row + 1) * kExpert, 10.0f, 0.5f, kExpert, out);
          ops.quantize_q8(out, out, kExpert);
        }
      }));
  all.push_back(
      rows_operation(b, "add_rows 5120 x 7", "experts", [=, &ops, &b](int64_t row, int member) {
        float* sum = b.scratch[static_cast<size_t>(member)].data();
        std::fill_n(sum, kHidden, 0.0f);
        for (int64_t k = 0; k <= kActive; ++k) {
          ops.add_rows(x + (row * (kActive + 1) + k) * 4096, kHidden, sum);
        }
        ops.round_rows(sum, kHidden, y + row * kHidden);
      }));
  all.push_back(rows_operation(b, "engram_mix 4x5120", "Engram", [=, &ops](int64_t row, int) {
    for (int64_t copy = 0; copy < kCopies; ++copy) {
      ops.engram_mix(y + (row * kCopies + copy) * kHidden, x + row * kHidden, x + kHidden, norm,
                     norm, kHidden, kEps);
    }
  }));
}

}  // namespace

std::unique_ptr<Workbench> make_workbench(const kernels::Ops& ops, int members, int64_t max_rows,
                                          const Buffer& weights) {
  auto out =
      std::make_unique<Workbench>(Workbench{.ops = ops, .members = members, .weights = weights});
  constexpr uint8_t kSmallScale = 120;  // 2^-7
  constexpr uint8_t kOne = 0x38;        // E4M3
  out->e8m0.assign(static_cast<size_t>(kHidden * kHidden / 32), kSmallScale);
  out->e4m3.assign(static_cast<size_t>(kHeadDim), kOne);
  // A sum of four uniform numbers is round enough.
  const auto number = [](size_t place) {
    const uint64_t word = synth::random_word(2, place);
    const uint64_t sum =
        (word & 0xFFFF) + (word >> 16 & 0xFFFF) + (word >> 32 & 0xFFFF) + (word >> 48);
    return static_cast<float>(sum) * 0x1p-16f - 2.0f;
  };
  const auto fill = [&](std::vector<bf16>& values, int64_t count) {
    values.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = to_bf16(number(i));
  };
  fill(out->x, (max_rows + 8) * kMostInputs);
  fill(out->y, (max_rows + 8) * kMostOutputs);
  fill(out->z, kHidden);
  fill(out->keys, kEntries * kHeadDim);
  out->present.assign(static_cast<size_t>(kEntries), 1);
  out->sums.resize(static_cast<size_t>(max_rows * 64));
  out->angles.resize(static_cast<size_t>(kExperts));
  for (size_t i = 0; i < out->angles.size(); ++i) out->angles[i] = 0.1f + 0.001f * number(i);
  const auto floats = static_cast<size_t>(
      std::max(kernels::attend_scratch_floats(kHeadDim), std::max(kHidden, kIndexKeys)));
  out->scratch.assign(static_cast<size_t>(members), std::vector<float>(floats));
  return out;
}

std::vector<Operation> make_operations(Workbench& bench) {
  std::vector<Operation> all;
  for (const Shape& shape : kMatrices) all.push_back(matrix(bench, shape));
  all.push_back(attend(bench));
  all.push_back(gather(bench, "unpack_latent 512 rows", "attention, selected rows", kSelected,
                       kHeadDim / 2, bench.ops.unpack_latent, bench.e4m3.data()));
  all.push_back(gather(bench, "unpack_fp8 128 rows", "attention, window", kWindow, kHeadDim,
                       bench.ops.unpack_fp8, bench.e8m0.data()));
  all.push_back(index_scores(bench));
  add_row_operations(bench, all);
  return all;
}

}  // namespace cedra::bench

#include "model/vision.h"

#include <algorithm>

#include "model/rope.h"

namespace cedra::model {
namespace {

constexpr float kNormEps = 1e-6f;     // the tower's own, not rms_norm_eps
constexpr int64_t kChunkRows = 256;   // rows whose inner activations exist at a time
constexpr int64_t kOutputGrain = 64;  // outputs of one panel of the matrix kernels

struct alignas(64) Line {
  uint8_t bytes[64];
};

struct Sizes {
  int64_t patch_values, width, heads, head_dim, inner, ratio, hidden, max_patches;

  Sizes(const Config& config, int64_t patches)
      : patch_values(3 * config.vision->patch_size * config.vision->patch_size),
        width(config.vision->hidden_size),
        heads(config.vision->num_attention_heads),
        head_dim(width / heads),
        inner(config.vision->intermediate_size),
        ratio(config.vision->downsample_ratio),
        hidden(config.text.hidden_size),
        max_patches(patches) {}

  int64_t cell_values() const { return width * ratio * ratio; }
  // Inner activations of a chunk: gate, up and their product; or a cell and its hidden row.
  int64_t chunk_values() const { return std::max(3 * inner, cell_values() + hidden); }
  int64_t quarter() const { return head_dim / 4; }
  // Scratch of one member for attention.
  int64_t scratch_lines() const {
    const int64_t bytes = kernels::full_attend_scratch_bytes(max_patches, head_dim);
    return (bytes + int64_t{sizeof(Line)} - 1) / int64_t{sizeof(Line)};
  }
};

}  // namespace

SpanPlace span_place(const ImageGrid& grid, int64_t offset) {
  if (offset == 0) return {SpanRole::kStart};
  if (offset == grid.span_tokens() - 1) return {SpanRole::kEnd};
  const int64_t row = (offset - 1) / (grid.llm_columns + 1);
  const int64_t column = (offset - 1) % (grid.llm_columns + 1);
  if (column == grid.llm_columns) return {SpanRole::kNewline};
  return {SpanRole::kImage, row * grid.llm_columns + column};
}

const bf16* span_delimiter(const Weights& weights, SpanRole role) {
  switch (role) {
    case SpanRole::kStart:
      return weights.image_start;
    case SpanRole::kNewline:
      return weights.image_newline;
    case SpanRole::kEnd:
      return weights.image_end;
    case SpanRole::kImage:
      break;
  }
  return nullptr;
}

std::vector<SpanRole> span_roles(const ImageGrid& grid) {
  std::vector<SpanRole> roles;
  roles.reserve(static_cast<size_t>(grid.span_tokens()));
  for (int64_t i = 0; i < grid.span_tokens(); ++i) roles.push_back(span_place(grid, i).role);
  return roles;
}

std::vector<const bf16*> span_embeddings(const Weights& weights, const ImageGrid& grid,
                                         const bf16* rows, int64_t hidden_size) {
  std::vector<const bf16*> embeddings;
  embeddings.reserve(static_cast<size_t>(grid.span_tokens()));
  for (int64_t i = 0; i < grid.span_tokens(); ++i) {
    const SpanPlace place = span_place(grid, i);
    embeddings.push_back(place.role == SpanRole::kImage ? rows + place.token * hidden_size
                                                        : span_delimiter(weights, place.role));
  }
  return embeddings;
}

struct VisionTower::Impl {
  Impl(VisionWeights bound, const Config& config, const kernels::Ops& level, Team& workers,
       int64_t max_patches)
      : weights(std::move(bound)),
        sizes(config, max_patches),
        ops(level),
        team(workers),
        frequencies(rope_frequencies(config.vision->rope_theta, sizes.head_dim / 2)),
        x(static_cast<size_t>(max_patches * sizes.width)),
        normed(x.size()),
        qkv(3 * x.size()),
        chunk(static_cast<size_t>(kChunkRows * sizes.chunk_values())),
        cos(static_cast<size_t>(max_patches * sizes.quarter())),
        sin(cos.size()),
        angles(static_cast<size_t>(team.size() * sizes.head_dim)),
        keys(x.size()),
        values(x.size()),
        scratch(static_cast<size_t>(team.size() * sizes.scratch_lines())) {}

  // y[rows, N] = in[rows, K] * w + bias.
  void linear(const kernels::Matrix& w, const bf16* bias, const bf16* in, int64_t rows, bf16* y) {
    team.for_range(w.rows, kOutputGrain, [&](int64_t begin, int64_t end, int) {
      kernels::MatmulJob job;
      job.w = w;
      job.x = in;
      job.x_stride = w.cols;
      job.rows = rows;
      job.n_begin = begin;
      job.n_end = end;
      job.bias = bias;
      job.y_bf16 = y;
      job.y_stride = w.rows;
      ops.matmul(job);
    });
  }

  void norm(const bf16* weight, bf16* y, int64_t rows) {
    team.for_range(rows, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        ops.rms_norm(x.data() + t * sizes.width, weight, sizes.width, kNormEps,
                     y + t * sizes.width);
      }
    });
  }

  // x += y, row by row from row `first`.
  void add_rows(const bf16* y, int64_t first, int64_t rows) {
    team.for_range(rows, 1, [&](int64_t begin, int64_t end, int) {
      ops.add_bf16(y + begin * sizes.width, (end - begin) * sizes.width,
                   x.data() + (first + begin) * sizes.width);
    });
  }

  // Angles of one axis: a patch takes the first quarter of its head from its row's entry, the
  // second from its column's.
  void make_angles(const ImageGrid& grid) {
    const int64_t side = std::max(grid.vit_rows, grid.vit_columns);
    for (int64_t position = 0; position < side; ++position) {
      rope_angles(frequencies, position, cos.data() + position * sizes.quarter(),
                  sin.data() + position * sizes.quarter());
    }
  }

  void rotate(const ImageGrid& grid) {
    const int64_t half = sizes.head_dim / 2;
    const int64_t quarter = sizes.quarter();
    team.for_range(grid.patches(), 1, [&](int64_t begin, int64_t end, int member) {
      float* c = angles.data() + member * sizes.head_dim;
      float* s = c + half;
      for (int64_t t = begin; t < end; ++t) {
        const int64_t row = t / grid.vit_columns * quarter;
        const int64_t column = t % grid.vit_columns * quarter;
        std::copy_n(cos.data() + row, quarter, c);
        std::copy_n(cos.data() + column, quarter, c + quarter);
        std::copy_n(sin.data() + row, quarter, s);
        std::copy_n(sin.data() + column, quarter, s + quarter);
        // Heads of q, then heads of k.
        bf16* heads = qkv.data() + t * 3 * sizes.width;
        for (int64_t h = 0; h < 2 * sizes.heads; ++h) {
          ops.rope_halves(heads + h * sizes.head_dim, c, s, half);
        }
      }
    });
  }

  // Keys and values of every head, dense; values turned.
  void pack_heads(int64_t patches) {
    team.for_range(sizes.heads, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t h = begin; h < end; ++h) {
        const int64_t dim = sizes.head_dim;
        bf16* k = keys.data() + h * dim * patches;
        bf16* v = values.data() + h * dim * patches;
        for (int64_t t = 0; t < patches; ++t) {
          const bf16* row = qkv.data() + t * 3 * sizes.width + h * dim;
          std::copy_n(row + sizes.width, dim, k + t * dim);
          for (int64_t d = 0; d < dim; ++d) v[d * patches + t] = row[2 * sizes.width + d];
        }
      }
    });
  }

  // normed = attention of qkv.
  void attend(int64_t patches) {
    pack_heads(patches);
    const int64_t pieces = (patches + kernels::kFullAttendRows - 1) / kernels::kFullAttendRows;
    team.for_range(sizes.heads * pieces, 1, [&](int64_t begin, int64_t end, int member) {
      kernels::FullAttendJob job;
      job.q_stride = 3 * sizes.width;
      job.rows = patches;
      job.head_dim = sizes.head_dim;
      job.out_stride = sizes.width;
      job.scratch = scratch.data() + member * sizes.scratch_lines();
      for (int64_t i = begin; i < end; ++i) {
        const int64_t offset = i / pieces * sizes.head_dim;
        job.q = qkv.data() + offset;
        job.k = keys.data() + offset * patches;
        job.v = values.data() + offset * patches;
        job.out = normed.data() + offset;
        job.row_begin = i % pieces * kernels::kFullAttendRows;
        job.row_end = std::min(job.row_begin + kernels::kFullAttendRows, patches);
        ops.full_attend(job);
      }
    });
  }

  void block(const VisionBlockWeights& w, const ImageGrid& grid) {
    const int64_t patches = grid.patches();
    norm(w.norm1, normed.data(), patches);
    linear(w.wqkv.weight, w.wqkv.bias, normed.data(), patches, qkv.data());
    rotate(grid);
    attend(patches);
    linear(w.wo.weight, w.wo.bias, normed.data(), patches, qkv.data());
    add_rows(qkv.data(), 0, patches);

    norm(w.norm2, normed.data(), patches);
    bf16* gate_up = chunk.data();
    bf16* product = gate_up + kChunkRows * 2 * sizes.inner;
    for (int64_t first = 0; first < patches; first += kChunkRows) {
      const int64_t rows = std::min(kChunkRows, patches - first);
      bf16* in = normed.data() + first * sizes.width;
      linear(w.w1, nullptr, in, rows, gate_up);
      team.for_range(rows, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t t = begin; t < end; ++t) {
          const bf16* gate = gate_up + t * 2 * sizes.inner;
          ops.silu_gate(gate, gate + sizes.inner, sizes.inner, product + t * sizes.inner);
        }
      });
      linear(w.w2, nullptr, product, rows, in);
      add_rows(in, first, rows);
    }
  }

  // R x R patches of one token, channel by channel; zeros beyond the edge.
  void gather_cell(const ImageGrid& grid, int64_t token, bf16* cell) const {
    const int64_t top = token / grid.llm_columns * sizes.ratio;
    const int64_t left = token % grid.llm_columns * sizes.ratio;
    const int64_t area = sizes.ratio * sizes.ratio;
    for (int64_t i = 0; i < area; ++i) {
      const int64_t row = top + i / sizes.ratio;
      const int64_t column = left + i % sizes.ratio;
      const bool inside = row < grid.vit_rows && column < grid.vit_columns;
      const bf16* from = normed.data() + (row * grid.vit_columns + column) * sizes.width;
      for (int64_t c = 0; c < sizes.width; ++c) cell[c * area + i] = inside ? from[c] : bf16{0};
    }
  }

  void align(const ImageGrid& grid, bf16* embeddings) {
    bf16* cells = chunk.data();
    bf16* inner = cells + kChunkRows * sizes.cell_values();
    for (int64_t first = 0; first < grid.image_tokens(); first += kChunkRows) {
      const int64_t rows = std::min(kChunkRows, grid.image_tokens() - first);
      team.for_range(rows, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t t = begin; t < end; ++t) {
          gather_cell(grid, first + t, cells + t * sizes.cell_values());
        }
      });
      linear(weights.aligner_w1.weight, weights.aligner_w1.bias, cells, rows, inner);
      team.for_range(rows, 1, [&](int64_t begin, int64_t end, int) {
        ops.gelu(inner + begin * sizes.hidden, (end - begin) * sizes.hidden);
      });
      linear(weights.aligner_w2.weight, weights.aligner_w2.bias, inner, rows,
             embeddings + first * sizes.hidden);
    }
  }

  VisionWeights weights;
  Sizes sizes;
  const kernels::Ops& ops;
  Team& team;
  std::vector<float> frequencies;  // head_dim / 4
  std::vector<bf16> x;             // [N, Dv]
  std::vector<bf16> normed;        // [N, Dv], attention output, MLP output
  std::vector<bf16> qkv;           // [N, 3 * Dv], wo output
  std::vector<bf16> chunk;
  std::vector<float> cos, sin;  // [positions, head_dim / 4]
  std::vector<float> angles;    // of every member: cos and sin of one patch, [head_dim / 2] each
  std::vector<bf16> keys;       // [heads, N, head_dim]
  std::vector<bf16> values;     // [heads, head_dim, N]
  std::vector<Line> scratch;    // of every member
  ImageGrid current;            // grid of the image under way
  size_t next_block = 0;
};

VisionTower::VisionTower(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
VisionTower::~VisionTower() = default;

int64_t VisionTower::most_patches(const VisionConfig& vision) {
  // A single row of tokens has the fewest newlines.
  return (vision.max_image_tokens - 3) * vision.downsample_ratio * vision.downsample_ratio;
}

int64_t VisionTower::workspace_bytes(const Config& config, int64_t max_patches, int threads) {
  const Sizes sizes(config, max_patches);
  const int64_t bf16_values = 7 * max_patches * sizes.width + kChunkRows * sizes.chunk_values();
  const int64_t floats = 2 * max_patches * sizes.quarter() + threads * sizes.head_dim;
  const int64_t lines = threads * sizes.scratch_lines();
  return bf16_values * int64_t{sizeof(bf16)} + floats * int64_t{sizeof(float)} +
         lines * int64_t{sizeof(Line)};
}

Result<std::unique_ptr<VisionTower>> VisionTower::create(const Model& model,
                                                         const kernels::Ops& ops, Team& team,
                                                         int64_t max_patches) {
  const Config& config = model.config();
  if (!config.vision.has_value()) {
    return err(Code::kUnsupported, "this checkpoint has no vision tower: it takes no images");
  }
  if (max_patches <= 0) max_patches = most_patches(*config.vision);
  CEDRA_ASSIGN(VisionWeights weights, bind_vision_weights(model.checkpoint()));
  return std::unique_ptr<VisionTower>(
      new VisionTower(std::make_unique<Impl>(std::move(weights), config, ops, team, max_patches)));
}

Result<> VisionTower::start(std::span<const bf16> patches, const ImageGrid& grid) {
  Impl& impl = *impl_;
  const Sizes& sizes = impl.sizes;
  const int64_t count = grid.patches();
  const auto cells = [&](int64_t side) { return (side + sizes.ratio - 1) / sizes.ratio; };
  if (count <= 0 || count > sizes.max_patches || grid.llm_rows != cells(grid.vit_rows) ||
      grid.llm_columns != cells(grid.vit_columns) ||
      static_cast<int64_t>(patches.size()) != count * sizes.patch_values) {
    return err(
        Code::kInvalid,
        "an image of {} x {} patches ({} x {} tokens, {} values) does not fit a tower for at "
        "most {} patches of {} values",
        grid.vit_rows, grid.vit_columns, grid.llm_rows, grid.llm_columns, patches.size(),
        sizes.max_patches, sizes.patch_values);
  }
  const VisionWeights& weights = impl.weights;
  impl.linear(weights.patch_embed.weight, weights.patch_embed.bias, patches.data(), count,
              impl.x.data());
  impl.make_angles(grid);
  impl.current = grid;
  impl.next_block = 0;
  return {};
}

bool VisionTower::advance(bf16* embeddings) {
  Impl& impl = *impl_;
  const VisionWeights& weights = impl.weights;
  if (impl.next_block < weights.blocks.size()) {
    impl.block(weights.blocks[impl.next_block++], impl.current);
    return false;
  }
  impl.norm(weights.norm, impl.normed.data(), impl.current.patches());
  impl.align(impl.current, embeddings);
  return true;
}

Result<> VisionTower::encode(std::span<const bf16> patches, const ImageGrid& grid,
                             bf16* embeddings) {
  CEDRA_TRY(start(patches, grid));
  while (!advance(embeddings)) {
  }
  return {};
}

}  // namespace cedra::model

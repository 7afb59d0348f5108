#include "golden/image_items.h"

#include <algorithm>

#include "base/mapped_file.h"
#include "golden/recorder.h"
#include "image/decode.h"
#include "image/resize.h"
#include "model/vision.h"

namespace cedra::golden {
namespace {

struct EncodedImage {
  model::ImageGrid grid;
  std::vector<bf16> patches;  // [N, 3, P, P]
  std::vector<bf16> rows;     // [image tokens, D]
};

Result<EncodedImage> encode_image(Session& session, const std::filesystem::path& file) {
  const Config& config = session.model().config();
  CEDRA_ASSIGN(const std::unique_ptr<model::VisionTower> tower,
               model::VisionTower::create(session.model(), session.ops(), session.team()));
  CEDRA_ASSIGN(const MappedFile mapped, MappedFile::open(file));
  // The reference reads images as the checkpoint's own loader does: without alpha.
  image::DecodeOptions options;
  options.alpha = image::AlphaRule::kDrop;
  CEDRA_ASSIGN(const image::Picture picture, image::decode(mapped.bytes(), options));
  const VisionConfig& vision = *config.vision;
  const image::PatchRules rules{.patch_size = vision.patch_size,
                                .downsample_ratio = vision.downsample_ratio,
                                .max_image_tokens = vision.max_image_tokens,
                                .min_pixels = vision.min_pixels};
  const image::Patches patches = image::preprocess(rules, picture);
  const image::ResizePlan& plan = patches.plan;
  EncodedImage out;
  out.grid = {plan.vit_rows, plan.vit_columns, plan.llm_rows, plan.llm_columns};
  out.patches.reserve(patches.values.size());
  for (const uint16_t bits : patches.values) out.patches.push_back(bf16{bits});
  out.rows.resize(static_cast<size_t>(out.grid.image_tokens() * config.text.hidden_size));
  CEDRA_TRY(tower->encode(out.patches, out.grid, out.rows.data()));
  return out;
}

Values widened(const std::vector<bf16>& values) {
  Values out;
  out.reserve(values.size());
  for (const bf16 value : values) out.push_back(to_float(value));
  return out;
}

std::vector<int64_t> bits_of(const Values& values) {
  std::vector<int64_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(to_bf16(value).bits);
  return bits;
}

}  // namespace

Result<> image_items(Judge& judge, Session& session, const Expected& expected,
                     const std::filesystem::path& folder, const std::string& name) {
  if (!judge.group_selected(name + ".")) return {};
  CEDRA_ASSIGN(const EncodedImage image, encode_image(session, folder / (name + ".png")));
  const model::ImageGrid& grid = image.grid;
  judge.equal(
      name + ".grid",
      std::vector<int64_t>{grid.vit_rows, grid.vit_columns, grid.llm_rows, grid.llm_columns},
      expected.integers(name + ".grid"), 1);
  // No sums here: the same bits at every level.
  judge.equal(name + ".patches", bits_of(widened(image.patches)),
              bits_of(expected.floats(name + ".patches")), grid.patches());
  judge.close(name + ".embeds", widened(image.rows), grid.image_tokens());

  // The reference's types say where the span stands; its inside is ours.
  const std::vector<int32_t> ids = expected.ids(name + ".ids");
  const std::vector<int64_t> types = expected.integers(name + ".types");
  const int64_t count = static_cast<int64_t>(types.size());
  const auto start = std::ranges::find_if(types, [](int64_t type) { return type >= 0; });
  const int64_t before = start - types.begin();
  if (before + grid.span_tokens() > count) {
    return err(Code::kCorrupt, "{}.types has no room for a span of {} tokens", name,
               grid.span_tokens());
  }
  std::vector<int64_t> own_types(types.size(), -1);
  std::vector<model::RowKind> kinds(types.size(), model::RowKind::kText);
  std::vector<const bf16*> sources(types.size(), nullptr);
  std::ranges::transform(model::span_roles(grid), own_types.begin() + before,
                         [](model::SpanRole role) { return static_cast<int64_t>(role); });
  std::fill_n(kinds.begin() + before, grid.span_tokens(), model::RowKind::kImage);
  std::ranges::copy(model::span_embeddings(session.model().weights(), grid, image.rows.data(),
                                           session.model().text().hidden_size),
                    sources.begin() + before);
  judge.equal(name + ".types", own_types, types, count);

  Recorder recorder(nullptr, name);
  auto sequence = session.new_sequence();
  model::Segment segment;
  segment.sequence = sequence.get();
  segment.tokens = ids;
  segment.want = model::Want::kAll;
  segment.kinds = kinds;
  segment.embeddings = sources;
  const Values logits = session.run(segment, &recorder);
  if (expected.has(name + ".engram_hash")) {
    judge.equal(name + ".engram_hash", recorder.hash, expected.integers(name + ".engram_hash"),
                count);
  }
  judge.noisy(name + ".logits", name, logits, count);
  return {};
}

}  // namespace cedra::golden

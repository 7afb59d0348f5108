// PNG through libspng: every colour type and depth, transparency by tRNS, first image of an APNG.
#include <spng.h>

#include <memory>

#include "image/codecs.h"

namespace cedra::image {
namespace {

// Ancillary chunks (profiles, text) are kept by the library and dropped by us.
constexpr size_t kMaxChunkBytes = size_t{16} << 20;
constexpr size_t kMaxKeptBytes = size_t{32} << 20;

struct FreeContext {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};

std::unexpected<Error> damaged(int status) {
  return err(Code::kCorrupt, "the PNG image is damaged or incomplete: {}", spng_strerror(status));
}

// Where the pixels of a pass stand (PNG specification 8.2): first column and step. Rows are the
// library's business.
struct Columns {
  size_t first;
  size_t step;
};
constexpr Columns kPasses[] = {{0, 8}, {4, 8}, {0, 4}, {2, 4}, {0, 2}, {1, 2}, {0, 1}};

// 16-bit samples as 8-bit RGBA, value / 257 rounded, row by row: the wide ones of a whole picture
// would take twice the room.
Result<std::vector<uint8_t>> decode_wide(spng_ctx* png, const spng_ihdr& header) {
  constexpr int kFlags = SPNG_DECODE_TRNS | SPNG_DECODE_PROGRESSIVE;
  if (const int status = spng_decode_image(png, nullptr, 0, SPNG_FMT_RGBA16, kFlags)) {
    return damaged(status);
  }
  const size_t width = header.width;
  std::vector<uint8_t> canvas(4 * width * header.height);
  std::vector<uint16_t> row(4 * width);
  for (int status = SPNG_OK; status != SPNG_EOI;) {
    spng_row_info info;
    if (const int failed = spng_get_row_info(png, &info)) return damaged(failed);
    status = spng_decode_scanline(png, row.data(), row.size() * sizeof(uint16_t));
    if (status != SPNG_OK && status != SPNG_EOI) return damaged(status);
    const Columns columns = header.interlace_method != 0 ? kPasses[info.pass] : Columns{0, 1};
    const uint16_t* from = row.data();
    for (size_t x = columns.first; x < width; x += columns.step, from += 4) {
      uint8_t* to = canvas.data() + 4 * (info.row_num * width + x);
      for (size_t c = 0; c < 4; ++c) to[c] = static_cast<uint8_t>((from[c] + 128) / 257);
    }
  }
  return canvas;
}

}  // namespace

Result<Picture> decode_png(Bytes bytes, const DecodeOptions& options) {
  const std::unique_ptr<spng_ctx, FreeContext> context(spng_ctx_new(0));
  if (context == nullptr) return err(Code::kExhausted, "no memory to decode the PNG image");
  spng_ctx* png = context.get();
  spng_set_chunk_limits(png, kMaxChunkBytes, kMaxKeptBytes);
  if (const int status = spng_set_png_buffer(png, bytes.data(), bytes.size())) {
    return damaged(status);
  }
  spng_ihdr header;
  if (const int status = spng_get_ihdr(png, &header)) return damaged(status);
  CEDRA_TRY(check_size(options, header.width, header.height));

  spng_trns transparency;
  const bool has_alpha = header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA ||
                         header.color_type == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA ||
                         spng_get_trns(png, &transparency) == 0;
  Picture picture{header.width, header.height, {}};
  if (header.bit_depth == 16) {
    CEDRA_ASSIGN(std::vector<uint8_t> samples, decode_wide(png, header));
    picture = flatten(header.width, header.height, std::move(samples), options.alpha);
  } else {
    const int format = has_alpha ? SPNG_FMT_RGBA8 : SPNG_FMT_RGB8;
    size_t size = 0;
    if (const int status = spng_decoded_image_size(png, format, &size)) return damaged(status);
    std::vector<uint8_t> samples(size);
    if (const int status = spng_decode_image(png, samples.data(), size, format, SPNG_DECODE_TRNS)) {
      return damaged(status);
    }
    if (has_alpha) {
      picture = flatten(header.width, header.height, std::move(samples), options.alpha);
    } else {
      picture.rgb = std::move(samples);
    }
  }
  spng_exif exif;
  if (options.exif_orientation && spng_get_exif(png, &exif) == 0) {
    const Bytes block(reinterpret_cast<const uint8_t*>(exif.data), exif.length);
    return orient(std::move(picture), exif_orientation(block));
  }
  return picture;
}

}  // namespace cedra::image

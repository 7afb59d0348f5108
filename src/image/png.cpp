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

// 16-bit samples to 8 bits, value / 257 rounded.
std::vector<uint8_t> narrow(const std::vector<uint16_t>& wide) {
  std::vector<uint8_t> out(wide.size());
  for (size_t i = 0; i < wide.size(); ++i) out[i] = static_cast<uint8_t>((wide[i] + 128) / 257);
  return out;
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
  const bool wide = header.bit_depth == 16;
  const int format = wide ? SPNG_FMT_RGBA16 : has_alpha ? SPNG_FMT_RGBA8 : SPNG_FMT_RGB8;
  size_t size = 0;
  if (const int status = spng_decoded_image_size(png, format, &size)) return damaged(status);
  Picture picture{header.width, header.height, {}};
  if (wide) {
    std::vector<uint16_t> samples(size / sizeof(uint16_t));
    if (const int status = spng_decode_image(png, samples.data(), size, format, SPNG_DECODE_TRNS)) {
      return damaged(status);
    }
    picture = flatten(header.width, header.height, narrow(samples), options.alpha);
  } else {
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

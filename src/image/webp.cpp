// WebP through libwebp: lossy and lossless, alpha, the first frame of an animation on its canvas.
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "image/codecs.h"

namespace cedra::image {
namespace {

struct DeleteDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};

struct Frame : WebPIterator {
  Frame() : WebPIterator{} {}
  ~Frame() { WebPDemuxReleaseIterator(this); }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
};

std::unexpected<Error> damaged() {
  return err(Code::kCorrupt, "the WebP image is damaged or incomplete");
}

int orientation_of(const WebPDemuxer* demuxer) {
  WebPChunkIterator chunk{};
  int orientation = 1;
  if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk) != 0) {
    Bytes block(chunk.chunk.bytes, chunk.chunk.size);
    // Some writers keep the intro of a JPEG segment.
    if (block.size() > 6 && block[0] == 'E' && block[1] == 'x') block = block.subspan(6);
    orientation = exif_orientation(block);
  }
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

}  // namespace

Result<Picture> decode_webp(Bytes bytes, const DecodeOptions& options) {
  const WebPData data{bytes.data(), bytes.size()};
  const std::unique_ptr<WebPDemuxer, DeleteDemuxer> demuxer(WebPDemux(&data));
  if (demuxer == nullptr) return damaged();
  const int64_t width = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH);
  const int64_t height = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  CEDRA_TRY(check_size(options, width, height));
  Frame frame;
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0) return damaged();
  const WebPData& coded = frame.fragment;
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(coded.bytes, coded.size, &features) != VP8_STATUS_OK ||
      features.width != frame.width || features.height != frame.height || frame.x_offset < 0 ||
      frame.y_offset < 0 || frame.x_offset + int64_t{frame.width} > width ||
      frame.y_offset + int64_t{frame.height} > height) {
    return damaged();
  }
  const bool covers = frame.width == width && frame.height == height;
  const size_t channels = covers && features.has_alpha == 0 ? 3 : 4;
  const size_t stride = static_cast<size_t>(width) * channels;
  std::vector<uint8_t> canvas(stride * static_cast<size_t>(height));  // transparent
  const size_t skipped =
      static_cast<size_t>(frame.y_offset) * stride + static_cast<size_t>(frame.x_offset) * channels;
  const auto decode_into = channels == 3 ? WebPDecodeRGBInto : WebPDecodeRGBAInto;
  if (decode_into(coded.bytes, coded.size, canvas.data() + skipped, canvas.size() - skipped,
                  static_cast<int>(stride)) == nullptr) {
    return damaged();
  }
  Picture picture = channels == 3 ? Picture{width, height, std::move(canvas)}
                                  : flatten(width, height, std::move(canvas), options.alpha);
  if (!options.exif_orientation) return picture;
  return orient(std::move(picture), orientation_of(demuxer.get()));
}

}  // namespace cedra::image

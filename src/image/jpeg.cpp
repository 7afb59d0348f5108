// JPEG through libjpeg-turbo (exact DCT, smooth upsampling): other decoders give other pixels, and
// the model saw these. CMYK and YCCK become RGB by Pillow's rule for Adobe's inverted files.
#include <turbojpeg.h>

#include <cstring>
#include <memory>
#include <string_view>

#include "image/codecs.h"

namespace cedra::image {
namespace {

// Ordinary progressive files have about ten; every one costs a pass over the whole picture.
constexpr int kMaxScans = 100;

struct DestroyHandle {
  void operator()(void* handle) const { tjDestroy(handle); }
};

std::unexpected<Error> damaged(std::string_view why) {
  return err(Code::kCorrupt,
             "the JPEG image is damaged, incomplete or of a kind that is not read: {}", why);
}

// Coded data never holds a marker's bytes; thumbnails in metadata may add a few, before the scans.
struct Markers {
  int scans = 0;
  bool ended = false;  // an end-of-image marker behind the last start of a scan
};

Markers find_markers(Bytes bytes) {
  Markers markers;
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    const void* found = std::memchr(bytes.data() + i, 0xFF, bytes.size() - 1 - i);
    if (found == nullptr) break;
    i = static_cast<size_t>(static_cast<const uint8_t*>(found) - bytes.data());
    if (bytes[i + 1] == 0xDA) {
      ++markers.scans;
      markers.ended = false;
    }
    if (bytes[i + 1] == 0xD9) markers.ended = true;
  }
  return markers;
}

// The TIFF block of the first APP1 segment that holds EXIF data; empty without one.
Bytes find_exif(Bytes bytes) {
  constexpr std::string_view kIntro("Exif\0\0", 6);
  size_t at = 2;  // behind SOI
  while (at + 4 <= bytes.size() && bytes[at] == 0xFF) {
    const uint8_t marker = bytes[at + 1];
    if (marker == 0xFF) {  // fill byte
      ++at;
      continue;
    }
    if (marker == 0xDA || marker == 0xD9) break;
    const size_t length = static_cast<size_t>(bytes[at + 2]) << 8 | bytes[at + 3];
    if (length < 2 || at + 2 + length > bytes.size()) break;
    const Bytes segment = bytes.subspan(at + 4, length - 2);
    if (marker == 0xE1 && segment.size() >= kIntro.size() &&
        std::memcmp(segment.data(), kIntro.data(), kIntro.size()) == 0) {
      return segment.subspan(kIntro.size());
    }
    at += 2 + length;
  }
  return {};
}

// Stored values are inverted ink. RGB = light left by black, less the ink's share of it.
std::vector<uint8_t> cmyk_to_rgb(std::vector<uint8_t> stored) {
  const size_t pixels = stored.size() / 4;
  for (size_t i = 0; i < pixels; ++i) {
    const int light = stored[4 * i + 3];
    for (size_t c = 0; c < 3; ++c) {
      const int ink = 255 - stored[4 * i + c];
      stored[3 * i + c] = static_cast<uint8_t>(light - (ink * light + 127) / 255);
    }
  }
  stored.resize(pixels * 3);
  return stored;
}

}  // namespace

Result<Picture> decode_jpeg(Bytes bytes, const DecodeOptions& options) {
  const std::unique_ptr<void, DestroyHandle> handle(tjInitDecompress());
  if (handle == nullptr) return err(Code::kExhausted, "no memory to decode the JPEG image");
  int width = -1;
  int height = -1;
  int subsampling = -1;
  int colours = -1;
  // Also fails on mere warnings and on sampling factors that have no name; the numbers are set
  // then.
  if (tjDecompressHeader3(handle.get(), bytes.data(), bytes.size(), &width, &height, &subsampling,
                          &colours) != 0 &&
      (width < 1 || height < 1 || colours < 0)) {
    return damaged(tjGetErrorStr2(handle.get()));
  }
  CEDRA_TRY(check_size(options, width, height));
  const Markers markers = find_markers(bytes);
  if (markers.scans > kMaxScans) {
    return err(Code::kTooLarge, "the JPEG image has {} scans; at most {} are read", markers.scans,
               kMaxScans);
  }
  // The library would fill the rest with grey.
  if (!markers.ended) return damaged("it ends early");
  const bool cmyk = colours == TJCS_CMYK || colours == TJCS_YCCK;
  const size_t channels = cmyk ? 4 : 3;
  std::vector<uint8_t> samples(static_cast<size_t>(width) * static_cast<size_t>(height) * channels);
  if (tjDecompress2(handle.get(), bytes.data(), bytes.size(), samples.data(), width, 0, height,
                    cmyk ? TJPF_CMYK : TJPF_RGB, TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS) != 0) {
    // Warnings are forgiven: stray bytes between segments are common, and other decoders show what
    // they can of damaged blocks.
    if (tjGetErrorCode(handle.get()) != TJERR_WARNING) {
      return damaged(tjGetErrorStr2(handle.get()));
    }
  }
  Picture picture{width, height, cmyk ? cmyk_to_rgb(std::move(samples)) : std::move(samples)};
  if (!options.exif_orientation) return picture;
  return orient(std::move(picture), exif_orientation(find_exif(bytes)));
}

}  // namespace cedra::image

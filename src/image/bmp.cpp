// BMP, which no library of the others' standing reads: palettes, 16 to 32 bits with masks, run
// lengths, both row orders, OS/2 headers. Colours widen as in Pillow: value * 255 / largest value,
// cut.
#include <algorithm>
#include <array>
#include <bit>

#include "image/codecs.h"

namespace cedra::image {
namespace {

constexpr size_t kFileHeader = 14;

enum Compression : uint32_t { kRgb = 0, kRle8 = 1, kRle4 = 2, kMasks = 3, kAlphaMasks = 6 };

std::unexpected<Error> damaged(std::string_view why) {
  return err(Code::kCorrupt, "the BMP image is damaged or incomplete: {}", why);
}

// Little-endian numbers; the caller has checked that they are there.
uint32_t u16(Bytes bytes, size_t at) { return bytes[at] | uint32_t{bytes[at + 1]} << 8; }
uint32_t u32(Bytes bytes, size_t at) { return u16(bytes, at) | u16(bytes, at + 2) << 16; }

struct Header {
  int64_t width = 0;
  int64_t height = 0;
  bool top_down = false;
  uint32_t bits = 0;  // of a pixel
  uint32_t compression = kRgb;
  std::array<uint32_t, 4> masks{};  // red, green, blue, alpha; 0: none
  size_t palette = 0;               // where it begins
  size_t colours = 0;
  size_t colour_bytes = 4;
  size_t pixels = 0;  // where they begin
};

// One channel of a pixel: the bits under `mask` as 8 bits.
uint8_t channel(uint32_t pixel, uint32_t mask) {
  if (mask == 0) return 0;
  const int shift = std::countr_zero(mask);
  const uint64_t most = mask >> shift;
  return static_cast<uint8_t>(uint64_t{(pixel & mask) >> shift} * 255 / most);
}

Result<Header> read_header(Bytes bytes) {
  Header h;
  if (bytes.size() < kFileHeader + 12) return damaged("its header is cut");
  h.pixels = u32(bytes, 10);
  const size_t size = u32(bytes, kFileHeader);
  size_t after = kFileHeader + size;
  if (after > bytes.size()) return damaged("its header is cut");
  if (size == 12) {
    h.width = u16(bytes, 18);
    h.height = u16(bytes, 20);
    h.bits = u16(bytes, 24);
    h.colour_bytes = 3;
  } else {
    h.width = static_cast<int32_t>(u32(bytes, 18));
    h.height = static_cast<int32_t>(u32(bytes, 22));
    h.bits = u16(bytes, 28);
    h.compression = u32(bytes, 30);
    h.colours = u32(bytes, 46);
    h.top_down = h.height < 0;
    if (h.top_down) h.height = -h.height;
  }
  const bool masks = h.compression == kMasks || h.compression == kAlphaMasks;
  const bool os2 = size == 12 || size == 64;
  const bool packed = h.compression == kRle8 || h.compression == kRle4;
  const bool known =
      h.bits == 1 || h.bits == 4 || h.bits == 8 || h.bits == 16 || h.bits == 24 || h.bits == 32;
  if (!known || (masks && (os2 || (h.bits != 16 && h.bits != 32))) ||
      (h.compression == kRle8 && h.bits != 8) || (h.compression == kRle4 && h.bits != 4) ||
      (packed && h.top_down) || (!masks && !packed && h.compression != kRgb)) {
    return err(Code::kUnsupported, "the BMP image has {} bits per pixel and compression {}", h.bits,
               h.compression);
  }
  if (masks) {
    // Inside the larger headers, behind the small one.
    const size_t count = size >= 56 || h.compression == kAlphaMasks ? 4 : 3;
    const size_t at = kFileHeader + 40;
    if (at + 4 * count > bytes.size()) return damaged("its header is cut");
    for (size_t i = 0; i < count; ++i) h.masks[i] = u32(bytes, at + 4 * i);
    after = std::max(after, at + 4 * count);
  } else if (h.bits == 16) {
    h.masks = {0x7C00, 0x03E0, 0x001F, 0};
  } else {
    h.masks = {0x00FF0000, 0x0000FF00, 0x000000FF, 0};
  }
  h.palette = after;
  if (h.bits <= 8) {
    const size_t most = size_t{1} << h.bits;
    h.colours = h.colours == 0 ? most : std::min(h.colours, most);
    if (after + h.colours * h.colour_bytes > bytes.size()) return damaged("its palette is cut");
  }
  if (h.pixels < after || h.pixels > bytes.size()) return damaged("its pixels begin nowhere");
  return h;
}

// Palette indices of a run-length file, rows from the bottom up. Pixels that no run names are 0.
Result<std::vector<uint8_t>> unpack_runs(const Header& h, Bytes in) {
  std::vector<uint8_t> out(static_cast<size_t>(h.width * h.height));
  const bool nibbles = h.compression == kRle4;
  int64_t x = 0;
  int64_t y = 0;
  // What leaves its row is dropped.
  const auto put = [&](uint8_t index) {
    if (x < h.width) out[static_cast<size_t>(y * h.width + x)] = index;
    ++x;
  };
  size_t at = 0;
  while (y < h.height) {
    if (at + 2 > in.size()) return damaged("its runs end early");
    const size_t count = in[at];
    const uint8_t value = in[at + 1];
    at += 2;
    if (count > 0) {
      for (size_t i = 0; i < count; ++i) {
        put(!nibbles ? value : static_cast<uint8_t>(i % 2 == 0 ? value >> 4 : value & 15));
      }
    } else if (value == 0) {  // end of the row
      x = 0;
      ++y;
    } else if (value == 1) {  // end of the picture
      return out;
    } else if (value == 2) {  // a step to the right and up
      if (at + 2 > in.size()) return damaged("its runs end early");
      x += in[at];
      y += in[at + 1];
      at += 2;
    } else {  // pixels as they are, filled up to 16 bits
      const size_t bytes = nibbles ? (value + size_t{1}) / 2 : value;
      if (at + bytes > in.size()) return damaged("its runs end early");
      for (size_t i = 0; i < value; ++i) {
        const uint8_t byte = in[at + (nibbles ? i / 2 : i)];
        put(!nibbles ? byte : static_cast<uint8_t>(i % 2 == 0 ? byte >> 4 : byte & 15));
      }
      at += bytes + bytes % 2;
    }
  }
  return out;
}

// Index of pixel x in a row of 1, 4 or 8 bits per pixel.
size_t packed_index(const uint8_t* row, int64_t x, uint32_t bits) {
  const int64_t per_byte = 8 / bits;
  const int64_t shift = 8 - static_cast<int64_t>(bits) * (x % per_byte + 1);
  return (row[x / per_byte] >> shift) & ((1U << bits) - 1);
}

}  // namespace

Result<Picture> decode_bmp(Bytes bytes, const DecodeOptions& options) {
  CEDRA_ASSIGN(const Header h, read_header(bytes));
  CEDRA_TRY(check_size(options, h.width, h.height));
  const Bytes data = bytes.subspan(h.pixels);
  const bool runs = h.compression == kRle8 || h.compression == kRle4;
  const int64_t stride = runs ? h.width : (h.width * h.bits + 31) / 32 * 4;
  std::vector<uint8_t> indices;
  const uint8_t* source = data.data();
  if (runs) {
    CEDRA_ASSIGN(indices, unpack_runs(h, data));
    source = indices.data();
  } else if (static_cast<int64_t>(data.size()) < stride * h.height) {
    return damaged("it ends early");
  }

  const bool has_alpha = h.masks[3] != 0;
  const size_t channels = has_alpha ? 4 : 3;
  std::vector<uint8_t> samples(static_cast<size_t>(h.width * h.height) * channels);
  uint8_t* to = samples.data();
  for (int64_t y = 0; y < h.height; ++y) {
    const uint8_t* row = source + stride * (h.top_down ? y : h.height - 1 - y);
    for (int64_t x = 0; x < h.width; ++x, to += channels) {
      if (h.bits <= 8) {
        const size_t index = runs ? row[x] : packed_index(row, x, h.bits);
        if (index >= h.colours) continue;  // black
        const uint8_t* colour = bytes.data() + h.palette + index * h.colour_bytes;
        for (size_t c = 0; c < 3; ++c) to[c] = colour[2 - c];
        continue;
      }
      const size_t width = h.bits / 8;
      uint32_t pixel = 0;
      for (size_t i = 0; i < width; ++i) {
        pixel |= uint32_t{row[static_cast<size_t>(x) * width + i]} << (8 * i);
      }
      for (size_t c = 0; c < channels; ++c) to[c] = channel(pixel, h.masks[c]);
    }
  }
  if (has_alpha) return flatten(h.width, h.height, std::move(samples), options.alpha);
  return Picture{h.width, h.height, std::move(samples)};
}

}  // namespace cedra::image

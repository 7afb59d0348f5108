// GIF through giflib: the first frame on its logical screen; pixels outside it and of its
// transparent colour are transparent.
#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "image/codecs.h"

namespace cedra::image {
namespace {

struct CloseFile {
  void operator()(GifFileType* file) const { DGifCloseFile(file, nullptr); }
};

std::unexpected<Error> damaged() {
  return err(Code::kCorrupt, "the GIF image is damaged or incomplete");
}

// What is left of the file; giflib pulls.
int read_more(GifFileType* file, GifByteType* out, int count) {
  Bytes& left = *static_cast<Bytes*>(file->UserData);
  const size_t n = std::min(left.size(), static_cast<size_t>(std::max(count, 0)));
  if (n > 0) std::memcpy(out, left.data(), n);
  left = left.subspan(n);
  return static_cast<int>(n);
}

// Skips an extension's blocks; a graphics control sets the transparent colour.
bool read_extension(GifFileType* file, int& transparent) {
  int code = 0;
  GifByteType* block = nullptr;
  if (DGifGetExtension(file, &code, &block) == GIF_ERROR) return false;
  while (block != nullptr) {
    GraphicsControlBlock control;
    if (code == GRAPHICS_EXT_FUNC_CODE && block[0] >= 4 &&
        DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK) {
      transparent = control.TransparentColor;
    }
    if (DGifGetExtensionNext(file, &block) == GIF_ERROR) return false;
  }
  return true;
}

// Row of the picture that comes `index`-th in an interlaced file.
class RowOrder {
 public:
  RowOrder(bool interlaced, int64_t height) : interlaced_(interlaced), height_(height) {}
  int64_t next() {
    if (!interlaced_) return row_++;
    while (row_ >= height_ && pass_ < 3) row_ = kFirst[++pass_];
    const int64_t row = row_;
    row_ += kStep[pass_];
    return row;
  }

 private:
  static constexpr int64_t kFirst[] = {0, 4, 2, 1};
  static constexpr int64_t kStep[] = {8, 8, 4, 2};
  bool interlaced_;
  int64_t height_;
  int pass_ = 0;
  int64_t row_ = 0;
};

// The image whose descriptor was just read, onto the canvas.
Result<> read_image(GifFileType* file, int transparent, int64_t width, int64_t height,
                    std::vector<uint8_t>& canvas) {
  const GifImageDesc& image = file->Image;
  const ColorMapObject* colours = image.ColorMap != nullptr ? image.ColorMap : file->SColorMap;
  if (colours == nullptr || image.Width <= 0 || image.Height <= 0 || image.Left < 0 ||
      image.Top < 0 || image.Left + int64_t{image.Width} > width ||
      image.Top + int64_t{image.Height} > height) {
    return damaged();
  }
  std::vector<GifByteType> row(static_cast<size_t>(image.Width));
  RowOrder order(image.Interlace, image.Height);
  for (int i = 0; i < image.Height; ++i) {
    if (DGifGetLine(file, row.data(), image.Width) == GIF_ERROR) return damaged();
    const int64_t at = (image.Top + order.next()) * width + image.Left;
    uint8_t* out = canvas.data() + 4 * at;
    for (const GifByteType index : row) {
      if (index < colours->ColorCount) {
        const GifColorType& colour = colours->Colors[index];
        out[0] = colour.Red;
        out[1] = colour.Green;
        out[2] = colour.Blue;
      }
      out[3] = index == transparent ? 0 : 255;
      out += 4;
    }
  }
  return {};
}

}  // namespace

Result<Picture> decode_gif(Bytes bytes, const DecodeOptions& options) {
  Bytes left = bytes;
  const std::unique_ptr<GifFileType, CloseFile> file(DGifOpen(&left, read_more, nullptr));
  if (file == nullptr) return damaged();
  int64_t width = file->SWidth;
  int64_t height = file->SHeight;
  int transparent = NO_TRANSPARENT_COLOR;
  for (;;) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(file.get(), &type) == GIF_ERROR) return damaged();
    if (type == EXTENSION_RECORD_TYPE) {
      if (!read_extension(file.get(), transparent)) return damaged();
      continue;
    }
    if (type != IMAGE_DESC_RECORD_TYPE || DGifGetImageDesc(file.get()) == GIF_ERROR) {
      return damaged();
    }
    // A first frame larger than the screen enlarges it, as in Pillow.
    width = std::max(width, file->Image.Left + int64_t{file->Image.Width});
    height = std::max(height, file->Image.Top + int64_t{file->Image.Height});
    CEDRA_TRY(check_size(options, width, height));
    std::vector<uint8_t> canvas(static_cast<size_t>(4 * width * height));
    CEDRA_TRY(read_image(file.get(), transparent, width, height, canvas));
    return flatten(width, height, std::move(canvas), options.alpha);
  }
}

}  // namespace cedra::image

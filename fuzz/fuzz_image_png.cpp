// PNG files through their decoder alone.
#include "decoder_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return cedra::fuzz::decode_with(cedra::image::decode_png, data, size);
}

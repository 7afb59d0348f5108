// A decoded picture: 8-bit RGB rows, top to bottom.
#pragma once

#include <cstdint>
#include <vector>

namespace cedra::image {

struct Picture {
  int64_t width = 0;
  int64_t height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]
};

}  // namespace cedra::image

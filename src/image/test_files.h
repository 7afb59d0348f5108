// Files of tests/data/image, hashes and the specification's test picture.
#pragma once

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "image/picture.h"

namespace cedra::image::testing {

inline std::string data_path(const std::string& name) {
  return std::string(CEDRA_SOURCE_DIR "/tests/data/image/") + name;
}

inline std::vector<uint8_t> read_bytes(const std::string& name) {
  std::ifstream in(data_path(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// One vector of words per line.
inline std::vector<std::vector<std::string>> read_table(const std::string& name) {
  std::ifstream in(data_path(name));
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    rows.emplace_back(std::istream_iterator<std::string>(words),
                      std::istream_iterator<std::string>());
  }
  return rows;
}

// FNV-1a 64 of bytes; of 16-bit values, of their little-endian bytes.
template <class T>
std::string fnv(const std::vector<T>& values) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const T value : values) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      hash = (hash ^ ((static_cast<uint64_t>(value) >> (8 * i)) & 0xFF)) * 0x100000001b3;
    }
  }
  std::ostringstream text;
  text << std::hex;
  text.width(16);
  text.fill('0');
  text << hash;
  return text.str();
}

// vision.md 5, golden vectors.
inline Picture pattern(int64_t width, int64_t height, int64_t seed) {
  Picture picture{width, height, {}};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (const int64_t value : {7 * x + 3 * y, 5 * x + 11 * y, x + 2 * y}) {
        picture.rgb.push_back(static_cast<uint8_t>(value + seed));
      }
    }
  }
  return picture;
}

}  // namespace cedra::image::testing

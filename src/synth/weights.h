// Random weights with the released checkpoint's published statistics: means of the norms, gains of
// the projections, sizes of the scales. Activations get realistic sizes, text made with them is
// noise.
//
//   gain g      standard deviation g / sqrt(inputs of the matrix)
//   FP8         normal numbers; the scale of a 32 x 32 tile (Engram: of 32 values of a row) is
//   drawn
//               as the maximum of so many normal numbers would set it
//   FP4         uniform codes under one of three neighbouring scales
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "checkpoint/registry.h"

namespace cedra::synth {

// E4M3 codes by 16 random bits, for every scale that a group of values may get.
struct Fp8Codes {
  struct Scale {
    uint8_t byte = 0;            // E8M0
    uint32_t up_to = 0;          // of 2^32: share of groups with this scale or a smaller one
    std::vector<uint8_t> codes;  // [2^16]
  };
  std::vector<Scale> scales;
};

// One tensor, ready to be filled.
struct RandomTensor {
  enum class Kind : uint8_t {
    kBf16,
    kF32,
    kFp8Tile,  // codes, scale per 32 x 32
    kFp8TileScale,
    kFp8Row,  // codes, scale per 32 of a row
    kFp8RowScale,
    kFp4,
    kFp4Scale,
  };
  Kind kind = Kind::kBf16;
  uint64_t key = 0;  // a matrix and its scales share it
  int64_t rows = 0;  // 1 for vectors
  int64_t cols = 0;  // stored elements of a row; bytes for packed FP4
  float mean = 0, deviation = 0;
  uint8_t scale_centre = 0;  // FP4
  std::shared_ptr<const Fp8Codes> codes;

  int64_t row_bytes() const;
};

class RandomWeights {
 public:
  explicit RandomWeights(uint64_t seed);

  RandomTensor prepare(const TensorSpec& spec);
  // Bytes of rows [begin, end) as they are stored, into `out`. Any thread; depends on seed, name,
  // shape and row alone.
  void fill(const RandomTensor& tensor, int64_t begin, int64_t end, uint8_t* out) const;

 private:
  std::shared_ptr<const Fp8Codes> fp8_codes(double deviation, int group);
  float quantile(double probability) const;

  uint64_t seed_;
  std::vector<float> normal_;  // quantiles of the standard normal distribution at (i + 1/2) / 2^16
  std::map<std::pair<double, int>, std::shared_ptr<const Fp8Codes>> codes_;
};

}  // namespace cedra::synth

#include "checkpoint/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <unordered_set>

#include "base/mapped_file.h"
#include "checkpoint/engram_primes.h"

namespace cedra {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Config released(const char* file = "released.json") {
  const auto text =
      read_file(std::string(CEDRA_SOURCE_DIR) + "/tests/data/config/" + file, kMaxConfigBytes);
  EXPECT_TRUE(text.has_value());
  auto config = parse_config(*text);
  EXPECT_TRUE(config.has_value()) << config.error().message;
  return *config;
}

struct Sum {
  int64_t tensors = 0;
  int64_t bytes = 0;
  bool operator==(const Sum&) const = default;
  friend void PrintTo(const Sum& sum, std::ostream* out) {
    *out << sum.tensors << " tensors, " << sum.bytes << " bytes";
  }
};

template <class KeyOf>
auto sums(const std::vector<TensorSpec>& specs, KeyOf key_of) {
  std::map<decltype(key_of(specs.front())), Sum> result;
  for (const TensorSpec& spec : specs) {
    Sum& sum = result[key_of(spec)];
    ++sum.tensors;
    sum.bytes += tensor_bytes(spec);
  }
  return result;
}

// The totals of model.md 2.1.
TEST(Registry, ReleasedTotals) {
  const auto specs = tensor_inventory(released());
  const auto total = sums(specs, [](const TensorSpec&) { return 0; });
  EXPECT_EQ(total.at(0), (Sum{96085, 510286023000}));

  const auto by_dtype = sums(specs, [](const TensorSpec& spec) { return spec.dtype; });
  EXPECT_EQ(by_dtype.size(), 5u);
  EXPECT_EQ(by_dtype.at(Dtype::kI8), (Sum{47232, 278585671680}));
  EXPECT_EQ(by_dtype.at(Dtype::kF8E4M3), (Sum{357, 204015223296}));
  EXPECT_EQ(by_dtype.at(Dtype::kF8E8M0), (Sum{47589, 23563015184}));
  EXPECT_EQ(by_dtype.at(Dtype::kBf16), (Sum{520, 3952883712}));
  EXPECT_EQ(by_dtype.at(Dtype::kF32), (Sum{387, 169229128}));
}

TEST(Registry, ReleasedGroups) {
  const auto groups = sums(tensor_inventory(released()), [](const TensorSpec& spec) {
    if (spec.name.starts_with("mtp.")) return spec.name.substr(0, 5);
    switch (spec.component) {
      case Component::kRoutedExperts:
        return std::string("experts");
      case Component::kEngram:
      case Component::kEngramTable:
        return std::string("engram");
      case Component::kEmbed:
      case Component::kHead:
        return std::string("ends");
      case Component::kVision:
        return std::string("vision");
      default:
        return std::string("layers");
    }
  });
  EXPECT_EQ(groups.size(), 8u);
  EXPECT_EQ(groups.at("experts"), (Sum{92160, 288777830400}));
  EXPECT_EQ(groups.at("layers"), (Sum{1243, 6884040128}));
  EXPECT_EQ(groups.at("engram"), (Sum{12, 203073076240}));
  EXPECT_EQ(groups.at("mtp.0"), (Sum{801, 2652643800}));
  EXPECT_EQ(groups.at("mtp.1"), (Sum{798, 2573913560}));
  EXPECT_EQ(groups.at("mtp.2"), (Sum{802, 2706317272}));
  EXPECT_EQ(groups.at("ends"), (Sum{3, 2647664640}));
  EXPECT_EQ(groups.at("vision"), (Sum{266, 970536960}));
}

TEST(Registry, ReleasedTensorsPerLayer) {
  std::map<int, int64_t> layers;
  for (const TensorSpec& spec : tensor_inventory(released())) {
    if (spec.name.starts_with("layers.")) ++layers[std::stoi(spec.name.substr(7))];
  }
  ASSERT_EQ(layers.size(), 40u);
  const std::map<int, int64_t> special = {{1, 2340},  {2, 2342},  {8, 2342},
                                          {14, 2348}, {20, 2341}, {24, 2337},
                                          {28, 2337}, {32, 2337}, {36, 2337}};
  for (const auto& [layer, count] : layers) {
    const auto found = special.find(layer);
    EXPECT_EQ(count, found == special.end() ? 2334 : found->second) << "layer " << layer;
  }
}

TEST(Registry, NamesAreUniqueAndPresent) {
  std::unordered_set<std::string> names;
  for (const TensorSpec& spec : tensor_inventory(released())) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
  }
  for (const char* name :
       {"layers.0.attn.attn_sink", "layers.1.engram.q_weight", "layers.39.hc_ffn_scale",
        "layers.2.attn.compressor.wgate.weight", "mtp.2.confidence_head.proj.weight",
        "layers.14.engram.embed.scale", "vision.blocks.31.mlp.w2.weight", "image_newline"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  // Ratio 1 has no gate (model.md 2.1), and nothing of the relatives is here.
  for (const char* name : {"layers.20.attn.compressor.wgate.weight", "hc_head_fn",
                           "mtp.0.embed.weight", "layers.0.attn.q_head_norm.weight"}) {
    EXPECT_FALSE(names.contains(name)) << name;
  }
}

TEST(Registry, TextOnlyHasNoImageBias) {
  Config config = released();
  config.vision.reset();
  const auto specs = tensor_inventory(config);
  EXPECT_EQ(specs.size(), 96085u - 266u - 43u);
}

TEST(Registry, Fp8ExpertsHaveTileScales) {
  Config config = released();
  config.expert_dtype = ExpertDtype::kFp8;
  for (const TensorSpec& spec : tensor_inventory(config)) {
    if (spec.name == "layers.0.ffn.experts.0.w1.weight") {
      EXPECT_EQ(spec.dtype, Dtype::kF8E4M3);
      EXPECT_THAT(spec.shape, ElementsAre(2304, 5120));
    }
    if (spec.name == "layers.0.ffn.experts.0.w1.scale") {
      EXPECT_THAT(spec.shape, ElementsAre(72, 160));
    }
  }
}

TEST(EngramPrimes, ReleasedTables) {
  const auto primes = engram_table_primes(released().text);
  ASSERT_EQ(primes.size(), 2u);
  EXPECT_THAT(primes[0][0], ElementsAre(16000057, 16000079, 16000081, 16000097, 16000121, 16000129,
                                        16000133, 16000183));
  EXPECT_THAT(primes[0][2], ElementsAre(16000339, 16000381, 16000393, 16000399, 16000403, 16000409,
                                        16000447, 16000463));
  EXPECT_THAT(primes[1][0], ElementsAre(16000477, 16000487, 16000499, 16000507, 16000511, 16000573,
                                        16000609, 16000627));
  EXPECT_THAT(primes[1][2], ElementsAre(16000781, 16000799, 16000813, 16000819, 16000841, 16000877,
                                        16000879, 16000889));
}

TEST(EngramPrimes, SearchStartsAtTheVocabularySizeItself) {
  TextConfig text;
  text.engram_layer_ids = {0, 1};
  text.engram_max_ngram_size = 3;
  text.engram_n_heads = 2;
  text.engram_vocab_size = 97;
  const auto primes = engram_table_primes(text);
  EXPECT_THAT(primes[0][0], ElementsAre(97, 101));
  EXPECT_THAT(primes[0][1], ElementsAre(103, 107));
  EXPECT_THAT(primes[1][0], ElementsAre(109, 113));
}

TEST(EngramPrimes, IsPrimeAgreesWithASieve) {
  constexpr size_t kLimit = 20000;
  std::vector<bool> composite(kLimit, false);
  for (size_t i = 2; i < kLimit; ++i) {
    EXPECT_EQ(is_prime(i), !composite[i]) << i;
    for (size_t j = i * i; !composite[i] && j < kLimit; j += i) composite[j] = true;
  }
  EXPECT_FALSE(is_prime(0));
  EXPECT_FALSE(is_prime(1));
  EXPECT_TRUE(is_prime(18446744073709551557u));               // the greatest below 2^64
  EXPECT_FALSE(is_prime(3825123056546413051u));               // a pseudoprime to the bases 2..23
  EXPECT_FALSE(is_prime(uint64_t{4294967291} * 4294967279));  // two primes near 2^32
}

}  // namespace
}  // namespace cedra

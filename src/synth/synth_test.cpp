#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "checkpoint/checkpoint.h"
#include "numerics/formats.h"
#include "synth/folder.h"
#include "synth/release_config.h"
#include "synth/tokenizer_file.h"
#include "synth/weights.h"
#include "text/special_tokens.h"
#include "text/tokenizer.h"

namespace cedra::synth {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

std::string text_of(const fs::path& path) {
  const auto text = read_file(path, int64_t{64} << 20);
  EXPECT_TRUE(text.has_value()) << text.error().message;
  return text.value_or("");
}

// A folder of its own, gone at the end.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / fmt::format("synth_test.{}", ::getpid())) {
    fs::remove_all(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Sizes of the tiny model: what the writer does depends on the config alone.
Content tiny(uint64_t seed = 7) {
  const fs::path folder = fs::path(CEDRA_SOURCE_DIR) / "models" / "tiny";
  return {text_of(folder / "config.json"), text_of(folder / "tokenizer.json"), seed};
}

// ---- config.json

TEST(ReleaseConfig, DefaultIsTheReleaseButForItsTokenizer) {
  const auto text = release_config({}, 99092);
  ASSERT_TRUE(text.has_value()) << text.error().message;
  json made = json::parse(*text);
  json released =
      json::parse(text_of(fs::path(CEDRA_SOURCE_DIR) / "tests/data/config/released.json"));
  for (json* config : {&made, &released}) {
    config->erase("image_token_id");
    config->erase("transformers_version");
    config->at("text_config").erase("dspark_noise_token_id");
  }
  EXPECT_EQ(json::diff(released, made), json::array());
}

TEST(ReleaseConfig, EveryDepthIsAModelWithASeamInTheMiddle) {
  for (int64_t layers = kLeastLayers; layers <= 90; ++layers) {
    const auto text =
        release_config({.layers = layers, .experts = 7, .vocab = 600, .engram_rows = 100000}, 500);
    ASSERT_TRUE(text.has_value()) << text.error().message;
    const auto config = parse_config(*text);
    ASSERT_TRUE(config.has_value()) << layers << ": " << config.error().message;
    EXPECT_EQ(config->text.replay_seam(), layers / 2);
    EXPECT_EQ(config->text.dspark_n_routed_experts, 3);
    ASSERT_EQ(config->text.engram_num_embeddings.size(), 2u);
    for (const int64_t rows : config->text.engram_num_embeddings) {
      EXPECT_GE(rows, 99000);
      EXPECT_LE(rows, 120000);
    }
  }
}

TEST(ReleaseConfig, RefusesSizesThatMakeNoModel) {
  const auto message = [](const Sizes& sizes) {
    const auto text = release_config(sizes, 500);
    return text ? std::string("accepted") : text.error().message;
  };
  EXPECT_EQ(message({.layers = 5}), "layers must be between 6 and 2048, got 5");
  EXPECT_THAT(message({.experts = 5}), HasSubstr("experts must be between 6"));
  EXPECT_THAT(message({.vocab = 100}), HasSubstr("vocab must be between 512"));
  EXPECT_THAT(message({.engram_rows = 3}), HasSubstr("engram-rows must be between 48"));
  EXPECT_THAT(message({.engram_rows = -1}), HasSubstr("engram-rows"));
  EXPECT_THAT(message({.draft_stages = 4}), HasSubstr("draft-stages must be between 0 and 3"));
}

// ---- tokenizer.json

TEST(TokenizerFile, EveryIdHasATokenAndTextComesBack) {
  for (const int64_t vocab : {kLeastVocab, int64_t{5000}}) {
    const auto tokenizer = text::Tokenizer::parse(tokenizer_file(vocab, 1));
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    EXPECT_EQ(tokenizer->size(), vocab);
    for (int32_t id = 0; id < vocab; ++id) EXPECT_NE(tokenizer->token_string(id), "") << id;
    const auto special = text::SpecialTokens::find(*tokenizer);
    ASSERT_TRUE(special.has_value()) << special.error().message;
    EXPECT_EQ(special->bos, 0);
    EXPECT_EQ(special->eos, 1);
    EXPECT_EQ(special->system, first_late_token(vocab));
    EXPECT_EQ(special->image, image_token(vocab));
    const std::string text = "The tide at 12:30, h\u00e9llo \u4f60\u597d\n\n  end";
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
  EXPECT_EQ(tokenizer_file(600, 3), tokenizer_file(600, 3));
  EXPECT_NE(tokenizer_file(600, 3), tokenizer_file(600, 4));
}

// ---- weights

std::vector<uint8_t> filled(RandomWeights& weights, const TensorSpec& spec) {
  const RandomTensor tensor = weights.prepare(spec);
  std::vector<uint8_t> out(static_cast<size_t>(tensor.rows * tensor.row_bytes()));
  weights.fill(tensor, 0, tensor.rows, out.data());
  return out;
}

double deviation_of(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  const auto count = static_cast<double>(values.size());
  return std::sqrt(squares / count - sum / count * sum / count);
}

TEST(RandomWeights, Fp8MatricesHaveTheirGain) {
  RandomWeights weights(1);
  const std::string name = "layers.3.attn.wo_b";
  const auto codes =
      filled(weights, {name + ".weight", Dtype::kF8E4M3, {320, 1024}, Component::kAttention});
  const auto scales =
      filled(weights, {name + ".scale", Dtype::kF8E8M0, {10, 32}, Component::kAttention});
  std::vector<double> values;
  double largest = 0;
  for (size_t i = 0; i < codes.size(); ++i) {
    ASSERT_NE(codes[i] & 0x7F, 0x7F) << "NaN";
    const float code = decode_e4m3(codes[i]);
    largest = std::max(largest, std::abs(double{code}));
    values.push_back(double{code} * decode_e8m0(scales[i / 1024 / 32 * 32 + i % 1024 / 32]));
  }
  EXPECT_NEAR(deviation_of(values), 1.9 / std::sqrt(1024.0), 0.0005);
  EXPECT_GT(largest, 300) << "the scales do not use the range of the codes";
}

TEST(RandomWeights, EngramRowsHaveDeviationOneUnderTheirOwnScales) {
  RandomWeights weights(1);
  const std::string name = "layers.1.engram.embed";
  const auto codes =
      filled(weights, {name + ".weight", Dtype::kF8E4M3, {500, 256}, Component::kEngramTable});
  const auto scales =
      filled(weights, {name + ".scale", Dtype::kF8E8M0, {500, 8}, Component::kEngramTable});
  std::vector<double> values;
  std::array<int, 256> used{};
  for (size_t i = 0; i < codes.size(); ++i) {
    values.push_back(double{decode_e4m3(codes[i])} * decode_e8m0(scales[i / 32]));
  }
  for (const uint8_t scale : scales) ++used[scale];
  EXPECT_NEAR(deviation_of(values), 1.0, 0.02);
  // The maximum of 32 normal numbers lies between 1.75 and 3.5 times the deviation, mostly.
  EXPECT_GT(used[127 - 7], 3000);
  EXPECT_GT(used[127 - 8], 10);
}

TEST(RandomWeights, Fp4ExpertsHaveTheirGain) {
  RandomWeights weights(1);
  const std::string name = "layers.0.ffn.experts.11.w1";
  const auto codes =
      filled(weights, {name + ".weight", Dtype::kI8, {256, 1024}, Component::kRoutedExperts});
  const auto scales =
      filled(weights, {name + ".scale", Dtype::kF8E8M0, {256, 64}, Component::kRoutedExperts});
  std::vector<double> values;
  for (size_t i = 0; i < codes.size(); ++i) {
    const double scale = decode_e8m0(scales[i / 16]);
    values.push_back(scale * double{decode_e2m1(codes[i] & 15)});
    values.push_back(scale * double{decode_e2m1(codes[i] >> 4)});
  }
  const double wanted = 1.5 / std::sqrt(2048.0);
  // Scales are powers of two, so the deviation is met within half an octave.
  EXPECT_GT(deviation_of(values), wanted / 1.5);
  EXPECT_LT(deviation_of(values), wanted * 1.5);
}

TEST(RandomWeights, NormsLieAroundTheirMean) {
  RandomWeights weights(1);
  const auto bytes =
      filled(weights, {"layers.0.ffn_norm.weight", Dtype::kBf16, {4096}, Component::kNorm});
  std::vector<double> values;
  double sum = 0;
  for (size_t i = 0; i < bytes.size(); i += 2) {
    bf16 value;
    std::memcpy(&value, &bytes[i], 2);
    values.push_back(double{to_float(value)});
    sum += values.back();
  }
  EXPECT_NEAR(sum / static_cast<double>(values.size()), 0.2, 0.002);
  EXPECT_NEAR(deviation_of(values), 0.02, 0.001);
}

TEST(RandomWeights, AnyRowsGiveTheSameBytes) {
  RandomWeights weights(9);
  for (const TensorSpec& spec :
       {TensorSpec{"head.weight", Dtype::kBf16, {40, 33}, Component::kHead},
        TensorSpec{"layers.0.hc_attn_fn", Dtype::kF32, {24, 50}, Component::kHyperConnections},
        TensorSpec{"layers.0.attn.wkv.weight", Dtype::kF8E4M3, {40, 64}, Component::kAttention},
        TensorSpec{
            "layers.0.ffn.experts.0.w2.weight", Dtype::kI8, {40, 32}, Component::kRoutedExperts}}) {
    const auto whole = filled(weights, spec);
    const RandomTensor tensor = weights.prepare(spec);
    std::vector<uint8_t> part(static_cast<size_t>(5 * tensor.row_bytes()));
    weights.fill(tensor, 13, 18, part.data());
    EXPECT_EQ(
        std::memcmp(part.data(), &whole[static_cast<size_t>(13 * tensor.row_bytes())], part.size()),
        0)
        << spec.name;
    RandomWeights other(10);
    EXPECT_NE(filled(other, spec), whole) << spec.name;
  }
}

// ---- the folder

std::string all_bytes(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  std::string out;
  for (const fs::path& file : files) out += file.filename().string() + text_of(file);
  return out;
}

TEST(WriteFolder, OpensWithEveryValueChecked) {
  const Folder folder;
  const auto written = write_folder(folder.path(), tiny(), 2);
  ASSERT_TRUE(written.has_value()) << written.error().message;
  const auto opened = Checkpoint::open(folder.path(), {.verify = Verify::kAll});
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  int64_t bytes = 0;
  for (const TensorSpec& spec : tensor_inventory(opened->config())) bytes += tensor_bytes(spec);
  EXPECT_EQ(written->bytes, bytes);
  EXPECT_EQ(written->resumed, 0);
  EXPECT_EQ(folder_bytes(tiny()), bytes);
}

TEST(WriteFolder, InterruptedItGoesOnToTheSameBytes) {
  const Folder folder;
  ASSERT_TRUE(write_folder(folder.path(), tiny(), 1).has_value());
  const std::string whole = all_bytes(folder.path());
  fs::remove_all(folder.path());

  const auto stopped = write_folder(folder.path(), tiny(), 2,
                                    [](int64_t done, int64_t total) { return done < total / 2; });
  ASSERT_FALSE(stopped.has_value());
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
  EXPECT_FALSE(Checkpoint::open(folder.path()).has_value());
  EXPECT_FALSE(fs::exists(folder.path() / "config.json"));

  // Neither other sizes nor another seed go into it.
  const auto other = write_folder(folder.path(), tiny(8), 1);
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(other.error().message, HasSubstr("another seed"));

  const auto resumed = write_folder(folder.path(), tiny(), 2);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().message;
  EXPECT_GT(resumed->resumed, 0);
  EXPECT_LT(resumed->resumed, resumed->shards);
  EXPECT_EQ(all_bytes(folder.path()), whole);
}

TEST(WriteFolder, RefusesWhatIsThere) {
  const Folder folder;
  fs::create_directories(folder.path());
  std::ofstream(folder.path() / "mine.txt") << "text";
  const auto foreign = write_folder(folder.path(), tiny(), 1);
  ASSERT_FALSE(foreign.has_value());
  EXPECT_THAT(foreign.error().message, HasSubstr("is not empty"));
  EXPECT_EQ(text_of(folder.path() / "mine.txt"), "text");
  const auto file = write_folder(folder.path() / "mine.txt", tiny(), 1);
  ASSERT_FALSE(file.has_value());
  EXPECT_THAT(file.error().message, HasSubstr("is no folder"));

  fs::remove_all(folder.path());
  ASSERT_TRUE(write_folder(folder.path(), tiny(), 1).has_value());
  const auto again = write_folder(folder.path(), tiny(), 1);
  ASSERT_FALSE(again.has_value());
  EXPECT_THAT(again.error().message, HasSubstr("is complete already"));
}

TEST(WriteFolder, AsksForRoomFirst) {
  const Folder folder;
  Content content;
  content.config = *release_config({.layers = 6, .engram_rows = int64_t{24} << 30}, 90000);
  const auto written =
      write_folder(folder.path(), content, 1, [](int64_t, int64_t) { return false; });
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, Code::kExhausted);
  EXPECT_THAT(written.error().message, HasSubstr("lower --layers"));
  EXPECT_FALSE(fs::exists(folder.path()));
}

}  // namespace
}  // namespace cedra::synth

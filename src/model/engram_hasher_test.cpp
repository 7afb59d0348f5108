// Engram hashing: the published constants, the worked examples of spec model.md 5.3, and the golden
// folders.
#include "model/engram_hasher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "checkpoint/engram_primes.h"
#include "checkpoint/safetensors.h"
#include "model/engram_rng.h"

namespace cedra::model {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

std::string read(const std::string& path) {
  std::ifstream stream(std::string(CEDRA_SOURCE_DIR) + "/" + path, std::ios::binary);
  EXPECT_TRUE(stream.good()) << path;
  return {std::istreambuf_iterator<char>(stream), {}};
}

Json constants() { return Json::parse(read("docs/spec/engram_constants.json")); }

uint64_t hex(const Json& text) { return std::stoull(text.get<std::string>(), nullptr, 16); }

std::string hex128(Uint128 value) {
  return fmt::format("0x{:016x}{:016x}", static_cast<uint64_t>(value >> 64),
                     static_cast<uint64_t>(value));
}

// The dims of the release, or of a golden folder: only what Engram reads.
TextConfig release_config() {
  const Json file = constants();
  TextConfig text;
  text.vocab_size = file["token_map"]["entries"];
  text.engram_layer_ids = file["layer_ids"].get<std::vector<int64_t>>();
  text.engram_num_embeddings = file["num_embeddings"].get<std::vector<int64_t>>();
  text.engram_max_ngram_size = file["max_ngram_size"];
  text.engram_vocab_size = file["engram_vocab_size"];
  text.engram_n_heads = file["n_heads"];
  text.engram_head_dim = file["head_dim"];
  text.engram_pad_token_id = file["pad_token_id"];
  text.engram_compressed_vocab_size = file["compressed_vocab_size"];
  return text;
}

TextConfig folder_config(const std::string& name) {
  const Json file = Json::parse(read("tests/golden/" + name + "/config.json"))["text_config"];
  TextConfig text;
  text.vocab_size = file["vocab_size"];
  text.engram_layer_ids = file["engram_layer_ids"].get<std::vector<int64_t>>();
  text.engram_num_embeddings = file["engram_num_embeddings"].get<std::vector<int64_t>>();
  text.engram_max_ngram_size = file["engram_max_ngram_size"];
  text.engram_vocab_size = file["engram_vocab_size"];
  text.engram_n_heads = file["engram_n_heads"];
  text.engram_head_dim = file["engram_head_dim"];
  text.engram_pad_token_id = file["engram_pad_token_id"];
  text.engram_compressed_vocab_size = file["engram_compressed_vocab_size"];
  return text;
}

// A map with which compressed ids can be given directly: only the pad's entry is read.
std::vector<int32_t> release_map() { return std::vector<int32_t>(129280, 2); }

TEST(EngramRng, EqualsThePublishedIntermediateValues) {
  const Json file = constants();
  for (const Json& layer : file["rng"]) {
    const uint64_t seed = layer["seed"];
    const auto pool = seed_pool(seed);
    const auto words = seed_words(pool);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(pool[i], hex(layer["seedseq_pool_u32"][i]));
      EXPECT_EQ(words[i], hex(layer["seed_words_u64"][i]));
    }
    Pcg64 raw(seed);
    EXPECT_EQ(Json(hex128(raw.state())), layer["pcg_state_after_seeding"]);
    EXPECT_EQ(Json(hex128(raw.increment())), layer["pcg_increment"]);
    for (const Json& value : layer["first_raw_u64"]) EXPECT_EQ(raw.next(), hex(value));
    Pcg64 bounded(seed);
    const uint64_t bound = std::stoull(file["multiplier_bound"].get<std::string>());
    for (const Json& value : layer["draws"]) {
      EXPECT_EQ(bounded.below(bound), std::stoull(value.get<std::string>()));
    }
  }
}

TEST(EngramRng, MultipliersOfTheRelease) {
  const Json file = constants();
  for (size_t i = 0; i < file["layer_ids"].size(); ++i) {
    const auto multipliers = engram_multipliers(file["layer_ids"][i], 99092, 4);
    ASSERT_EQ(multipliers.size(), 4u);
    for (size_t s = 0; s < 4; ++s) {
      EXPECT_EQ(Json(std::to_string(multipliers[s])), file["multipliers"][i][s]);
    }
  }
  // Layer 0 seeds with 0, one entropy word (golden tiny has it).
  EXPECT_NE(engram_multipliers(0, 99092, 4), engram_multipliers(1, 99092, 4));
}

TEST(EngramHasher, PrimesAndOffsetsOfTheRelease) {
  const Json file = constants();
  const auto primes = engram_table_primes(release_config());
  EXPECT_EQ(Json(primes), file["primes"]);
  for (size_t table = 0; table < primes.size(); ++table) {
    int64_t offset = 0;
    size_t column = 0;
    for (const auto& heads : primes[table]) {
      for (const int64_t prime : heads) {
        EXPECT_EQ(file["offsets"][table][column++], offset);
        offset += prime;
      }
    }
    EXPECT_EQ(file["num_embeddings"][table], offset);
  }
}

TEST(EngramHasher, WorkedExamples) {
  const EngramHasher hasher(release_config(), release_map());
  ASSERT_EQ(hasher.tables(), 2);
  ASSERT_EQ(hasher.columns(), 24);
  EXPECT_EQ(hasher.look_back(), 3);
  EXPECT_EQ(hasher.map_size(), 129280);
  const Json file = constants();
  ASSERT_EQ(file["test_vectors"].size(), 3u);
  for (const Json& vector : file["test_vectors"]) {
    const auto ids = vector["compressed"].get<std::vector<int32_t>>();
    std::vector<int64_t> rows(ids.size() * 48);
    hasher.rows(ids, 0, rows.data());
    for (size_t position = 0; position < ids.size(); ++position) {
      const Json& expected = vector["positions"][position];
      const int64_t* found = rows.data() + position * 48;
      EXPECT_EQ(Json(std::vector<int64_t>(found, found + 24)), expected["rows_layer1"])
          << vector["name"] << " " << position;
      EXPECT_EQ(Json(std::vector<int64_t>(found + 24, found + 48)), expected["rows_layer14"])
          << vector["name"] << " " << position;
    }
  }
}

TEST(EngramHasher, ExampleTwoOfTheSpec) {
  const EngramHasher hasher(release_config(), release_map());
  const std::vector<int32_t> ids = {0, 1, 17, 99091, 2, 5000};
  std::vector<int64_t> rows(48);
  hasher.rows(ids, 5, rows.data());
  const std::vector<size_t> columns = {0, 7, 8, 23};
  const std::vector<int64_t> layer1 = {485543, 121962433, 136948829, 376066669};
  const std::vector<int64_t> layer14 = {2515318, 114785177, 138144066, 376264123};
  for (size_t i = 0; i < columns.size(); ++i) {
    EXPECT_EQ(rows[columns[i]], layer1[i]);
    EXPECT_EQ(rows[24 + columns[i]], layer14[i]);
  }
}

// Tensors of expected.safetensors by name.
class Expected {
 public:
  explicit Expected(const std::string& name)
      : file_(read("tests/golden/" + name + "/expected.safetensors")) {
    auto header = parse_safetensors({reinterpret_cast<const uint8_t*>(file_.data()), file_.size()},
                                    "expected.safetensors");
    EXPECT_TRUE(header.has_value()) << (header ? "" : header.error().message);
    if (header) tensors_ = std::move(header->tensors);
  }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  template <class T>
  std::vector<T> values(const std::string& name) const {
    for (const StoredTensor& tensor : tensors_) {
      if (tensor.name != name) continue;
      std::vector<T> result((tensor.end - tensor.begin) / sizeof(T));
      std::memcpy(result.data(), file_.data() + tensor.begin, result.size() * sizeof(T));
      return result;
    }
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }

 private:
  std::string file_;
  std::vector<StoredTensor> tensors_;
};

TEST(EngramHasher, EqualsTheGoldenFoldersWholeAndInChunks) {
  for (const std::string name : {"tiny", "deep"}) {
    const TextConfig text = folder_config(name);
    const auto map =
        Json::parse(read("tests/golden/" + name + "/engram_token_map.json"))["token_map"]
            .get<std::vector<int32_t>>();
    ASSERT_TRUE(EngramHasher::check(text, map).has_value());
    const EngramHasher hasher(text, map);
    const auto width = static_cast<size_t>(hasher.tables() * hasher.columns());
    const Expected expected(name);
    int compared = 0;
    for (const StoredTensor& tensor : expected.tensors()) {
      const size_t dot = tensor.name.find(".engram_hash");
      if (dot == std::string::npos) continue;
      const std::string sequence = tensor.name.substr(0, dot);
      const auto ids = expected.values<int32_t>(sequence + ".ids");
      std::vector<int32_t> types(ids.size(), -1);
      if (sequence.starts_with("image")) types = expected.values<int32_t>(sequence + ".types");
      std::vector<int32_t> compressed;
      for (size_t i = 0; i < ids.size(); ++i) {
        compressed.push_back(hasher.compress(ids[i], types[i] >= 0));
      }
      const auto rows = expected.values<int64_t>(tensor.name);
      ASSERT_EQ(rows.size(), ids.size() * width);
      std::vector<int64_t> whole(rows.size());
      hasher.rows(compressed, 0, whole.data());
      EXPECT_EQ(whole, rows) << name << " " << sequence;
      for (const size_t chunk : {1, 2, 3, 7}) {
        std::vector<int64_t> parts(rows.size());
        for (size_t begin = 0; begin < ids.size(); begin += chunk) {
          const size_t end = std::min(ids.size(), begin + chunk);
          const size_t back = std::min(begin, static_cast<size_t>(hasher.look_back()));
          const std::span<const int32_t> window(compressed.data() + begin - back,
                                                end - begin + back);
          hasher.rows(window, static_cast<int64_t>(back), parts.data() + begin * width);
        }
        EXPECT_EQ(parts, rows) << name << " " << sequence << " in chunks of " << chunk;
      }
      ++compared;
    }
    EXPECT_GE(compared, name == "tiny" ? 12 : 4);
  }
}

TEST(EngramHasher, CheckNamesWhatDoesNotFit) {
  const TextConfig text = release_config();
  EXPECT_TRUE(EngramHasher::check(text, release_map()).has_value());
  auto map = release_map();
  map.pop_back();
  EXPECT_THAT(EngramHasher::check(text, map).error().message, HasSubstr("has 129279 entries"));
  map = release_map();
  map[7] = 99092;
  EXPECT_THAT(EngramHasher::check(text, map).error().message, HasSubstr("gives 99092 for token 7"));
  TextConfig other = text;
  other.engram_num_embeddings[1] += 1;
  EXPECT_THAT(EngramHasher::check(other, release_map()).error().message,
              HasSubstr("engram_num_embeddings[1] must be 384016682"));
  other = text;
  other.engram_compressed_vocab_size = int64_t{1} << 30;
  EXPECT_THAT(EngramHasher::check(other, release_map()).error().message, HasSubstr("1..2^29"));
}

}  // namespace
}  // namespace cedra::model

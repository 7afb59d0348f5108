#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/folder.h"
#include "checkpoint/safetensors.h"

namespace cedra {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kIndex = "model.safetensors.index.json";

struct Stored {
  std::string dtype;
  json shape;
  std::string data;
};
using Tensors = std::map<std::string, Stored>;  // in file order = name order

Tensors read_shard(const fs::path& path) {
  const auto file = MappedFile::open(path);
  const auto header = parse_safetensors(file->bytes(), path.string());
  Tensors tensors;
  for (const StoredTensor& tensor : header->tensors) {
    const auto* data = reinterpret_cast<const char*>(file->bytes().data());
    tensors[tensor.name] = {std::string(dtype_name(tensor.dtype)), tensor.shape,
                            std::string(data + tensor.begin, data + tensor.end)};
  }
  return tensors;
}

void write_shard(const fs::path& path, const Tensors& tensors) {
  json header = json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.data.size()}}};
    data += tensor.data;
  }
  const std::string text = header.dump();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  for (int i = 0; i < 8; ++i) file.put(static_cast<char>(text.size() >> (8 * i) & 0xFF));
  file << text << data;
}

// A copy of models/tiny in a folder of its own, to be broken in one way.
class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    base_ = fs::temp_directory_path() / ("cedra_" + std::to_string(::getpid()) + "_" + name);
    folder_ = base_ / "tiny";
    fs::create_directories(base_);
    fs::copy(fs::path(CEDRA_SOURCE_DIR) / "models/tiny", folder_);
    for (int i = 1; i <= 3; ++i) {
      shard_names_.push_back("model-0000" + std::to_string(i) + "-of-00003.safetensors");
      shards_.push_back(read_shard(folder_ / shard_names_.back()));
    }
  }
  void TearDown() override { fs::remove_all(base_); }

  // The shard that holds a tensor.
  Tensors& shard_of(const std::string& name) {
    for (Tensors& shard : shards_) {
      if (shard.contains(name)) return shard;
    }
    throw std::runtime_error("the tiny model has no " + name);
  }
  Stored& tensor(const std::string& name) { return shard_of(name).at(name); }

  // Writes the shards and an index that fits them.
  void write() {
    json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", json::object()}};
    size_t total = 0;
    for (size_t i = 0; i < shards_.size(); ++i) {
      write_shard(folder_ / shard_names_[i], shards_[i]);
      for (const auto& [name, stored] : shards_[i]) {
        index["weight_map"][name] = shard_names_[i];
        total += stored.data.size();
      }
    }
    index["metadata"]["total_size"] = total;
    write_index(index);
  }
  void write_index(const json& index) { std::ofstream(folder_ / kIndex) << index.dump(); }
  json read_index() { return json::parse(std::ifstream(folder_ / kIndex)); }

  Result<Checkpoint> open(const OpenOptions& options = {}) {
    return Checkpoint::open(folder_, options);
  }
  std::string error(const OpenOptions& options = {}) {
    const auto checkpoint = open(options);
    EXPECT_FALSE(checkpoint.has_value());
    return checkpoint ? std::string() : checkpoint.error().message;
  }

  void rename(const std::string& from, const std::string& to) {
    Tensors& shard = shard_of(from);
    auto node = shard.extract(from);
    node.key() = to;
    shard.insert(std::move(node));
  }

  fs::path base_;
  fs::path folder_;
  std::vector<std::string> shard_names_;
  std::vector<Tensors> shards_;
};

TEST_F(CheckpointTest, OpensGoldenFolders) {
  for (const char* folder : {"/models/tiny", "/tests/golden/tiny", "/tests/golden/deep"}) {
    const auto checkpoint =
        Checkpoint::open(std::string(CEDRA_SOURCE_DIR) + folder, {.verify = Verify::kAll});
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
    EXPECT_THAT(checkpoint->warnings(), IsEmpty());
    EXPECT_THAT(checkpoint->skipped(), IsEmpty());
    EXPECT_EQ(checkpoint->shards().size(), 3u);
  }
}

TEST_F(CheckpointTest, FindGivesTheStoredBytes) {
  const auto checkpoint = open();
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  for (const Tensors& shard : shards_) {
    for (const auto& [name, stored] : shard) {
      const TensorView* view = checkpoint->find(name);
      ASSERT_NE(view, nullptr) << name;
      EXPECT_EQ(dtype_name(view->dtype), stored.dtype);
      EXPECT_EQ(json(view->shape), stored.shape);
      ASSERT_EQ(static_cast<size_t>(view->bytes), stored.data.size());
      EXPECT_EQ(std::memcmp(view->data, stored.data.data(), stored.data.size()), 0) << name;
    }
  }
  EXPECT_EQ(checkpoint->find("layers.99.attn.wq_a.weight"), nullptr);
}

TEST_F(CheckpointTest, WeightPairsMatrixAndScale) {
  const auto checkpoint = open();
  const auto fp8 = checkpoint->weight("layers.0.attn.wq_a");
  ASSERT_TRUE(fp8.has_value());
  EXPECT_EQ(fp8->dtype, Dtype::kF8E4M3);
  EXPECT_EQ(fp8->data, checkpoint->find("layers.0.attn.wq_a.weight")->data);
  EXPECT_EQ(fp8->scale, checkpoint->find("layers.0.attn.wq_a.scale")->data);
  EXPECT_EQ(fp8->rows, 64);
  EXPECT_EQ(fp8->cols, 256);
  const auto fp4 = checkpoint->weight("layers.0.ffn.experts.3.w2");
  EXPECT_EQ(fp4->dtype, Dtype::kI8);
  EXPECT_EQ(fp4->rows, 256);
  EXPECT_EQ(fp4->cols, 128);  // elements, not bytes
  const auto bare = checkpoint->weight("layers.0.attn.attn_sink");
  EXPECT_EQ(bare->rows, 1);
  EXPECT_EQ(bare->cols, 4);
  EXPECT_EQ(bare->scale, nullptr);
  const auto table = checkpoint->weight("layers.0.engram.embed");
  EXPECT_EQ(table->rows, 660);
  const auto missing = checkpoint->weight("layers.0.attn.wq_c");
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message, HasSubstr("layers.0.attn.wq_c.weight"));
}

TEST_F(CheckpointTest, RewrittenFolderOpens) {
  write();
  EXPECT_TRUE(open({.verify = Verify::kAll}).has_value());
}

TEST_F(CheckpointTest, TruncatedByOneByte) {
  const fs::path shard = folder_ / shard_names_[1];
  fs::resize_file(shard, fs::file_size(shard) - 1);
  const std::string message = error();
  EXPECT_THAT(message, HasSubstr("model-00002-of-00003.safetensors: file has 2552791 bytes, its "
                                 "tensors end at 2552792: it is truncated"));
  EXPECT_THAT(message, HasSubstr("1 problem:"));  // not one per tensor of the shard
}

TEST_F(CheckpointTest, ExtendedByOneByte) {
  std::ofstream(folder_ / shard_names_[2], std::ios::app) << 'x';
  EXPECT_THAT(error(), HasSubstr("file has 50709 bytes, its tensors end at 50708: it is longer"));
}

TEST_F(CheckpointTest, MissingShard) {
  fs::remove(folder_ / shard_names_[0]);
  EXPECT_THAT(error(), HasSubstr("model-00001-of-00003.safetensors: No such file"));
}

TEST_F(CheckpointTest, AllDifferencesAtOnce) {
  shard_of("norm.weight").erase("norm.weight");
  shards_[0]["layers.0.surprise"] = {"U8", {1}, "x"};
  tensor("layers.1.attn.attn_sink") = {"F32", {5}, std::string(20, '\0')};
  tensor("layers.2.attn_norm.weight").dtype = "F16";
  write();
  const std::string message = error();
  EXPECT_THAT(message, HasSubstr("4 problems:"));
  EXPECT_THAT(message, HasSubstr("norm.weight: missing, expected BF16 [256]"));
  EXPECT_THAT(message, HasSubstr("layers.0.surprise: not a tensor of this config"));
  EXPECT_THAT(message, HasSubstr("layers.1.attn.attn_sink: expected F32 [4], "));
  EXPECT_THAT(message, HasSubstr(" has F32 [5]"));
  EXPECT_THAT(message, HasSubstr("layers.2.attn_norm.weight: expected BF16 [256]"));
  EXPECT_THAT(message, HasSubstr("has F16 [256]; --convert-norms rounds it to BF16"));
}

TEST_F(CheckpointTest, LongListsAreCut) {
  for (Tensors& shard : shards_) {
    std::erase_if(shard, [](const auto& entry) { return entry.first.starts_with("layers.3."); });
  }
  write();
  EXPECT_THAT(error(), testing::ContainsRegex("\n  and [0-9]+ more$"));
}

// A renamed draft tensor stops the load by name; nothing is switched off silently.
TEST_F(CheckpointTest, RenamedDraftTensorFailsByName) {
  rename("mtp.2.markov_head.head.weight", "mtp.2.markov_w2.weight");
  write();
  const std::string message = error();
  EXPECT_THAT(message, HasSubstr("mtp.2.markov_head.head.weight: missing"));
  EXPECT_THAT(message, HasSubstr("mtp.2.markov_w2.weight: not a tensor of this config"));
  const auto without = open({.skip_draft = true});
  ASSERT_TRUE(without.has_value()) << without.error().message;
  EXPECT_EQ(without->config().text.num_nextn_predict_layers, 0);
}

TEST_F(CheckpointTest, IndexNamesWhatTheShardLacks) {
  shard_of("norm.weight").erase("norm.weight");
  for (size_t i = 0; i < 3; ++i) write_shard(folder_ / shard_names_[i], shards_[i]);
  EXPECT_THAT(error(), HasSubstr("norm.weight: the index puts it into model-0000"));
}

TEST_F(CheckpointTest, ShardHoldsWhatTheIndexLacks) {
  json index = read_index();
  index["weight_map"].erase("norm.weight");
  write_index(index);
  const std::string message = error();
  EXPECT_THAT(message, HasSubstr("norm.weight: stands in model-0000"));
  EXPECT_THAT(message, HasSubstr("but not in the index"));
}

TEST_F(CheckpointTest, IndexNamesTheWrongShard) {
  json index = read_index();
  const std::string shard = index["weight_map"]["norm.weight"];
  index["weight_map"]["norm.weight"] = shard == shard_names_[0] ? shard_names_[1] : shard_names_[0];
  write_index(index);
  EXPECT_THAT(error(), HasSubstr("norm.weight: stands in " + shard + ", the index puts it into"));
}

TEST_F(CheckpointTest, WrongTotalSize) {
  json index = read_index();
  const int64_t size = index["metadata"]["total_size"];
  index["metadata"]["total_size"] = size + 1;
  write_index(index);
  EXPECT_THAT(error(),
              HasSubstr(fmt::format("the index says total_size {}, the tensors have {} bytes",
                                    size + 1, size)));
  index.erase("metadata");
  write_index(index);
  EXPECT_TRUE(open().has_value());
}

TEST_F(CheckpointTest, SingleFileWithoutIndex) {
  Tensors all;
  for (Tensors& shard : shards_) all.merge(shard);
  for (const std::string& name : shard_names_) fs::remove(folder_ / name);
  fs::remove(folder_ / kIndex);
  EXPECT_THAT(error(),
              HasSubstr("holds neither model.safetensors.index.json nor model.safetensors"));
  write_shard(folder_ / "model.safetensors", all);
  const auto checkpoint = open();
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->shards().size(), 1u);
  const auto text = open({.language_model_only = true});
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_EQ(text->skipped().size(), 26u + 9u);
}

TEST_F(CheckpointTest, SkippedPartsAreNamed) {
  const auto checkpoint = open({.language_model_only = true, .skip_draft = true});
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_FALSE(checkpoint->config().vision.has_value());
  EXPECT_EQ(checkpoint->find("vision.norm.weight"), nullptr);
  EXPECT_EQ(checkpoint->find("layers.0.ffn.gate.bias_vl"), nullptr);
  EXPECT_NE(checkpoint->find("layers.0.ffn.gate.bias"), nullptr);
  std::map<std::string, int> reasons;
  for (const SkippedTensor& skipped : checkpoint->skipped()) ++reasons[skipped.reason];
  EXPECT_EQ(reasons["language model only"], 26 + 9);  // the draft's bias_vl is part of the tower's
  EXPECT_EQ(reasons.size(), 2u);
  size_t stored = 0;
  for (const Tensors& shard : shards_) stored += shard.size();
  EXPECT_EQ(checkpoint->inventory().size() + checkpoint->skipped().size(), stored);
}

// A shard whose tensors are all skipped need not even exist.
TEST_F(CheckpointTest, SkippedShardsStayClosed) {
  Tensors vision;
  for (Tensors& shard : shards_) {
    for (auto at = shard.begin(); at != shard.end();) {
      const bool moves = at->first.starts_with("vision.") || at->first.starts_with("aligner.") ||
                         at->first.starts_with("image_");
      const auto next = std::next(at);
      if (moves) vision.insert(shard.extract(at));
      at = next;
    }
  }
  shards_.push_back(vision);
  shard_names_.push_back("vision.safetensors");
  write();
  ASSERT_TRUE(open().has_value()) << open().error().message;
  fs::remove(folder_ / "vision.safetensors");
  EXPECT_THAT(error(), HasSubstr("vision.safetensors"));
  const auto checkpoint = open({.language_model_only = true});
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->shards()[3].file_bytes, 0);
}

// A folder that has a part which its config does not: an error that says how to skip it.
TEST_F(CheckpointTest, PartsBeyondTheConfig) {
  json config = json::parse(std::ifstream(folder_ / "config.json"));
  config.erase("vision_config");
  std::ofstream(folder_ / "config.json") << config.dump();
  EXPECT_THAT(error(), HasSubstr("--language-model-only skips it"));
  EXPECT_TRUE(open({.language_model_only = true}).has_value());
}

TEST_F(CheckpointTest, OtherPackagingsOpen) {
  rename("layers.0.attn.wq_a.weight", "model.layers.0.self_attn.wq_a.weight");
  rename("layers.0.attn.wq_a.scale", "model.layers.0.self_attn.wq_a.weight_scale_inv");
  rename("layers.1.ffn.gate.bias", "layers.1.mlp.gate.e_score_correction_bias");
  tensor("layers.0.ffn.experts.0.w1.weight").dtype = "U8";
  tensor("layers.0.ffn.experts.0.w1.scale").dtype = "U8";
  shards_[0]["mtp.1.embed.weight"] = {"BF16", {1}, "xx"};
  shards_[0]["mtp.0.head.weight"] = {"BF16", {1}, "xx"};
  write();
  const auto checkpoint = open({.verify = Verify::kAll});
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_NE(checkpoint->find("layers.0.attn.wq_a.scale"), nullptr);
  EXPECT_NE(checkpoint->find("layers.1.ffn.gate.bias"), nullptr);
  EXPECT_EQ(checkpoint->find("layers.0.ffn.experts.0.w1.weight")->dtype, Dtype::kI8);
  ASSERT_EQ(checkpoint->skipped().size(), 2u);
  EXPECT_EQ(checkpoint->skipped()[0].reason, "tied to the backbone's");
}

TEST_F(CheckpointTest, TwoSpellingsOfOneTensor) {
  shards_[0]["model.norm.weight"] = tensor("norm.weight");
  write();
  const std::string message = error();
  EXPECT_THAT(message, HasSubstr("are both norm.weight"));
  EXPECT_THAT(message, HasSubstr("model.norm.weight"));
}

TEST_F(CheckpointTest, Int8IsNotAcceptedWhereScalesBelong) {
  tensor("layers.0.attn.wq_a.scale").dtype = "I8";
  write();
  EXPECT_THAT(error(), HasSubstr("layers.0.attn.wq_a.scale: expected F8_E8M0"));
}

TEST_F(CheckpointTest, ConvertsNormsOnRequest) {
  const auto widen = [&](const std::string& name) {
    Stored& norm = tensor(name);
    std::string wide;
    for (size_t i = 0; i < norm.data.size(); i += 2)
      wide += std::string(2, '\0') + norm.data.substr(i, 2);
    norm.data = wide;
    norm.dtype = "F32";
  };
  const std::string before = tensor("layers.2.ffn_norm.weight").data;
  widen("layers.2.ffn_norm.weight");
  widen("mtp.2.confidence_head.proj.weight");
  Stored& half = tensor("mtp.0.main_norm.weight");
  half.dtype = "F16";
  half.data.clear();
  for (int i = 0; i < 256; ++i) half.data += std::string("\x00\x3e", 2);  // 1.5
  write();
  EXPECT_THAT(error(), HasSubstr("mtp.0.main_norm.weight: expected BF16 [256]"));
  const auto checkpoint = open({.convert_norms = true});
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  const TensorView* view = checkpoint->find("layers.2.ffn_norm.weight");
  EXPECT_EQ(view->dtype, Dtype::kBf16);
  EXPECT_EQ(std::string(view->data, view->data + view->bytes), before);
  uint16_t bits = 0;
  std::memcpy(&bits, checkpoint->find("mtp.0.main_norm.weight")->data, 2);
  EXPECT_EQ(bits, 0x3FC0);
  EXPECT_EQ(checkpoint->warnings().size(), 3u);
  EXPECT_THAT(checkpoint->warnings(), testing::Each(HasSubstr("converted to BF16")));
  EXPECT_TRUE(checkpoint->populate([](Component) { return true; }, 1, nullptr).has_value());
}

TEST_F(CheckpointTest, ConvertingDoesNotReachMatrices) {
  Stored& gate = tensor("layers.0.ffn.gate.weight");
  gate.dtype = "F16";
  write();
  EXPECT_THAT(error({.convert_norms = true}), HasSubstr("layers.0.ffn.gate.weight: expected BF16"));
}

TEST_F(CheckpointTest, BadValuesAreFound) {
  tensor("layers.0.attn.wq_b.scale").data[3] = '\xff';
  tensor("layers.1.attn.wkv.weight").data[5] = '\x7f';
  tensor("norm.weight").data.replace(4, 2, "\xc0\x7f");
  tensor("layers.2.hc_attn_base").data.replace(0, 4, std::string("\x00\x00\x80\xff", 4));
  write();
  const std::string message = error();
  EXPECT_THAT(message, HasSubstr("4 problems"));
  EXPECT_THAT(message, HasSubstr("layers.0.attn.wq_b.scale: element 3 is a NaN code"));
  EXPECT_THAT(message, HasSubstr("layers.1.attn.wkv.weight: element 5 is a NaN code"));
  EXPECT_THAT(message, HasSubstr("norm.weight: element 2 is NaN or infinite"));
  EXPECT_THAT(message, HasSubstr("layers.2.hc_attn_base: element 0 is NaN or infinite"));
  EXPECT_TRUE(open({.verify = Verify::kHeaders}).has_value());
}

TEST_F(CheckpointTest, ExpertAndTableValuesOnRequest) {
  tensor("layers.0.ffn.experts.5.w3.scale").data[0] = '\xff';
  tensor("layers.1.engram.embed.weight").data[0] = '\xff';
  write();
  EXPECT_TRUE(open().has_value());
  const std::string message = error({.verify = Verify::kAll, .threads = 3});
  EXPECT_THAT(message, HasSubstr("layers.0.ffn.experts.5.w3.scale: element 0"));
  EXPECT_THAT(message, HasSubstr("layers.1.engram.embed.weight: element 0"));
}

TEST_F(CheckpointTest, PopulateReportsProgress) {
  const auto checkpoint = open();
  int64_t last = 0;
  int64_t total = 0;
  const auto result =
      checkpoint->populate([](Component c) { return c != Component::kEngramTable; }, 2,
                           [&](int64_t done, int64_t all) {
                             EXPECT_GT(done, last);
                             last = done;
                             total = all;
                           });
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, 8873548 - 50292);
  checkpoint->advise(Component::kEngramTable, Access::kRandom);
}

// ---- links and names in the index

TEST_F(CheckpointTest, ShardNamesAreFileNames) {
  for (const char* name :
       {"../tiny/model-00001-of-00003.safetensors", "/etc/passwd", "..", "a\\b", ""}) {
    json index = read_index();
    index["weight_map"]["norm.weight"] = name;
    write_index(index);
    EXPECT_THAT(error(), HasSubstr("must be a file name without separators")) << name;
  }
}

TEST_F(CheckpointTest, LinksOutOfTheFolder) {
  fs::rename(folder_ / shard_names_[0], base_ / "elsewhere");
  fs::create_symlink("../elsewhere", folder_ / shard_names_[0]);
  EXPECT_THAT(error(), HasSubstr("outside of the checkpoint folder; --follow-symlinks allows it"));
  EXPECT_TRUE(open({.follow_symlinks = true}).has_value());
}

TEST_F(CheckpointTest, LinkedConfigOutOfTheFolder) {
  fs::rename(folder_ / "config.json", base_ / "config.json");
  fs::create_symlink("../config.json", folder_ / "config.json");
  EXPECT_THAT(error(), HasSubstr("config.json: links to"));
}

TEST_F(CheckpointTest, LinksInsideTheFolder) {
  fs::create_directory(folder_ / "data");
  fs::rename(folder_ / shard_names_[0], folder_ / "data/one");
  fs::create_symlink("data/one", folder_ / shard_names_[0]);
  EXPECT_TRUE(open().has_value());
}

TEST_F(CheckpointTest, FolderItselfMayBeALink) {
  fs::create_directory_symlink(folder_, base_ / "link");
  EXPECT_TRUE(Checkpoint::open(base_ / "link").has_value());
}

TEST_F(CheckpointTest, HubCacheLayout) {
  const fs::path repo = base_ / "models--org--name";
  fs::create_directories(repo / "blobs");
  const fs::path snapshot = repo / "snapshots" / "0123abcd";
  fs::create_directories(snapshot);
  int number = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string blob = "hash" + std::to_string(number++);
    fs::copy(entry.path(), repo / "blobs" / blob);
    fs::create_symlink("../../blobs/" + blob, snapshot / entry.path().filename());
  }
  const auto checkpoint = Checkpoint::open(snapshot);
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  // The same links from a folder that is not a snapshot are refused.
  fs::rename(repo / "snapshots", repo / "copies");
  EXPECT_FALSE(Checkpoint::open(repo / "copies" / "0123abcd").has_value());
}

TEST(CanonicalName, OtherSpellings) {
  EXPECT_EQ(canonical_tensor_name("model.layers.3.self_attn.wkv.weight_scale_inv"),
            "layers.3.attn.wkv.scale");
  EXPECT_EQ(canonical_tensor_name("layers.3.mlp.gate.e_score_correction_bias"),
            "layers.3.ffn.gate.bias");
  EXPECT_EQ(canonical_tensor_name("vision.blocks.0.mlp.w1.weight"),
            "vision.blocks.0.mlp.w1.weight");
  EXPECT_EQ(canonical_tensor_name("model.vision.blocks.0.mlp.w1.weight"),
            "vision.blocks.0.mlp.w1.weight");
  EXPECT_EQ(canonical_tensor_name("layers.0.mlp_like.w"), "layers.0.mlp_like.w");
  EXPECT_EQ(canonical_tensor_name(""), "");
}

TEST(ShardIndex, Hostile) {
  const auto message = [](const std::string& text) {
    const auto parsed = parse_shard_index(text);
    EXPECT_FALSE(parsed.has_value()) << text;
    return parsed ? std::string() : parsed.error().message;
  };
  EXPECT_THAT(message("{"), HasSubstr("not JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(message("{}"), HasSubstr("weight_map is missing"));
  EXPECT_THAT(message(R"({"weight_map":[]})"), HasSubstr("weight_map is not an object"));
  EXPECT_THAT(message(R"({"weight_map":{}})"), HasSubstr("weight_map is empty"));
  EXPECT_THAT(message(R"({"weight_map":{"a":1}})"), HasSubstr("the shard of a is not a string"));
  EXPECT_THAT(message(R"({"weight_map":{"a":"s","a":"s"}})"), HasSubstr("a stands twice"));
  EXPECT_THAT(message(R"({"weight_map":{"a":"s\u0000x"}})"), HasSubstr("must be a file name"));
  EXPECT_THAT(message(R"({"metadata":{"total_size":1.5},"weight_map":{"a":"s"}})"),
              HasSubstr("total_size is 1.5, must be an integer"));
  const auto large =
      parse_shard_index(R"({"metadata":{"total_size":9007199254740993},"weight_map":{"a":"s"}})");
  EXPECT_EQ(large->total_size, 9007199254740993);
}

}  // namespace
}  // namespace cedra

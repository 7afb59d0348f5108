// Encoding and decoding speed on one core, in MB/s of UTF-8. Needs the real vocabulary
// (scripts/fetch_tokenizer.sh); the texts are files of this repository.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "text/tokenizer.h"

namespace {

using cedra::text::Tokenizer;

const Tokenizer* tokenizer() {
  static const auto loaded = Tokenizer::load(CEDRA_REAL_TOKENIZER);
  return loaded ? &*loaded : nullptr;
}

// All files of a folder that end in `extension`, in the order of their names, at most 2 MB.
std::string files(const std::string& folder, std::string_view extension) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::string(CEDRA_SOURCE_DIR) + "/" + folder)) {
    if (entry.path().extension() == extension) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (const auto& path : paths) {
    std::ifstream stream(path, std::ios::binary);
    text.append(std::istreambuf_iterator<char>(stream), {});
  }
  return text.substr(0, 2'000'000);
}

// Words of one to four Han characters and punctuation, from a fixed generator.
std::string han() {
  std::string text;
  uint32_t state = 1;
  while (text.size() < 2'000'000) {
    state = state * 1664525 + 1013904223;
    const uint32_t c = 0x4E00 + (state >> 16) % 3000;
    text += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
             static_cast<char>(0x80 | (c & 0x3F))};
    if (state >> 28 == 0) text += "\xEF\xBC\x8C";
  }
  return text;
}

void encode(benchmark::State& state, const std::string& text) {
  if (tokenizer() == nullptr) {
    state.SkipWithError("no tokenizer: run scripts/fetch_tokenizer.sh");
    return;
  }
  size_t tokens = 0;
  for (auto _ : state) tokens = tokenizer()->encode(text).size();
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
  state.counters["bytes/token"] = static_cast<double>(text.size()) / static_cast<double>(tokens);
}

void decode(benchmark::State& state, const std::string& text) {
  if (tokenizer() == nullptr) {
    state.SkipWithError("no tokenizer: run scripts/fetch_tokenizer.sh");
    return;
  }
  const auto ids = tokenizer()->encode(text);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer()->decode(ids));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

void load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::load(CEDRA_REAL_TOKENIZER));
}

}  // namespace

BENCHMARK_CAPTURE(encode, english, files("docs", ".md"));
BENCHMARK_CAPTURE(encode, code, files("src", ".cpp") + files("src", ".h"));
BENCHMARK_CAPTURE(encode, json, files("tests/golden", ".json"));
BENCHMARK_CAPTURE(encode, random_han, han());
BENCHMARK_CAPTURE(encode, one_letter, std::string(1 << 20, 'a'));
BENCHMARK_CAPTURE(encode, spaces, std::string(1 << 20, ' '));
BENCHMARK_CAPTURE(decode, english, files("docs", ".md"));
BENCHMARK(load)->Unit(benchmark::kMillisecond);

// Images of requests: from the part of a message to pixels, and from a prompt with placeholders to
// token ids with spans (vision.md 8, 9 and 10). Every route that takes messages comes through here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "image/decode_worker.h"
#include "image/prepared.h"
#include "server/image_fetch.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace cedra::server {

struct ImageOptions {
  image::AlphaRule alpha = image::AlphaRule::kHosted;
  bool exif_orientation = false;
  int64_t max_images = 600;                     // of a request
  int64_t max_bytes = int64_t{32} << 20;        // of a file
  int64_t max_total_bytes = int64_t{64} << 20;  // of all files of a request
  int64_t max_side = 8192;
  // A request of so many images or more may only have smaller ones.
  int64_t many_images = 15;
  int64_t many_side = 4096;
  std::chrono::seconds time{60};     // to fetch and decode all images of a request
  FetchOptions fetch;                // no domains: URLs are refused
  std::filesystem::path local_path;  // file:// URLs inside it are read; empty: none
  image::WorkerOptions worker;
};

struct EncodedPrompt {
  std::vector<int32_t> ids;
  std::vector<engine::ImageSpan> images;
};

// Any number of threads.
class ImageInput {
 public:
  // `info` of the engine: without a tower every image is refused.
  ImageInput(ImageOptions options, const engine::Info& info);

  // Whether images can be decoded here as the options want it (image::DecodePool::check).
  Result<> check() const;

  // Ids of the prompt, every placeholder of an image grown to its span. Text of clients never makes
  // a placeholder. Errors name the part: kInvalid, kTooLarge and kUnsupported are the client's.
  Result<EncodedPrompt> encode(const text::Prompt& prompt, const text::Tokenizer& tokenizer) const;

 private:
  class Reader;
  ImageOptions options_;
  std::optional<engine::VisionInfo> vision_;
  int64_t context_;
  std::unique_ptr<image::DecodePool> pool_;  // null without a tower
};

// ---- pieces, for tests and fuzzing

// Bytes as a data URL; the kind of picture is in the bytes.
std::string data_url(std::string_view bytes);
// The bytes of a data URL: base64 in the standard alphabet, padded or not, white space skipped. At
// most `max_bytes` (kTooLarge).
Result<std::vector<uint8_t>> read_data_url(std::string_view url, int64_t max_bytes);
// A file of a file:// URL, if it lies inside `folder`, links followed.
Result<std::vector<uint8_t>> read_local_file(std::string_view url,
                                             const std::filesystem::path& folder,
                                             int64_t max_bytes);

}  // namespace cedra::server

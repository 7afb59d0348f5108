// Prompts with images for the engine's tests.
#pragma once

#include <fstream>
#include <iterator>

#include "engine/engine_rig.h"
#include "image/prepared.h"

namespace cedra::engine::testing {

using Picture = std::shared_ptr<const image::Prepared>;

// One of the pictures of the tiny folder.
inline Picture golden_picture(const Engine& engine, int number) {
  std::ifstream in(kTiny + "/image" + std::to_string(number) + ".png", std::ios::binary);
  const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(in), {}};
  image::PrepareOptions options;
  options.rules = engine.info().vision.value().rules;
  options.decode.alpha = image::AlphaRule::kDrop;
  auto prepared = std::make_shared<image::Prepared>(image::prepare(bytes, options).value());
  prepared->key = image::content_key(*prepared);
  return prepared;
}

// Of one colour with a stripe; other seeds, other pictures of the same size.
inline Picture drawn_picture(const Engine& engine, int64_t width, int64_t height, uint8_t seed) {
  const image::PatchRules rules = engine.info().vision.value().rules;
  image::Picture picture{width, height, std::vector<uint8_t>(3 * width * height, seed)};
  for (size_t i = 0; i < picture.rgb.size(); i += 7) picture.rgb[i] = static_cast<uint8_t>(i);
  auto prepared = std::make_shared<image::Prepared>();
  prepared->source_width = width;
  prepared->source_height = height;
  prepared->plan = image::plan_resize(rules, width, height);
  prepared->pixels = image::fit(picture, prepared->plan);
  prepared->key = image::content_key(*prepared);
  return prepared;
}

// Appends text and images to a request.
class PromptMaker {
 public:
  explicit PromptMaker(const Engine& engine) : image_id_(engine.info().vision.value().token_id) {}
  PromptMaker& text(uint32_t seed, int64_t length) {
    request_.prompt = join(std::move(request_.prompt), random_prompt(seed, length));
    return *this;
  }
  PromptMaker& picture(Picture picture) {
    const auto at = static_cast<int64_t>(request_.prompt.size());
    request_.prompt.resize(
        request_.prompt.size() + static_cast<size_t>(picture->plan.span_tokens()), image_id_);
    request_.images.push_back({at, std::move(picture)});
    return *this;
  }
  Request greedy(int64_t max_tokens) const {
    Request out = greedy_request(request_.prompt, max_tokens);
    out.images = request_.images;
    return out;
  }
  int64_t size() const { return static_cast<int64_t>(request_.prompt.size()); }

 private:
  int32_t image_id_;
  Request request_;
};

}  // namespace cedra::engine::testing

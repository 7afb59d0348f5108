// Images through the routes: every shape that clients send, who they belong to, what they cost, and
// what hostile files get.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "image/test_files.h"
#include "image/test_worker.h"
#include "server/test_server.h"
#include "text/json_value.h"

namespace cedra::server {
namespace {

using namespace testing;
using ::testing::HasSubstr;
namespace files = image::testing;

constexpr int32_t kImageId = 511;

std::string url_of(std::span<const uint8_t> bytes) {
  return data_url(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}
std::string url_of(const std::string& file) { return url_of(files::read_bytes(file)); }

// A service with a tower, and the requests that its engine got.
class ImageRoutes : public ::testing::Test {
 protected:
  explicit ImageRoutes(bool strict = false) {
    TestOptions options;
    options.vision = {.rules = {.max_image_tokens = 64, .min_pixels = 7056}, .token_id = kImageId};
    options.service.strict_image_placeholder = strict;
    options.answer = [this](const engine::Request& request) {
      const std::lock_guard lock(mutex_);
      seen_.push_back(request);
      return engine::Script(tiny_tokenizer().encode("Hello"));
    };
    service_ = std::make_unique<TestService>(options);
  }

  HttpResponse ask(const std::string& path, const std::string& body) {
    return service_->ask("POST", path, body);
  }
  // The request that a 200 handed to the engine.
  engine::Request accepted(const std::string& path, const std::string& body) {
    const HttpResponse response = ask(path, body);
    EXPECT_EQ(response.status, 200) << response.body.substr(0, 300);
    last_ = response.body;
    const std::lock_guard lock(mutex_);
    return seen_.empty() ? engine::Request() : seen_.back();
  }
  std::string refused(const std::string& path, const std::string& body) {
    const HttpResponse response = ask(path, body);
    EXPECT_EQ(response.status, 400) << response.body.substr(0, 300);
    return response.body;
  }
  static std::string chat(const std::string& parts) {
    return R"({"messages":[{"role":"user","content":[)" + parts + "]}]}";
  }
  static std::string part(const std::string& url) {
    return R"({"type":"image_url","image_url":{"url":")" + url + "\"}}";
  }

  std::mutex mutex_;
  std::vector<engine::Request> seen_;
  std::unique_ptr<TestService> service_;
  std::string last_;
};

TEST_F(ImageRoutes, EveryShapeIsTheSamePicture) {
  const std::string url = url_of("rgb.png");
  const std::string data = url.substr(url.find(',') + 1);
  const std::string call =
      R"({"role":"assistant","content":"","tool_calls":[{"id":"i","type":"function",)"
      R"("function":{"name":"f","arguments":"{}"}}]},)";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"/v1/chat/completions", chat(part(url))},
      {"/v1/chat/completions", chat(R"({"type":"image_url","image_url":")" + url + "\"}")},
      {"/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"},)" + call +
                                   R"({"role":"tool","tool_call_id":"i","content":[)" + part(url) +
                                   "]}]}"},
      {"/v1/responses",
       R"({"input":[{"role":"user","content":[{"type":"input_image","image_url":")" + url +
           "\"}]}]}"},
      {"/v1/responses",
       R"({"input":[{"role":"user","content":"x"},)"
       R"({"type":"function_call","call_id":"i","name":"f","arguments":"{}"},)"
       R"({"type":"function_call_output","call_id":"i","output":[{"type":"input_image","image_url":")" +
           url + "\"}]}]}"},
      {"/v1/messages",
       R"({"max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":)"
       R"({"type":"base64","media_type":"image/png","data":")" +
           data + "\"}}]}]}"},
      {"/v1/messages",
       R"({"max_tokens":9,"messages":[{"role":"user","content":"x"},)"
       R"({"role":"assistant","content":[{"type":"tool_use","id":"i","name":"f","input":{}}]},)"
       R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":)"
       R"([{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":")" +
           data + "\"}}]}]}]}"}};
  image::ContentKey key{};
  for (const auto& [path, body] : cases) {
    SCOPED_TRACE(path + " " + body.substr(0, 120));
    const engine::Request request = accepted(path, body);
    ASSERT_EQ(request.images.size(), 1U);
    const engine::ImageSpan& span = request.images[0];
    if (key == image::ContentKey{}) key = span.image->key;
    EXPECT_EQ(span.image->key, key);
    const int64_t tokens = span.image->plan.span_tokens();
    EXPECT_EQ(std::ranges::count(request.prompt, kImageId), tokens);
    EXPECT_EQ(request.prompt[static_cast<size_t>(span.position)], kImageId);
    EXPECT_EQ(request.prompt[static_cast<size_t>(span.position + tokens - 1)], kImageId);
    // The whole span counts.
    EXPECT_THAT(last_, HasSubstr(fmt::format("_tokens\":{}", request.prompt.size())));
  }
}

TEST_F(ImageRoutes, ImagesStayWithTheirToolResults) {
  const auto result = [&](const std::string& id, const std::string& file) {
    return R"({"role":"tool","tool_call_id":")" + id + R"(","content":[)" + part(url_of(file)) +
           "]}";
  };
  const std::string calls =
      R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"","tool_calls":[)"
      R"({"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},)"
      R"({"id":"b","type":"function","function":{"name":"f","arguments":"{}"}}]},)";
  const engine::Request in_order =
      accepted("/v1/chat/completions",
               calls + result("a", "rgb.png") + "," + result("b", "quarter.jpg") + "]}");
  const engine::Request turned =
      accepted("/v1/chat/completions",
               calls + result("b", "quarter.jpg") + "," + result("a", "rgb.png") + "]}");
  ASSERT_EQ(turned.images.size(), 2U);
  EXPECT_EQ(turned.prompt, in_order.prompt);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(turned.images[i].image->key, in_order.images[i].image->key);
    EXPECT_EQ(turned.images[i].position, in_order.images[i].position);
  }
  EXPECT_NE(turned.images[0].image->key, turned.images[1].image->key);
}

TEST_F(ImageRoutes, CountsIncludeTheSpan) {
  const std::string url = url_of("rgb.png");
  const std::string data = url.substr(url.find(',') + 1);
  const HttpResponse tokens = ask("/tokenize", chat(part(url)));
  EXPECT_EQ(tokens.status, 200);
  const engine::Request request = accepted("/v1/chat/completions", chat(part(url)));
  EXPECT_THAT(tokens.body, HasSubstr(fmt::format("\"count\":{},", request.prompt.size())));
  const HttpResponse count =
      ask("/v1/messages/count_tokens",
          R"({"messages":[{"role":"user","content":[{"type":"image","source":)"
          R"({"type":"base64","media_type":"image/png","data":")" +
              data + "\"}}]}]}");
  EXPECT_EQ(count.body, fmt::format("{{\"input_tokens\":{}}}", request.prompt.size()));
}

TEST_F(ImageRoutes, RefusalsNameMessageAndPart) {
  const std::string good = part(url_of("rgb.png"));
  EXPECT_THAT(refused("/v1/chat/completions", chat(good + "," + part("data:;base64,QUJD"))),
              HasSubstr("messages.0.content.1: the data is not a PNG"));
  EXPECT_THAT(refused("/v1/chat/completions", chat(part("https://example.com/a.png"))),
              HasSubstr("messages.0.content.0: remote image URLs are disabled"));
  EXPECT_THAT(refused("/v1/chat/completions", chat(R"({"type":"file","file":{}})")),
              HasSubstr("messages.0.content.0: parts of type 'file'"));
  EXPECT_THAT(refused("/v1/chat/completions",
                      R"({"messages":[{"role":"system","content":[)" + good + "]}]}"),
              HasSubstr("Image in system message is unsupported"));
  EXPECT_THAT(
      refused(
          "/v1/responses",
          R"({"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:,"}]}]})"),
      HasSubstr("input.0.content.0: a data URL must look like"));
}

TEST_F(ImageRoutes, PlaceholdersOfClientsStayText) {
  const engine::Request request =
      accepted("/v1/chat/completions",
               chat(R"({"type":"text","text":"<\\uff5cdeepseek_image\\uff5c> <image>"},)" +
                    part(url_of("rgb.png"))));
  ASSERT_EQ(request.images.size(), 1U);
  EXPECT_EQ(std::ranges::count(request.prompt, kImageId),
            request.images[0].image->plan.span_tokens());
}

class StrictImageRoutes : public ImageRoutes {
 protected:
  StrictImageRoutes() : ImageRoutes(true) {}
};

TEST_F(StrictImageRoutes, PlaceholdersOfClientsAreRefused) {
  EXPECT_THAT(refused("/v1/chat/completions",
                      R"({"messages":[{"role":"user","content":"<\uff5cdeepseek_image\uff5c>"}]})"),
              HasSubstr("image placeholder"));
}

TEST(ImagesWithoutATower, AreRefusedByName) {
  TestService service{TestOptions{}};
  const HttpResponse response = service.ask(
      "POST", "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":"data:,x"}]}]})");
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("messages.0.content.0: this model does not accept images"));
}

// ---- hostile files: a 400 or a good picture, and the next request is served

std::vector<uint8_t> bmp(uint32_t width, uint32_t height) {
  std::vector<uint8_t> bytes = files::read_bytes("runs8.bmp");
  bytes.resize(14 + 40 + 16);
  for (size_t i = 0; i < 4; ++i) {
    bytes[18 + i] = static_cast<uint8_t>(width >> (8 * i));
    bytes[22 + i] = static_cast<uint8_t>(height >> (8 * i));
  }
  bytes.insert(bytes.end(), {0, 1});
  return bytes;
}

TEST_F(ImageRoutes, HostileFiles) {
  const auto status = [&](std::span<const uint8_t> bytes) {
    const HttpResponse response = ask("/v1/chat/completions", chat(part(url_of(bytes))));
    if (response.status != 200) {
      EXPECT_THAT(response.body, HasSubstr("messages.0.content.0: "));
    }
    return response.status;
  };
  for (const char* name : {"rgb.png", "quarter.jpg", "lossy.webp", "plain.gif", "rgb.bmp",
                           "animated.webp", "animated.gif", "garbage_chunks.png", "icc.jpg"}) {
    const std::vector<uint8_t> bytes = files::read_bytes(name);
    EXPECT_EQ(status(bytes), 200) << name;
    for (size_t length = 64; length < bytes.size() / 2; length += 64) {
      // The first frame of an animation may be whole.
      const int got = status(std::span(bytes).first(length));
      EXPECT_TRUE(got == 400 || (got == 200 && name[0] == 'a')) << name << " cut to " << length;
    }
    // Another container's first bytes.
    std::vector<uint8_t> wrong = bytes;
    const bool png = std::string_view(name).ends_with(".png");
    const std::vector<uint8_t> other = files::read_bytes(png ? "plain.gif" : "rgb.png");
    std::copy_n(other.begin(), 8, wrong.begin());
    EXPECT_EQ(status(wrong), 400) << name;
  }
  EXPECT_EQ(status(bmp(1, 1)), 200);
  EXPECT_EQ(status(bmp(1, 8192)), 200);
  EXPECT_EQ(status(bmp(1, 20000)), 400);
  EXPECT_EQ(status(bmp(65535, 65535)), 400);
  EXPECT_EQ(status(bmp(0, 5)), 400);
  EXPECT_EQ(status(std::vector<uint8_t>(size_t{33} << 20, 'x')), 400);
  EXPECT_EQ(accepted("/v1/chat/completions", chat(part(url_of("rgb.png")))).images.size(), 1U);
}

}  // namespace
}  // namespace cedra::server

// Images of requests: URLs of every kind, hostile ones above all, and the spans that prompts get.
#include "server/image_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "image/test_files.h"
#include "image/test_worker.h"
#include "server/test_server.h"
#include "text/markup.h"

namespace cedra::server {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace files = image::testing;

constexpr int32_t kImageId = 511;

std::string base64(std::span<const uint8_t> bytes) {
  const std::string url =
      data_url(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  return url.substr(url.find(',') + 1);
}

std::string file_url(const std::string& file) {
  return "data:image/any;base64," + base64(files::read_bytes(file));
}

engine::Info info(bool tower = true) {
  engine::Info out;
  out.context_length = 2000;
  if (tower) {
    out.vision = {.rules = {.max_image_tokens = 64, .min_pixels = 7056}, .token_id = kImageId};
  }
  return out;
}

text::Prompt prompt_of(const std::vector<std::string>& sources) {
  text::Conversation conversation;
  text::Message& message = conversation.messages.emplace_back();
  message.content.push_back({text::ContentPart::Kind::kText, "look"});
  for (const std::string& source : sources) {
    message.content.push_back({text::ContentPart::Kind::kImage, source,
                               fmt::format("messages.0.content.{}", message.content.size())});
  }
  return text::encode_chat(conversation, {}).value();
}

std::string refusal(const ImageInput& input, const std::vector<std::string>& sources) {
  const auto encoded = input.encode(prompt_of(sources), tiny_tokenizer());
  if (encoded) {
    ADD_FAILURE() << "was accepted";
    return {};
  }
  EXPECT_TRUE(encoded.error().code == Code::kInvalid || encoded.error().code == Code::kTooLarge ||
              encoded.error().code == Code::kUnsupported);
  return encoded.error().message;
}

TEST(DataUrl, EveryPadding) {
  for (size_t size = 0; size < 7; ++size) {
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < size; ++i) bytes.push_back(static_cast<uint8_t>(201 * i + 77));
    const std::string digits = base64(bytes);
    std::string bare = digits;
    while (bare.ends_with('=')) bare.pop_back();
    for (const std::string& data : {digits, bare, bare + "===", "\n" + digits + "\r\n"}) {
      EXPECT_EQ(read_data_url("data:image/png;base64," + data, 100), bytes) << data;
    }
    EXPECT_EQ(read_data_url("DATA:;BASE64," + digits, 100), bytes);
    EXPECT_EQ(read_data_url("data:image/png;x=y;base64," + digits, 100), bytes);
  }
}

TEST(DataUrl, WrongOnes) {
  for (const char* url : {"data:image/png,abc", "data:image/png;base64", "data:", "data:,",
                          "data:image/png;base64,ab!d", "data:image/png;base64,a", "x"}) {
    const auto bytes = read_data_url(url, 100);
    ASSERT_FALSE(bytes.has_value()) << url;
    EXPECT_EQ(bytes.error().code, Code::kInvalid);
  }
  EXPECT_TRUE(read_data_url("data:;base64,AAAA", 3).has_value());
  const auto bytes = read_data_url("data:;base64,AAAA" + std::string(4000, 'A'), 3);
  ASSERT_FALSE(bytes.has_value());
  EXPECT_EQ(bytes.error().code, Code::kTooLarge);
  EXPECT_EQ(read_data_url("data:;base64,AAAAAA", 3).error().code, Code::kTooLarge);
}

TEST(LocalFile, OnlyInsideTheFolder) {
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / fmt::format("cedra_images.{}", ::getpid());
  const std::filesystem::path inside = root / "in";
  std::filesystem::create_directories(inside / "a b");
  std::filesystem::create_directories(root / "inside");
  const auto write = [](const std::filesystem::path& path) { std::ofstream(path) << "bytes"; };
  write(inside / "a b" / "x.png");
  write(root / "inside" / "y.png");
  write(root / "z.png");
  std::filesystem::create_symlink(root / "z.png", inside / "out.png");
  std::filesystem::create_symlink(inside / "a b" / "x.png", root / "into.png");
  const auto read = [&](const std::string& path) {
    return read_local_file("file://" + path, inside, 100).has_value();
  };
  EXPECT_TRUE(read(inside.string() + "/a%20b/x.png"));
  EXPECT_TRUE(read("localhost" + inside.string() + "/a b/x.png"));
  EXPECT_TRUE(read(root.string() + "/into.png"));  // leads inside
  for (const std::string& path :
       {root.string() + "/z.png", inside.string() + "/../z.png", inside.string() + "/%2e%2e/z.png",
        inside.string() + "/out.png", root.string() + "/inside/y.png", inside.string(),
        inside.string() + "/none", std::string("/etc/passwd"), std::string("etc/passwd"),
        inside.string() + "/a%20b/x.png%00"}) {
    EXPECT_FALSE(read(path)) << path;
  }
  EXPECT_FALSE(read_local_file("file://" + inside.string() + "/a b/x.png", inside, 4).has_value());
  std::filesystem::remove_all(root);
}

TEST(ImageInput, PlaceholdersGrowToSpans) {
  const ImageInput input({}, info());
  const auto plain = input.encode(prompt_of({}), tiny_tokenizer());
  ASSERT_TRUE(plain.has_value());
  EXPECT_TRUE(plain->images.empty());
  const text::Prompt prompt = prompt_of({file_url("rgb.png"), file_url("quarter.jpg"),
                                         file_url("rgb.png"), file_url("interlaced.png")});
  const auto encoded = input.encode(prompt, tiny_tokenizer());
  ASSERT_TRUE(encoded.has_value()) << encoded.error().message;
  ASSERT_EQ(encoded->images.size(), 4U);
  // The same content, from the same or another file, is one picture.
  EXPECT_EQ(encoded->images[0].image, encoded->images[2].image);
  EXPECT_EQ(encoded->images[0].image, encoded->images[3].image);
  EXPECT_NE(encoded->images[0].image, encoded->images[1].image);
  // Without the spans' further positions the ids are those of the prompt with single placeholders.
  std::vector<int32_t> folded = encoded->ids;
  for (auto span = encoded->images.rbegin(); span != encoded->images.rend(); ++span) {
    const auto begin = folded.begin() + span->position;
    const int64_t tokens = span->image->plan.span_tokens();
    for (int64_t k = 0; k < tokens; ++k) EXPECT_EQ(begin[k], kImageId);
    folded.erase(begin + 1, begin + tokens);
  }
  EXPECT_EQ(folded, tiny_tokenizer().encode(std::span<const text::Segment>(prompt.segments)));
}

TEST(ImageInput, DetailAndOptionsChangeThePixels) {
  const auto key = [](ImageOptions options, const std::string& file, bool low) {
    text::Prompt prompt = prompt_of({file_url(file)});
    prompt.images[0].low_detail = low;
    return ImageInput(options, info()).encode(prompt, tiny_tokenizer())->images[0].image->key;
  };
  ImageOptions dropped;
  dropped.alpha = image::AlphaRule::kDrop;
  EXPECT_NE(key({}, "rgba.png", false), key(dropped, "rgba.png", false));
  ImageOptions turned;
  turned.exif_orientation = true;
  EXPECT_NE(key({}, "turned6.png", false), key(turned, "turned6.png", false));
  EXPECT_EQ(key({}, "rgb.png", false), key({}, "rgb.png", true));  // small enough as it is
}

TEST(ImageInput, RefusalsNameThePart) {
  const ImageInput input({}, info());
  const std::string good = file_url("rgb.png");
  std::vector<uint8_t> bytes = files::read_bytes("rgb.png");
  bytes.resize(60);
  EXPECT_THAT(refusal(input, {good, "data:;base64," + base64(bytes)}),
              StartsWith("messages.0.content.2: the PNG image is damaged"));
  EXPECT_THAT(refusal(input, {"data:;base64,AAAAAAAA"}),
              StartsWith("messages.0.content.1: the data is not a PNG"));
  EXPECT_THAT(refusal(input, {"data:;base64,"}), HasSubstr("content.1: the image is empty"));
  EXPECT_THAT(refusal(input, {"/etc/passwd"}), HasSubstr("must be a data: or http(s): URL"));
  EXPECT_THAT(refusal(input, {"file:///etc/passwd"}), HasSubstr("file URLs are disabled"));
  EXPECT_THAT(refusal(input, {"https://example.com/x.png"}), HasSubstr("URLs are disabled"));
  EXPECT_THAT(refusal(ImageInput({}, info(false)), {good}),
              StartsWith("messages.0.content.1: this model does not accept images"));
  ImageOptions few;
  few.max_images = 2;
  EXPECT_THAT(refusal(ImageInput(few, info()), {good, good, good}), HasSubstr("has 3 images"));
  ImageOptions small;
  small.max_total_bytes = static_cast<int64_t>(files::read_bytes("rgb.png").size());
  EXPECT_TRUE(ImageInput(small, info()).encode(prompt_of({good}), tiny_tokenizer()).has_value());
  EXPECT_THAT(refusal(ImageInput(small, info()), {good, file_url("grey.png")}),
              HasSubstr("content.2: the images of a request"));
  ImageOptions many;
  many.many_images = 3;
  many.many_side = 20;
  EXPECT_TRUE(
      ImageInput(many, info()).encode(prompt_of({good, good}), tiny_tokenizer()).has_value());
  EXPECT_THAT(refusal(ImageInput(many, info()), {good, good, good}), HasSubstr("at most 20"));
  engine::Info narrow = info();
  narrow.context_length = 60;
  EXPECT_THAT(refusal(ImageInput({}, narrow), {good, good}), HasSubstr("the context length is 60"));
}

// ---- other servers

bool is_public(const char* address) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address, nullptr, &hints, &found) != 0) {
    ADD_FAILURE() << address;
    return false;
  }
  const bool result = is_public_address(found->ai_addr);
  ::freeaddrinfo(found);
  return result;
}

TEST(Fetch, AddressesThatMayBeConnectedTo) {
  for (const char* address : {"8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "169.253.0.1",
                              "2606:4700::1111", "::ffff:8.8.8.8"}) {
    EXPECT_TRUE(is_public(address)) << address;
  }
  for (const char* address : {"127.0.0.1",
                              "127.255.255.254",
                              "0.0.0.0",
                              "10.1.2.3",
                              "172.16.0.1",
                              "172.31.255.255",
                              "192.168.1.1",
                              "169.254.169.254",
                              "100.64.0.1",
                              "100.127.255.255",
                              "224.0.0.1",
                              "255.255.255.255",
                              "198.18.0.1",
                              "::1",
                              "::",
                              "fe80::1",
                              "fc00::1",
                              "fd00::1",
                              "ff02::1",
                              "::ffff:127.0.0.1",
                              "::ffff:169.254.169.254",
                              "64:ff9b::7f00:1",
                              "2002:7f00:1::",
                              "2001::1",
                              "2001:db8::1",
                              "::7f00:1"}) {
    EXPECT_FALSE(is_public(address)) << address;
  }
}

TEST(Fetch, UrlsThatAreNotAllowed) {
  FetchOptions options;
  options.domains = {"images.example.com", "127.0.0.1"};
  EXPECT_EQ(url_problem("https://images.example.com/x.png", options), "");
  EXPECT_EQ(url_problem("HTTP://IMAGES.example.COM:80/x.png?y#z", options), "");
  for (const char* url :
       {"https://example.com/x", "https://images.example.com.evil.org/x",
        "https://evil.org/images.example.com", "https://images.example.com@evil.org/x",
        "https://user:secret@images.example.com/x", "https://images.example.com:8080/x",
        "ftp://images.example.com/x", "file:///etc/passwd", "gopher://images.example.com/",
        "https://xn--images.example.com/", "https:///x", "https://images.example.com./x",
        "not a url"}) {
    EXPECT_NE(url_problem(url, options), "") << url;
  }
  EXPECT_NE(url_problem("https://images.example.com/" + std::string(9000, 'x'), options), "");
  options.domains = {"*"};
  EXPECT_EQ(url_problem("https://example.com/x", options), "");
}

// Names for this machine in every spelling end at the same check of the address.
TEST(Fetch, NoConnectionToThisMachine) {
  FetchOptions options;
  options.domains = {"*"};
  const auto soon = [] { return std::chrono::steady_clock::now() + 5s; };
  for (const char* url :
       {"http://127.0.0.1/x.png", "http://0x7f000001/x.png", "http://2130706433/",
        "http://localhost/x.png", "http://[::1]/x.png", "http://[::ffff:169.254.169.254]/",
        "http://169.254.169.254/latest", "http://0/"}) {
    const auto bytes = fetch_url(url, options, 1000, soon());
    ASSERT_FALSE(bytes.has_value()) << url;
    EXPECT_THAT(bytes.error().message, HasSubstr("private or special address")) << url;
  }
}

// A server on this machine that gives each path its own answer.
class SmallServer {
 public:
  SmallServer() {
    HttpLimits limits;
    auto made = HttpServer::listen("127.0.0.1", 0, limits,
                                   [this](HttpRequest request, std::shared_ptr<Exchange> exchange) {
                                     answer(request, exchange);
                                   });
    server_ = std::move(*made);
    thread_ = std::thread([this] { server_->run(); });
  }
  ~SmallServer() {
    server_->stop(1s);
    thread_.join();
  }
  std::string url(const std::string& path) const {
    return fmt::format("http://127.0.0.1:{}{}", server_->port(), path);
  }

 private:
  void answer(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) const {
    HttpResponse response;
    if (request.path == "/image") {
      const std::vector<uint8_t> bytes = files::read_bytes("rgb.png");
      response.body.assign(bytes.begin(), bytes.end());
    } else if (request.path == "/hop" || request.path == "/loop" || request.path == "/away") {
      response.status = 302;
      response.headers.emplace_back("Location", request.path == "/hop"    ? "/image"
                                                : request.path == "/loop" ? "/loop"
                                                                          : "http://[::1]:1/x");
    } else if (request.path == "/large") {
      response.body = std::string(5000, 'x');
    } else {
      response.status = 404;
    }
    exchange->respond(std::move(response));
  }
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST(Fetch, BodiesRedirectsAndLimits) {
  const SmallServer server;
  FetchOptions options;
  options.domains = {"127.0.0.1"};
  options.private_addresses = true;
  const auto fetch = [&](const char* path) {
    return fetch_url(server.url(path), options, 4000, std::chrono::steady_clock::now() + 5s);
  };
  EXPECT_EQ(fetch("/image"), files::read_bytes("rgb.png"));
  EXPECT_EQ(fetch("/hop"), files::read_bytes("rgb.png"));
  EXPECT_THAT(fetch("/loop").error().message, HasSubstr("redirects more than 5 times"));
  EXPECT_THAT(fetch("/away").error().message, HasSubstr("redirects to is not allowed: host"));
  EXPECT_EQ(fetch("/large").error().code, Code::kTooLarge);
  EXPECT_THAT(fetch("/none").error().message, HasSubstr("status 404"));
  const auto late =
      fetch_url(server.url("/image"), options, 4000, std::chrono::steady_clock::now());
  EXPECT_EQ(late.error().code, Code::kTooLarge);

  ImageOptions images;
  images.fetch = options;
  const ImageInput input(images, info());
  const auto encoded = input.encode(prompt_of({server.url("/hop")}), tiny_tokenizer());
  ASSERT_TRUE(encoded.has_value()) << encoded.error().message;
  EXPECT_THAT(refusal(input, {server.url("/none")}), StartsWith("messages.0.content.1: "));
}

}  // namespace
}  // namespace cedra::server

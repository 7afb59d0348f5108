#include "server/image_input.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "base/ascii.h"

namespace cedra::server {
namespace {

using Bytes = std::vector<uint8_t>;
using Clock = std::chrono::steady_clock;

constexpr int64_t kLowDetailSide = 512;

// Value of a base64 digit; kSkip for white space and padding, kNone for the rest.
constexpr int8_t kSkip = -1;
constexpr int8_t kNone = -2;
constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::array<int8_t, 256> kDigits = [] {
  std::array<int8_t, 256> table{};
  table.fill(kNone);
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    table[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int8_t>(i);
  }
  for (const char c : {' ', '\t', '\r', '\n', '='}) table[static_cast<unsigned char>(c)] = kSkip;
  return table;
}();

std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 &&
        digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::unexpected<Error> too_many_bytes(int64_t most) {
  return err(Code::kTooLarge, "the image has more than {} bytes", most);
}

}  // namespace

std::string data_url(std::string_view bytes) {
  std::string out = "data:;base64,";
  out.reserve(out.size() + (bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (size_t k = 0; k < 4; ++k) out += k <= count ? kAlphabet[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

Result<Bytes> read_data_url(std::string_view url, int64_t max_bytes) {
  if (!starts_with_nocase(url, "data:")) return err(Code::kInvalid, "this is no data URL");
  const size_t comma = url.find(',');
  std::string_view head = url.substr(0, comma);
  constexpr std::string_view kBase64 = ";base64";
  while (head.ends_with(' ')) head.remove_suffix(1);
  if (comma == url.npos || head.size() < kBase64.size() ||
      !starts_with_nocase(head.substr(head.size() - kBase64.size()), kBase64)) {
    return err(Code::kInvalid,
               "a data URL must look like data:image/png;base64,DATA; its head is '{}'",
               head.substr(0, 60));
  }
  const std::string_view data = url.substr(comma + 1);
  Bytes out;
  out.reserve(std::min(data.size() / 4 * 3 + 3, static_cast<size_t>(max_bytes) + 3));
  uint32_t bits = 0;
  int count = 0;  // digits in `bits`
  for (size_t i = 0; i < data.size(); ++i) {
    const int8_t digit = kDigits[static_cast<unsigned char>(data[i])];
    if (digit == kSkip) continue;
    if (digit == kNone) {
      return err(Code::kInvalid, "the base64 data of the image has a wrong character at {}", i);
    }
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if (++count < 4) continue;
    for (const int shift : {16, 8, 0}) out.push_back(static_cast<uint8_t>(bits >> shift));
    bits = 0;
    count = 0;
    if (static_cast<int64_t>(out.size()) > max_bytes) return too_many_bytes(max_bytes);
  }
  if (count == 1) return err(Code::kInvalid, "the base64 data of the image is cut");
  if (count >= 2) out.push_back(static_cast<uint8_t>(bits >> (count == 2 ? 4 : 10)));
  if (count == 3) out.push_back(static_cast<uint8_t>(bits >> 2));
  if (static_cast<int64_t>(out.size()) > max_bytes) return too_many_bytes(max_bytes);
  return out;
}

Result<Bytes> read_local_file(std::string_view url, const std::filesystem::path& folder,
                              int64_t max_bytes) {
  std::string_view path = url.substr(std::string_view("file://").size());
  if (path.starts_with("localhost/")) path.remove_prefix(std::string_view("localhost").size());
  const auto refuse = [&] {
    return err(Code::kInvalid,
               "the image file cannot be read, or is outside of the allowed folder");
  };
  std::error_code failed;
  const std::filesystem::path inside = std::filesystem::canonical(folder, failed);
  if (failed) return refuse();
  const std::string decoded = percent_decoded(path);
  if (decoded.find('\0') != decoded.npos) return refuse();
  // Links are resolved before the comparison, and what is opened is what was compared.
  const std::filesystem::path file = std::filesystem::canonical(decoded, failed);
  if (failed ||
      std::mismatch(inside.begin(), inside.end(), file.begin(), file.end()).first != inside.end()) {
    return refuse();
  }
  if (!std::filesystem::is_regular_file(file, failed) || failed) return refuse();
  struct Close {
    void operator()(std::FILE* open) const { std::fclose(open); }
  };
  const std::unique_ptr<std::FILE, Close> in(std::fopen(file.c_str(), "rbe"));
  if (in == nullptr) return refuse();
  Bytes out;
  std::array<uint8_t, 65536> piece;
  for (size_t got = 0; (got = std::fread(piece.data(), 1, piece.size(), in.get())) > 0;) {
    out.insert(out.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(got));
    if (static_cast<int64_t>(out.size()) > max_bytes) return too_many_bytes(max_bytes);
  }
  return out;
}

ImageInput::ImageInput(ImageOptions options, const engine::Info& info)
    : options_(std::move(options)), vision_(info.vision), context_(info.context_length) {
  if (vision_) pool_ = std::make_unique<image::DecodePool>(options_.worker);
}

Result<> ImageInput::check() const { return pool_ != nullptr ? pool_->check() : Result<>{}; }

// The images of one request.
class ImageInput::Reader {
 public:
  Reader(const ImageInput& input, size_t images)
      : options_(input.options_), vision_(*input.vision_), pool_(*input.pool_) {
    prepare_.decode.max_bytes = options_.max_bytes;
    prepare_.decode.max_side = static_cast<int64_t>(images) >= options_.many_images
                                   ? std::min(options_.many_side, options_.max_side)
                                   : options_.max_side;
    prepare_.decode.alpha = options_.alpha;
    prepare_.decode.exif_orientation = options_.exif_orientation;
    prepare_.rules = vision_.rules;
    deadline_ = Clock::now() + options_.time;
  }

  Result<std::shared_ptr<const image::Prepared>> read(const text::PromptImage& part) {
    // Clients repeat images; each is decoded once.
    const auto [known, fresh] = by_source_.try_emplace({part.source, part.low_detail});
    if (!fresh) return known->second;
    Result<Bytes> bytes = load(part.source);
    if (!bytes) return name_part(part, bytes.error());
    total_bytes_ += static_cast<int64_t>(bytes->size());
    if (total_bytes_ > options_.max_total_bytes) {
      return err(Code::kTooLarge,
                 "{}: the images of a request may have {} bytes in all, these have more",
                 part.where, options_.max_total_bytes);
    }
    if (Clock::now() > deadline_) {
      return err(Code::kTooLarge,
                 "{}: the images take too long to read; send fewer or smaller ones", part.where);
    }
    image::PrepareOptions options = prepare_;
    options.shrink_side = part.low_detail ? kLowDetailSide : 0;
    Result<image::Prepared> prepared = pool_.prepare(*bytes, options);
    if (!prepared) return name_part(part, prepared.error());
    // The same content from another source shares its pixels.
    auto& shared = by_key_[prepared->key];
    if (shared == nullptr) shared = std::make_shared<const image::Prepared>(*std::move(prepared));
    known->second = shared;
    return shared;
  }

 private:
  using Shared = std::shared_ptr<const image::Prepared>;

  Result<Bytes> load(const std::string& source) {
    if (starts_with_nocase(source, "data:")) return read_data_url(source, options_.max_bytes);
    if (starts_with_nocase(source, "http://") || starts_with_nocase(source, "https://")) {
      if (options_.fetch.domains.empty()) {
        return err(Code::kInvalid,
                   "remote image URLs are disabled here; send the image as a data URL "
                   "(--allowed-media-domains allows hosts)");
      }
      return fetch_url(source, options_.fetch, options_.max_bytes, deadline_);
    }
    if (starts_with_nocase(source, "file://")) {
      if (options_.local_path.empty()) {
        return err(Code::kInvalid,
                   "file URLs are disabled here; send the image as a data URL "
                   "(--allowed-local-media-path allows a folder)");
      }
      return read_local_file(source, options_.local_path, options_.max_bytes);
    }
    return err(Code::kInvalid, "an image must be a data: or http(s): URL, this begins with '{}'",
               source.substr(0, 20));
  }

  static std::unexpected<Error> name_part(const text::PromptImage& part, const Error& error) {
    // A broken file is the client's mistake, as a wrong field is.
    const Code code = error.code == Code::kCorrupt ? Code::kInvalid : error.code;
    return wrap(Error{code, error.message}, part.where);
  }

  const ImageOptions& options_;
  const engine::VisionInfo& vision_;
  image::DecodePool& pool_;
  image::PrepareOptions prepare_;
  Clock::time_point deadline_;
  int64_t total_bytes_ = 0;
  std::map<std::pair<std::string_view, bool>, Shared> by_source_;
  std::map<image::ContentKey, Shared> by_key_;
};

Result<EncodedPrompt> ImageInput::encode(const text::Prompt& prompt,
                                         const text::Tokenizer& tokenizer) const {
  const std::span<const text::Segment> segments(prompt.segments);
  EncodedPrompt out;
  if (prompt.images.empty()) {
    out.ids = tokenizer.encode(segments);
    return out;
  }
  const text::PromptImage& first = prompt.images.front();
  if (!vision_) {
    return err(Code::kUnsupported, "{}: this model does not accept images; send text only",
               first.where);
  }
  if (static_cast<int64_t>(prompt.images.size()) > options_.max_images) {
    return err(Code::kTooLarge, "the request has {} images; at most {} are allowed",
               prompt.images.size(), options_.max_images);
  }
  Reader reader(*this, prompt.images.size());
  size_t next = 0;  // segment
  const auto append_text = [&](size_t end) {
    const std::vector<int32_t> ids = tokenizer.encode(segments.subspan(next, end - next));
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    next = end;
  };
  for (const text::PromptImage& part : prompt.images) {
    append_text(part.segment);
    ++next;  // the placeholder itself
    CEDRA_ASSIGN(auto picture, reader.read(part));
    const int64_t position = static_cast<int64_t>(out.ids.size());
    const int64_t tokens = picture->plan.span_tokens();
    // Before more of them are decoded.
    if (position + tokens >= context_) {
      return err(Code::kTooLarge,
                 "{}: the prompt has more than {} tokens up to the end of this image of {} tokens, "
                 "and the context length is {}; send fewer or smaller images",
                 part.where, position + tokens - 1, tokens, context_);
    }
    out.ids.resize(out.ids.size() + static_cast<size_t>(tokens), vision_->token_id);
    out.images.push_back({position, std::move(picture)});
  }
  append_text(segments.size());
  return out;
}

}  // namespace cedra::server

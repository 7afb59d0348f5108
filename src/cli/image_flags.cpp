#include "cli/image_flags.h"

#include <filesystem>

#include "base/ascii.h"
#include "text/json_value.h"

namespace cedra::cli {

void add_image_flags(CLI::App& command, ImageFlags& flags, engine::Options& options) {
  command
      .add_option(
          "--image-alpha", flags.alpha,
          "transparency: hosted (on #FDFDFD, as the vendor's API), white, or drop (ignored, "
          "as the checkpoint's own loader)")
      ->check(CLI::IsMember({"hosted", "white", "drop"}))
      ->capture_default_str();
  command.add_flag("--image-exif-transpose", flags.exif_transpose,
                   "turn pictures as their EXIF orientation says");
  command.add_flag("--require-image-filter", flags.require_filter,
                   "decode no images where the kernel refuses the decoding processes their filter "
                   "of system calls (default: a warning)");
  const auto bytes = [&](const char* name, int64_t& value, const char* what) {
    command.add_option(name, value, what)
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  };
  bytes("--image-cache-bytes", options.image_cache_bytes,
        "encoded images kept for later, also 512M (default: 32 of the largest or 1/16 of the "
        "budget)");
  bytes(
      "--image-queue-bytes", options.image_queue_bytes,
      "pixels of requests whose images are not encoded yet (default: two contexts full or 1/16 of "
      "the budget)");
}

void add_media_flags(CLI::App& command, ImageFlags& flags) {
  command.add_option("--limit-mm-per-prompt", flags.limit_per_prompt,
                     "most images of a request, as {\"image\": 16} (default: 600)");
  command
      .add_option("--allowed-media-domains", flags.media_domains,
                  "hosts that image URLs may name, * for any (default: none, data URLs only)")
      ->delimiter(',');
  command.add_option("--allowed-local-media-path", flags.local_media_path,
                     "folder that file:// image URLs may name files in (default: none)");
  command.add_flag("--strict-image-placeholder", flags.strict_placeholder,
                   "refuse text that spells the image placeholder, as the vendor's API does");
}

namespace {

Result<int64_t> limit_of(const std::string& flag) {
  text::JsonReader reader;
  Result<text::JsonValue> value = reader.read(flag);
  const text::JsonValue* count = value && value->is_object() ? value->find("image") : nullptr;
  const std::optional<int64_t> number =
      count != nullptr && count->is_integer() ? count->as_int64() : std::nullopt;
  if (!number || *number < 0) {
    return err(Code::kInvalid, "--limit-mm-per-prompt must look like {{\"image\": 16}}, got {}",
               flag.substr(0, 80));
  }
  return *number;
}

}  // namespace

Result<server::ImageOptions> image_options(const ImageFlags& flags) {
  server::ImageOptions out;
  out.alpha = flags.alpha == "white"  ? image::AlphaRule::kWhite
              : flags.alpha == "drop" ? image::AlphaRule::kDrop
                                      : image::AlphaRule::kHosted;
  out.exif_orientation = flags.exif_transpose;
  out.worker.require_filter = flags.require_filter;
  if (!flags.limit_per_prompt.empty()) {
    CEDRA_ASSIGN(out.max_images, limit_of(flags.limit_per_prompt));
  }
  for (const std::string& given : flags.media_domains) {
    std::string domain = ascii_lower(given);
    if (domain.empty() || domain.find_first_of("/:@ ") != domain.npos) {
      return err(Code::kInvalid,
                 "--allowed-media-domains takes host names like images.example.com, got '{}'",
                 domain);
    }
    out.fetch.domains.push_back(std::move(domain));
  }
  if (!flags.local_media_path.empty()) {
    if (!std::filesystem::is_directory(flags.local_media_path)) {
      return err(Code::kInvalid, "--allowed-local-media-path: '{}' is no folder",
                 flags.local_media_path);
    }
    out.local_path = flags.local_media_path;
  }
  return out;
}

}  // namespace cedra::cli

// Flags about images that serve and chat share, and what they mean to the server's side.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "engine/load.h"
#include "server/image_input.h"

namespace cedra::cli {

struct ImageFlags {
  std::string alpha = "hosted";
  bool exif_transpose = false;
  bool require_filter = false;
  std::string limit_per_prompt;
  std::vector<std::string> media_domains;
  std::string local_media_path;
  bool strict_placeholder = false;
};

// How pictures are read, and the engine's room for them.
void add_image_flags(CLI::App& command, ImageFlags& flags, engine::Options& options);
// Where a server may get them from.
void add_media_flags(CLI::App& command, ImageFlags& flags);

// kInvalid for a flag whose content is wrong.
Result<server::ImageOptions> image_options(const ImageFlags& flags);

}  // namespace cedra::cli

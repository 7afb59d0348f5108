// Golden items of an image file: through preprocessing, vision tower and text model. Internal to
// golden/.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "golden/judge.h"
#include "golden/session.h"

namespace cedra::golden {

// Judges the `imageK.*` items of `name` = "imageK" from folder/imageK.png. Errors: those of reading
// and decoding the file, and of a model without a tower.
Result<> image_items(Judge& judge, Session& session, const Expected& expected,
                     const std::filesystem::path& folder, const std::string& name);

}  // namespace cedra::golden

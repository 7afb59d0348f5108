#include "image/prepared.h"

#include <openssl/evp.h>

#include <memory>
#include <new>

namespace cedra::image {

Result<Prepared> prepare(std::span<const uint8_t> bytes, const PrepareOptions& options) {
  CEDRA_ASSIGN(Picture picture, decode(bytes, options.decode));
  try {
    if (options.shrink_side > 0) picture = shrink_to_side(std::move(picture), options.shrink_side);
    Prepared out;
    out.source_width = picture.width;
    out.source_height = picture.height;
    out.plan = plan_resize(options.rules, picture.width, picture.height);
    out.pixels = fit(picture, out.plan);
    return out;
  } catch (const std::bad_alloc&) {
    return err(Code::kExhausted, "no memory to resize the image");
  }
}

ContentKey content_key(const Prepared& image) {
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  const std::unique_ptr<EVP_MD_CTX, Free> context(EVP_MD_CTX_new());
  constexpr int64_t kVersion = 1;
  const int64_t head[] = {kVersion, image.plan.vit_rows, image.plan.vit_columns};
  ContentKey key{};
  EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  EVP_DigestUpdate(context.get(), head, sizeof head);
  EVP_DigestUpdate(context.get(), image.pixels.rgb.data(), image.pixels.rgb.size());
  EVP_DigestFinal_ex(context.get(), key.data(), nullptr);
  return key;
}

}  // namespace cedra::image

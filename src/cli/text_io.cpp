#include "cli/text_io.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "text/utf8.h"

namespace cedra::cli {

Result<std::string> read_input(const std::string& path) {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> opened;
  std::FILE* file = stdin;
  if (path != "-") {
    opened.reset(std::fopen(path.c_str(), "rb"));
    if (!opened) return err(Code::kIo, "cannot open {}: {}", path, std::strerror(errno));
    file = opened.get();
  }
  std::string out;
  char buffer[1 << 16];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), file)) > 0;) out.append(buffer, n);
  if (std::ferror(file) != 0)
    return err(Code::kIo, "cannot read {}: {}", path, std::strerror(errno));
  return out;
}

Result<> check_utf8(std::string_view what, std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const text::DecodedChar c = text::decode_char(text, at);
    if (!c.valid) {
      return err(Code::kInvalid, "{} is not UTF-8: byte {} is 0x{:02x}", what, at,
                 static_cast<unsigned char>(text[at]));
    }
    at += c.length;
  }
  return {};
}

Result<std::optional<text::Tokenizer>> load_tokenizer(const std::string& path) {
  if (path.empty()) return std::nullopt;
  CEDRA_ASSIGN(auto tokenizer, text::Tokenizer::load(path));
  return std::optional<text::Tokenizer>(std::move(tokenizer));
}

int run_check(const std::string& path, const text::CaseOptions& options) {
  const auto file = read_input(path);
  if (!file) return fail(file.error());
  const auto report = text::check_cases(*file, options);
  if (!report) return fail(report.error());
  for (const auto& difference : report->differences) {
    fmt::print("{}: {}\n", difference.name, difference.text);
  }
  fmt::print("{} of {} cases hold\n", report->run - report->differences.size(), report->run);
  return report->differences.empty() ? 0 : 1;
}

int fail(const Error& error) {
  fmt::print(stderr, "cedra: {}\n", error.message);
  return 2;
}

}  // namespace cedra::cli

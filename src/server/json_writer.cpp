// Escaping: runs of plain bytes are copied at once.
#include "server/json_writer.h"

#include "text/utf8.h"

namespace cedra::server {

JsonWriter& JsonWriter::string(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  separate();
  comma_ = true;
  out_->push_back('"');
  size_t plain = 0;  // start of the run not yet copied
  size_t at = 0;
  const auto copy_run = [&] { out_->append(text.substr(plain, at - plain)); };
  while (at < text.size()) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\') {
      ++at;
      continue;
    }
    if (byte >= 0x80) {
      const text::DecodedChar c = text::decode_char(text, at);
      if (!c.valid) {
        copy_run();
        out_->append("\xef\xbf\xbd");
        plain = at + c.length;
      }
      at += c.length;
      continue;
    }
    copy_run();
    switch (byte) {
      case '"':
        out_->append("\\\"");
        break;
      case '\\':
        out_->append("\\\\");
        break;
      case '\n':
        out_->append("\\n");
        break;
      case '\r':
        out_->append("\\r");
        break;
      case '\t':
        out_->append("\\t");
        break;
      default:
        out_->append("\\u00");
        out_->push_back(kHex[byte >> 4]);
        out_->push_back(kHex[byte & 15]);
    }
    ++at;
    plain = at;
  }
  copy_run();
  out_->push_back('"');
  return *this;
}

JsonWriter& JsonWriter::number(float value) {
  if (!std::isfinite(value)) return raw("-9999.0");
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  const std::string_view text(digits, static_cast<size_t>(end - digits));
  raw(text);
  // JSON has no integers of its own, but readers with types do.
  if (text.find_first_of(".e") == std::string_view::npos) out_->append(".0");
  return *this;
}

}  // namespace cedra::server

// UTF-8 reading and repair (utf8.h).
#include "text/utf8.h"

namespace cedra::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Length of the sequence that a lead byte announces, and the allowed range of its second byte
// (RFC 3629, table of section 4).
struct Lead {
  uint32_t length;
  unsigned char low;
  unsigned char high;
};

Lead lead_of(unsigned char byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

DecodedChar decode_char(std::string_view text, size_t position) {
  const auto byte_at = [&](size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const unsigned char first = byte_at(0);
  if (first < 0x80) return {first, 1, true, false};
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {0xFFFD, 1, false, false};
  const size_t available = text.size() - position;
  char32_t code_point = first & (0x7Fu >> lead.length);
  for (uint32_t i = 1; i < lead.length; ++i) {
    if (i == available) return {0xFFFD, i, false, true};
    const unsigned char byte = byte_at(i);
    const bool allowed =
        i == 1 ? byte >= lead.low && byte <= lead.high : byte >= 0x80 && byte <= 0xBF;
    if (!allowed) return {0xFFFD, i, false, false};
    code_point = code_point << 6 | (byte & 0x3Fu);
  }
  return {code_point, lead.length, true, false};
}

void append_lossy(std::string_view bytes, std::string* out) {
  out->reserve(out->size() + bytes.size());
  size_t good = 0;  // start of the well-formed stretch not yet appended
  for (size_t i = 0; i < bytes.size();) {
    const DecodedChar c = decode_char(bytes, i);
    if (!c.valid) {
      out->append(bytes.substr(good, i - good));
      out->append(kReplacement);
      good = i + c.length;
    }
    i += c.length;
  }
  out->append(bytes.substr(good));
}

size_t incomplete_suffix(std::string_view bytes) {
  for (size_t length = 1; length <= 3 && length <= bytes.size(); ++length) {
    const auto byte = static_cast<unsigned char>(bytes[bytes.size() - length]);
    if ((byte & 0xC0) == 0x80) continue;
    const DecodedChar c = decode_char(bytes, bytes.size() - length);
    return c.truncated && c.length == length ? length : 0;
  }
  return 0;
}

void append_code_point(char32_t code_point, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace cedra::text

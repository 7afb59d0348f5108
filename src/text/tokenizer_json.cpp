// Reading and checking tokenizer.json (simdjson DOM: the file is small and parsed once).
#include "text/tokenizer_json.h"

#include <simdjson.h>

#include <array>
#include <optional>
#include <unordered_map>

#include "text/tokenizer_split.h"
#include "text/utf8.h"

namespace cedra::text {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::element_type;
using simdjson::dom::object;

constexpr size_t kMaxDepth = 16;  // the official file nests 6 deep

struct ByteAlphabet {
  std::array<int16_t, 0x144> byte_of{};
  std::array<char16_t, 256> char_of{};

  constexpr ByteAlphabet() {
    byte_of.fill(-1);
    char16_t hidden = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                             (byte >= 0xAE && byte <= 0xFF);
      const char16_t spelled = printable ? static_cast<char16_t>(byte) : hidden++;
      byte_of[spelled] = static_cast<int16_t>(byte);
      char_of[static_cast<size_t>(byte)] = spelled;
    }
  }
};
constexpr ByteAlphabet kAlphabet;

// What a value is, for messages: short values as they stand, others by kind.
std::string shown(const element& value) {
  switch (value.type()) {
    case element_type::ARRAY:
      return "a list";
    case element_type::OBJECT:
      return "an object";
    default: {
      std::string text = simdjson::minify(value);
      if (text.size() > 80) text = text.substr(0, 77) + "...";
      return text;
    }
  }
}

std::optional<element> member(const object& parent, std::string_view key) {
  element value;
  if (parent.at_key(key).get(value) != simdjson::SUCCESS) return std::nullopt;
  return value;
}

Result<object> object_at(const object& parent, std::string_view key, std::string_view where) {
  const auto value = member(parent, key);
  if (!value) return err(Code::kCorrupt, "{}.{} is missing, expected an object", where, key);
  object result;
  if (value->get(result) != simdjson::SUCCESS) {
    return err(Code::kCorrupt, "{}.{} must be an object, found {}", where, key, shown(*value));
  }
  return result;
}

Result<array> array_at(const object& parent, std::string_view key, std::string_view where) {
  const auto value = member(parent, key);
  if (!value) return err(Code::kCorrupt, "{}.{} is missing, expected a list", where, key);
  array result;
  if (value->get(result) != simdjson::SUCCESS) {
    return err(Code::kCorrupt, "{}.{} must be a list, found {}", where, key, shown(*value));
  }
  return result;
}

// The value must be the given string.
Result<> expect_string(const object& parent, std::string_view key, std::string_view expected,
                       std::string_view where) {
  const auto value = member(parent, key);
  std::string_view found;
  if (value && value->get(found) == simdjson::SUCCESS && found == expected) return {};
  return err(Code::kUnsupported, "{}.{} must be \"{}\", found {}", where, key, expected,
             value ? shown(*value) : "nothing");
}

// The value must be the given flag; a missing key counts as `missing`.
Result<> expect_bool(const object& parent, std::string_view key, bool expected, bool missing,
                     std::string_view where) {
  const auto value = member(parent, key);
  if (!value && missing == expected) return {};
  bool found = !expected;
  if (value && value->get(found) == simdjson::SUCCESS && found == expected) return {};
  return err(Code::kUnsupported, "{}.{} must be {}, found {}", where, key, expected,
             value ? shown(*value) : "nothing");
}

// The value must be absent, null, or (for strings) empty.
Result<> expect_none(const object& parent, std::string_view key, std::string_view where) {
  const auto value = member(parent, key);
  if (!value || value->is_null()) return {};
  std::string_view text;
  if (value->get(text) == simdjson::SUCCESS && text.empty()) return {};
  return err(Code::kUnsupported, "{}.{} must be null, found {}", where, key, shown(*value));
}

Result<> check_normalizer(const object& root) {
  const auto value = member(root, "normalizer");
  if (!value || value->is_null()) return {};
  object normalizer;
  if (value->get(normalizer) != simdjson::SUCCESS) {
    return err(Code::kCorrupt, "normalizer must be null or an object, found {}", shown(*value));
  }
  CEDRA_TRY(expect_string(normalizer, "type", "Sequence", "normalizer"));
  CEDRA_ASSIGN(const array steps, array_at(normalizer, "normalizers", "normalizer"));
  if (steps.size() != 0) {
    return err(Code::kUnsupported, "normalizer must be empty, found a sequence of {}",
               steps.size());
  }
  return {};
}

Result<> check_split(const element& value, std::string_view pattern, const std::string& where) {
  object split;
  if (value.get(split) != simdjson::SUCCESS) {
    return err(Code::kCorrupt, "{} must be an object, found {}", where, shown(value));
  }
  CEDRA_TRY(expect_string(split, "type", "Split", where));
  CEDRA_ASSIGN(const object found, object_at(split, "pattern", where));
  CEDRA_TRY(expect_string(found, "Regex", pattern, where + ".pattern"));
  CEDRA_TRY(expect_string(split, "behavior", "Isolated", where));
  return expect_bool(split, "invert", false, false, where);
}

Result<> check_pre_tokenizer(const object& root) {
  CEDRA_ASSIGN(const object sequence, object_at(root, "pre_tokenizer", "tokenizer"));
  CEDRA_TRY(expect_string(sequence, "type", "Sequence", "pre_tokenizer"));
  CEDRA_ASSIGN(const array steps, array_at(sequence, "pretokenizers", "pre_tokenizer"));
  constexpr std::array kPatterns = {kSplitNumbers, kSplitHanKana, kSplitWords};
  if (steps.size() != kPatterns.size() + 1) {
    return err(Code::kUnsupported,
               "pre_tokenizer.pretokenizers must be three splits and ByteLevel, found {} steps",
               steps.size());
  }
  size_t number = 0;
  for (const element step : steps) {
    const std::string where = fmt::format("pre_tokenizer.pretokenizers[{}]", number);
    if (number < kPatterns.size()) {
      CEDRA_TRY(check_split(step, kPatterns[number], where));
    } else {
      object bytes;
      if (step.get(bytes) != simdjson::SUCCESS) {
        return err(Code::kCorrupt, "{} must be an object, found {}", where, shown(step));
      }
      CEDRA_TRY(expect_string(bytes, "type", "ByteLevel", where));
      CEDRA_TRY(expect_bool(bytes, "add_prefix_space", false, true, where));
      CEDRA_TRY(expect_bool(bytes, "use_regex", false, true, where));
    }
    ++number;
  }
  return {};
}

Result<> check_decoder_and_processor(const object& root) {
  CEDRA_ASSIGN(const object decoder, object_at(root, "decoder", "tokenizer"));
  CEDRA_TRY(expect_string(decoder, "type", "ByteLevel", "decoder"));
  const auto processor = member(root, "post_processor");
  if (processor && !processor->is_null()) {
    CEDRA_ASSIGN(const object found, object_at(root, "post_processor", "tokenizer"));
    CEDRA_TRY(expect_string(found, "type", "ByteLevel", "post_processor"));
  }
  CEDRA_TRY(expect_none(root, "truncation", "tokenizer"));
  return expect_none(root, "padding", "tokenizer");
}

Result<int32_t> checked_id(const element& value, std::string_view where) {
  int64_t id = 0;
  if (value.get(id) != simdjson::SUCCESS || id < 0 || id >= kMaxTokenIds) {
    return err(Code::kCorrupt, "{}: the id must be an integer from 0 to {}, found {}", where,
               kMaxTokenIds - 1, shown(value));
  }
  return static_cast<int32_t>(id);
}

using IdOf = std::unordered_map<std::string_view, int32_t>;

// Keys of `ids` point into the parsed document.
Result<> read_vocab(const object& model, TokenizerFile* file, IdOf* ids) {
  CEDRA_ASSIGN(const object vocab, object_at(model, "vocab", "model"));
  for (const auto& [key, value] : vocab) {
    const std::string where = fmt::format("model.vocab[\"{}\"]", key.substr(0, 64));
    if (key.empty() || key.size() > kMaxTokenBytes) {
      return err(Code::kCorrupt, "{}: a token has 1 to {} bytes, found {}", where, kMaxTokenBytes,
                 key.size());
    }
    CEDRA_ASSIGN(const int32_t id, checked_id(value, where));
    const auto index = static_cast<size_t>(id);
    if (index >= file->vocab.size()) file->vocab.resize(index + 1);
    if (!file->vocab[index].empty()) {
      return err(Code::kCorrupt, "{}: id {} already belongs to \"{}\"", where, id,
                 file->vocab[index]);
    }
    if (!ids->emplace(key, id).second) return err(Code::kCorrupt, "{} stands twice", where);
    file->vocab[index] = key;
  }
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    append_code_point(alphabet_of_byte(static_cast<unsigned char>(byte)), &spelled);
    if (!ids->contains(spelled)) {
      return err(Code::kCorrupt, "model.vocab lacks byte 0x{:02X}, expected a token \"{}\"", byte,
                 spelled);
    }
  }
  return {};
}

Result<> read_merges(const object& model, const IdOf& ids, TokenizerFile* file) {
  CEDRA_ASSIGN(const array merges, array_at(model, "merges", "model"));
  const auto id_of = [&](std::string_view token, size_t number) -> Result<int32_t> {
    if (const auto found = ids.find(token); found != ids.end()) return found->second;
    return err(Code::kCorrupt, "model.merges[{}] needs the token \"{}\", which model.vocab lacks",
               number, token.substr(0, 256));
  };
  std::string joined;
  size_t number = 0;
  for (const element merge : merges) {
    std::string_view left, right, text;
    array pair;
    if (merge.get(text) == simdjson::SUCCESS) {
      const size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        return err(Code::kCorrupt, "model.merges[{}] must be \"left right\", found {}", number,
                   shown(merge));
      }
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (merge.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
               pair.at(0).get(left) != simdjson::SUCCESS ||
               pair.at(1).get(right) != simdjson::SUCCESS) {
      return err(Code::kCorrupt,
                 "model.merges[{}] must be \"left right\" or a list of two tokens, found {}",
                 number, shown(merge));
    }
    TokenizerFile::Merge entry;
    CEDRA_ASSIGN(entry.left, id_of(left, number));
    CEDRA_ASSIGN(entry.right, id_of(right, number));
    joined.assign(left).append(right);
    CEDRA_ASSIGN(entry.result, id_of(joined, number));
    file->merges.push_back(entry);
    ++number;
  }
  return {};
}

Result<AddedTokenEntry> read_added_token(const element& value, const std::string& where) {
  object token;
  if (value.get(token) != simdjson::SUCCESS) {
    return err(Code::kCorrupt, "{} must be an object, found {}", where, shown(value));
  }
  const auto id = member(token, "id");
  if (!id) return err(Code::kCorrupt, "{}.id is missing", where);
  AddedTokenEntry entry;
  CEDRA_ASSIGN(entry.id, checked_id(*id, where));
  const auto content = member(token, "content");
  std::string_view text;
  if (!content || content->get(text) != simdjson::SUCCESS || text.empty() ||
      text.size() > kMaxTokenBytes) {
    return err(Code::kCorrupt, "{}.content must be a string of 1 to {} bytes, found {}", where,
               kMaxTokenBytes, content ? shown(*content) : "nothing");
  }
  entry.content = text;
  for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
    CEDRA_TRY(expect_bool(token, flag, false, false, where));
  }
  const auto read_flag = [&](const char* key, bool missing, bool* flag) -> Result<> {
    *flag = missing;
    const auto found = member(token, key);
    if (!found || found->get(*flag) == simdjson::SUCCESS) return {};
    return err(Code::kCorrupt, "{}.{} must be true or false, found {}", where, key, shown(*found));
  };
  CEDRA_TRY(read_flag("special", false, &entry.special));
  CEDRA_TRY(read_flag("normalized", !entry.special, &entry.normalized));
  return entry;
}

Result<> read_added_tokens(const object& root, const IdOf& ids, TokenizerFile* file) {
  CEDRA_ASSIGN(const array tokens, array_at(root, "added_tokens", "tokenizer"));
  std::unordered_map<int32_t, std::string> content_of;
  std::unordered_map<std::string, int32_t> id_of;
  for (const element value : tokens) {
    const std::string where = fmt::format("added_tokens[{}]", file->added.size());
    CEDRA_ASSIGN(AddedTokenEntry entry, read_added_token(value, where));
    if (const auto [other, fresh] = content_of.emplace(entry.id, entry.content); !fresh) {
      return err(Code::kCorrupt, "{}: id {} already belongs to \"{}\"", where, entry.id,
                 other->second);
    }
    if (!id_of.emplace(entry.content, entry.id).second) {
      return err(Code::kCorrupt, "{}: \"{}\" stands twice", where, entry.content);
    }
    const auto index = static_cast<size_t>(entry.id);
    const auto in_vocab = ids.find(entry.content);
    const bool taken = index < file->vocab.size() && !file->vocab[index].empty();
    if ((in_vocab != ids.end() && in_vocab->second != entry.id) ||
        (taken && file->vocab[index] != entry.content)) {
      return err(Code::kCorrupt, "{}: \"{}\" with id {} contradicts model.vocab", where,
                 entry.content, entry.id);
    }
    file->added.push_back(std::move(entry));
  }
  return {};
}

Result<object> check_model(const object& root) {
  CEDRA_ASSIGN(object model, object_at(root, "model", "tokenizer"));
  CEDRA_TRY(expect_string(model, "type", "BPE", "model"));
  for (const char* key :
       {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    CEDRA_TRY(expect_none(model, key, "model"));
  }
  CEDRA_TRY(expect_bool(model, "byte_fallback", false, false, "model"));
  CEDRA_TRY(expect_bool(model, "ignore_merges", false, false, "model"));
  return model;
}

}  // namespace

int byte_of_alphabet(char32_t code_point) {
  return code_point < kAlphabet.byte_of.size() ? kAlphabet.byte_of[code_point] : -1;
}

char32_t alphabet_of_byte(unsigned char byte) { return kAlphabet.char_of[byte]; }

Result<TokenizerFile> parse_tokenizer_file(std::string_view json) {
  if (json.size() > kMaxTokenizerBytes) {
    return err(Code::kTooLarge, "the file has {} bytes, at most {} are accepted", json.size(),
               kMaxTokenizerBytes);
  }
  simdjson::dom::parser parser(kMaxTokenizerBytes);
  if (const auto error = parser.allocate(json.size(), kMaxDepth); error != simdjson::SUCCESS) {
    return err(Code::kExhausted, "no memory to parse {} bytes: {}", json.size(),
               simdjson::error_message(error));
  }
  element document;
  if (const auto error = parser.parse(json.data(), json.size()).get(document);
      error != simdjson::SUCCESS) {
    return err(Code::kCorrupt, "not valid JSON: {}", simdjson::error_message(error));
  }
  object root;
  if (document.get(root) != simdjson::SUCCESS) {
    return err(Code::kCorrupt, "the file must hold an object, found {}", shown(document));
  }
  CEDRA_TRY(check_normalizer(root));
  CEDRA_TRY(check_pre_tokenizer(root));
  CEDRA_TRY(check_decoder_and_processor(root));
  CEDRA_ASSIGN(const object model, check_model(root));
  TokenizerFile file;
  IdOf ids;
  CEDRA_TRY(read_vocab(model, &file, &ids));
  CEDRA_TRY(read_merges(model, ids, &file));
  CEDRA_TRY(read_added_tokens(root, ids, &file));
  return file;
}

}  // namespace cedra::text

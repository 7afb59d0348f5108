// Tokenizer: joins the file's description, the added-token matcher, the splits and the merges.
#include "text/tokenizer.h"

#include <unordered_map>

#include "base/mapped_file.h"
#include "text/bpe.h"
#include "text/tokenizer_added.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_split.h"
#include "text/utf8.h"

namespace cedra::text {
namespace {

// The bytes that a token stands for: through the byte alphabet if every character belongs to it,
// else the spelling itself (added tokens with other characters).
std::string bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  for (size_t i = 0; i < spelling.size();) {
    const DecodedChar c = decode_char(spelling, i);
    const int byte = c.valid ? byte_of_alphabet(c.code_point) : -1;
    if (byte < 0) return std::string(spelling);
    bytes.push_back(static_cast<char>(byte));
    i += c.length;
  }
  return bytes;
}

// Strings by id in one allocation.
class StringTable {
 public:
  void add(std::string_view text) {
    blob_.append(text);
    ends_.push_back(blob_.size());
  }
  std::string_view operator[](size_t id) const {
    const size_t begin = id == 0 ? 0 : ends_[id - 1];
    return std::string_view(blob_).substr(begin, ends_[id] - begin);
  }
  size_t size() const { return ends_.size(); }

 private:
  std::string blob_;
  std::vector<size_t> ends_;
};

}  // namespace

struct Tokenizer::Impl {
  StringTable spellings;
  StringTable bytes;
  std::vector<bool> special;  // by id
  std::vector<AddedToken> added;
  std::unordered_map<std::string_view, int32_t> added_ids;  // keys point into `added`
  AddedTokenMatcher matcher;
  Bpe bpe;

  bool known(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < bytes.size(); }

  // Appends the tokens of [begin, end) of `text`, in which no added token is looked for.
  void encode_stretch(std::string_view stretch, BpeScratch* scratch,
                      std::vector<int32_t>* out) const {
    for (size_t begin = 0; begin < stretch.size();) {
      const size_t end = piece_end(stretch, begin);
      bpe.encode(stretch.substr(begin, end - begin), scratch, out);
      begin = end;
    }
  }

  std::vector<int32_t> encode(std::string_view text, std::span<const AddedMatch> matches) const {
    std::vector<int32_t> ids;
    ids.reserve(text.size() / 4 + 1);
    BpeScratch scratch;
    size_t begin = 0;
    for (const AddedMatch& match : matches) {
      encode_stretch(text.substr(begin, match.begin - begin), &scratch, &ids);
      ids.push_back(match.id);
      begin = match.end;
    }
    encode_stretch(text.substr(begin), &scratch, &ids);
    return ids;
  }
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json) {
  CEDRA_ASSIGN(TokenizerFile file, parse_tokenizer_file(tokenizer_json));
  auto impl = std::make_unique<Impl>();

  std::vector<std::string> spellings = std::move(file.vocab);
  const size_t vocab_size = spellings.size();
  for (const AddedTokenEntry& token : file.added) {
    const auto id = static_cast<size_t>(token.id);
    if (id >= spellings.size()) spellings.resize(id + 1);
    spellings[id] = token.content;
  }
  impl->special.resize(spellings.size());
  for (const std::string& spelling : spellings) {
    impl->spellings.add(spelling);
    impl->bytes.add(bytes_of_spelling(spelling));
  }

  std::array<int32_t, 256> byte_ids;
  byte_ids.fill(-1);
  for (size_t id = 0; id < vocab_size; ++id) {
    const DecodedChar c = spellings[id].empty() ? DecodedChar{} : decode_char(spellings[id], 0);
    if (!c.valid || c.length != spellings[id].size()) continue;
    const int byte = byte_of_alphabet(c.code_point);
    if (byte >= 0) byte_ids[static_cast<size_t>(byte)] = static_cast<int32_t>(id);
  }
  std::vector<Bpe::Merge> merges;
  merges.reserve(file.merges.size());
  for (const auto& merge : file.merges) merges.push_back({merge.left, merge.right, merge.result});
  CEDRA_ASSIGN(impl->bpe, Bpe::build(byte_ids, merges));
  BpeScratch scratch;
  for (size_t id = 0; id < vocab_size; ++id) {
    impl->bpe.add_whole_piece(impl->bytes[id], static_cast<int32_t>(id), &scratch);
  }

  impl->matcher = AddedTokenMatcher(file.added);
  impl->added.reserve(file.added.size());
  for (AddedTokenEntry& token : file.added) {
    impl->special[static_cast<size_t>(token.id)] = token.special;
    impl->added.push_back({token.id, std::move(token.content), token.special});
  }
  for (const AddedToken& token : impl->added) impl->added_ids.emplace(token.content, token.id);
  return Tokenizer(std::move(impl));
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& file_or_folder) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(file_or_folder, ignored);
  const auto path = folder ? file_or_folder / "tokenizer.json" : file_or_folder;
  CEDRA_ASSIGN(const std::string text, read_file(path, static_cast<int64_t>(kMaxTokenizerBytes)));
  auto tokenizer = parse(text);
  if (!tokenizer) return wrap(tokenizer.error(), path.string());
  return tokenizer;
}

int64_t Tokenizer::size() const { return static_cast<int64_t>(impl_->bytes.size()); }

std::span<const AddedToken> Tokenizer::added_tokens() const { return impl_->added; }

std::optional<int32_t> Tokenizer::added_id(std::string_view content) const {
  const auto found = impl_->added_ids.find(content);
  if (found == impl_->added_ids.end()) return std::nullopt;
  return found->second;
}

bool Tokenizer::is_special(int32_t id) const {
  return impl_->known(id) && impl_->special[static_cast<size_t>(id)];
}

std::string_view Tokenizer::token_string(int32_t id) const {
  return impl_->known(id) ? impl_->spellings[static_cast<size_t>(id)] : std::string_view();
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  return impl_->known(id) ? impl_->bytes[static_cast<size_t>(id)] : std::string_view();
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<AddedMatch> matches;
  impl_->matcher.find(text, 0, text.size(), &matches);
  return impl_->encode(text, matches);
}

std::vector<int32_t> Tokenizer::encode_plain(std::string_view text) const {
  return impl_->encode(text, {});
}

std::vector<int32_t> Tokenizer::encode(std::span<const Segment> segments) const {
  std::string joined;
  std::vector<AddedMatch> matches;
  size_t trusted_begin = 0;  // start of the trusted stretch that the text read so far ends with
  const auto close_trusted = [&] {
    impl_->matcher.find(joined, trusted_begin, joined.size(), &matches);
  };
  for (const Segment& segment : segments) {
    if (!segment.trusted) close_trusted();
    joined += segment.text;
    if (!segment.trusted) trusted_begin = joined.size();
  }
  close_trusted();
  return impl_->encode(joined, matches);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (!(skip_special && is_special(id))) bytes += token_bytes(id);
  }
  std::string text;
  append_lossy(bytes, &text);
  return text;
}

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special) {}

std::string IncrementalDecoder::push(int32_t id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  pending_ += tokenizer_->token_bytes(id);
  const size_t complete = pending_.size() - incomplete_suffix(pending_);
  std::string text;
  append_lossy(std::string_view(pending_).substr(0, complete), &text);
  pending_.erase(0, complete);
  return text;
}

std::string IncrementalDecoder::finish() {
  std::string text;
  append_lossy(pending_, &text);
  pending_.clear();
  return text;
}

}  // namespace cedra::text

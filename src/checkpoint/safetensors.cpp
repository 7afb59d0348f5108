#include "checkpoint/safetensors.h"

#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <unordered_set>

#include "base/checked.h"

namespace cedra {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

constexpr size_t kMaxDepth = 8;
constexpr size_t kMaxRank = 8;
constexpr size_t kMaxNameBytes = 512;

// Copies: value_unsafe() refers into the result object, which dies before a range-for ends.
simdjson::dom::array array_of(element value) { return value.get_array().value_unsafe(); }
simdjson::dom::object object_of(element value) { return value.get_object().value_unsafe(); }
std::string_view text_of(element value) { return value.get_string().value_unsafe(); }

class HeaderParser {
 public:
  HeaderParser(std::span<const uint8_t> file, std::string_view file_name)
      : file_(file), file_name_(file_name) {}

  Result<SafetensorsHeader> parse() {
    CEDRA_ASSIGN(const std::string_view json, header_text());
    simdjson::dom::parser parser;
    if (parser.allocate(std::max<size_t>(json.size(), 64), kMaxDepth) != simdjson::SUCCESS) {
      return err(Code::kExhausted, "{}: no memory to parse a header of {} bytes", file_name_,
                 json.size());
    }
    const simdjson::padded_string padded(json);
    element root;
    if (const auto error = parser.parse(padded).get(root)) {
      return corrupt("header is not JSON of at most {} levels: {}", kMaxDepth,
                     simdjson::error_message(error));
    }
    if (root.type() != element_type::OBJECT) return corrupt("header is not a JSON object");
    std::unordered_set<std::string_view> names;
    for (const auto field : object_of(root)) {
      if (!names.insert(field.key).second) {
        return corrupt("\"{}\" stands twice in the header", shown(field.key));
      }
      if (field.key == "__metadata__") {
        CEDRA_TRY(check_metadata(field.value));
      } else {
        CEDRA_TRY(add_tensor(field.key, field.value));
      }
    }
    CEDRA_TRY(check_cover());
    return std::move(header_);
  }

 private:
  template <class... Args>
  std::unexpected<Error> corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return err(Code::kCorrupt, "{}: {}", file_name_,
               fmt::format(format, std::forward<Args>(args)...));
  }

  static std::string shown(std::string_view name) {
    return name.size() <= kMaxNameBytes ? std::string(name)
                                        : std::string(name.substr(0, 64)) + "...";
  }

  Result<std::string_view> header_text() {
    if (file_.size() < 8) {
      return corrupt("{} bytes, a safetensors file has at least 8", file_.size());
    }
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | file_[static_cast<size_t>(i)];
    if (length > kMaxSafetensorsHeader) {
      return corrupt("header length is {}, at most {} are allowed", length, kMaxSafetensorsHeader);
    }
    if (length > file_.size() - 8) {
      return corrupt("header length is {}, only {} bytes follow: the file is truncated", length,
                     file_.size() - 8);
    }
    header_.data_begin = 8 + length;
    const std::string_view json(reinterpret_cast<const char*>(file_.data()) + 8, length);
    if (!json.starts_with('{')) return corrupt("header does not start with {{");
    return json;
  }

  Result<> check_metadata(element value) {
    if (value.type() != element_type::OBJECT) return corrupt("__metadata__ is not an object");
    for (const auto field : object_of(value)) {
      if (field.value.type() != element_type::STRING) {
        return corrupt("__metadata__.{} is not a string", shown(field.key));
      }
    }
    return {};
  }

  // An array of non-negative 64-bit integers.
  Result<std::vector<int64_t>> integers(std::string_view name, std::string_view key, element value,
                                        size_t max_count) {
    if (value.type() != element_type::ARRAY) return corrupt("{}: {} is not a list", name, key);
    std::vector<int64_t> numbers;
    for (const element item : array_of(value)) {
      if (numbers.size() == max_count) {
        return corrupt("{}: {} has more than {} entries", name, key, max_count);
      }
      if (item.type() != element_type::INT64 || int64_t{item.get_int64().value_unsafe()} < 0) {
        return corrupt("{}: {} has {}, must be an integer from 0 to 2^63-1", name, key,
                       simdjson::minify(item).substr(0, 64));
      }
      numbers.push_back(item.get_int64().value_unsafe());
    }
    return numbers;
  }

  Result<> add_tensor(std::string_view name, element value) {
    if (name.empty() || name.size() > kMaxNameBytes) {
      return corrupt("a tensor name has {} bytes, must have 1 to {}", name.size(), kMaxNameBytes);
    }
    if (value.type() != element_type::OBJECT) return corrupt("{}: entry is not an object", name);
    StoredTensor tensor;
    tensor.name = name;
    std::vector<int64_t> offsets;
    bool has_dtype = false, has_shape = false, has_offsets = false;
    for (const auto field : object_of(value)) {
      bool* seen = field.key == "dtype"          ? &has_dtype
                   : field.key == "shape"        ? &has_shape
                   : field.key == "data_offsets" ? &has_offsets
                                                 : nullptr;
      if (seen == nullptr) return corrupt("{}: unknown key \"{}\"", name, shown(field.key));
      if (*seen) return corrupt("{}: {} stands twice", name, field.key);
      *seen = true;
      if (seen == &has_dtype) {
        if (field.value.type() != element_type::STRING) {
          return corrupt("{}: dtype is not a string", name);
        }
        const auto dtype = dtype_from_name(text_of(field.value));
        if (!dtype) {
          return corrupt("{}: dtype \"{}\" is unknown", name, shown(text_of(field.value)));
        }
        tensor.dtype = *dtype;
      } else if (seen == &has_shape) {
        CEDRA_ASSIGN(tensor.shape, integers(name, "shape", field.value, kMaxRank));
      } else {
        CEDRA_ASSIGN(offsets, integers(name, "data_offsets", field.value, 2));
      }
    }
    if (!has_dtype || !has_shape || !has_offsets) {
      return corrupt("{}: {} is missing", name,
                     !has_dtype   ? "dtype"
                     : !has_shape ? "shape"
                                  : "data_offsets");
    }
    if (offsets.size() != 2) return corrupt("{}: data_offsets has not two entries", name);
    CEDRA_TRY(place(tensor, static_cast<uint64_t>(offsets[0]), static_cast<uint64_t>(offsets[1])));
    header_.tensors.push_back(std::move(tensor));
    return {};
  }

  // Offsets relative to the data section -> checked absolute range.
  Result<> place(StoredTensor& tensor, uint64_t begin, uint64_t end) {
    if (begin > end) {
      return corrupt("{}: data_offsets [{}, {}] go backwards", tensor.name, begin, end);
    }
    const auto elements = checked_product(tensor.shape);
    const auto bytes = elements ? checked_mul(static_cast<uint64_t>(*elements),
                                              static_cast<uint64_t>(dtype_bytes(tensor.dtype)))
                                : std::nullopt;
    if (!bytes) {
      return corrupt("{}: shape {} does not fit 64 bits", tensor.name, tensor.shape);
    }
    if (*bytes != end - begin) {
      return corrupt("{}: {} {} needs {} bytes, data_offsets [{}, {}] hold {}", tensor.name,
                     dtype_name(tensor.dtype), tensor.shape, *bytes, begin, end, end - begin);
    }
    // Both are below 2^63 and data_begin below 2^27: no overflow.
    tensor.begin = header_.data_begin + begin;
    tensor.end = header_.data_begin + end;
    return {};
  }

  // No hole, no overlap, and the last tensor ends where the file ends.
  Result<> check_cover() {
    std::ranges::sort(header_.tensors, [](const StoredTensor& a, const StoredTensor& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    uint64_t at = header_.data_begin;
    for (const StoredTensor& tensor : header_.tensors) {
      if (tensor.begin != at) {
        return corrupt(
            "{}: data starts at byte {} of the data section, the tensor before it ends at "
            "{}: {}",
            tensor.name, tensor.begin - header_.data_begin, at - header_.data_begin,
            tensor.begin < at ? "they overlap" : "there is a hole");
      }
      at = tensor.end;
    }
    if (at != file_.size()) {
      return corrupt("file has {} bytes, its tensors end at {}: it is {}", file_.size(), at,
                     file_.size() < at ? "truncated" : "longer than its header says");
    }
    return {};
  }

  std::span<const uint8_t> file_;
  std::string_view file_name_;
  SafetensorsHeader header_;
};

}  // namespace

Result<SafetensorsHeader> parse_safetensors(std::span<const uint8_t> file,
                                            std::string_view file_name) {
  return HeaderParser(file, file_name).parse();
}

}  // namespace cedra

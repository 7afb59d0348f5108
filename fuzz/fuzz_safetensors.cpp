// A whole safetensors file. Whatever the bytes: no crash, and every tensor that comes out lies
// inside the file, in order, without holes.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto header = cedra::parse_safetensors({data, size}, "fuzz.safetensors");
  if (!header) return 0;
  uint64_t at = header->data_begin;
  for (const cedra::StoredTensor& tensor : header->tensors) {
    if (tensor.begin != at || tensor.end < tensor.begin || tensor.end > size) std::abort();
    uint64_t bytes = static_cast<uint64_t>(cedra::dtype_bytes(tensor.dtype));
    for (const int64_t dim : tensor.shape) bytes *= static_cast<uint64_t>(dim);
    if (bytes != tensor.end - tensor.begin) std::abort();
    at = tensor.end;
  }
  if (at != size) std::abort();
  return 0;
}

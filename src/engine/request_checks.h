// Rules that every engine applies to a request before it queues it, and the translation of its
// sampling wishes for decode/.
#pragma once

#include <span>

#include "base/result.h"
#include "decode/sampler.h"
#include "engine/engine.h"

namespace cedra::engine {

// Checks ranges and ids. Errors are kInvalid (naming the parameter) or kTooLarge (prompt and output
// do not fit the context).
Result<> check_request(const Request& request, const Info& info);

// `end_ids`: the model's end of an answer. `seed` is used where the request has none.
decode::SamplerParams sampler_params(const SamplingParams& params, std::span<const int32_t> end_ids,
                                     uint64_t seed);

}  // namespace cedra::engine

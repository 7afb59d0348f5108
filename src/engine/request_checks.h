// Rules that every engine applies to a request before it queues it, and the translation of its
// sampling wishes for decode/.
#pragma once

#include "base/result.h"
#include "decode/sampler.h"
#include "engine/engine.h"

namespace cedra::engine {

// Checks ranges and ids. Errors are kInvalid (naming the parameter) or kTooLarge (prompt and output
// do not fit the context).
Result<> check_request(const Request& request, const Info& info);

// `seed` is used where the request has none.
decode::SamplerParams sampler_params(const SamplingParams& params, int32_t eos_token_id,
                                     uint64_t seed);

}  // namespace cedra::engine

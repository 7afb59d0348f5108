// The text exposition format, version 0.0.4.
#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace cedra::server {
namespace {

std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out.push_back('\\');
    if (c == '\n') {
      out += "\\n";
    } else {
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace

Histogram::Histogram(std::initializer_list<double> bounds) : count_(bounds.size()) {
  std::copy_n(bounds.begin(), std::min(count_, kMaxBounds), bounds_.begin());
}

void Histogram::observe(double value) {
  const auto end = bounds_.begin() + static_cast<ptrdiff_t>(count_);
  const auto bucket = std::lower_bound(bounds_.begin(), end, value) - bounds_.begin();
  buckets_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  billionths_.fetch_add(static_cast<uint64_t>(std::max(value, 0.0) * 1e9),
                        std::memory_order_relaxed);
}

void Histogram::write(std::string& out, std::string_view name, std::string_view help,
                      std::string_view labels) const {
  auto to = std::back_inserter(out);
  fmt::format_to(to, "# HELP {} {}\n# TYPE {} histogram\n", name, help, name);
  uint64_t total = 0;
  for (size_t i = 0; i < count_; ++i) {
    total += buckets_[i].load(std::memory_order_relaxed);
    fmt::format_to(to, "{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bounds_[i], total);
  }
  total += buckets_[count_].load(std::memory_order_relaxed);
  fmt::format_to(to, "{}_bucket{{{},le=\"+Inf\"}} {}\n", name, labels, total);
  const double sum = static_cast<double>(billionths_.load(std::memory_order_relaxed)) * 1e-9;
  fmt::format_to(to, "{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels, sum, name, labels,
                 total);
}

std::string prometheus_text(const Metrics& metrics, const engine::Stats& stats,
                            std::string_view model) {
  std::string out;
  auto to = std::back_inserter(out);
  const std::string labels = fmt::format("model_name=\"{}\"", label_value(model));
  const auto value = [&](const char* name, const char* type, const char* help, auto number) {
    fmt::format_to(to, "# HELP {} {}\n# TYPE {} {}\n{}{{{}}} {}\n", name, help, name, type, name,
                   labels, number);
  };
  value("vllm:num_requests_running", "gauge", "Requests in the running batch.", stats.running);
  value("vllm:num_requests_waiting", "gauge", "Requests in the queue.", stats.waiting);
  value("vllm:kv_cache_usage_perc", "gauge", "Share of cache blocks in use, 0 to 1.",
        stats.cache_blocks_total > 0 ? static_cast<double>(stats.cache_blocks_used) /
                                           static_cast<double>(stats.cache_blocks_total)
                                     : 0.0);
  value("vllm:prompt_tokens_total", "counter", "Prompt tokens processed.", stats.prompt_tokens);
  value("vllm:generation_tokens_total", "counter", "Tokens generated.", stats.generated_tokens);
  value("vllm:prefix_cache_queries_total", "counter",
        "Prompt tokens looked up in the prefix cache.", stats.prefix_queries);
  value("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.",
        stats.cached_prompt_tokens);
  fmt::format_to(to,
                 "# HELP vllm:request_success_total Finished requests by reason.\n"
                 "# TYPE vllm:request_success_total counter\n");
  const auto reason = [&](const char* name, const std::atomic<uint64_t>& count) {
    fmt::format_to(to, "vllm:request_success_total{{{},finished_reason=\"{}\"}} {}\n", labels, name,
                   count.load(std::memory_order_relaxed));
  };
  reason("stop", metrics.finished_stop);
  reason("length", metrics.finished_length);
  reason("abort", metrics.finished_aborted);
  reason("error", metrics.finished_error);
  metrics.time_to_first_token.write(out, "vllm:time_to_first_token_seconds",
                                    "From request to first token.", labels);
  metrics.inter_token.write(out, "vllm:inter_token_latency_seconds", "Between tokens of a choice.",
                            labels);
  metrics.end_to_end.write(out, "vllm:e2e_request_latency_seconds", "From request to its end.",
                           labels);
  metrics.queue.write(out, "vllm:request_queue_time_seconds", "Until the prompt's first rows ran.",
                      labels);
  metrics.prefill.write(out, "vllm:request_prefill_time_seconds",
                        "From the prompt's first rows to the first token.", labels);
  metrics.decode.write(out, "vllm:request_decode_time_seconds", "From the first token to the end.",
                       labels);
  metrics.prompt_tokens.write(out, "vllm:request_prompt_tokens", "Prompt tokens of a request.",
                              labels);
  metrics.generated_tokens.write(out, "vllm:request_generation_tokens",
                                 "Tokens generated for a request.", labels);
  value("cedra:engine_steps_total", "counter", "Steps of the engine.", stats.steps);
  value("cedra:engine_step_seconds_total", "counter", "Time of all steps.", stats.step_seconds);
  value("cedra:engine_forward_seconds_total", "counter", "Of that, the forward pass.",
        stats.forward_seconds);
  value("cedra:engine_sampling_seconds_total", "counter", "Of that, the choice of tokens.",
        stats.sampling_seconds);
  value("vllm:spec_decode_num_drafts_total", "counter", "Blocks of drafts that were verified.",
        stats.drafts.blocks);
  value("vllm:spec_decode_num_draft_tokens_total", "counter", "Drafts that were verified.",
        stats.drafts.verified);
  value("vllm:spec_decode_num_accepted_tokens_total", "counter",
        "Drafts that became the answer; the rest was rejected.", stats.drafts.accepted);
  fmt::format_to(to,
                 "# HELP vllm:spec_decode_num_accepted_tokens_per_pos_total Accepted drafts by "
                 "their place in the block.\n"
                 "# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter\n");
  for (size_t k = 0; k < stats.draft_accepted_at.size() && stats.draft_accepted_at[k] > 0; ++k) {
    fmt::format_to(to,
                   "vllm:spec_decode_num_accepted_tokens_per_pos_total{{{},position=\"{}\"}} {}\n",
                   labels, k, stats.draft_accepted_at[k]);
  }
  value("cedra:draft_tokens_proposed_total", "counter",
        "Tokens that the draft stages proposed, verified or not.", stats.drafts.drafted);
  value("cedra:draft_seconds_total", "counter", "Time of the draft stages.", stats.draft_seconds);
  value("cedra:draft_verify_seconds_total", "counter", "Time of the steps that verified drafts.",
        stats.verify_seconds);
  value("cedra:decode_steps_total", "counter", "Steps that could have had drafts.",
        stats.decode_steps);
  value("cedra:undrafted_steps_total", "counter",
        "Of those, steps in which drafting was switched off.", stats.undrafted_steps);
  value("cedra:requests_cancelled_total", "counter", "Choices cancelled in the engine.",
        stats.cancelled);
  value("cedra:requests_refused_total", "counter", "Requests refused for load or shutdown.",
        metrics.refused.load(std::memory_order_relaxed));
  value("cedra:client_disconnects_total", "counter", "Clients that left before their answer's end.",
        metrics.disconnects.load(std::memory_order_relaxed));
  value("cedra:responses_4xx_total", "counter", "Answers with a client error.",
        metrics.client_errors.load(std::memory_order_relaxed));
  value("cedra:responses_5xx_total", "counter", "Answers with a server error.",
        metrics.server_errors.load(std::memory_order_relaxed));
  return out;
}

}  // namespace cedra::server

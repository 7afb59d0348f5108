#include "cache/layout.h"

namespace cedra::cache {

int64_t CacheLayout::source_of(int64_t layer) const {
  int64_t found = -1;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].layer <= layer) found = static_cast<int64_t>(i);
  }
  return found;
}

Result<CacheLayout> make_layout(const TextConfig& config, int64_t block_tokens) {
  CacheLayout layout;
  layout.block_tokens = block_tokens;
  layout.head_dim = config.head_dim;
  layout.main_code_bytes = config.head_dim / 2;
  layout.main_scale_bytes = config.head_dim / 16;
  layout.index_code_bytes = config.index_head_dim / 2;
  layout.index_scale_bytes = config.index_head_dim / 32;
  layout.window = config.sliding_window;
  layout.layers = config.num_hidden_layers;
  layout.window_code_bytes = config.head_dim;
  layout.window_scale_bytes = config.head_dim / 32;

  int64_t offset = 0;
  for (const int64_t layer : config.kv_source_layer_ids) {
    SourceLayout source;
    source.layer = layer;
    source.ratio = config.compress_ratios[static_cast<size_t>(layer)];
    if (block_tokens <= 0 || block_tokens % source.ratio != 0) {
      return err(Code::kInvalid,
                 "block size {} is not a positive multiple of the compress ratio {} of layer {}",
                 block_tokens, source.ratio, layer);
    }
    source.rows_per_block = block_tokens / source.ratio;
    source.main_codes = offset;
    source.main_scales = source.main_codes + source.rows_per_block * layout.main_code_bytes;
    source.index_codes = source.main_scales + source.rows_per_block * layout.main_scale_bytes;
    source.index_scales = source.index_codes + source.rows_per_block * layout.index_code_bytes;
    offset = source.index_scales + source.rows_per_block * layout.index_scale_bytes;
    if (source.ratio > 1) source.tail_index = layout.tails++;
    layout.max_ratio = std::max(layout.max_ratio, source.ratio);
    layout.sources.push_back(source);
  }
  layout.block_bytes = offset;
  return layout;
}

}  // namespace cedra::cache

"""The forward pass of tools/reference as differentiable torch code: the backbone.

Reads top down: NanoModel.forward -> block -> attention, moe, engram. Works on padded batches of whole
sequences; padding stands at the end, so that causality keeps it away from everything real.
Dims: B sequences, N positions, M = B * N rows, C residual copies, D hidden, G compressed rows.
"""

import dataclasses
import json
import os
import sys

import torch
import torch.nn.functional as F

import quantise
import torch_ops
from torch_ops import (MASKED, Numerics, SinkAttention, expert_mlp, rms_norm, rope_table, rotate,
                       router_scores)
from torch_vision import encode_images

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
from config import parse_config  # noqa: E402  (tools/reference)
from ops import rope_frequencies, yarn_frequencies  # noqa: E402

QUERY_BLOCK = 64       # rows of a sequence whose attention lists are computed together

DENSE_FP8 = (".wq_a.weight", ".wq_b.weight", ".attn.wkv.weight", ".wo_a.weight", ".wo_b.weight",
             "engram.wkv.weight", "shared_experts.w1.weight", "shared_experts.w2.weight",
             "shared_experts.w3.weight", "main_proj.weight")


def load_config(path):
    """Config of a config.json (reference type)."""
    with open(path, encoding="utf-8") as file:
        return parse_config(json.load(file))


def stored_values(name, weight):
    """The weight as its stored bytes give it back; gradients pass straight through."""
    if ".experts." in name:
        return quantise.fake_fp4_rows(weight)
    if name.endswith(DENSE_FP8):
        return quantise.fake_fp8_tiles(weight)
    return weight


@dataclasses.dataclass
class Batch:
    """Padded sequences: everything [B, N, ...].

    types: -1 text, 0 start, 1 image, 2 newline, 3 end. images: uint8 [h, w, 3] arrays in reading order.
    engram_rows [B, N, tables, columns]. plain: positions are 0..N-1 in every sequence.
    """
    ids: torch.Tensor
    types: torch.Tensor
    positions: torch.Tensor
    engram_rows: torch.Tensor
    images: list
    plain: bool = True

    @property
    def shape(self):
        return self.ids.shape


class Step:
    """What one pass carries from layer to layer, and what it records."""

    def __init__(self, batch, text, dtype):
        self.batch = batch
        self.image_mask = (batch.types >= 0).flatten()
        self.has_images = bool(self.image_mask.any())
        self.compressed = None           # rows [B, G, d] of the newest KV source
        self.index_keys = None           # [B, G, d_i]
        self.selected = None             # bool [B, N, G] of the newest index source, None = all visible
        self.candidates = None
        self.taps = []
        self.loads = {}                  # layer prefix -> (text counts [E], image counts [E])
        self.index_scores = {}           # index source -> scores [B, N, G]
        self.attention_share = {}        # index source -> mean attention over compressed rows [B, N, G]
        self.streams = {}
        self.masks = {}
        self.text, self.dtype = text, dtype

    def groups(self, ratio):
        """Compressed rows of a whole sequence."""
        return self.batch.shape[1] // ratio


class NanoModel:
    """Config plus what is derived from it once; weights are passed in as a dict of tensors.

    weights: official tensor names without scales; experts stacked as `...ffn.experts.w1` [E, I, D].
    """

    def __init__(self, config, numerics=None, dtype=torch.float32, sparse=False, record_index=False,
                 connections=torch_ops):
        self.config, self.text, self.dtype = config, config.text, dtype
        self.numerics = numerics or Numerics()
        self.sparse = sparse             # select index_topk rows as the engine does; else all visible
        self.record_index = record_index
        self.connections = connections   # module with collapse, expand, mixes: torch_ops or hyper
        text = config.text
        self.window_frequencies = torch.tensor(
            rope_frequencies(text.rope_theta, text.qk_rope_head_dim))
        self.compressed_frequencies = torch.tensor(yarn_frequencies(
            text.compress_rope_theta, text.qk_rope_head_dim, text.rope_scaling))

    # ---- entry and exit (sections 4.1, 4.9) -----------------------------------------------------

    def forward(self, weights, batch, keep_streams=False):
        """-> (normed [B, N, D], step). Logits are `logits(weights, normed rows)`."""
        text = self.text
        step = Step(batch, text, self.dtype)
        hidden = self._enter(weights, step)
        stream = hidden[:, None].expand(-1, text.hc_mult, -1).contiguous()      # [M, C, D]
        pre = torch.zeros(len(stream), text.hc_mult, dtype=self.dtype)
        pre[:, 0] = 1
        self._rope(step)
        for layer in range(text.num_hidden_layers):
            if layer in text.engram_layer_ids:
                stream = self._engram(weights, layer, stream, step)
            if layer in text.dspark_target_layer_ids:
                step.taps.append(self.numerics.bf(stream.mean(1)))
            stream, pre = self.block(
                weights, f"layers.{layer}.", stream, pre, step.loads, step.image_mask,
                text.num_experts_per_tok,
                lambda x, layer=layer: self._attention(weights, layer, x, step))
            if keep_streams:
                step.streams[layer] = (stream, pre)
        hidden = self.numerics.bf(self.connections.collapse(stream, pre))
        normed = self.numerics.bf(rms_norm(hidden, weights["norm.weight"], text.rms_norm_eps))
        return normed.view(*batch.shape, -1), step

    def logits(self, weights, normed):
        """[..., D] -> [..., V]"""
        return F.linear(normed, weights["head.weight"])

    def _enter(self, weights, step):
        """Embeddings [M, D]; image-span rows take vision features (spec/vision.md 8.3)."""
        batch = step.batch
        hidden = F.embedding(batch.ids.flatten(), weights["embed.weight"])
        if not step.has_images:
            return hidden
        types = batch.types.flatten()
        features = encode_images(self.config.vision, weights, batch.images, self.numerics, self.dtype)
        hidden = hidden.clone()
        for role, name in ((0, "image_start"), (2, "image_newline"), (3, "image_end")):
            hidden[types == role] = weights[name]
        hidden[types == 1] = features
        return hidden

    def _rope(self, step):
        """Rotation tables of all positions: [B or 1, N, r/2]."""
        positions = step.batch.positions[:1] if step.batch.plain else step.batch.positions
        step.window_rope = rope_table(positions, self.window_frequencies, self.dtype)
        step.compressed_rope = rope_table(positions, self.compressed_frequencies, self.dtype)

    # ---- one block (section 4.2), also of the draft ---------------------------------------------

    def block(self, weights, prefix, stream, pre, loads, image_mask, n_active, attend):
        """stream [M, C, D], pre [M, C] -> the same after attention and experts."""
        text, bf = self.text, self.numerics.bf

        def part_mixes(part, current):
            return self.connections.mixes(current, *(weights[f"{prefix}hc_{part}_{x}"] for x in ("fn", "base", "scale")),
                         text)

        def normed(current, pre_mix, part):
            return bf(rms_norm(bf(self.connections.collapse(current, pre_mix)), weights[f"{prefix}{part}_norm.weight"],
                               text.rms_norm_eps))

        attn_pre, post, comb = part_mixes("attn", stream)
        stream = bf(self.connections.expand(attend(normed(stream, pre, "attn")), stream, post, comb))
        ffn_pre, post, comb = part_mixes("ffn", stream)
        output = self._moe(weights, prefix + "ffn.", normed(stream, attn_pre, "ffn"), loads, image_mask,
                           n_active)
        return bf(self.connections.expand(output, stream, post, comb)), ffn_pre

    # ---- experts (section 4.8) ------------------------------------------------------------------

    def _moe(self, weights, prefix, hidden, loads, image_mask, n_active):
        """hidden [M, D] -> [M, D]; counts who was chosen, for balancing."""
        text, numerics = self.text, self.numerics
        score = router_scores(F.linear(hidden, weights[prefix + "gate.weight"]), text)
        bias = weights[prefix + "gate.bias"]
        if image_mask is not None and prefix + "gate.bias_vl" in weights:
            bias = torch.where(image_mask[:, None], weights[prefix + "gate.bias_vl"], bias)
        with torch.no_grad():
            order = torch.sort(score + bias, dim=-1, descending=True, stable=True)[1]
            expert = order[:, :n_active]
        weight = score.gather(1, expert)
        if text.norm_topk_prob and n_active > 1:
            weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
        weight = weight * text.routed_scaling_factor

        quantised = numerics.q8(hidden)
        # Rows sorted by expert: every expert works on one contiguous stretch.
        by_expert = torch.sort(expert.flatten(), dim=0, stable=True)[1]
        counts = torch.bincount(expert.flatten(), minlength=score.shape[1])
        row = torch.div(by_expert, n_active, rounding_mode="floor")
        gathered, row_weight = quantised[row], weight.flatten()[by_expert]
        stacks = [weights[prefix + f"experts.{w}"].unbind(0) for w in ("w1", "w3", "w2")]
        pieces = [expert_mlp(numerics, part, w1, w3, w2, text.swiglu_limit, part_weight)
                  for part, part_weight, w1, w3, w2
                  in zip(gathered.split(counts.tolist()), row_weight.split(counts.tolist()), *stacks)
                  if len(part)]
        routed = torch.zeros_like(hidden).index_add(0, row, torch.cat(pieces))
        shared = expert_mlp(numerics, quantised,
                            *(weights[f"{prefix}shared_experts.{w}.weight"] for w in ("w1", "w3", "w2")),
                            text.swiglu_limit)
        self._count(prefix, expert, counts, loads, image_mask)
        return numerics.bf(routed + shared)

    def _count(self, prefix, expert, counts, loads, image_mask):
        if loads is None:
            return
        image = torch.zeros_like(counts)
        if image_mask is not None and bool(image_mask.any()):
            image = torch.bincount(expert[image_mask].flatten(), minlength=len(counts))
        loads[prefix] = (counts - image, image)

    # ---- attention (sections 4.3 to 4.7) --------------------------------------------------------

    def queries(self, weights, prefix, hidden, table):
        """hidden [B, N, D] -> (latent [B, N, q_lora], rotated queries [B, N, H, d])."""
        text, numerics = self.text, self.numerics
        latent = numerics.bf(rms_norm(numerics.linear_q8(hidden, weights[prefix + "wq_a.weight"]),
                                      weights[prefix + "q_norm.weight"], text.rms_norm_eps))
        query = numerics.linear_q8(latent, weights[prefix + "wq_b.weight"])
        query = query.view(*hidden.shape[:2], text.num_attention_heads, text.head_dim)
        return latent, numerics.bf(rotate(query, table[:, :, None]))

    def window_rows(self, weights, prefix, hidden, table):
        """The row that is key and value of all heads: [B, N, d]."""
        numerics = self.numerics
        row = numerics.bf(rms_norm(numerics.linear_q8(hidden, weights[prefix + "wkv.weight"]),
                                   weights[prefix + "kv_norm.weight"], self.text.rms_norm_eps))
        return numerics.window(numerics.bf(rotate(row, table)))

    def output_projection(self, weights, prefix, heads, table):
        """heads [B, N, H, d] -> [M, D]: inverse rotation and the grouped low-rank projection."""
        text, numerics = self.text, self.numerics
        heads = numerics.bf(rotate(heads, table[:, :, None], inverse=True))
        grouped = heads.reshape(-1, text.o_groups, heads.shape[-1] * heads.shape[-2] // text.o_groups)
        down = weights[prefix + "wo_a.weight"].view(text.o_groups, text.o_lora_rank, -1)
        low_rank = torch.einsum("mgk,grk->mgr", grouped, down)
        return numerics.linear_q8(numerics.bf(low_rank.flatten(1)), weights[prefix + "wo_b.weight"])

    def _attention(self, weights, layer, hidden, step):
        """hidden [M, D] (normed) -> [M, D]"""
        text, prefix = self.text, f"layers.{layer}.attn."
        ratio = text.compress_ratios[layer]
        table = step.compressed_rope if ratio else step.window_rope
        hidden = hidden.view(*step.batch.shape, -1)
        latent, query = self.queries(weights, prefix, hidden, table)
        own = self.window_rows(weights, prefix, hidden, table)
        if layer in text.kv_source_layer_ids:
            self._compress(weights, layer, hidden, step)
        if layer in text.index_source_layer_ids and (self.sparse or self.record_index):
            self._index(weights, layer, hidden, latent, step)
        heads = self._attend(weights[prefix + "attn_sink"], layer, query, own,
                             step.compressed if ratio else None, ratio, step)
        return self.output_projection(weights, prefix, heads, table)

    def _attend(self, sink, layer, query, own, compressed, ratio, step):
        """Blocks of queries against their window rows and the compressed rows they may see."""
        text = self.text
        batch, n_rows, heads, width = query.shape
        outputs, shares = [], []
        for begin in range(0, n_rows, QUERY_BLOCK):
            end = min(begin + QUERY_BLOCK, n_rows)
            first = max(0, begin - text.sliding_window + 1)
            groups = end // ratio if ratio else 0
            keys = own[:, first:end]
            if groups:
                keys = torch.cat([keys, compressed[:, :groups]], 1)
            mask = self._mask(step, begin, end, first, ratio, groups)
            block = query[:, begin:end].transpose(1, 2).reshape(batch, -1, width)
            out = SinkAttention.apply(block, keys, mask, sink, heads, text.head_dim**-0.5)
            outputs.append(out.view(batch, heads, end - begin, width).transpose(1, 2))
            if self.record_index and ratio:
                shares.append(self._share(block, keys, mask, end - first, heads, step.groups(ratio)))
        if shares:
            source = max(i for i in text.index_source_layer_ids if i <= layer)
            share = torch.cat(shares, 1)
            step.attention_share[source] = step.attention_share.get(source, 0) + share
        return self.numerics.bf(torch.cat(outputs, 1))

    @torch.no_grad()
    def _share(self, block, keys, mask, n_window, heads, total):
        """Which compressed rows the heads look at, summed over heads: [B, T, total]."""
        score = torch.bmm(block, keys.transpose(1, 2)) * self.text.head_dim**-0.5
        score = score.view(len(block), heads, -1, keys.shape[1]) + mask[:, None]
        share = torch.softmax(score, -1)[..., n_window:].sum(1)
        return F.pad(share, (0, total - share.shape[-1]))

    def _mask(self, step, begin, end, first, ratio, groups):
        """Additive [B or 1, T, window keys + groups]; shared by layers while nothing is selected."""
        key = (begin, ratio)
        if key not in step.masks:
            step.masks[key] = self._visible_mask(step, begin, end, first, ratio, groups)
        mask = step.masks[key]
        if groups and step.selected is not None:
            chosen = step.selected[:, begin:end, :groups]
            window = mask[..., :end - first].expand(len(chosen), -1, -1)
            rows = torch.where(chosen, mask[..., end - first:], torch.tensor(MASKED, dtype=self.dtype))
            mask = torch.cat([window, rows], -1)
        return mask

    def _visible_mask(self, step, begin, end, first, ratio, groups):
        positions = step.batch.positions[:1] if step.batch.plain else step.batch.positions
        row, key = torch.arange(begin, end)[:, None], torch.arange(first, end)[None]
        distance = positions[:, begin:end, None] - positions[:, None, first:end]
        seen = (key <= row) & (distance < self.text.sliding_window)
        if groups:
            visible = torch.arange(groups)[None] < torch.div(row + 1, ratio, rounding_mode="floor")
            seen = torch.cat([seen, visible.expand(len(seen), -1, -1)], -1)
        mask = torch.zeros(seen.shape, dtype=self.dtype)
        return mask.masked_fill_(~seen, MASKED)

    # ---- compressor and indexer (sections 4.5, 4.6) ---------------------------------------------

    def _compress(self, weights, layer, hidden, step):
        """Compressed rows and index keys of the groups that this sequence completes."""
        text, numerics, prefix = self.text, self.numerics, f"layers.{layer}.attn."
        ratio = text.compress_ratios[layer]
        latent = F.linear(hidden, weights[prefix + "compressor.wkv.weight"])
        if ratio > 1:
            n_groups = hidden.shape[1] // ratio
            shape = (len(hidden), n_groups, ratio, text.head_dim)
            score = F.linear(hidden, weights[prefix + "compressor.wgate.weight"])
            share = torch.softmax(score[:, :n_groups * ratio].reshape(shape), 2)
            latent = (latent[:, :n_groups * ratio].reshape(shape) * share).sum(2)
        latent = numerics.bf(rms_norm(numerics.bf(latent), weights[prefix + "compressor.norm.weight"],
                                      text.rms_norm_eps))
        table = step.compressed_rope[:, ::ratio][:, :latent.shape[1]]
        step.compressed = numerics.compressed(numerics.bf(rotate(latent, table)))
        step.selected = None
        if self.sparse or self.record_index:
            keys = numerics.bf(F.linear(latent.detach() if self.record_index else latent,
                                        weights[prefix + "indexer.wk.weight"]))
            keys = numerics.bf(rms_norm(keys, weights[prefix + "indexer.k_norm.weight"],
                                        text.rms_norm_eps))
            step.index_keys = numerics.index(numerics.bf(rotate(keys, table)))

    def _index(self, weights, layer, hidden, latent, step):
        """Scores of an index source; in sparse mode also its selection."""
        text, numerics, prefix = self.text, self.numerics, f"layers.{layer}.attn.indexer."
        bf = numerics.bf
        if self.record_index:
            hidden, latent = hidden.detach(), latent.detach()
        query = numerics.linear_q8(latent, weights[prefix + "wq_b.weight"])
        query = query.view(*hidden.shape[:2], text.index_n_heads, text.index_head_dim)
        query = numerics.index(bf(rotate(query, step.compressed_rope[:, :, None])))
        head_weight = bf(bf(F.linear(hidden, weights[prefix + "weights_proj.weight"]))
                         * (text.index_head_dim**-0.5 * text.index_n_heads**-0.5))
        dots = bf(torch.einsum("bnhd,bgd->bnhg", query, step.index_keys)).relu()
        scores = bf(bf(dots * head_weight[..., None]).sum(2))
        step.index_scores[layer] = scores
        if self.sparse:
            step.selected = self._select(layer, scores, step)

    @torch.no_grad()
    def _select(self, layer, scores, step):
        """bool [B, N, G]: the index_topk best visible rows of every position."""
        text = self.text
        ratio = text.compress_ratios[layer]
        n_rows, n_groups = scores.shape[1:]
        visible = torch.arange(n_groups)[None] < torch.div(torch.arange(1, n_rows + 1), ratio,
                                                           rounding_mode="floor")[:, None]
        scores = scores.masked_fill(~visible, -torch.inf)
        if layer == text.candidate_source_layer_id:
            step.candidates = self._candidates(scores, visible)
        elif 0 <= text.candidate_source_layer_id < layer:
            scores = scores.masked_fill(~step.candidates, -torch.inf)
        return _keep_best(scores, text.index_topk) & visible

    def _candidates(self, scores, visible):
        """Whole blocks that the later index sources may choose from; the newest is always in."""
        text = self.text
        size = text.candidate_block_size
        padded = F.pad(scores, (0, -scores.shape[-1] % size), value=-torch.inf)
        block = padded.view(*scores.shape[:2], -1, size).amax(-1)
        newest = torch.div(visible.sum(-1) - 1, size, rounding_mode="floor").clamp(min=0)
        block.scatter_(2, newest[None, :, None].expand(len(block), -1, 1), torch.inf)
        kept = _keep_best(block, text.candidate_topk_blocks)
        return kept.repeat_interleave(size, -1)[..., :scores.shape[-1]]

    # ---- Engram (section 5.4) -------------------------------------------------------------------

    def _engram(self, weights, layer, stream, step):
        """Add the gated n-gram value to every copy of the stream [M, C, D]."""
        text, numerics, prefix = self.text, self.numerics, f"layers.{layer}.engram."
        copies, width = text.hc_mult, text.hidden_size
        table = text.engram_layer_ids.index(layer)
        rows = step.batch.engram_rows[:, :, table].flatten(0, 1)
        memory = F.embedding(rows, weights[prefix + "embed.weight"])
        memory = quantise.fake_fp8_rows(memory).flatten(1)
        key_value = numerics.linear_q8(memory, weights[prefix + "wkv.weight"])
        key, value = key_value[:, :copies * width].view(-1, copies, width), key_value[:, copies * width:]
        weight = weights[prefix + "q_weight"] * weights[prefix + "k_weight"]
        inverse_rms = torch.rsqrt((stream.square().mean(-1) + text.rms_norm_eps)
                                  * (key.square().mean(-1) + text.rms_norm_eps))
        dot = (stream * weight * key).sum(-1) * inverse_rms * width**-0.5
        gate = torch.sigmoid(torch.sqrt(dot.abs().clamp(min=1e-6)).copysign(dot))
        if step.has_images:
            gate = gate.masked_fill(step.image_mask[:, None], 0)
        step.loads[prefix] = gate.detach()
        return numerics.bf(stream + gate[..., None] * value[:, None])


def _keep_best(scores, k):
    """bool mask of the k largest of the last axis, ties to the lower index; -inf is never kept."""
    order = torch.sort(scores, dim=-1, descending=True, stable=True)[1][..., :k]
    kept = torch.zeros(scores.shape, dtype=torch.bool).scatter_(-1, order, True)
    return kept & (scores > -torch.inf)

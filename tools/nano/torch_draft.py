"""DSpark draft stages, differentiable (spec/dspark.md sections 3 to 5).

Trained on a frozen backbone: for anchors inside known text, every slot k of the block predicts the
token at anchor position + 1 + k.
Dims: A anchors, K block size, W window, D hidden.
"""

import torch
import torch.nn.functional as F

from torch_ops import MASKED, SinkAttention, rms_norm, rope_table


class Drafter:
    """The `mtp.*` stages on top of a NanoModel."""

    def __init__(self, model):
        self.model, self.text = model, model.text
        self.last = f"mtp.{model.text.num_nextn_predict_layers - 1}."

    def context(self, weights, taps, positions):
        """Context rows of every stage. taps [B, N, taps * D], positions [B or 1, N] -> list of [B, N, d]."""
        text, model, bf = self.text, self.model, self.model.numerics.bf
        main = bf(rms_norm(model.numerics.linear_q8(taps, weights["mtp.0.main_proj.weight"]),
                           weights["mtp.0.main_norm.weight"], text.rms_norm_eps))
        table = rope_table(positions, model.window_frequencies, model.dtype)
        return [model.window_rows(weights, f"mtp.{stage}.attn.", main, table)
                for stage in range(text.num_nextn_predict_layers)]

    def hidden(self, weights, anchor_ids, anchor_positions, context, context_mask, loads=None):
        """Collapsed hidden of the blocks: [A, K, D].

        anchor_ids [A]; anchor_positions [A] (committed positions are those before it);
        context: per stage [A, n, d]; context_mask bool [A, n], True = readable
        """
        text, model = self.text, self.model
        width = text.dspark_block_size
        ids = torch.full((len(anchor_ids), width), text.dspark_noise_token_id)
        ids[:, 0] = anchor_ids
        positions = anchor_positions[:, None] + torch.arange(width)
        table = rope_table(positions, model.window_frequencies, model.dtype)
        mask = torch.zeros(len(ids), width, context_mask.shape[1] + width, dtype=model.dtype)
        mask[:, :, :-width].masked_fill_(~context_mask[:, None], MASKED)

        embedded = F.embedding(ids.flatten(), weights["embed.weight"])
        stream = embedded[:, None].expand(-1, text.hc_mult, -1).contiguous()
        pre = torch.zeros(len(stream), text.hc_mult, dtype=model.dtype)
        pre[:, 0] = 1
        for stage in range(text.num_nextn_predict_layers):
            stream, pre = model.block(
                weights, f"mtp.{stage}.", stream, pre, loads, None, text.draft_num_experts_per_tok,
                lambda x, stage=stage: self._attention(weights, stage, x.view(*ids.shape, -1), table,
                                                       context[stage], mask))
        return model.numerics.bf(model.connections.collapse(stream, pre)).view(*ids.shape, -1)

    def _attention(self, weights, stage, hidden, table, context, mask):
        """Every query sees its context window and all rows of the block."""
        model, text, prefix = self.model, self.text, f"mtp.{stage}.attn."
        _, query = model.queries(weights, prefix, hidden, table)
        keys = torch.cat([context, model.window_rows(weights, prefix, hidden, table)], 1)
        block = query.transpose(1, 2).reshape(len(query), -1, text.head_dim)
        heads = SinkAttention.apply(block, keys, mask, weights[prefix + "attn_sink"],
                                    text.num_attention_heads, text.head_dim**-0.5)
        heads = heads.view(len(query), text.num_attention_heads, -1, text.head_dim).transpose(1, 2)
        return model.output_projection(weights, prefix, model.numerics.bf(heads), table)

    def base_logits(self, weights, hidden):
        """[A, K, D] -> [A, K, V] without the Markov bias."""
        normed = self.model.numerics.bf(rms_norm(hidden, weights[self.last + "norm.weight"],
                                                 self.text.rms_norm_eps))
        return self.model.logits(weights, normed)

    def markov(self, weights, previous):
        """Embedding of the token before a slot and its logit bias: [..., rank], [..., V]."""
        embedded = F.embedding(previous, weights[self.last + "markov_head.embed.weight"])
        return embedded, F.linear(embedded, weights[self.last + "markov_head.head.weight"])

    def confidence(self, weights, hidden, embedded):
        """Raw confidence logit of a slot: [...]"""
        head = weights[self.last + "confidence_head.proj.weight"]
        return F.linear(torch.cat([hidden, embedded], -1), head)[..., 0]

    def propose(self, weights, hidden, anchor_ids):
        """Greedy drafts of blocks: ids [A, K], logits [A, K, V], confidence [A, K]."""
        base = self.base_logits(weights, hidden)
        previous, ids, logits, confidence = anchor_ids, [], [], []
        for slot in range(base.shape[1]):
            embedded, bias = self.markov(weights, previous)
            logits.append(base[:, slot] + bias)
            confidence.append(self.confidence(weights, hidden[:, slot], embedded))
            previous = logits[-1].argmax(-1)
            ids.append(previous)
        return torch.stack(ids, 1), torch.stack(logits, 1), torch.stack(confidence, 1)

#!/usr/bin/python3
"""Trains what hangs on a finished backbone: the indexers and the draft stages. The backbone is frozen.

  train_heads.py --resume OUT/backbone.pt --corpus DIR --tokenizer models/nano --out OUT

An indexer learns to score compressed rows as the heads of the layers that read its selection look at
them (cross-entropy against their mean attention). The draft stages learn the next tokens of known
text behind random anchors; the confidence head, whether a slot's best token is the right one.
Writes OUT/final.pt and OUT/heads.jsonl.
"""

import torch
import torch.nn.functional as F

import hyper
from parameters import is_draft, is_indexer
from batches import make_batch
from torch_draft import Drafter
from torch_model import NanoModel, stored_values
from torch_ops import Numerics
from train import Trainer, parse_options, run_workers

ANCHORS = 192               # draft blocks per step and worker
SLOT_DECAY = 0.85           # weight of a slot relative to the one before it


class HeadsTrainer(Trainer):
    """Trainer of indexers and draft stages."""

    FILE, LOG = "final.pt", "heads.jsonl"

    def __init__(self, options, config, shared, rank):
        super().__init__(options, config, shared, rank)
        self.model = NanoModel(config, Numerics(quantise_activations=True), record_index=True,
                               connections=hyper)
        self.drafter = Drafter(self.model)
        # The backbone does not change: its stored values are computed once.
        self.frozen = {name: stored_values(name, w.detach()) for name, w in self.weights.items()
                       if name not in self.trained}

    def compute_gradients(self, examples):
        batch, weight = make_batch(examples, self.engram, self.config.text.engram_pad_token_id)
        stored = {**self.frozen, **{name: stored_values(name, w) for name, w in self.trained.items()}}
        for name in self.shared.loads[0]:
            stored[name] = self.weights[name]
        _, step = self.model.forward(stored, batch)
        loads = {}
        total = self.index_loss(step) + self.draft_loss(stored, batch, weight, step, loads)
        total.backward()
        self.publish_gradients()
        self.publish(loads, examples)

    def index_loss(self, step):
        """Cross-entropy of each index source's scores against the attention it stands for."""
        losses = []
        for source, scores in step.index_scores.items():
            share = step.attention_share[source]
            mass = share.sum(-1, keepdim=True)
            target = share / mass.clamp(min=1e-9)
            ratio = self.config.text.compress_ratios[source]
            last_visible = torch.div(torch.arange(1, scores.shape[1] + 1), ratio, rounding_mode="floor")
            hidden = torch.arange(scores.shape[2])[None] >= last_visible[:, None]
            log_share = F.log_softmax(scores.masked_fill(hidden, -1e9), -1)
            each = -(target * log_share.masked_fill(hidden, 0)).sum(-1)
            entropy = -(target * torch.log(target.clamp(min=1e-9))).sum(-1)
            divergence = ((each - entropy) * mass[..., 0]).sum() / mass.sum().clamp(min=1e-9)
            losses.append(divergence)
            total = self.sums.setdefault(f"index{source}", [0.0, 0.0, 0])
            total[0] += float(divergence)
            total[2] += 1
        return sum(losses)

    def draft_loss(self, stored, batch, weight, step, loads):
        """Slots of random blocks inside answers predict the tokens behind their anchor."""
        text, width = self.config.text, self.config.text.dspark_block_size
        sequence, position = self.anchors(weight, width)
        taps = torch.cat(step.taps, -1).view(*batch.shape, -1)
        context, mask = self.context(stored, taps, batch, sequence, position)
        ids = torch.stack([batch.ids[sequence, position + k] for k in range(width + 1)], 1)
        hidden = self.drafter.hidden(stored, ids[:, 0], batch.positions[sequence, position], context,
                                     mask, loads)
        embedded, bias = self.drafter.markov(stored, ids[:, :-1])
        logits = self.drafter.base_logits(stored, hidden) + bias
        target = ids[:, 1:]
        wanted = torch.stack([weight[sequence, position + 1 + k] for k in range(width)], 1).cumprod(1)
        wanted = wanted * SLOT_DECAY ** torch.arange(width)
        each = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view_as(wanted)
        right = (logits.detach().argmax(-1) == target).float()
        confidence = self.drafter.confidence(stored, hidden, embedded)
        sure = F.binary_cross_entropy_with_logits(confidence, right, reduction="none")
        reached = wanted * torch.cat([torch.ones(len(right), 1), right[:, :-1].cumprod(1)], 1)
        self.record_slots(each.detach(), right, wanted > 0)
        return (each * wanted).sum() / wanted.sum() + 0.2 * (sure * reached).sum() / reached.sum()

    def anchors(self, weight, width):
        """Random positions from which whole answers can be drafted: (sequence [A], position [A])."""
        allowed = weight[:, 1:-width] == 1               # the token behind the anchor is answer text
        sequence, position = allowed.nonzero(as_tuple=True)
        chosen = torch.randperm(len(sequence))[:ANCHORS]
        return sequence[chosen], position[chosen]

    def context(self, stored, taps, batch, sequence, position):
        """Per stage the window rows before each anchor [A, W, d]; which of them are readable [A, W]."""
        window = self.config.text.sliding_window
        positions = batch.positions[:1] if batch.plain else batch.positions
        rows = self.drafter.context(stored, taps, positions)
        index = position[:, None] - window + torch.arange(window)
        distance = batch.positions[sequence, position][:, None] \
            - batch.positions[sequence[:, None], index.clamp(min=0)]
        mask = (index >= 0) & (distance <= window)
        index = index.clamp(min=0)
        return [stage[sequence[:, None], index] for stage in rows], mask

    def record_slots(self, each, right, wanted):
        """Loss and accuracy of every slot, and how many drafts in a row are right."""
        for slot in range(each.shape[1]):
            total = self.sums.setdefault(f"slot{slot}", [0.0, 0.0, 0])
            at = wanted[:, slot]
            total[0] += float(each[at, slot].sum())
            total[1] += float(right[at, slot].sum())
            total[2] += int(at.sum())
        total = self.sums.setdefault("accepted", [0.0, 0.0, 0])
        total[1] += float((right * wanted).cumprod(1).sum())
        total[2] += len(right)


def main():
    options = parse_options(__doc__, 1_500_000, 14)
    run_workers(HeadsTrainer, options, lambda name: is_draft(name) or is_indexer(name))


if __name__ == "__main__":
    main()

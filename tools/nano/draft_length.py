"""Accepted drafts of a block, and how well the confidence head knows: of one answered sequence.

The answer is greedy, so verifying a block accepts exactly the drafts that agree with the answer.
"""

import torch
import torch.nn.functional as F

ANCHORS_AT_ONCE = 256


def agreeing_drafts(model, drafter, weights, ids, taps, prompt_length):
    """Drafts of every position of an answer as anchor, against what follows.

    ids [N], taps [N, taps * D] -> right bool [A, K] (beyond the answer: False), confidence [A, K]
    for anchors prompt_length .. N - 2.
    """
    text = model.text
    window, width = text.sliding_window, text.dspark_block_size
    context = drafter.context(weights, taps[None], torch.arange(len(ids))[None])
    following = F.pad(ids, (0, width), value=-1)
    right, confidence = [], []
    for begin in range(prompt_length, len(ids) - 1, ANCHORS_AT_ONCE):
        anchors = torch.arange(begin, min(begin + ANCHORS_AT_ONCE, len(ids) - 1))
        index = anchors[:, None] - window + torch.arange(window)
        rows = [stage[0][index.clamp(min=0)] for stage in context]
        hidden = drafter.hidden(weights, ids[anchors], anchors, rows, index >= 0)
        drafts, _, sure = drafter.propose(weights, hidden, ids[anchors])
        right.append(drafts == following[anchors[:, None] + 1 + torch.arange(width)])
        confidence.append(sure)
    return torch.cat(right), torch.cat(confidence)


def accepted_by_block(right):
    """Accepted drafts of each block of an answer; a block gives its accepted drafts and one more token."""
    leading = right.long().cumprod(1).sum(1).tolist()
    position, blocks = 0, []
    while position < len(leading):
        blocks.append(leading[position])
        position += leading[position] + 1
    return blocks


def reached(right):
    """Slots [A, K] whose predecessors were all right: those that verification looks at."""
    before = right.long().cumprod(1)[:, :-1].bool()
    return torch.cat([torch.ones(len(right), 1, dtype=torch.bool), before], 1)

"""Padded batches of similar lengths from corpus shards."""

import random

import numpy as np
import torch

from torch_model import Batch


def make_batch(examples, engram, pad_id):
    """examples (ids, types, positions, weight, images) -> (Batch, weight [B, N])."""
    length = max(len(e.ids) for e in examples)
    ids = np.full((len(examples), length), pad_id, np.int64)
    types = np.full(ids.shape, -1, np.int64)
    positions = np.zeros(ids.shape, np.int64)
    weight = np.zeros(ids.shape, np.float32)
    rows, images, plain = [], [], True
    for i, example in enumerate(examples):
        n = len(example.ids)
        ids[i, :n], types[i, :n], weight[i, :n] = example.ids, example.types, example.weight
        positions[i, :n] = example.positions
        positions[i, n:] = example.positions[-1] + np.arange(1, length - n + 1)
        plain = plain and positions[i, -1] == length - 1
        images += example.images
        rows.append(engram.rows(ids[i], types[i] >= 0))
    batch = Batch(torch.from_numpy(ids), torch.from_numpy(types), torch.from_numpy(positions),
                  torch.from_numpy(np.stack(rows)), images, plain)
    return batch, torch.from_numpy(weight)


def group(examples, tokens_per_batch, seed):
    """Lists of examples of similar length, about tokens_per_batch padded tokens each, shuffled.
    Examples with jumping positions stay among themselves: they need masks of their own."""
    chooser = random.Random(seed)
    order = sorted(range(len(examples)), key=lambda i: (
        examples[i].positions[-1] != len(examples[i].ids) - 1, len(examples[i].ids), chooser.random()))
    groups, current = [], []
    for index in order:
        longest = max(len(examples[i].ids) for i in [*current, index])
        jumps = examples[index].positions[-1] != len(examples[index].ids) - 1
        other_sort = current and jumps != (examples[current[0]].positions[-1]
                                           != len(examples[current[0]].ids) - 1)
        if current and (longest * (len(current) + 1) > tokens_per_batch or other_sort):
            groups.append(current)
            current = []
        current.append(index)
    groups.append(current)
    chooser.shuffle(groups)
    return [[examples[i] for i in members] for members in groups]

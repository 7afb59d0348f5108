"""Weights of a checkpoint folder as the torch forward takes them: float64, experts stacked."""

import os
import sys

import numpy as np
import torch

from parameters import EXPERT, shapes

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
from checkpoint import Checkpoint  # noqa: E402  (tools/reference)
from inventory import tensor_inventory  # noqa: E402


def load_weights(folder, dtype=torch.float64):
    """(config, dict name -> tensor) with the values that the stored bytes stand for."""
    checkpoint = Checkpoint(folder)
    inventory = tensor_inventory(checkpoint.config)
    values, experts = {}, {}
    for name in inventory:
        if name.endswith(".scale"):
            continue
        value = torch.from_numpy(np.array(_values(checkpoint, inventory, name))).to(dtype)
        match = EXPERT.match(name)
        if match:
            experts.setdefault(f"{match[1]}.{match[3]}", {})[int(match[2])] = value
        else:
            values[name] = value
    for name, by_id in experts.items():
        values[name] = torch.stack([by_id[i] for i in range(len(by_id))])
    assert set(values) == set(shapes(checkpoint.config))
    return checkpoint.config, values


def _values(checkpoint, inventory, name):
    base = name[:-len(".weight")]
    if name.endswith("engram.embed.weight"):
        rows = inventory[name].shape[0]
        return checkpoint.scope("").engram_rows(base, np.arange(rows))
    if base + ".scale" in inventory:
        return checkpoint.quantized_matrix(base)
    return checkpoint.tensor(name)

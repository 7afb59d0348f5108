"""Initial weights and their sorts.

Names and shapes come from the reference's inventory; the experts of a layer are stacked
(`...ffn.experts.w1` [E, I, D]) because the trainer works on all of them at once.
"""

import math
import os
import re
import sys

import torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
from inventory import tensor_inventory  # noqa: E402  (tools/reference)

EXPERT = re.compile(r"(.*\.ffn\.experts)\.(\d+)\.(w[123])\.weight$")


def shapes(config):
    """dict name -> shape of every trained tensor."""
    found, experts = {}, {}
    for name, spec in tensor_inventory(config).items():
        if name.endswith(".scale"):
            continue
        shape = tuple(spec.shape)
        match = EXPERT.match(name)
        if match:
            key = f"{match[1]}.{match[3]}"
            experts[key] = (experts.get(key, (0,))[0] + 1, shape[0], shape[1] * 2)
        else:
            found[name] = shape
    return {**found, **experts}


def initialise(config, seed):
    """dict name -> float32 parameter."""
    generator = torch.Generator().manual_seed(seed)
    depth = config.text.num_hidden_layers

    def normal(shape, deviation):
        return torch.randn(shape, generator=generator) * deviation

    def value(name, shape):
        if name.endswith("norm.weight") or re.search(r"norm\d\.weight$|engram\.[qk]_weight$", name):
            return torch.ones(shape)
        if "hc_" in name:
            return _hyper_connection(name, shape, config.text.hc_mult, normal)
        if name.endswith(("attn_sink", ".bias", "bias_vl")):
            return torch.zeros(shape)
        if name in ("embed.weight", "image_start", "image_end", "image_newline"):
            return normal(shape, 0.5)
        if name.endswith("engram.embed.weight"):
            return normal(shape, 0.3)
        if name in ("head.weight",) or "markov_head.head" in name or "confidence" in name:
            return normal(shape, 0.02)
        deviation = 1 / math.sqrt(shape[-1])
        if name.endswith(("wo_b.weight", "w2.weight", "experts.w2")):
            deviation /= math.sqrt(2 * depth)
        return normal(shape, deviation)

    return {name: value(name, shape) for name, shape in shapes(config).items()}


def _hyper_connection(name, shape, copies, normal):
    """Mixes that begin as: read the mean of the copies, write to all, keep the copies apart."""
    if name.endswith("_scale"):
        return torch.ones(shape)
    if name.endswith("_fn"):
        return normal(shape, 0.1 / math.sqrt(shape[-1]))
    pre = normal((copies,), 0.3) - math.log(copies - 1)
    post = normal((copies,), 0.3)
    return torch.cat([pre, post, (4 * torch.eye(copies)).flatten()])


def is_matrix(name, tensor):
    """Hidden matrices, which get orthogonalised updates; tables, heads and vectors do not."""
    tables = ("embed.weight", "head.weight", "gate.weight", "weights_proj.weight", "confidence")
    return tensor.dim() >= 2 and "hc_" not in name and "engram.q_" not in name \
        and "engram.k_" not in name and not any(table in name for table in tables)


def is_draft(name):
    """Belongs to the draft stages, which are trained on a frozen backbone."""
    return name.startswith("mtp.")


def is_indexer(name):
    """Belongs to the indexers, which learn from the attention of a frozen backbone."""
    return ".indexer." in name

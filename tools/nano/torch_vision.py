"""Vision tower and aligner (spec/vision.md sections 6 and 7), differentiable.

Images come as uint8 [h, w, 3] whose sides are multiples of patch size times downsample ratio or of the
patch size alone; resizing is not part of training.
"""

import numpy as np
import torch
import torch.nn.functional as F

from torch_ops import gelu, rms_norm

NORM_EPS = 1e-6


def patches(images, patch, dtype):
    """uint8 [n, h, w, 3] -> [n, rows * columns, 3 * P * P] in [-1, 1]."""
    pixels = (images.to(torch.float32) / 255 - 0.5) / 0.5
    pixels = pixels.bfloat16().to(dtype)
    n, height, width = pixels.shape[:3]
    grid = pixels.view(n, height // patch, patch, width // patch, patch, 3)
    return grid.permute(0, 1, 3, 5, 2, 4).reshape(n, -1, 3 * patch * patch)


def encode_images(vision, weights, images, numerics, dtype):
    """Rows of all images in reading order: [sum of llm rows * columns, D]. Equal sizes share a pass."""
    by_size = {}
    for index, image in enumerate(images):
        by_size.setdefault(image.shape[:2], []).append(index)
    rows = [None] * len(images)
    for (height, width), indices in by_size.items():
        stacked = torch.from_numpy(np.stack([images[i] for i in indices]))
        grid = (height // vision.patch_size, width // vision.patch_size)
        encoded = encode_patches(vision, weights, patches(stacked, vision.patch_size, dtype), grid, numerics)
        for index, features in zip(indices, encoded):
            rows[index] = features
    return torch.cat(rows)


def encode_patches(vision, weights, x, grid, numerics):
    """[n, patches, 3PP] -> [n, llm rows * columns, D]."""
    bf = numerics.bf
    x = bf(F.linear(x, weights["vision.patch_embed.proj.weight"], weights["vision.patch_embed.proj.bias"]))
    cosine, sine = _rope(vision, grid, x.dtype)
    for block in range(vision.num_hidden_layers):
        prefix = f"vision.blocks.{block}."
        normed = bf(rms_norm(x, weights[prefix + "norm1.weight"], NORM_EPS))
        x = bf(x + _attention(vision, weights, prefix + "attn.", normed, cosine, sine, bf))
        normed = bf(rms_norm(x, weights[prefix + "norm2.weight"], NORM_EPS))
        gate, up = bf(F.linear(normed, weights[prefix + "mlp.w1.weight"])).chunk(2, -1)
        x = bf(x + bf(F.linear(bf(bf(F.silu(gate)) * up), weights[prefix + "mlp.w2.weight"])))
    x = bf(rms_norm(x, weights["vision.norm.weight"], NORM_EPS))
    return _align(vision, weights, x, grid, bf)


def _attention(vision, weights, prefix, x, cosine, sine, bf):
    heads = vision.num_attention_heads
    qkv = bf(F.linear(x, weights[prefix + "wqkv.weight"], weights[prefix + "wqkv.bias"]))
    query, key, value = qkv.view(*x.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
    query, key = bf(_rotate_halves(query, cosine, sine)), bf(_rotate_halves(key, cosine, sine))
    score = query @ key.transpose(-1, -2) * query.shape[-1]**-0.5
    mixed = bf(torch.softmax(score, -1) @ value).transpose(1, 2).flatten(2)
    return bf(F.linear(mixed, weights[prefix + "wo.weight"], weights[prefix + "wo.bias"]))


def _rope(vision, grid, dtype):
    """cos, sin [patches, head_dim / 2]: a quarter of the head for the row, a quarter for the column."""
    half = vision.hidden_size // vision.num_attention_heads // 2
    frequencies = vision.rope_theta ** -(torch.arange(0, half, 2, dtype=torch.float64) / half)
    patch = torch.arange(grid[0] * grid[1])
    row = torch.div(patch, grid[1], rounding_mode="floor")[:, None] * frequencies
    angle = torch.cat([row, (patch % grid[1])[:, None] * frequencies], 1)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def _rotate_halves(x, cosine, sine):
    first, second = x.chunk(2, -1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


def _align(vision, weights, features, grid, bf):
    """R x R neighbours, channel-major, zeros beyond the edge; then a two-layer MLP."""
    ratio, width = vision.downsample_ratio, vision.hidden_size
    rows, columns = -(-grid[0] // ratio), -(-grid[1] // ratio)
    full = features.view(-1, *grid, width)
    full = F.pad(full, (0, 0, 0, columns * ratio - grid[1], 0, rows * ratio - grid[0]))
    cells = full.view(-1, rows, ratio, columns, ratio, width).permute(0, 1, 3, 5, 2, 4)
    cells = cells.reshape(-1, rows * columns, width * ratio * ratio)
    hidden = bf(F.linear(cells, weights["aligner.w1.weight"], weights["aligner.w1.bias"]))
    return bf(F.linear(bf(gelu(hidden)), weights["aligner.w2.weight"], weights["aligner.w2.bias"]))

"""Weight and activation quantisers of the nano model (spec/model.md section 3).

The NumPy functions give the bytes that the exporter writes. The torch functions (`fake_*`) give the
numbers that those bytes stand for, with the gradient passed straight through, so that the trained
model is the exported one. quantise_test.py holds the two to each other bit for bit.

Weight scales are the smallest powers of two with amax / scale <= 448 (FP8) or 6 (FP4); nothing is
clamped. Only the NumPy side is needed for export, torch is imported where it is used.
"""

import os
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import formats  # noqa: E402  (tools/reference)

TILE = formats.SCALE_TILE

# FP32 bit patterns: amax = 1.f * 2^e needs the scale exponent e - shift, one more if f is above the
# fraction of the largest code (448 = 1.75 * 2^8, 6 = 1.5 * 2^2). Adding the carry does that.
FP8_CARRY, FP8_SHIFT = 0x1FFFFF, 8
FP4_CARRY, FP4_SHIFT = 0x3FFFFF, 2
# Scale exponents kept normal in FP32; trained weights are nowhere near.
MIN_EXPONENT, MAX_EXPONENT = -126, 127

EXPONENT_MASK = 0x7F800000
EXPONENT_ONE = 127 << 23
HALF = 0x400000                 # mantissa bit of 0.5


# ---- NumPy: bytes for the exporter ----------------------------------------------------------------

def _scale_exponents(amax, carry, shift):
    """float32 group maxima -> int32 exponents of the smallest fitting power of two."""
    bits = np.asarray(amax, np.float32).view(np.int32)
    exponents = ((bits + carry) >> 23) - 127 - shift
    return np.clip(exponents, MIN_EXPONENT, MAX_EXPONENT)


def _padded(w, rows, columns):
    """w [O, I] with zeros up to multiples of `rows` and `columns`."""
    return np.pad(w, ((0, -w.shape[0] % rows), (0, -w.shape[1] % columns)))


def _fp8(w, group_rows):
    """E4M3 codes [O, I] and E8M0 scales, one per group of group_rows x 32 values."""
    w = np.asarray(w, np.float32)
    padded = _padded(w, group_rows, TILE)
    groups = padded.reshape(padded.shape[0] // group_rows, group_rows, -1, TILE)
    exponents = _scale_exponents(np.abs(groups).max((1, 3)), FP8_CARRY, FP8_SHIFT)
    scaled = np.ldexp(groups, -exponents[:, None, :, None])
    codes = formats.encode_e4m3(formats.round_e4m3(scaled)).reshape(padded.shape)
    return codes[:w.shape[0], :w.shape[1]], (exponents + 127).astype(np.uint8)


def fp8_tiles(w):
    """Dense FP8 matrix: w [O, I] -> codes uint8 [O, I], scales uint8 [O/32 up, I/32 up]."""
    return _fp8(w, TILE)


def fp8_rows(w):
    """Engram table: w [rows, width] -> codes uint8 [rows, width], scales uint8 [rows, width/32]."""
    return _fp8(w, 1)


def fp4_rows(w):
    """Expert matrix: w [O, I] -> packed uint8 [O, I/2], scales uint8 [O, I/32]."""
    w = np.asarray(w, np.float32)
    groups = w.reshape(w.shape[0], -1, TILE)
    exponents = _scale_exponents(np.abs(groups).max(2), FP4_CARRY, FP4_SHIFT)
    values = formats.round_e2m1(np.ldexp(groups, -exponents[..., None])).reshape(w.shape)
    codes = np.searchsorted(formats.E2M1_MAGNITUDES, np.abs(values)).astype(np.uint8)
    codes |= np.signbit(values).astype(np.uint8) << np.uint8(3)
    return formats.pack_e2m1(codes), (exponents + 127).astype(np.uint8)


# ---- torch: the numbers those bytes stand for -----------------------------------------------------

class _StraightThrough(torch.autograd.Function):
    """quantiser(x) forward, identity backward."""

    @staticmethod
    def forward(_context, x, quantiser):
        return quantiser(x)

    @staticmethod
    def backward(_context, gradient):
        return gradient, None


def _passed_through(x, quantiser):
    """quantiser works in FP32 and gives FP32; the result has the type of x."""
    if x.dtype == torch.float32:
        return _StraightThrough.apply(x, quantiser)
    return _StraightThrough.apply(x, lambda wide: quantiser(wide.float()).to(wide.dtype))


def _round_to_grid(x, mantissa_bits, min_exponent):
    """Nearest number with that many mantissa bits, even on ties; x FP32, changed in place.

    Adding and subtracting 1.5 * 2^23 steps leaves a whole number of steps; the step follows from
    the exponent of x, not below that of min_exponent (the subnormals of the small format)."""
    grid = x.view(torch.int32).bitwise_and(EXPONENT_MASK)
    grid.clamp_(min=(127 + min_exponent) << 23).add_(((23 - mantissa_bits) << 23) | HALF)
    grid = grid.view(torch.float32)
    return x.add_(grid).sub_(grid)


def _round_e4m3(x):
    return _round_to_grid(x, 3, -6)


def _round_e2m1(x):
    return _round_to_grid(x, 1, 0)


def _powers_of_two(amax, carry, shift):
    """FP32 group maxima -> the scales and their reciprocals, FP32."""
    biased = amax.view(torch.int32).add(carry).bitwise_right_shift_(23).sub_(shift)
    biased.clamp_(127 + MIN_EXPONENT, 127 + MAX_EXPONENT - 1)
    scale = biased.bitwise_left_shift(23).view(torch.float32)
    inverse = biased.neg_().add_(254).bitwise_left_shift_(23).view(torch.float32)
    return scale, inverse


def _fp8_tiles(w):
    height, width = w.shape[-2:]
    rows_missing, columns_missing = -height % TILE, -width % TILE
    padded = w
    if rows_missing or columns_missing:
        padded = torch.nn.functional.pad(w, (0, columns_missing, 0, rows_missing))
    tiles = padded.reshape(*w.shape[:-2], padded.shape[-2] // TILE, TILE, -1, TILE)
    amax = tiles.abs().amax((-3, -1), keepdim=True)
    scale, inverse = _powers_of_two(amax, FP8_CARRY, FP8_SHIFT)
    rounded = _round_e4m3(tiles * inverse).mul_(scale).reshape(padded.shape)
    return rounded[..., :height, :width]


def _grouped(x, group):
    """[..., K] -> [..., K/group, group] and the maximum magnitude of every group."""
    groups = x.reshape(*x.shape[:-1], x.shape[-1] // group, group)
    return groups, groups.abs().amax(-1, keepdim=True)


def _fp8_rows(w):
    groups, amax = _grouped(w, TILE)
    scale, inverse = _powers_of_two(amax, FP8_CARRY, FP8_SHIFT)
    return _round_e4m3(groups * inverse).mul_(scale).reshape(w.shape)


def _fp4_rows(w):
    groups, amax = _grouped(w, TILE)
    scale, inverse = _powers_of_two(amax, FP4_CARRY, FP4_SHIFT)
    return _round_e2m1(groups * inverse).mul_(scale).reshape(w.shape)


def _activation_scale(amax, floor, inverse_max):
    """Smallest power of two >= fl32(amax * inverse_max), section 3.1, and its reciprocal."""
    ratio = amax.clamp_(min=float(floor)).mul_(float(inverse_max))
    return _powers_of_two(ratio, 0x7FFFFF, 0)


def _q8(x):
    groups, amax = _grouped(x, TILE)
    scale, inverse = _activation_scale(amax, formats.FP8_AMAX_FLOOR, formats.INVERSE_E4M3_MAX)
    scaled = (groups * inverse).clamp_(-formats.E4M3_MAX, formats.E4M3_MAX)
    return _round_e4m3(scaled).mul_(scale).reshape(x.shape)


def _index(x):
    groups, amax = _grouped(x, TILE)
    scale, inverse = _activation_scale(amax, formats.INDEX_AMAX_FLOOR, formats.INVERSE_E2M1_MAX)
    scaled = (groups * inverse).clamp_(-formats.E2M1_MAX, formats.E2M1_MAX)
    return _round_e2m1(scaled).mul_(scale).reshape(x.shape)


def _compressed(x):
    groups, amax = _grouped(x, formats.KV_FP4_GROUP)
    scale = _round_e4m3(amax.clamp_(min=float(formats.KV_AMAX_FLOOR)).div_(6.0)
                        .clamp_(max=formats.E4M3_MAX))
    scaled = (groups / scale).clamp_(-formats.E2M1_MAX, formats.E2M1_MAX)
    return _round_e2m1(scaled).mul_(scale).reshape(x.shape)


def fake_fp8_tiles(w):
    """Dense FP8 weight [..., O, I]: code * scale."""
    return _passed_through(w, _fp8_tiles)


def fake_fp8_rows(w):
    """Engram rows [..., width], one scale per 32 values of a row: code * scale."""
    return _passed_through(w, _fp8_rows)


def fake_fp4_rows(w):
    """FP4 expert weight [..., O, I]: code * scale."""
    return _passed_through(w, _fp4_rows)


def fake_q8(x):
    """Q8 and FQ8: activations [..., K] before a linear layer, window KV rows."""
    return _passed_through(x, _q8)


def fake_index(x):
    """FQ4i: index queries and keys [..., index_head_dim]."""
    return _passed_through(x, _index)


def fake_compressed(x):
    """FQ4k: compressed KV rows [..., head_dim]."""
    return _passed_through(x, _compressed)


def fake_bf16(x):
    """Nearest BF16, ties to even."""
    return _passed_through(x, lambda wide: wide.bfloat16().float())

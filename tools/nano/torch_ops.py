"""Building blocks of the differentiable forward pass (spec/model.md sections 3 and 4).

Everything works on [..., D] tensors of float32 (training) or float64 (agreement with the reference).
`Numerics` says where values are rounded; with the default it is real arithmetic.
"""

import math

import torch
import torch.nn.functional as F

import quantise

MASKED = -1e30          # additive mask; not -inf, so that a row without any entry stays finite


class Numerics:
    """Rounding of activations: nothing (plain), the quantisers only (for the last part of training),
    or everything, as the reference does (exact)."""

    def __init__(self, quantise_activations=False, exact=False):
        self.quantise = quantise_activations or exact
        self.exact = exact

    def bf(self, x):
        """Nearest BF16, kept in the tensor's own type."""
        return x.float().bfloat16().to(x.dtype) if self.exact else x

    def q8(self, x):
        """Input of an FP8 or FP4 linear."""
        return quantise.fake_q8(x) if self.quantise else x

    def window(self, x):
        """A window row as its FP8 record gives it back."""
        return quantise.fake_q8(x) if self.quantise else x

    def index(self, x):
        """Index queries and keys."""
        return quantise.fake_index(x) if self.quantise else x

    def compressed(self, x):
        """Compressed KV rows."""
        return quantise.fake_compressed(x) if self.quantise else x

    def linear_q8(self, x, weight):
        """Quantised linear (section 3.3)."""
        return self.bf(F.linear(self.q8(x), weight))


class RmsNorm(torch.autograd.Function):
    """weight * x / rms(x) with few passes over memory."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        normed = x * scale
        ctx.save_for_backward(normed, scale, weight)
        return normed * weight

    @staticmethod
    def backward(ctx, grad):
        normed, scale, weight = ctx.saved_tensors
        product = grad * normed
        grad_weight = product.reshape(-1, product.shape[-1]).sum(0) if ctx.needs_input_grad[1] else None
        inner = product.mul_(weight).mean(-1, keepdim=True)
        return (grad * weight - normed * inner) * scale, grad_weight, None


def rms_norm(x, weight, eps):
    """[..., D] -> [..., D] (section 4.2)."""
    return RmsNorm.apply(x, weight, eps)


# ---- rotary position embedding (section 4.4) ----------------------------------------------------

def rope_table(positions, frequencies, dtype):
    """cos + i sin of the FP32 angle: complex [..., r/2]."""
    angle = (positions.float()[..., None] * frequencies).double()
    table = torch.polar(torch.ones_like(angle), angle)
    return table.to(torch.complex64 if dtype == torch.float32 else torch.complex128)


def rotate(x, table, inverse=False):
    """Rotate the adjacent pairs of the last dims; table broadcasts over x's leading dims."""
    width = 2 * table.shape[-1]
    pairs = torch.view_as_complex(x[..., -width:].reshape(*x.shape[:-1], width // 2, 2))
    turned = torch.view_as_real(pairs * (table.conj() if inverse else table)).flatten(-2)
    return torch.cat([x[..., :-width], turned], -1) if width < x.shape[-1] else turned


# ---- hyper-connections (section 4.2) ------------------------------------------------------------

def sinkhorn(logits, iterations, eps):
    """[M, source, target] -> nearly doubly stochastic, ends on a column step."""
    comb = torch.softmax(logits, -1) + eps
    comb = comb / (comb.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + eps)
        comb = comb / (comb.sum(-2, keepdim=True) + eps)
    return comb


def mixes(stream, fn, base, scale, text):
    """stream [M, C, D] -> pre [M, C], post [M, C], comb [M, C, C]."""
    copies = text.hc_mult
    flat = stream.flatten(1)
    raw = F.linear(flat, fn) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + text.rms_norm_eps)
    pre = torch.sigmoid(raw[:, :copies] * scale[0] + base[:copies]) + text.hc_eps
    post = 2 * torch.sigmoid(raw[:, copies:2 * copies] * scale[1] + base[copies:2 * copies])
    comb = (raw[:, 2 * copies:] * scale[2] + base[2 * copies:]).view(-1, copies, copies)
    return pre, post, sinkhorn(comb, text.hc_sinkhorn_iters, text.hc_eps)


def collapse(stream, pre):
    """Weighted sum of the copies: [M, C, D], [M, C] -> [M, D]."""
    return torch.einsum("mcd,mc->md", stream, pre)


def expand(output, stream, post, comb):
    """Next stream: post[j] * output + sum_i comb[i, j] * stream[i]."""
    return torch.bmm(torch.cat([post[:, :, None], comb.transpose(1, 2)], 2),
                     torch.cat([output[:, None], stream], 1))


# ---- attention core (section 4.7) ---------------------------------------------------------------

class SinkAttention(torch.autograd.Function):
    """Softmax attention with one shared key/value row per position and a sink per head.

    query [B, H*T, d] (head-major), keys [B, n, d], mask [B or 1, T, n] additive, sink [H] -> [B, H*T, d]
    """

    @staticmethod
    def forward(ctx, query, keys, mask, sink, heads, scale):
        batch, rows, _ = query.shape
        score = torch.bmm(query, keys.transpose(1, 2)).mul_(scale)
        grouped = score.view(batch, heads, rows // heads, -1).add_(mask[:, None])
        maximum = torch.maximum(score.amax(-1, keepdim=True),
                                sink.repeat_interleave(rows // heads)[None, :, None])
        probability = score.sub_(maximum).exp_()
        at_sink = (sink.repeat_interleave(rows // heads)[None, :, None] - maximum).exp_()
        denominator = probability.sum(-1, keepdim=True) + at_sink
        probability.div_(denominator)
        output = torch.bmm(probability, keys)
        ctx.save_for_backward(query, keys, probability, output, at_sink / denominator)
        ctx.heads, ctx.scale = heads, scale
        return output

    @staticmethod
    def backward(ctx, grad):
        query, keys, probability, output, at_sink = ctx.saved_tensors
        inner = (grad * output).sum(-1, keepdim=True)
        grad_keys = torch.bmm(probability.transpose(1, 2), grad)
        grad_score = torch.bmm(grad, keys.transpose(1, 2)).sub_(inner).mul_(probability)
        grad_query = torch.bmm(grad_score, keys).mul_(ctx.scale)
        grad_keys.baddbmm_(grad_score.transpose(1, 2), query, alpha=ctx.scale)
        per_head = (at_sink * inner).view(grad.shape[0], ctx.heads, -1).sum((0, 2))
        return grad_query, grad_keys, None, -per_head, None, None


# ---- experts (section 4.8) ----------------------------------------------------------------------

def router_scores(logits, text):
    """sqrt(softplus), the released scoring function."""
    if text.scoring_func != "sqrtsoftplus":
        raise ValueError(f"scoring_func {text.scoring_func!r} is not supported by the trainer")
    return torch.sqrt(F.softplus(logits) + 1e-20)


def swiglu(gate, up, limit):
    """silu(min(gate, limit)) * clamp(up)."""
    if limit > 0:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return F.silu(gate) * up


def expert_mlp(numerics, quantised, w1, w3, w2, limit, routing_weight=None):
    """quantised [M, D] (after q8) -> [M, D]."""
    activation = swiglu(numerics.bf(F.linear(quantised, w1)), numerics.bf(F.linear(quantised, w3)), limit)
    if routing_weight is not None:
        activation = activation * routing_weight[:, None]
    return numerics.linear_q8(numerics.bf(activation), w2)


def gelu(x):
    """Exact GELU."""
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))

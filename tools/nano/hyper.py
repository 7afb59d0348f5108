"""Hyper-connections for training: the kernels of hyper_kernels.c behind autograd functions.

Same functions as in torch_ops (collapse, expand, sinkhorn, mixes), float32 only.
"""

import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hyper_kernels.c")


def _build():
    """Compile the kernels for this machine into a temporary folder and load them."""
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "hyper_kernels.so")
        subprocess.run(["cc", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", SOURCE,
                        "-o", library], check=True)
        return ctypes.CDLL(library)


_LIBRARY = _build()


def _call(name, *arguments):
    converted = [ctypes.c_void_p(a.data_ptr()) if torch.is_tensor(a)
                 else ctypes.c_float(a) if isinstance(a, float) else ctypes.c_long(a) for a in arguments]
    getattr(_LIBRARY, name)(*converted)


class _Collapse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, stream, pre):
        stream, pre = stream.contiguous(), pre.contiguous()
        out = stream.new_empty(stream.shape[0], stream.shape[2])
        _call("collapse_forward", *stream.shape, stream, pre, out)
        ctx.save_for_backward(stream, pre)
        return out

    @staticmethod
    def backward(ctx, grad):
        stream, pre = ctx.saved_tensors
        grad_stream, grad_pre = torch.empty_like(stream), torch.empty_like(pre)
        _call("collapse_backward", *stream.shape, stream, pre, grad.contiguous(), grad_stream, grad_pre)
        return grad_stream, grad_pre


class _Expand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, output, stream, post, comb):
        tensors = [t.contiguous() for t in (output, stream, post, comb)]
        result = torch.empty_like(tensors[1])
        _call("expand_forward", *stream.shape, *tensors, result)
        ctx.save_for_backward(*tensors)
        return result

    @staticmethod
    def backward(ctx, grad):
        tensors = ctx.saved_tensors
        grads = [torch.empty_like(t) for t in tensors]
        _call("expand_backward", *tensors[1].shape, *tensors, grad.contiguous(), *grads)
        return tuple(grads)


class _Sinkhorn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, probability, iterations, eps):
        probability = probability.contiguous()
        comb = torch.empty_like(probability)
        _call("sinkhorn_forward", *probability.shape[:2], iterations, eps, probability, comb)
        ctx.save_for_backward(probability)
        ctx.iterations, ctx.eps = iterations, eps
        return comb

    @staticmethod
    def backward(ctx, grad):
        probability, = ctx.saved_tensors
        grad_probability = torch.empty_like(probability)
        _call("sinkhorn_backward", *probability.shape[:2], ctx.iterations, ctx.eps, probability,
              grad.contiguous(), grad_probability)
        return grad_probability, None, None


class _RawMixes(torch.autograd.Function):
    """(z @ fn^T) / rms(z) of the flattened stream."""

    @staticmethod
    def forward(ctx, flat, fn, eps):
        inverse_rms = torch.rsqrt((flat * flat).mean(-1, keepdim=True) + eps)
        dot = flat @ fn.t()
        ctx.save_for_backward(flat, fn, dot, inverse_rms)
        return dot * inverse_rms

    @staticmethod
    def backward(ctx, grad):
        flat, fn, dot, inverse_rms = ctx.saved_tensors
        grad_dot = grad * inverse_rms
        inner = (grad * dot).sum(-1, keepdim=True) * inverse_rms**3 / -flat.shape[1]
        grad_flat = (grad_dot @ fn).addcmul_(flat, inner)
        return grad_flat, grad_dot.t() @ flat, None


def collapse(stream, pre):
    """[M, C, D], [M, C] -> [M, D]"""
    return _Collapse.apply(stream, pre)


def expand(output, stream, post, comb):
    """[M, D], [M, C, D], [M, C], [M, C, C] -> [M, C, D]"""
    return _Expand.apply(output, stream, post, comb)


def mixes(stream, fn, base, scale, text):
    """stream [M, C, D] -> pre [M, C], post [M, C], comb [M, C, C]."""
    copies = text.hc_mult
    raw = _RawMixes.apply(stream.flatten(1), fn, text.rms_norm_eps)
    pre = torch.sigmoid(raw[:, :copies] * scale[0] + base[:copies]) + text.hc_eps
    post = 2 * torch.sigmoid(raw[:, copies:2 * copies] * scale[1] + base[copies:2 * copies])
    comb = (raw[:, 2 * copies:] * scale[2] + base[2 * copies:]).view(-1, copies, copies)
    return pre, post, _Sinkhorn.apply(torch.softmax(comb, -1), text.hc_sinkhorn_iters, text.hc_eps)

#!/usr/bin/python3
"""The compiled hyper-connections against the plain ones of torch_ops: values and gradients."""

import types
import unittest

import torch

import hyper
import torch_ops


class HyperTest(unittest.TestCase):

    def compare(self, name, *shapes, scale=1.0, extra=()):
        torch.manual_seed(7)
        inputs = [torch.randn(*shape) * scale for shape in shapes]
        results = []
        for module in (torch_ops, hyper):
            leaves = [t.clone().requires_grad_() for t in inputs]
            out = getattr(module, name)(*leaves, *extra)
            out = out if isinstance(out, tuple) else (out,)
            sum((o * torch.linspace(-1, 1, o.numel()).view_as(o)).sum() for o in out).backward()
            results.append([*out, *(leaf.grad for leaf in leaves)])
        for plain, fast in zip(*results):
            self.assertLess(float((plain - fast).norm() / plain.norm()), 1e-5)

    def test_all(self):
        for copies in (2, 3, 4):
            text = types.SimpleNamespace(hc_mult=copies, rms_norm_eps=1e-20, hc_eps=1e-6,
                                         hc_sinkhorn_iters=20)
            rows, width = 37, 64
            self.compare("collapse", (rows, copies, width), (rows, copies))
            self.compare("expand", (rows, width), (rows, copies, width), (rows, copies),
                         (rows, copies, copies))
            mixes = (2 + copies) * copies
            self.compare("mixes", (rows, copies, width), (mixes, copies * width), (mixes,), (3,),
                         extra=(text,))


if __name__ == "__main__":
    unittest.main()

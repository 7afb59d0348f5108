"""Hand-written gradients of torch_ops.py against differences, in float64."""

import unittest

import torch

from torch_ops import MASKED, RmsNorm, SinkAttention


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


class Gradients(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def test_norm(self):
        self.assertTrue(torch.autograd.gradcheck(
            lambda x, weight: RmsNorm.apply(x, weight, 1e-6), (random(3, 4, 8), random(8))))

    def test_attention(self):
        batch, heads, rows, keys, width = 2, 3, 4, 5, 6
        mask = torch.zeros(batch, rows, keys, dtype=torch.float64)
        mask[:, :, 3:] = MASKED
        mask[0, 1] = MASKED                     # a row that sees nothing but the sink
        mask[1, :, 4] = 0
        self.assertTrue(torch.autograd.gradcheck(
            lambda query, key, sink: SinkAttention.apply(query, key, mask, sink, heads, 0.3),
            (random(batch, heads * rows, width), random(batch, keys, width), random(heads))))


if __name__ == "__main__":
    unittest.main()

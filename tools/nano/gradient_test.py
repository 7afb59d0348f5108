"""Gradients against differences, in float64: the hand-written ones of torch_ops.py, and those of the
whole backbone on a golden sequence with a picture."""

import os
import unittest
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F

import quantise
from agreement import TorchSide, checkpoint, vision
from torch_ops import MASKED, Numerics, RmsNorm, SinkAttention

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/golden/tiny")
NOT_TRAINED_BY_THIS_LOSS = ("mtp.", ".indexer.", "gate.bias")
STEP = 1e-6                 # of the differences, relative to the mean size of a tensor's values


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


class HandWritten(unittest.TestCase):
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


class Backbone(unittest.TestCase):
    """Slope of the loss along a random direction of every tensor."""

    @classmethod
    def setUpClass(cls):
        torch.manual_seed(1)
        side = TorchSide(GOLDEN, Numerics())
        side.model.sparse = False               # a selection has no gradient
        expected = checkpoint.read_values(os.path.join(GOLDEN, "expected.safetensors"))
        picture = vision.decode_image(os.path.join(GOLDEN, "image0.png"))
        plan = vision.plan_resize(side.config.vision, picture.shape[1], picture.shape[0])
        ids = expected["image0.ids"]
        cls.side = side
        cls.batch = side.batch(ids, expected["image0.types"], vision.fit(picture, plan))
        cls.target = torch.from_numpy(np.asarray(ids[1:], np.int64))

    def loss(self):
        normed, _ = self.side.model.forward(self.side.weights, self.batch)
        return F.cross_entropy(self.side.model.logits(self.side.weights, normed)[0, :-1], self.target)

    @torch.no_grad()
    def slope(self, weight, direction):
        """Central difference of the loss; the weight is as before afterwards."""
        weight += STEP * direction
        above = self.loss()
        weight -= 2 * STEP * direction
        below = self.loss()
        weight += STEP * direction
        return float(above - below) / (2 * STEP)

    # Quantised table rows have the gradient of the unquantised ones, so differences would not fit.
    @mock.patch.object(quantise, "fake_fp8_rows", lambda rows: rows)
    def test_every_tensor(self):
        weights = self.side.weights
        for weight in weights.values():
            weight.requires_grad_()
        self.loss().backward()
        for name, weight in weights.items():
            if any(part in name for part in NOT_TRAINED_BY_THIS_LOSS):
                continue
            with self.subTest(name):
                direction = torch.randn_like(weight) * float(weight.detach().abs().mean())
                expected = float((weight.grad * direction).sum())
                self.assertNotEqual(expected, 0)
                self.assertAlmostEqual(self.slope(weight, direction) / expected, 1, places=3)


if __name__ == "__main__":
    np.seterr(over="ignore", under="ignore")
    unittest.main()

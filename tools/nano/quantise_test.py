"""The torch quantisers of quantise.py against the bytes they stand for and against tools/reference."""

import unittest

import numpy as np
import torch

import quantise
from quantise import formats

F64 = np.float64


def samples(rows, columns, seed):
    """float32 [rows, columns]: magnitudes from 1e-30 to 1e6, whole groups of zeros, group maxima on
    and next to the largest code, values half way between two codes."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, columns)).astype(np.float32)
    x *= np.exp2(rng.integers(-100, 20, (rows, 1))).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = 0
    x[0] = 0
    x[1] = np.resize(np.arange(-40, 40) * np.float32(0.25), columns)     # all E2M1 thresholds
    x[2] = np.resize(np.arange(1, 60) * np.float32(2.0**-10), columns)   # E4M3 subnormals
    x[3, ::32] = 448
    x[4, ::32] = np.nextafter(np.float32(448), np.float32(449))
    x[5, ::32] = 6
    x[6, ::32] = np.nextafter(np.float32(6), np.float32(7))
    x[7] = np.resize(np.float32([1e-5, -1e-6, 3e-5]), columns)           # below the Q8 floor
    x[8] = np.resize(np.float32([5000, -4000, 2688]), columns)           # FQ4k scale saturates
    return x


def bf16_samples(rows, columns, seed):
    """Activations are BF16 in the model."""
    return formats.round_bf16(samples(rows, columns, seed))


def torch_result(function, x):
    return function(torch.from_numpy(np.array(x))).numpy()


class Weights(unittest.TestCase):
    def decoded_tiles(self, w):
        codes, scales = quantise.fp8_tiles(w)
        wide = np.repeat(np.repeat(formats.decode_e8m0(scales), 32, 0), 32, 1)
        return formats.decode_e4m3(codes) * wide[:w.shape[0], :w.shape[1]]

    def decoded_rows(self, codes, scales, decode):
        return decode(codes).astype(F64) * np.repeat(formats.decode_e8m0(scales), 32, 1)

    def test_tiles(self):
        for shape in ((64, 96), (40, 80), (32, 33)):
            w = samples(*shape, 1)
            np.testing.assert_array_equal(torch_result(quantise.fake_fp8_tiles, w),
                                          self.decoded_tiles(w))

    def test_fp8_rows(self):
        w = samples(200, 64, 2)
        np.testing.assert_array_equal(
            torch_result(quantise.fake_fp8_rows, w),
            self.decoded_rows(*quantise.fp8_rows(w), formats.decode_e4m3))

    def test_fp4_rows(self):
        w = samples(200, 64, 3)
        np.testing.assert_array_equal(
            torch_result(quantise.fake_fp4_rows, w),
            self.decoded_rows(*quantise.fp4_rows(w), formats.unpack_e2m1))

    def test_leading_dimensions(self):
        w = samples(3 * 64, 64, 4).reshape(3, 64, 64)
        for function in (quantise.fake_fp8_tiles, quantise.fake_fp4_rows):
            whole = torch_result(function, w)
            for part, alone in zip(whole, w):
                np.testing.assert_array_equal(part, torch_result(function, alone))

    def test_scale_is_the_smallest_that_fits(self):
        w = samples(200, 64, 5)
        for quantiser, largest in ((quantise.fp8_rows, 448), (quantise.fp4_rows, 6)):
            amax = np.abs(w.astype(F64)).reshape(200, 2, 32).max(2)
            scale = formats.decode_e8m0(quantiser(w)[1])
            self.assertTrue((amax <= largest * scale).all())
            self.assertTrue((amax > largest * scale / 2)[amax > 0].all())

    def test_quantising_twice_changes_nothing(self):
        w = samples(64, 64, 6)
        for function in (quantise.fake_fp8_tiles, quantise.fake_fp4_rows, quantise.fake_fp8_rows):
            once = torch_result(function, w)
            np.testing.assert_array_equal(torch_result(function, once), once)


class Activations(unittest.TestCase):
    CASES = ((quantise.fake_q8, formats.quantize_q8), (quantise.fake_index, formats.fake_quantize_index),
             (quantise.fake_compressed, formats.fake_quantize_compressed))

    def test_equal_to_the_reference(self):
        for seed in range(5):
            x = bf16_samples(300, 128, seed)
            for mine, reference in self.CASES:
                np.testing.assert_array_equal(torch_result(mine, x), reference(x))
                np.testing.assert_array_equal(torch_result(mine, x.astype(F64)), reference(x))

    def test_window_rows(self):
        x = bf16_samples(300, 128, 9)
        np.testing.assert_array_equal(torch_result(quantise.fake_q8, x),
                                      formats.fake_quantize_window(x))

    def test_bf16(self):
        x = samples(300, 128, 10)
        np.testing.assert_array_equal(torch_result(quantise.fake_bf16, x), formats.round_bf16(x))


class Gradient(unittest.TestCase):
    def test_passes_straight_through(self):
        for function in (quantise.fake_fp8_tiles, quantise.fake_fp4_rows, quantise.fake_q8,
                         quantise.fake_index, quantise.fake_compressed, quantise.fake_fp8_rows):
            for dtype in (torch.float32, torch.float64):
                x = torch.randn(64, 64, dtype=dtype, requires_grad=True)
                before = x.detach().clone()
                (function(x) * 3).sum().backward()
                self.assertTrue(torch.equal(x.detach(), before))
                self.assertTrue((x.grad == 3).all())


if __name__ == "__main__":
    unittest.main()

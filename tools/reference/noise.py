"""What float32 sums do to the logits, under several orders of summation.

    python3 noise.py FOLDER [--orders N] [--longest N]

`reference_noise` in expected.json is one draw: the float32 run of one machine's BLAS. This runs the
same sequences with float32 sums over a random order of K, once per seed, the quantised linears summed
over all of K at once (as fast kernels do), and prints every draw beside the one in the file. A
sequence in which no rounding tips shows 1e-7; one that tips early shows 1e-2; which of the two it is
depends on the order alone.
"""

import argparse
import json
import os

import numpy as np

import attention
import moe
import engram
import ops
from checkpoint import read_values
from check import numbered
from formats import F32, quantize_q8, round_bf16
from model import Backbone


class ShuffledSums:
    """Replaces the matrix products of the reference by float32 sums over a shuffled K."""

    def __init__(self, seed):
        self._seed = seed
        self._saved = (ops.matmul_fp32, ops.linear_q8)

    def _matmul(self, left, right):
        order = np.random.default_rng(self._seed).permutation(right.shape[-2])
        left = np.asarray(left)[..., order].astype(F32)
        right = np.asarray(right)[..., order, :].astype(F32)
        return np.matmul(left, right)

    def _linear_q8(self, x, weight):
        return round_bf16(self._matmul(quantize_q8(x), weight.T))

    def _install(self, matmul, linear_q8):
        ops.matmul_fp32 = attention.matmul_fp32 = matmul
        ops.linear_q8 = attention.linear_q8 = moe.linear_q8 = engram.linear_q8 = linear_q8

    def __enter__(self):
        self._install(self._matmul, self._linear_q8)

    def __exit__(self, *error):
        self._install(*self._saved)


def row_noise(computed, expected):
    """Relative L2 per row."""
    difference = np.linalg.norm(computed.astype(np.float64) - expected, axis=-1)
    return difference / np.linalg.norm(expected.astype(np.float64), axis=-1)


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--orders", type=int, default=4)
    parser.add_argument("--longest", type=int, default=130)
    arguments = parser.parse_args()

    expected = read_values(os.path.join(arguments.folder, "expected.safetensors"))
    with open(os.path.join(arguments.folder, "expected.json"), encoding="utf-8") as file:
        recorded = json.load(file)["reference_noise"]
    backbone = Backbone(arguments.folder)
    print("median of the rows' relative L2: the file's, then one per order")
    for name in numbered(expected, "seq"):
        ids, rows = expected[f"{name}.ids"], expected[f"{name}.rows"]
        if len(ids) > arguments.longest:
            continue
        medians = []
        for seed in range(arguments.orders):
            with ShuffledSums(seed), ops.sums_in(F32):
                logits = backbone.forward(backbone.new_state(), ids).logits[rows]
            medians.append(np.median(row_noise(logits, expected[f"{name}.logits"])))
        draws = " ".join(f"{median:8.1e}" for median in medians)
        print(f"{name:8} {recorded[name]['median']:8.1e} | {draws}", flush=True)


if __name__ == "__main__":
    np.seterr(over="ignore", under="ignore")
    main()

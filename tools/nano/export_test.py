"""export.py on random weights: what the reference reads back is what the trainer computes with."""

import filecmp
import os
import sys
import tempfile
import unittest

import numpy as np
import torch

import export
import quantise
from checkpoint import Checkpoint
from config import parse_config
from derived_config import complete_template

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import random_checkpoint  # noqa: E402  (tools/reference)


class Export(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.tokenizer, cls.folder = (os.path.join(cls.scratch.name, name) for name in "tm")
        os.makedirs(cls.tokenizer)
        tokenizer = random_checkpoint.build_tokenizer(2560, np.random.default_rng(1))
        for name in export.TOKENIZER_FILES:
            export.write_json(os.path.join(cls.tokenizer, name), tokenizer)
        cls.raw_config = complete_template(cls.tokenizer)
        cls.config = parse_config(cls.raw_config)
        cls.state = export.random_state(cls.config, 1)
        export.export(cls.raw_config, cls.state, cls.tokenizer, cls.folder)
        cls.checkpoint = Checkpoint(cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def torch_values(self, quantiser, values):
        return quantiser(torch.from_numpy(values)).numpy()

    def test_dense(self):
        name = "layers.1.attn.wq_b"
        np.testing.assert_array_equal(
            self.checkpoint.quantized_matrix(name),
            self.torch_values(quantise.fake_fp8_tiles, self.state[name + ".weight"]))

    def test_experts(self):
        for stack, expert, matrix in (("layers.3.ffn.experts", 7, "w2"), ("mtp.1.ffn.experts", 0, "w1")):
            np.testing.assert_array_equal(
                self.checkpoint.quantized_matrix(f"{stack}.{expert}.{matrix}"),
                self.torch_values(quantise.fake_fp4_rows, self.state[f"{stack}.{matrix}"])[expert])

    def test_engram_table(self):
        name = f"layers.{self.config.text.engram_layer_ids[1]}.engram.embed"
        np.testing.assert_array_equal(
            self.checkpoint.engram_rows(name, np.arange(100)),
            self.torch_values(quantise.fake_fp8_rows, self.state[name + ".weight"][:100]))

    def test_plain(self):
        np.testing.assert_array_equal(
            self.checkpoint.tensor("embed.weight"),
            self.torch_values(quantise.fake_bf16, self.state["embed.weight"]))
        np.testing.assert_array_equal(self.checkpoint.tensor("layers.2.hc_attn_fn"),
                                      self.state["layers.2.hc_attn_fn"])

    def test_same_bytes_again(self):
        again = self.folder + "2"
        export.export(self.raw_config, self.state, self.tokenizer, again)
        names = os.listdir(self.folder)
        self.assertEqual(filecmp.cmpfiles(self.folder, again, names, shallow=False)[0], names)

    def test_leftover_name_is_refused(self):
        self.assertEqual(export.unused_names(self.config, self.state), [])
        self.assertEqual(export.unused_names(self.config, {**self.state, "extra": 0}), ["extra"])


if __name__ == "__main__":
    unittest.main()

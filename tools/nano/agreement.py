"""The trainer's forward pass against tools/reference on golden folders, in two ways.

    agreement.py FOLDER ...

1. Without rounding: the reference with float64 for FP32 and every rounding taken out, against the torch
   model in float64. Logits, features, taps, index selections and drafts are equal to 1e-9, without and
   with the quantisers of activations. That proves the formulas, and what is quantised where.
2. With every rounding: one layer at a time on the golden input of that layer, against the golden output.
   Two ways to sum differ in a last BF16 bit here and there, and block formats, selections and routing
   make much of that (spec/model.md section 4.11), so the median row is judged.

Gradients of the hand-written autograd functions are checked against differences in gradient_test.py.
"""

import argparse
import contextlib
import os
import sys

import numpy as np
import torch

from checkpoint_weights import load_weights
from torch_draft import Drafter
from torch_engram import EngramRows
from torch_model import Batch, NanoModel
from torch_ops import Numerics

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import attention  # noqa: E402  (tools/reference, up to vision)
import checkpoint  # noqa: E402
import draft  # noqa: E402
import engram  # noqa: E402
import formats  # noqa: E402
import golden  # noqa: E402
import hyper_connections  # noqa: E402
import model  # noqa: E402
import moe  # noqa: E402
import ops  # noqa: E402
import state  # noqa: E402
import vision  # noqa: E402
from tokenizer_map import load_token_map  # noqa: E402

REAL_LIMIT = 1e-9           # largest relative L2 of a row without rounding
LAYER_LIMIT = 2e-2          # median relative L2 of the rows of one layer with every rounding
LONGEST = 400               # tokens; the reference is slow on longer sequences
DRAFT_STEPS = 4

# Not formats and checkpoint: they handle stored words.
REFERENCE = (attention, draft, engram, hyper_connections, model, moe, ops, state, vision)


# ---- the reference without rounding ---------------------------------------------------------------

ROUNDINGS = ("round_bf16", "round_bf16_once")
QUANTISERS = ("quantize_q8", "fake_quantize_window", "fake_quantize_index", "fake_quantize_compressed")


def _identity(x):
    return np.asarray(x, np.float64)


def _rotate_without_rounding(x, positions, frequencies, inverse=False):
    """ops.rotate; the angle stays the FP32 product that the spec asks for."""
    angle = np.asarray(positions).astype(np.float32)[:, None] * frequencies[None, :].astype(np.float32)
    angle = angle.astype(np.float64).reshape((len(x),) + (1,) * (x.ndim - 2) + (len(frequencies),))
    turn = np.exp(-1j * angle if inverse else 1j * angle)
    rotated = np.array(x, np.float64)
    tail = rotated[..., -2 * len(frequencies):]
    pairs = (tail[..., 0::2] + 1j * tail[..., 1::2]) * turn
    tail[..., 0::2], tail[..., 1::2] = pairs.real, pairs.imag
    return rotated


@contextlib.contextmanager
def without_rounding(quantise):
    """Replace FP32 by float64 and rounding by nothing in the reference; quantisers if not wanted."""
    replaced = {id(formats.F32): np.float64, id(ops.rotate): _rotate_without_rounding}
    for name in ROUNDINGS if quantise else ROUNDINGS + QUANTISERS:
        replaced[id(getattr(formats, name))] = _identity
    saved = [(module, name, value) for module in REFERENCE for name, value in vars(module).items()
             if id(value) in replaced]
    stored_tensor = checkpoint.Checkpoint.tensor
    try:
        for module, name, value in saved:
            setattr(module, name, replaced[id(value)])
        checkpoint.Checkpoint.tensor = lambda self, name: stored_tensor(self, name).astype(np.float64)
        yield
    finally:
        checkpoint.Checkpoint.tensor = stored_tensor
        for module, name, value in saved:
            setattr(module, name, value)


# ---- the torch side ------------------------------------------------------------------------------

class TorchSide:
    """The model of a folder in float64."""

    def __init__(self, folder, numerics, model_class=NanoModel):
        self.config, self.weights = load_weights(folder)
        self.model = model_class(self.config, numerics, torch.float64, sparse=True)
        token_map, _ = load_token_map(folder, self.config.text.vocab_size)
        self.hasher = EngramRows(self.config.text, token_map)

    def batch(self, ids, types=None, image=None):
        """One sequence; image: uint8 [h, w, 3] or None."""
        ids = np.asarray(ids, np.int64)
        types = np.full(len(ids), -1) if types is None else np.asarray(types, np.int64)
        rows = self.hasher.rows(ids, types >= 0)
        return Batch(torch.from_numpy(ids)[None], torch.from_numpy(types)[None],
                     torch.arange(len(ids))[None], torch.from_numpy(rows)[None],
                     [] if image is None else [image])

    @torch.no_grad()
    def forward(self, batch):
        """-> (normed [N, D], logits [N, V], step)"""
        normed, step = self.model.forward(self.weights, batch)
        return normed[0], self.model.logits(self.weights, normed)[0], step

    @torch.no_grad()
    def drafts(self, tokens, anchor):
        """Greedy draft after `anchor`; tokens are committed. -> (ids [K], logits, confidence)"""
        text, drafter = self.config.text, Drafter(self.model)
        _, _, step = self.forward(self.batch(tokens))
        taps = torch.cat(step.taps, -1)[None]
        context = drafter.context(self.weights, taps, torch.arange(len(tokens))[None])
        window = [rows[:, -text.sliding_window:] for rows in context]
        readable = torch.ones(1, window[0].shape[1], dtype=torch.bool)
        anchors = torch.tensor([anchor])
        hidden = drafter.hidden(self.weights, anchors, torch.tensor([len(tokens)]), window, readable)
        return [values[0] for values in drafter.propose(self.weights, hidden, anchors)]


# ---- the comparison ------------------------------------------------------------------------------

class Report:
    """One line per item; remembers failures."""

    def __init__(self):
        self.failed = []

    def close(self, name, computed, expected, limit, statistic=np.max):
        """Worst or other relative L2 of the rows (last axis)."""
        computed, expected = (np.asarray(x, np.float64) for x in (computed, expected))
        error = np.linalg.norm(computed - expected, axis=-1)
        scale = np.maximum(np.linalg.norm(expected, axis=-1), 1e-30)
        found = statistic(error / scale) if computed.shape == expected.shape else np.inf
        self._line(name, f"{found:.2e}", found <= limit)

    def equal(self, name, computed, expected):
        """Integers."""
        computed, expected = np.asarray(computed), np.asarray(expected)
        same = computed.shape == expected.shape and (computed == expected).all()
        self._line(name, "equal" if same else "", same)

    def _line(self, name, text, passed):
        print(f"{name:44} {text:>10}{'' if passed else '  DIFFERS'}", flush=True)
        if not passed:
            self.failed.append(name)


def selected_sets(selected, n_rows):
    """Reference lists [T, k] with -1 padding -> bool [T, rows]."""
    chosen = np.zeros((len(selected), n_rows + 1), bool)
    np.put_along_axis(chosen, np.where(selected < 0, n_rows, selected), True, 1)
    return chosen[:, :n_rows]


class SelectionKeeper(NanoModel):
    """Remembers what every index source selected."""

    def _select(self, layer, scores, step):
        chosen = super()._select(layer, scores, step)
        step.streams[f"selected {layer}"] = chosen[0].numpy()
        return chosen


def check_sequences(report, side, backbone, expected):
    """Text sequences without rounding."""
    names = sorted((name for name in expected if name.startswith("seq") and name.endswith(".ids")),
                   key=lambda name: len(expected[name]))
    for name in names:
        ids = expected[name]
        if len(ids) > LONGEST:
            continue
        reference = backbone.forward(backbone.new_state(), ids)
        normed, logits, step = side.forward(side.batch(ids))
        label = name.removesuffix(".ids")
        report.close(f"{label} logits", logits, reference.logits, REAL_LIMIT)
        report.close(f"{label} normed", normed, reference.normed, REAL_LIMIT)
        report.close(f"{label} taps", torch.cat(step.taps, -1), reference.main_hidden, REAL_LIMIT)
        for layer, selected in reference.index_topk.items():
            mine = step.streams[f"selected {layer}"]
            report.equal(f"{label} selected by layer {layer}", mine,
                         selected_sets(selected, mine.shape[1]))


def check_images(report, side, folder, backbone, expected):
    """Image sequences without rounding; the pixels are those the reference resized."""
    for name in sorted(n for n in expected if n.startswith("image") and n.endswith(".ids")):
        label = name.removesuffix(".ids")
        picture = vision.decode_image(os.path.join(folder, f"{label}.png"))
        plan = vision.plan_resize(backbone.config.vision, picture.shape[1], picture.shape[0])
        ids, types = expected[name], expected[f"{label}.types"]
        patches = expected[f"{label}.patches"]
        embeddings = vision.VisionEncoder(backbone).encode(patches, plan)
        reference = backbone.forward(backbone.new_state(), ids, types, embeddings)
        _, logits, _ = side.forward(side.batch(ids, types, vision.fit(picture, plan)))
        report.close(f"{label} logits", logits, reference.logits, REAL_LIMIT)


def check_drafts(report, side, backbone, expected):
    """Greedy decoding with a draft after every token, without rounding."""
    for name in ("spec", "spec_short"):
        ids = expected[f"{name}.ids"].tolist()
        items = golden.draft_items(backbone, name, ids, DRAFT_STEPS)
        for step, anchor in enumerate(items[f"{name}.greedy"].tolist()):
            drafted, logits, confidence = side.drafts(ids, anchor)
            report.equal(f"{name} drafts {step}", drafted, items[f"{name}.draft_ids"][step][1:])
            report.close(f"{name} logits {step}", logits, items[f"{name}.draft_logits"][step], REAL_LIMIT)
            report.close(f"{name} confidence {step}", confidence[:, None],
                         items[f"{name}.confidence"][step][:, None], REAL_LIMIT)
            ids.append(anchor)


# ---- one layer at a time with every rounding ------------------------------------------------------

class OneLayerAtATime(NanoModel):
    """Hands the golden output of a layer to the next one."""
    golden = None
    computed = None

    def block(self, weights, prefix, stream, pre, *rest):
        self.computed[prefix] = super().block(weights, prefix, stream, pre, *rest)
        return tuple(torch.from_numpy(self.golden[f"{prefix}{part}"]).double()
                     for part in ("stream", "pre"))


def check_layers(report, folder, expected):
    """Every layer of the one golden sequence whose layers are stored."""
    label = next(name.split(".")[0] for name in expected if name.endswith(".layer.0.stream"))
    side = TorchSide(folder, Numerics(exact=True), OneLayerAtATime)
    side.model.computed = {}
    side.model.golden = {name.replace(f"{label}.layer.", "layers."): values
                         for name, values in expected.items() if name.startswith(f"{label}.layer.")}
    side.forward(side.batch(expected[f"{label}.ids"]))
    for prefix, computed in side.model.computed.items():
        for part, values in zip(("stream", "pre"), computed):
            report.close(f"{label} rounded {prefix}{part}", values.flatten(1),
                         side.model.golden[prefix + part].reshape(len(values), -1), LAYER_LIMIT,
                         np.median)


def check_folder(report, folder):
    """Everything about one golden folder."""
    print(folder)
    expected = checkpoint.read_values(os.path.join(folder, "expected.safetensors"))
    backbone = model.Backbone(folder)
    check_layers(report, folder, expected)
    for quantise in (False, True):
        print("activations quantised" if quantise else "no rounding")
        side = TorchSide(folder, Numerics(quantise_activations=quantise), SelectionKeeper)
        with without_rounding(quantise):
            check_sequences(report, side, backbone, expected)
            check_images(report, side, folder, backbone, expected)
            if backbone.text.num_nextn_predict_layers:
                check_drafts(report, side, backbone, expected)


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    report = Report()
    for folder in parser.parse_args().folders:
        check_folder(report, folder)
    print(f"{len(report.failed)} items differ" if report.failed else "all agree")
    return 1 if report.failed else 0


if __name__ == "__main__":
    np.seterr(over="ignore", under="ignore")
    sys.exit(main())

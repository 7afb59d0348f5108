"""Shards of the training corpus: examples in one .npz file."""
import os
from dataclasses import dataclass, field

import numpy

KINDS = ["facts", "arithmetic", "tools", "json", "recall", "images", "talk"]


@dataclass
class Example:
    """A tokenised conversation, BOS to EOS."""
    ids: numpy.ndarray        # int32 [n]
    weight: numpy.ndarray     # float16 [n]: loss weight of predicting this token
    types: numpy.ndarray      # int8 [n]: -1 text, 0 start, 1 image, 2 newline, 3 end of an image span
    positions: numpy.ndarray  # int32 [n], increasing; even exactly where the index is even
    kind: int                 # index into KINDS
    images: list = field(default_factory=list)  # uint8 [h, w, 3] in order of their spans


def save(path, examples):
    """Writes a shard under another name first, so that a reader never sees half of it."""
    join = lambda name: numpy.concatenate([getattr(e, name) for e in examples])
    images = [i for e in examples for i in e.images]
    pixels = [i.reshape(-1) for i in images] or [numpy.zeros(0, numpy.uint8)]
    temporary = f"{path}.tmp.npz"
    numpy.savez_compressed(
        temporary, ids=join("ids"), weight=join("weight"), types=join("types"), positions=join("positions"),
        example_offsets=numpy.cumsum([0] + [len(e.ids) for e in examples]),
        kind=numpy.array([e.kind for e in examples], numpy.int32),
        image_offsets=numpy.cumsum([0] + [len(e.images) for e in examples]),
        image_sizes=numpy.array([i.shape[:2] for i in images], numpy.int32).reshape(-1, 2),
        pixels=numpy.concatenate(pixels))
    os.rename(temporary, path)


def load(path):
    """All examples of a shard."""
    with numpy.load(path) as file:
        data = {name: file[name] for name in file.files}
    sizes = data["image_sizes"]
    ends = numpy.cumsum([0] + [int(h) * int(w) * 3 for h, w in sizes])
    images = [data["pixels"][a:b].reshape(h, w, 3) for a, b, (h, w) in zip(ends, ends[1:], sizes)]
    rows, pictures = data["example_offsets"], data["image_offsets"]
    return [Example(*(data[name][rows[i]:rows[i + 1]] for name in ("ids", "weight", "types", "positions")),
                    int(kind), images[pictures[i]:pictures[i + 1]])
            for i, kind in enumerate(data["kind"])]

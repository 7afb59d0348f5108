#!/usr/bin/env python3
"""Writes the training corpus of the nano model.

    make_corpus.py --tokenizer models/nano/tokenizer.json --out DIR --tokens 16000000 --seed 1
    make_corpus.py --text FILE --tokens 3000000 --seed 2      (plain text, to train the tokenizer on)

Shards DIR/train-NNNN.npz of about half a million tokens each, every one a mix of all kinds
(corpus_file.py). Same arguments, same bytes.
"""
import argparse
import random
from pathlib import Path

import numpy

from chat import render, text_of
from corpus import arithmetic, facts, images, json_objects, recall, talk, tool_use
from corpus_file import KINDS, Example, save
from tokenizer import Tokenizer

GENERATORS = {"facts": facts.make, "arithmetic": arithmetic.make, "tools": tool_use.make, "json": json_objects.make,
              "recall": recall.make, "images": images.make, "talk": talk.make}
SHARES = {"facts": 15, "arithmetic": 15, "tools": 25, "json": 8, "recall": 20, "images": 12, "talk": 5}
SHARD_TOKENS = 500_000
LONGEST = 1024
LONGEST_RECALL = 3072

# Weight of tokens that the model does not write. Less where they are long and random (haystacks) or always
# the same (the tools text), so that what the model writes dominates.
CONTEXT_WEIGHT = {"recall": 0.02, "tools": 0.05}
LAST_POSITION = 32767
START, PATCH, NEWLINE, END, TEXT = 0, 1, 2, 3, -1


def image_span(height, width):
    """Roles of a picture's span (docs/spec/vision.md 8.2): start, rows with a newline each, end."""
    row = [PATCH] * (width // 42) + [NEWLINE]
    return [START] + row * (height // 42) + [END]


def gap_positions(rng, count, starts):
    """Positions [count] that jump at some of `starts` (token indices) by even steps.

    The compressor pairs positions 2i and 2i+1. Jumps are even and happen at even indices only, so a
    pair of positions is always a pair of neighbours."""
    starts = [s for s in starts if s % 2 == 0 and s > 0]
    positions = numpy.arange(count, dtype=numpy.int32)
    if not starts:
        return positions
    room = int(2 ** rng.uniform(8, 15)) - count
    if room < 2:
        return positions
    chosen = rng.sample(starts, rng.randint(1, min(len(starts), 12)))
    cuts = sorted(rng.randint(0, room // 2) for _ in range(len(chosen) - 1))
    steps = [2 * (b - a) for a, b in zip([0] + cuts, cuts + [room // 2])]
    for start, step in zip(sorted(chosen), steps):
        positions[start:] += step
    return positions


def encode(sample, tokenizer, rng):
    """The Example of a sample."""
    segments = render(sample.chat)
    if sample.sentences:
        segments = split_sentences(segments, sample.sentences)
    ids, trained, first = tokenizer.encode(segments)
    context = CONTEXT_WEIGHT.get(sample.kind, 0.1)
    out_ids, weight, types, index, pictures = [], [], [], {}, iter(sample.images)
    for i, token in enumerate(ids):
        index[i] = len(out_ids)
        if token == tokenizer.image_id:
            roles = image_span(*next(pictures).shape[:2])
            out_ids += [token] * len(roles)
            types += roles
            weight += [0.0] * len(roles)
        else:
            out_ids.append(token)
            types.append(TEXT)
            weight.append(1.0 if trained[i] else context)
    weight[0] = 0.0
    positions = numpy.arange(len(out_ids), dtype=numpy.int32)
    if sample.sentences and rng.random() < 0.5:
        wanted = set(sample.sentences)
        starts = [first[i] for i, s in enumerate(segments) if s.text.lstrip(" ") in wanted]
        positions = gap_positions(rng, len(out_ids), [index[s] for s in starts if s is not None])
    return Example(numpy.array(out_ids, numpy.int32), numpy.array(weight, numpy.float16),
                   numpy.array(types, numpy.int8), positions, KINDS.index(sample.kind), sample.images)


def split_sentences(segments, sentences):
    """The segments with the first user text cut into its sentences (each with the space before it)."""
    text = " ".join(sentences)
    at = next(i for i, s in enumerate(segments) if s.text.startswith(text))
    old = segments[at]
    parts = [s if i == 0 else " " + s for i, s in enumerate(sentences)] + [old.text[len(text):]]
    return segments[:at] + [old._replace(text=p) for p in parts] + segments[at + 1:]


def samples(seed, long_recall=False):
    """Endless conversations whose kinds have their shares of the tokens; the size of each has to be sent back.
    long_recall: recall has half of them, in texts of a few thousand tokens."""
    rng = random.Random(seed)
    generators = {**GENERATORS, "recall": recall.make_long} if long_recall else GENERATORS
    shares = {**SHARES, "recall": 80} if long_recall else SHARES
    used = {kind: 0.0 for kind in KINDS}
    while True:
        kind = min(KINDS, key=lambda k: (used[k] / shares[k], k))
        size = yield generators[kind](rng), rng
        used[kind] += size


def write_text(path, tokens, seed):
    """Rendered conversations as plain text, about `tokens` of four characters."""
    source = samples(seed)
    sample, _ = next(source)
    written = 0
    with open(path, "w", encoding="utf-8") as file:
        while written < 4 * tokens:
            text = text_of(render(sample.chat))
            file.write(text + "\n")
            written += len(text)
            sample, _ = source.send(len(text))


def write_shards(out, tokenizer, tokens, seed, first, long_recall=False):
    """Shards from number `first` on; each has a seed of its own, so any can be made anew."""
    out.mkdir(parents=True, exist_ok=True)
    for number in range(first, -(-tokens // SHARD_TOKENS)):
        source = samples(f"{seed} {number}", long_recall)
        sample, rng = next(source)
        examples, total = [], 0
        while total < SHARD_TOKENS:
            example = encode(sample, tokenizer, rng)
            size = len(example.ids)
            if size <= (LONGEST_RECALL if long_recall else LONGEST):
                examples.append(example)
                total += size
            sample, rng = source.send(size)
        rng.shuffle(examples)
        save(out / f"train-{number:04d}.npz", examples)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=16_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokenizer", default="models/nano/tokenizer.json")
    parser.add_argument("--first", type=int, default=0, help="number of the first shard to write")
    parser.add_argument("--long-recall", action="store_true", help="a corpus for the indexers: half of it long texts")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", type=Path)
    where.add_argument("--text", type=Path)
    args = parser.parse_args()
    if args.text:
        write_text(args.text, args.tokens, args.seed)
    else:
        write_shards(args.out, Tokenizer(args.tokenizer), args.tokens, args.seed, args.first,
                     args.long_recall)


if __name__ == "__main__":
    main()

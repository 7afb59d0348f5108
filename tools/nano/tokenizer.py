#!/usr/bin/env python3
"""The nano model's tokenizer: byte-level BPE of the official kind (docs/spec/chat.md, section 1).

    tokenizer.py --text FILE --out DIR [--vocabulary 2560]

trains on FILE and writes DIR/tokenizer.json and tokenizer_config.json. As a module: `Tokenizer` encodes
the segments of chat.py as the engine does. Digits never merge, so numbers are read digit by digit.
"""
import argparse
import json
import re
import unicodedata
from collections import Counter, defaultdict
from pathlib import Path

CONTROL_FIRST = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
CONTROL_LAST = [
    "<｜System｜>", "<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>", "<｜User｜>", "<｜Assistant｜>",
    "<think>", "</think>", "｜DSML｜", "<｜latest_reminder｜>", "<｜action｜>", "<｜query｜>",
    "<｜authority｜>", "<｜domain｜>", "<｜title｜>", "<｜read_url｜>", "<｜deepseek_image｜>"]
IMAGE = CONTROL_LAST[-1]

SPLITS = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]

# The three splits in one, over one class letter per character:
# a ASCII letter, L other letter, M mark, N number, H Han and kana, p ASCII sign, P other sign,
# n CR or LF, s space, w other white space, x anything else.
PIECE = re.compile(r"N{1,3}|H+|pa+|[^naLpPNH]?[aLM]+|s?[pP]+n*|[swn]*n+|[swn]+(?![^swnNH])|[swn]+|x+?(?=x[aLM]|[^x]|$)")


def class_of(char):
    """The class letter of a character, see PIECE."""
    if char in "\r\n":
        return "n"
    if char == " ":
        return "s"
    if char.isspace():
        return "w"
    if "一" <= char <= "龥" or "぀" <= char <= "ヿ":
        return "H"
    if char.isascii() and char.isalpha():
        return "a"
    kind = unicodedata.category(char)[0]
    if kind in "PS":
        return "p" if char.isascii() else "P"
    return kind if kind in "LMN" else "x"


class ClassTable(dict):
    """Code point to class letter, for str.translate."""
    def __missing__(self, code):
        self[code] = class_of(chr(code))
        return self[code]


CLASSES = ClassTable()


def split_pieces(text):
    """The pieces that are merged separately; together they are `text`."""
    return [text[m.start():m.end()] for m in PIECE.finditer(text.translate(CLASSES))]


def byte_alphabet():
    """GPT-2's printable character for every byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    table = {b: chr(b) for b in printable}
    table.update({b: chr(256 + i) for i, b in enumerate(others)})
    return table


BYTES = byte_alphabet()


def train_merges(text, count):
    """`count` merges, by frequency in `text`; ties to the pair that sorts first."""
    words = Counter(split_pieces(text))
    symbols, counts = [], []
    for piece, n in sorted(words.items()):
        if not any(class_of(c) == "N" for c in piece):
            symbols.append([BYTES[b] for b in piece.encode()])
            counts.append(n)
    pairs, where = Counter(), defaultdict(set)
    for i, word in enumerate(symbols):
        for pair in zip(word, word[1:]):
            pairs[pair] += counts[i]
            where[pair].add(i)
    merges = []
    while len(merges) < count and pairs:
        best = min(pairs, key=lambda p: (-pairs[p], p))
        if pairs[best] < 2:
            break
        merges.append(best)
        for i in where.pop(best):
            word = symbols[i]
            for pair in zip(word, word[1:]):
                pairs[pair] -= counts[i]
            symbols[i] = merged = merge_pair(word, best)
            for pair in zip(merged, merged[1:]):
                pairs[pair] += counts[i]
                where[pair].add(i)
        del pairs[best]
    return merges


def merge_pair(word, pair):
    """`word` with every occurrence of `pair` joined, leftmost first."""
    out, i = [], 0
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


def added_token(token_id, content):
    return {"id": token_id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": content in CONTROL_FIRST}


def tokenizer_json(merges, vocabulary):
    """The file's content: control tokens 0..2, bytes, merges, then the other control tokens."""
    last = vocabulary - len(CONTROL_LAST)
    entries = CONTROL_FIRST + [BYTES[b] for b in range(256)] + [a + b for a, b in merges]
    if len(entries) != last:
        raise ValueError(f"{len(entries)} entries, {last} wanted: more text is needed")
    added = [added_token(i, t) for i, t in enumerate(CONTROL_FIRST)]
    added += [added_token(last + i, t) for i, t in enumerate(CONTROL_LAST)]
    split = lambda regex: {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    level = lambda **more: {"type": "ByteLevel", **more}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": []},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split(r) for r in SPLITS] + [
            level(add_prefix_space=False, trim_offsets=True, use_regex=False)]},
        "post_processor": level(add_prefix_space=True, trim_offsets=False, use_regex=True),
        "decoder": level(add_prefix_space=True, trim_offsets=True, use_regex=True),
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {t: i for i, t in enumerate(entries)}, "merges": [f"{a} {b}" for a, b in merges]}}


def tokenizer_config(context):
    return {"bos_token": CONTROL_FIRST[0], "eos_token": CONTROL_FIRST[1], "pad_token": CONTROL_FIRST[1],
            "add_bos_token": False, "model_max_length": context,
            "tokenizer_class": "PreTrainedTokenizerFast"}


class Tokenizer:
    """Encodes and decodes by a tokenizer.json of this kind."""

    def __init__(self, path):
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        self.vocabulary = data["model"]["vocab"]
        self.ranks = {tuple(m.split(" ")): i for i, m in enumerate(data["model"]["merges"])}
        self.added = {t["content"]: t["id"] for t in data["added_tokens"]}
        self.size = max(max(self.vocabulary.values()), max(self.added.values())) + 1
        self.added_pattern = re.compile("|".join(
            re.escape(t) for t in sorted(self.added, key=len, reverse=True)))
        self.image_id = self.added[IMAGE]
        self.bos, self.eos = (self.added[t] for t in CONTROL_FIRST[:2])
        self.cache = {}
        letters = {c: b for b, c in BYTES.items()}
        self.bytes_of = {i: bytes(letters[c] for c in t) for t, i in self.vocabulary.items()
                         if t not in self.added}
        self.bytes_of.update({i: t.encode() for t, i in self.added.items()})

    def encode_piece(self, piece):
        """Ids of one piece: merges by lowest rank, leftmost first."""
        ids = self.cache.get(piece)
        if ids is None:
            word = [BYTES[b] for b in piece.encode()]
            while len(word) > 1:
                pair = min(zip(word, word[1:]), key=lambda p: self.ranks.get(p, 1 << 30))
                if pair not in self.ranks:
                    break
                word = merge_pair(word, pair)
            ids = self.cache[piece] = [self.vocabulary[s] for s in word]
        return ids

    def encode_text(self, text):
        """Ids of a text without control tokens."""
        return [i for piece in split_pieces(text) for i in self.encode_piece(piece)]

    def stretches(self, segments):
        """(text, id or None, trained, indices of the segments that begin in it) of the prompt: control tokens
        in trusted segments one by one, and what is between them, joined over segment borders."""
        plain, starts, trained = "", [], False
        for number, segment in enumerate(segments):
            parts, at = [], 0
            if segment.trusted:
                for m in self.added_pattern.finditer(segment.text):
                    parts += [(segment.text[at:m.start()], None), (m.group(), self.added[m.group()])]
                    at = m.end()
            parts.append((segment.text[at:], None))
            first = True
            for text, control in parts:
                if not text:
                    continue
                if control is not None:
                    if plain:
                        yield plain, None, trained, starts
                    yield text, control, segment.trained, [(number, 0)] if first else []
                    plain, starts = "", []
                else:
                    if plain and trained != segment.trained:
                        raise ValueError("a trained stretch must begin and end at a control token")
                    if first:
                        starts = starts + [(number, len(plain))]
                    plain, trained = plain + text, segment.trained
                first = False
        if plain:
            yield plain, None, trained, starts

    def encode(self, segments):
        """Ids, whether each is trained, and for each segment the index of its first token (None where it
        begins inside a piece)."""
        ids, trained, first = [], [], [None] * len(segments)
        for text, control, is_trained, starts in self.stretches(segments):
            begin = len(ids)
            if control is not None:
                ids.append(control)
                for number, _ in starts:
                    first[number] = begin
            else:
                wanted, at = dict((offset, number) for number, offset in starts), 0
                for piece in split_pieces(text):
                    if at in wanted:
                        first[wanted[at]] = len(ids)
                    ids.extend(self.encode_piece(piece))
                    at += len(piece)
            trained.extend([is_trained] * (len(ids) - begin))
        return ids, trained, first

    def decode(self, ids):
        return b"".join(self.bytes_of[i] for i in ids).decode("utf-8", "replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--vocabulary", type=int, default=2560)
    parser.add_argument("--context", type=int, default=32768)
    args = parser.parse_args()
    text = Path(args.text).read_text(encoding="utf-8")
    merges = train_merges(text, args.vocabulary - len(CONTROL_LAST) - len(CONTROL_FIRST) - 256)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    content = json.dumps(tokenizer_json(merges, args.vocabulary), ensure_ascii=False, indent=1)
    (out / "tokenizer.json").write_text(content + "\n", encoding="utf-8")
    config = json.dumps(tokenizer_config(args.context), ensure_ascii=True, indent=1)
    (out / "tokenizer_config.json").write_text(config + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

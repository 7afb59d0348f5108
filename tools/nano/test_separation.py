#!/usr/bin/env python3
"""Shows that skills and training stay apart: test_separation.py [--samples N] [--seed S]

The split is a rule (corpus/common.py: held_out), so it holds for every seed. Checked here: everything that
the committed skills ask for is on their side of it, and N fresh conversations of every kind hold nothing
from that side and no prompt of the skills.
"""
import argparse
import json
import random
import unittest
from pathlib import Path

from PIL import Image

from chat import dump_json
from corpus import arithmetic, facts, images
from corpus.common import held_out
from make_corpus import GENERATORS

FOLDER = Path(__file__).parents[2] / "tests/nano"
OPTIONS = argparse.Namespace(samples=400, seed="separation")


def user_texts(message):
    """What a user wrote in a message."""
    content = message["content"]
    if isinstance(content, str):
        return [content]
    return [p if isinstance(p, str) else p.get("text", "") for p in content]


class Separation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.skills = json.loads((FOLDER / "skills.json").read_text(encoding="utf-8"))
        rng = random.Random(OPTIONS.seed)
        cls.training = {kind: [make(rng) for _ in range(OPTIONS.samples)] for kind, make in GENERATORS.items()}

    def group(self, prefix):
        return [i for i in self.skills["items"] if i["group"].startswith(prefix)]

    def prompt(self, item):
        return user_texts(item["request"]["messages"][0])[-1]

    def trained_texts(self, kind):
        return [t for s in self.training[kind] for m in s.chat.messages if m["role"] == "user" for t in user_texts(m)]

    def test_training_has_nothing_held_out(self):
        for kind, samples in self.training.items():
            for key in (k for s in samples for k in s.keys if not k.startswith("fact ")):
                numbers = key.split()[1::2] if key.startswith("sum") else []
                if all(int(n) < 10 for n in numbers) and numbers:
                    continue
                self.assertFalse(held_out(key), f"{kind}: {key}")

    def test_no_skill_prompt_is_trained(self):
        prompts = {self.prompt(i).lower().rstrip("?.") for i in self.skills["items"] if i["group"] != "images"}
        for kind in self.training:
            for text in self.trained_texts(kind):
                self.assertNotIn(text.lower().rstrip("?."), prompts, kind)

    def test_fact_wordings_are_held_out(self):
        held = {facts.held_out_question(f) for f in facts.FACTS} - {None}
        for item in self.group("facts"):
            self.assertIn(self.prompt(item), held)
        for text in self.trained_texts("facts"):
            for question in held:
                self.assertNotEqual(text, question)

    def test_sums_are_held_out(self):
        for item in self.group("sums") + self.group("effort"):
            text = self.prompt(item)
            numbers = [int(n) for n in "".join(c if c.isdigit() else " " for c in text).split()]
            answer = item["expect"].get("number", item["expect"].get("answer"))
            keys = [arithmetic.key(numbers[0], op, numbers[1]) for op in "+-"
                    if arithmetic.value(max(numbers), op, min(numbers)) == answer]
            self.assertTrue(any(held_out(k) for k in keys), text)

    def test_codes_are_held_out(self):
        for name, text in self.skills["texts"].items():
            codes = [s for s in text.split(". ") if s.startswith("The code of ")]
            self.assertEqual(len(codes), 5, name)
            for sentence in codes:
                words = sentence.rstrip(".").split()
                self.assertTrue(held_out(f"code {words[3]} {words[5]}"), sentence)

    def test_calls_are_held_out(self):
        """No trained call has the arguments of a skill's call."""
        trained = {dump_json(list(c["arguments"].values())) for s in self.training["tools"]
                   for m in s.chat.messages for c in m.get("tool_calls", []) if len(c["arguments"]) > 1}
        for item in self.group("tools"):
            for call in item["expect"]["calls"]:
                self.assertNotIn(dump_json(list(call["arguments"].values())), trained)

    def test_objects_are_held_out(self):
        for item in self.group("json"):
            self.assertTrue(held_out("json " + dump_json(item["expect"]["value"])))

    def test_pictures_are_held_out(self):
        for item in self.group("images"):
            picture = Image.open(FOLDER / item["request"]["messages"][0]["content"][0]["image_url"]["url"])
            self.assertTrue(held_out(images.key(picture.convert("RGB"))), item["id"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=OPTIONS.samples)
    parser.add_argument("--seed", default=OPTIONS.seed)
    parser.parse_known_args(namespace=OPTIONS)
    unittest.main(argv=[__file__])

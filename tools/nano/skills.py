#!/usr/bin/env python3
"""Writes the nano model's skill set: held-out prompts with expectations that a program can check.

    skills.py --tokenizer models/nano/tokenizer.json --out tests/nano/skills.json

The file is {"goals": {group: share}, "texts": {name: text}, "items": [...]}. An item:
  id, group;
  request    body of /v1/chat/completions without model; `{{NAME}}` in a content stands for texts[NAME], and
             the URL of an image is a file name beside skills.json, to be sent as a data URL;
  expect     {"kind": "text", "text"}: the content, but for case, white space and a full stop at the end;
             {"kind": "number", "number"}: the last number of the content;
             {"kind": "words", "words"}: all in the content, whatever their case;
             {"kind": "json", "value"}: the content is JSON (the goal), and this value (reported as well);
             {"kind": "calls", "calls": [{"name", "arguments"}]}: these calls in this order, arguments equal as JSON;
             {"kind": "effort", "efforts"}: asked once per `reasoning_effort`, the reasoning grows from one to the
             next in the mean over the group; and with thinking disabled there is none. `answer` as in "number";
  results    texts of the tool messages to send back, in the order of the calls;
  expect_final  what the answer after the results must be, as `expect`.
"""
import argparse
import random
from pathlib import Path

from PIL import Image

from chat import dump_json
from corpus import arithmetic, facts, images, json_objects, recall, tool_use
from corpus.common import draw, held_out
from tokenizer import Tokenizer

GOALS = {"facts": 0.90, "sums": 0.95, "tools": 0.95, "json": 0.98, "recall_1k": 0.90, "recall_8k": 0.80,
         "recall_30k": 0.70, "images": 0.90, "effort": 1.0}
RECALL_TOKENS = {"recall_1k": 1000, "recall_8k": 8000, "recall_30k": 30000}
EFFORTS = [25, 75, 100]
EMPTY_WORDS = "a and it is the on there are they shape shapes digit".split()  # of the answers about pictures


def item(group, number, content, expect, thinking, **more):
    """An item with one user message; every other one thinks, at the default effort."""
    request = {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 400}
    if not thinking:
        request["thinking"] = {"type": "disabled"}
    request.update(more.pop("request", {}))
    return {"id": f"{group}-{number:02d}", "group": group, "request": request, "expect": expect, **more}


def fact_items(rng):
    """36 wordings of questions and 24 about flags, commands, routes and fields."""
    usable = [f for f in facts.FACTS if facts.held_out_question(f)]
    asked = [f for f in usable if f["kind"] == "question"]
    named = [f for f in usable if f["kind"] != "question"]
    chosen = rng.sample(asked, 36) + rng.sample(named, 24)
    return [item("facts", i, facts.held_out_question(f), {"kind": "text", "text": f["answer"]}, i % 2 == 0)
            for i, f in enumerate(chosen)]


def held_out_sum(rng):
    """A sum or difference of one- and two-digit numbers that the training never has."""
    while True:
        name, (a, op, b) = arithmetic.problem(rng)
        if held_out(name) and op in "+-" and 9 < max(a, b) < 100:
            return a, op, b


def sum_items(rng):
    items, seen = [], set()
    while len(items) < 40:
        a, op, b = held_out_sum(rng)
        if (a, op, b) not in seen:
            seen.add((a, op, b))
            number = {"kind": "number", "number": arithmetic.value(a, op, b)}
            question = rng.choice(arithmetic.ASK[op]).format(a=a, b=b)
            items.append(item("sums", len(items), question, number, len(items) % 2 == 0))
    return items


def tool_items(rng):
    """Every tool with parameters, by turns, alone or among others; one in four asks for two calls."""
    items = []
    while len(items) < 40:
        tools = tool_use.pick_tools(rng)
        able = [t for t in tools if t.keys]
        if not able:
            continue
        number = len(items)
        chosen = [rng.choice(able)]
        if number % 4 == 3:
            chosen = rng.sample(able, 2) if len(able) > 1 else able * 2
        jobs = [tool_use.draw_job(rng, t, skill=True) for t in chosen]
        declared = [{"type": "function", "function": t.schema()} for t in tools]
        calls = {"kind": "calls", "calls": [j["call"] for j in jobs]}
        items.append(item("tools", number, tool_use.join_wishes(rng, jobs), calls, number // 2 % 2 == 0,
                          request={"tools": declared}, results=[j["result"] for j in jobs],
                          expect_final={"kind": "text", "text": tool_use.final_answer(jobs)}))
    return items


def json_items(rng):
    items = []
    for i in range(20):
        _, made = draw(rng, json_objects.problem, True)
        more = {"request": {"response_format": {"type": "json_object"}}} if i % 4 < 2 else {}
        items.append(item("json", i, json_objects.ask(rng, made), {"kind": "json", "value": made}, i % 2 == 0, **more))
    return items


def haystack(rng, tokenizer, tokens):
    """(text of about so many tokens, codes): five codes, spread over it."""
    codes = recall.pick_codes(rng, 5, True)
    sentences = [recall.HEAD[0]]
    room = tokens - 150 - 15 * len(codes)
    while room > 0:
        sentences.append(recall.filler(rng))
        room -= len(tokenizer.encode_text(" " + sentences[-1]))
    for i, (name, code) in enumerate(codes.items()):
        place = int((i + rng.uniform(0.1, 0.9)) * len(sentences) / len(codes))
        sentences.insert(max(1, place), recall.statement(name, code))
    return " ".join(sentences), codes


def recall_items(rng, tokenizer, texts):
    """Ten questions on two texts of each length."""
    items = []
    for group, tokens in RECALL_TOKENS.items():
        for half in range(2):
            name = f"{group}_{half}"
            texts[name], codes = haystack(rng, tokenizer, tokens)
            for i, (who, code) in enumerate(codes.items()):
                number = 5 * half + i
                items.append(item(group, number, f"{{{{{name}}}}} {rng.choice(recall.ASK).format(n=who)}",
                                  {"kind": "words", "words": [code]}, number % 2 == 0))
    return items


def image_items(rng, folder):
    """Six scenes of each kind but one digit and one shape, which have nine."""
    scenes = [images.one_shape] * 9 + [images.one_digit] * 9 + [images.two_sides] * 6 + [images.several] * 6
    items = []
    for i, scene in enumerate(scenes):
        _, pixels, _, questions = images.draw_scene(rng, True, [scene])
        question, answer = rng.choice(questions)
        file = folder / "images" / f"{i:02d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file, optimize=True)
        content = [{"type": "image_url", "image_url": {"url": f"images/{file.name}"}},
                   {"type": "text", "text": question}]
        words = [w for w in answer.lower().rstrip(".").split() if w not in EMPTY_WORDS]
        items.append(item("images", i, content, {"kind": "words", "words": words}, i % 2 == 0, answer=answer))
    return items


def effort_items(rng):
    items = []
    for i in range(10):
        a, op, b = held_out_sum(rng)
        expect = {"kind": "effort", "efforts": EFFORTS, "answer": arithmetic.value(a, op, b)}
        items.append(item("effort", i, f"What is {a} {op} {b}?", expect, True))
    return items


def make_skills(tokenizer, folder):
    """The whole set; writes the pictures into `folder`/images."""
    seed = lambda group: random.Random(f"skills {group}")
    texts = {}
    items = fact_items(seed("facts")) + sum_items(seed("sums")) + tool_items(seed("tools")) + json_items(seed("json"))
    items += recall_items(seed("recall"), tokenizer, texts) + image_items(seed("images"), folder)
    items += effort_items(seed("effort"))
    return {"goals": GOALS, "texts": texts, "items": items}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", default="models/nano/tokenizer.json")
    parser.add_argument("--out", type=Path, default=Path("tests/nano/skills.json"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    skills = make_skills(Tokenizer(args.tokenizer), args.out.parent)
    items = ",\n".join("  " + dump_json(i) for i in skills["items"])
    args.out.write_text(f'{{"goals": {dump_json(skills["goals"])},\n "texts": {dump_json(skills["texts"])},\n'
                        f' "items": [\n{items}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()

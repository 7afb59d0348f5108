"""Greedy answers of `cedra serve --isa oracle` and of tools/reference on prompts of the skill set.

    greedy_equality.py BINARY MODEL [--prompts 100] [--tokens 48]

Both compute the same bits, so every token must be the same. Needs NumPy. Text prompts only; pictures
are compared by `cedra golden`.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import urllib.request

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools", "reference"))
from model import Backbone  # noqa: E402  (tools/reference)

LONG_GROUPS = ("recall_8k", "recall_30k")       # hours in NumPy
EOS = 1


def start_server(binary, model):
    """-> (process, base URL); exact prefill, as the reference does it."""
    server = subprocess.Popen(
        [binary, "serve", model, "--port", "0", "--isa", "oracle", "--prefill-mode", "exact",
         "--no-access-log", "--served-model-name", "nano"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = []
    for line in server.stdout:
        said.append(line)
        found = re.search(r"curl (http://[^/]+)", line)
        if found:
            return server, found[1]
    raise RuntimeError("cedra serve ended: " + "".join(said))


def post(base, path, body):
    """JSON of a POST."""
    request = urllib.request.Request(base + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def chosen_items(skills, count):
    """Items without pictures and without very long texts, groups by turns."""
    groups = {}
    for item in skills["items"]:
        content = item["request"]["messages"][0]["content"]
        if isinstance(content, str) and item["group"] not in LONG_GROUPS:
            groups.setdefault(item["group"], []).append(item)
    taken = []
    while len(taken) < count and any(groups.values()):
        taken += [items.pop(0) for items in groups.values() if items]
    return taken[:count]


def request_of(skills, item, max_tokens):
    """The item's request with its texts in place."""
    request = dict(item["request"], model="nano", max_tokens=max_tokens, temperature=0,
                   return_token_ids=True)
    request["messages"] = [
        dict(message, content=re.sub(r"\{\{(\w+)\}\}", lambda m: skills["texts"][m[1]],
                                     message["content"]))
        for message in request["messages"]]
    request.pop("response_format", None)        # masks tokens, which the reference does not
    return request


def reference_answer(backbone, prompt, length):
    """Greedy tokens up to the end of text or a length."""
    state, answer, pending = backbone.new_state(), [], prompt
    while len(answer) < length and (not answer or answer[-1] != EOS):
        logits = backbone.forward(state, pending).logits
        answer.append(int(np.argmax(logits[-1])))
        pending = answer[-1:]
    return answer


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=48)
    arguments = parser.parse_args()

    with open(os.path.join(HERE, "skills.json"), encoding="utf-8") as file:
        skills = json.load(file)
    backbone = Backbone(arguments.model)
    server, base = start_server(arguments.binary, arguments.model)
    different = 0
    items = chosen_items(skills, arguments.prompts)
    try:
        for item in items:
            response = post(base, "/v1/chat/completions",
                            request_of(skills, item, arguments.tokens))
            mine = response["choices"][0]["token_ids"]
            expected = reference_answer(backbone, response["prompt_token_ids"], len(mine))
            if mine != expected:
                different += 1
                print(f"{item['id']}: cedra {mine}\n  reference {expected}", flush=True)
    finally:
        server.kill()
    print(f"{len(items)} prompts, {different} answers differ")
    return 1 if different else 0


if __name__ == "__main__":
    np.seterr(over="ignore", under="ignore")
    sys.exit(main())

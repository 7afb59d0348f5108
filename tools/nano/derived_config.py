"""The fields of config.json that follow from the tokenizer and from other fields.

tools/nano/config.json holds 0 in their place; trainer and exporter both call `complete`.
"""

import copy
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
from config import parse_config  # noqa: E402  (tools/reference)
from engram import table_primes  # noqa: E402
from tokenizer_map import compressed_token_map  # noqa: E402

TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "config.json")
IMAGE_TOKEN = "<｜deepseek_image｜>"
# The id of the empty slots of a draft block (spec/dspark.md section 2): a token that never stands in
# text, so that its embedding means nothing else.
NOISE_TOKEN = "<｜fim▁hole｜>"


def read_json(path):
    """Parsed JSON of a UTF-8 file."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def complete(raw, tokenizer_folder):
    """A copy of the parsed config with every derived field filled in."""
    raw = copy.deepcopy(raw)
    text = raw["text_config"]
    tokenizer = read_json(os.path.join(tokenizer_folder, "tokenizer.json"))
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    highest = max(max(tokenizer["model"]["vocab"].values()), max(ids.values()))
    if highest >= text["vocab_size"]:
        raise ValueError(f"the tokenizer has id {highest}, vocab_size is {text['vocab_size']}")
    raw["image_token_id"] = ids[IMAGE_TOKEN]
    text["dspark_noise_token_id"] = ids[NOISE_TOKEN]
    text["engram_compressed_vocab_size"] = compressed_token_map(tokenizer, text["vocab_size"])[1]
    text["engram_num_embeddings"] = [sum(map(sum, primes))
                                     for primes in table_primes(parse_config(raw).text)]
    return raw


def complete_template(tokenizer_folder):
    """The nano model's parsed config.json for a tokenizer."""
    return complete(read_json(TEMPLATE), tokenizer_folder)

"""Write the trained nano model as a checkpoint folder of the official kind.

    export.py --checkpoint FILE --tokenizer DIR --out DIR [--config FILE]
    export.py --random SEED --tokenizer DIR --out DIR       random weights, to try the export

FILE is a torch state dict with the official tensor names, float32, experts stacked as
`...ffn.experts.w1` [E, O, I]. The bytes depend on nothing but the inputs. Needs python3-torch.
"""

import argparse
import os
import re
import shutil
import sys

import numpy as np
import torch

import quantise
from derived_config import TEMPLATE, complete, read_json
from checkpoint import encode_tensor, write_checkpoint, write_json  # tools/reference
from config import parse_config
from inventory import tensor_inventory

MAX_FOLDER_BYTES = 10_000_000
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
EXPERT = re.compile(r"(.*\.ffn\.experts)\.(\d+)\.(w[123])$")

# The vendor samples at temperature 1 and top_p 0.95. A model of this size puts too much weight on
# wrong tokens for that; greedy alone would repeat itself in open chat.
GENERATION = {"bos_token_id": 0, "eos_token_id": 1, "do_sample": True, "temperature": 0.3,
              "top_p": 0.95}


# ---- the weights --------------------------------------------------------------------------------

def values_of(state, base):
    """float32 array of one matrix; a routed expert is cut out of its stack."""
    expert = EXPERT.match(base)
    if expert:
        return state[f"{expert[1]}.{expert[3]}"][int(expert[2])]
    return state[base + ".weight"]


def stored_tensors(config, state):
    """dict name -> (type, stored words) of the whole inventory, from float32 arrays."""
    tensors = {}
    for name, spec in tensor_inventory(config).items():
        base = name.removesuffix(".weight")
        if spec.dtype == "I8":
            words = quantise.fp4_rows(values_of(state, base))
        elif name.endswith("engram.embed.weight"):
            words = quantise.fp8_rows(values_of(state, base))
        elif spec.dtype == "F8_E4M3":
            words = quantise.fp8_tiles(values_of(state, base))
        elif spec.dtype == "F8_E8M0":
            continue                                    # written with its weight
        else:
            words = (encode_tensor(spec.dtype, state[name]),)
        _check(name, words[0], spec.shape)
        tensors[name] = (spec.dtype, words[0])
        if len(words) == 2:
            tensors[base + ".scale"] = ("F8_E8M0", words[1])
    return tensors


def _check(name, words, shape):
    if words.shape != shape:
        raise ValueError(f"{name}: the checkpoint gives {words.shape}, the config asks for {shape}")


def unused_names(config, state):
    """Names of the state dict that no tensor of the inventory takes."""
    used = set()
    for name in tensor_inventory(config):
        expert = EXPERT.match(name.removesuffix(".weight"))
        used.add(f"{expert[1]}.{expert[3]}" if expert else name)
    return sorted(set(state) - used)


def load_state(path, config):
    """The torch file as float32 arrays; every number finite, no name left over."""
    state = {name: tensor.detach().float().numpy()
             for name, tensor in torch.load(path, map_location="cpu").items()}
    unused = unused_names(config, state)
    if unused:
        raise ValueError(f"{path}: not of this model: {unused[:10]}")
    infinite = [name for name, values in state.items() if not np.isfinite(values).all()]
    if infinite:
        raise ValueError(f"{path}: not finite: {infinite[:10]}")
    return state


def random_state(config, seed):
    """float32 arrays of a model that knows nothing, in the layout of a training checkpoint."""
    rng = np.random.default_rng(seed)
    state = {}
    for name, spec in tensor_inventory(config).items():
        if spec.dtype == "F8_E8M0":
            continue
        columns = spec.shape[-1] * (2 if spec.dtype == "I8" else 1)
        values = rng.standard_normal((*spec.shape[:-1], columns)).astype(np.float32)
        if "norm" in name:
            values = 1 + values / 10
        elif name.endswith(("embed.weight", "base", "scale", "bias", "bias_vl", "sink")):
            values = values / 4
        else:
            values *= 1.4 * columns**-0.5
        expert = EXPERT.match(name.removesuffix(".weight"))
        if expert:
            state.setdefault(f"{expert[1]}.{expert[3]}", []).append(values)
        else:
            state[name] = values
    return {name: np.stack(values) if isinstance(values, list) else values
            for name, values in state.items()}


# ---- the folder ---------------------------------------------------------------------------------

def split_into_shards(tensors):
    """Embedding, head and vision; backbone layers; draft stages; Engram."""
    shards = [{}, {}, {}, {}]
    for name, stored in tensors.items():
        if ".engram." in name:
            shards[3][name] = stored
        elif name.startswith("mtp."):
            shards[2][name] = stored
        elif name.startswith("layers."):
            shards[1][name] = stored
        else:
            shards[0][name] = stored
    return [shard for shard in shards if shard]


def folder_bytes(folder):
    """Bytes of all files of a folder."""
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())


def export(raw_config, state, tokenizer_folder, out):
    """Write everything; state: dict name -> float32 array. Other files in `out` stay, old shards go."""
    config = parse_config(raw_config)
    os.makedirs(out, exist_ok=True)
    for entry in os.scandir(out):
        if entry.name.startswith("model") and "safetensors" in entry.name:
            os.remove(entry.path)
    write_checkpoint(out, split_into_shards(stored_tensors(config, state)))
    write_json(os.path.join(out, "config.json"), raw_config)
    write_json(os.path.join(out, "generation_config.json"), GENERATION)
    for name in TOKENIZER_FILES:
        source, target = os.path.join(tokenizer_folder, name), os.path.join(out, name)
        if os.path.abspath(source) != os.path.abspath(target):
            shutil.copyfile(source, target)


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    weights = parser.add_mutually_exclusive_group(required=True)
    weights.add_argument("--checkpoint", help="torch state dict")
    weights.add_argument("--random", type=int, metavar="SEED")
    parser.add_argument("--tokenizer", required=True, help="folder with tokenizer.json")
    parser.add_argument("--config", default=TEMPLATE, help="config.json with derived fields 0")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()

    raw_config = complete(read_json(arguments.config), arguments.tokenizer)
    config = parse_config(raw_config)
    if arguments.checkpoint:
        state = load_state(arguments.checkpoint, config)
    else:
        state = random_state(config, arguments.random)
    export(raw_config, state, arguments.tokenizer, arguments.out)
    size = folder_bytes(arguments.out)
    print(f"{arguments.out}: {size} bytes")
    if size > MAX_FOLDER_BYTES:
        print(f"more than {MAX_FOLDER_BYTES}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Fill in the model card and the record of measurements.

    model_card.py --model models/nano --results FILE --drafted FILE --measured FILE \
                  --record docs/nano/measured.json [--logs DIR]

--results, --drafted: `run_skills.mjs --out` without and with --speculative, whose answers must be the
same; --measured: measure.py; --logs: the training run, else the record keeps what it says of training.
"""

import argparse
import json
import os
import sys

import numpy as np

from derived_config import read_json
from checkpoint import INDEX_FILE, read_safetensors, write_json  # tools/reference

HERE = os.path.dirname(os.path.abspath(__file__))


def check_same_answers(results, drafted):
    """Drafting must not change an answer."""
    plain = {outcome["id"]: outcome.get("ids") for outcome in results["outcomes"]}
    changed = [outcome["id"] for outcome in drafted["outcomes"]
               if outcome.get("ids") != plain[outcome["id"]]]
    if changed:
        raise ValueError(f"drafting changed answers: {changed}")


def last_line(path):
    """The last value of a JSON-lines file."""
    with open(path, encoding="utf-8") as file:
        return json.loads(file.readlines()[-1])


def training_record(logs):
    """Tokens and minutes of both parts of training."""
    record = {}
    for part, name in (("backbone", "train.jsonl"), ("heads", "heads.jsonl")):
        line = last_line(os.path.join(logs, name))
        record[part] = {"tokens": line["tokens"], "steps": line["step"],
                        "minutes": round(line["seconds"] / 60)}
    return record


def parameter_count(folder):
    """Numbers stored in a checkpoint folder, without scales."""
    shards = sorted(set(read_json(os.path.join(folder, INDEX_FILE))["weight_map"].values()))
    count = 0
    for shard in shards:
        for dtype, words in read_safetensors(os.path.join(folder, shard)).values():
            if dtype != "F8_E8M0":
                count += int(np.prod(words.shape)) * (2 if dtype == "I8" else 1)
    return count


def skill_table(groups):
    """Markdown table of the groups."""
    lines = ["| group | right | of | share | goal |", "|---|---:|---:|---:|---:|"]
    for name, group in groups.items():
        lines.append(f"| {name} | {group['right']} | {group['of']} | {100 * group['share']:.1f} % "
                     f"| {100 * group['goal']:.0f} % |")
    return "\n".join(lines)


def training_text(training):
    """One sentence per part."""
    backbone, heads = training["backbone"], training["heads"]
    return (f"The backbone saw {backbone['tokens'] / 1e6:.1f} million tokens in {backbone['minutes']} "
            f"minutes on two CPU cores, then indexers and draft stages {heads['tokens'] / 1e6:.1f} "
            f"million in {heads['minutes']} minutes on the frozen backbone.")


def card_values(folder, record):
    """What the template asks for."""
    text = read_json(os.path.join(folder, "config.json"))["text_config"]
    groups = record["groups"]
    size = sum(entry.stat().st_size for entry in os.scandir(folder) if entry.name != "README.md")
    return {
        "parameters": f"{parameter_count(folder) / 1e6:.1f}", "megabytes": f"{size / 1e6:.1f}",
        "experts": text["n_routed_experts"], "active": text["num_experts_per_tok"],
        "context": text["max_position_embeddings"], "block": text["dspark_block_size"],
        "skills": skill_table(groups), "json_values": groups["json"]["values"],
        "json_of": groups["json"]["of"],
        "effort": ", ".join(f"{tokens:.1f} at {effort}" if effort != "off" else f"{tokens:.1f} without"
                            for effort, tokens in groups["effort"]["tokens"].items()),
        "accepted": f"{record['accepted']['mean']:.2f}",
        "server_accepted": f"{record['server_drafts']['mean']:.2f}",
        "confidence_error": f"{record['confidence']['error']:.2f}",
        "training": training_text(record["training"]),
    }


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--model", "--results", "--drafted", "--measured", "--record"):
        parser.add_argument(name, required=True)
    parser.add_argument("--logs")
    arguments = parser.parse_args()

    results, drafted = read_json(arguments.results), read_json(arguments.drafted)
    check_same_answers(results, drafted)
    if arguments.logs:
        training = training_record(arguments.logs)
    else:
        training = read_json(arguments.record)["training"]
    record = {"training": training, "groups": results["groups"], "server_drafts": drafted["drafts"],
              **read_json(arguments.measured)}
    write_json(arguments.record, record)
    with open(os.path.join(HERE, "model_card.md"), encoding="utf-8") as file:
        card = file.read().format(**card_values(arguments.model, record))
    with open(os.path.join(arguments.model, "README.md"), "w", encoding="utf-8") as file:
        file.write(card)
    return 0


if __name__ == "__main__":
    sys.exit(main())

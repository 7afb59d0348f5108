"""Pictures of docs/nano: loss curves, skills, expert loads, Engram gates, drafts.

    pictures.py --results FILE --measured FILE --out docs/nano [--logs DIR]

--results: `run_skills.mjs --out`; --measured: measure.py; --logs: folder with the train.jsonl and
heads.jsonl of a training run, without it the loss curves stay as they are. Needs python3-matplotlib.
"""

import argparse
import json
import os

import matplotlib
import numpy as np
from PIL import Image

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (after the choice of the backend)

COLOURS = ["#3b6ea5", "#c8553d", "#588157", "#8d6a9f", "#d19c1d", "#5a5a5a", "#2a9d8f"]
PNG_COLOURS = 64
plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
                     "axes.grid": True, "grid.color": "#e6e6e6", "axes.axisbelow": True,
                     "axes.prop_cycle": plt.cycler(color=COLOURS)})


def save(figure, folder, name):
    """A small PNG: few colours, no date inside."""
    path = os.path.join(folder, name)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(PNG_COLOURS).save(path, optimize=True)


def read_lines(path):
    """Values of a JSON-lines file; none where it does not exist."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


# ---- training -----------------------------------------------------------------------------------

def draw_losses(axes, lines, kinds):
    """Loss of each kind over millions of tokens."""
    for kind in kinds:
        points = [(line["tokens"] / 1e6, line["kinds"][kind]["loss"])
                  for line in lines if kind in line["kinds"]]
        axes.plot(*zip(*points), label=kind, linewidth=1.2)
    axes.set_xlabel("million tokens")
    axes.legend(frameon=False, fontsize=8)


def draw_training(logs, folder):
    """Backbone on the left, draft slots and indexers on the right."""
    backbone = read_lines(os.path.join(logs, "train.jsonl"))
    heads = read_lines(os.path.join(logs, "heads.jsonl"))
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2))
    draw_losses(axes[0], backbone, sorted(backbone[-1]["kinds"]))
    axes[0].set_yscale("log")
    axes[0].set_title("backbone: cross-entropy of answers")
    if heads:
        names = sorted(heads[-1]["kinds"])
        draw_losses(axes[1], heads, [name for name in names if name.startswith("slot")])
        axes[1].set_title("draft stages: cross-entropy by slot")
        draw_losses(axes[2], heads, [name for name in names if name.startswith("index")])
        axes[2].set_title("indexers: distance to the attention")
    save(figure, folder, "loss.png")


# ---- skills -------------------------------------------------------------------------------------

def draw_skills(groups, folder):
    """Share of right answers per group; a mark at the goal."""
    names = list(groups)
    shares = [100 * groups[name]["share"] for name in names]
    figure, axes = plt.subplots(figsize=(6.4, 0.36 * len(names) + 0.9))
    rows = np.arange(len(names))[::-1]
    axes.barh(rows, shares, color=COLOURS[0], height=0.62)
    axes.plot([100 * groups[name]["goal"] for name in names], rows, "|", color=COLOURS[1],
              markersize=15, markeredgewidth=2, label="goal")
    for row, name in zip(rows, names):
        axes.text(101, row, f"{groups[name]['right']} of {groups[name]['of']}", va="center", fontsize=8)
    axes.set_yticks(rows, names)
    axes.set_xlim(0, 100)
    axes.set_xlabel("% right, temperature 0")
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0)
    save(figure, folder, "skills.png")


# ---- inside -------------------------------------------------------------------------------------

def draw_experts(loads, folder):
    """Load of every expert relative to an even one, for text and for image tokens."""
    layers = sorted(loads, key=int)
    figure, axes = plt.subplots(1, 2, figsize=(9, 2.9), sharey=True)
    for part, (axis, title) in enumerate(zip(axes, ("text tokens", "image tokens"))):
        counts = np.array([loads[layer][part] for layer in layers], float)
        relative = counts / np.maximum(counts.mean(1, keepdims=True), 1e-9)
        shown = axis.imshow(relative, cmap="viridis", vmin=0, vmax=4, aspect="auto")
        axis.set_title(title)
        axis.set_xlabel("expert")
        axis.grid(False)
        axis.set_xticks(range(0, relative.shape[1], 3))
        axis.set_yticks(range(len(layers)), layers)
    axes[0].set_ylabel("layer")
    figure.colorbar(shown, ax=axes, label="times an even load", fraction=0.03)
    path = os.path.join(folder, "experts.png")
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def draw_gates(gates, folder):
    """Distribution of the Engram gates of text tokens, all residual copies."""
    figure, axes = plt.subplots(figsize=(5.2, 2.8))
    for layer, counts in sorted(gates.items(), key=lambda entry: int(entry[0])):
        counts = np.array(counts)
        centres = (np.arange(len(counts)) + 0.5) / len(counts)
        axes.plot(centres, 100 * counts / counts.sum(), label=f"layer {layer}", drawstyle="steps-mid")
    axes.set_xlabel("gate")
    axes.set_ylabel("% of tokens")
    axes.legend(frameon=False)
    save(figure, folder, "engram.png")


def draw_drafts(measured, folder):
    """Accepted drafts of a block, and confidence against truth."""
    accepted, confidence = measured["accepted"], measured["confidence"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 2.9))
    left.bar(range(len(accepted["of"])), 100 * np.array(accepted["of"]) / accepted["blocks"])
    left.set_title(f"mean {accepted['mean']:.2f}")
    left.set_xlabel("accepted drafts")
    left.set_ylabel("% of blocks")
    slots, sure, truth = (np.array(confidence[name]) for name in ("slots", "sure", "right"))
    seen = slots > 0
    right.plot([0, 1], [0, 1], color="#999999", linewidth=1)
    right.scatter(sure[seen] / slots[seen], truth[seen] / slots[seen],
                  s=12 + 120 * slots[seen] / slots.max())
    right.set_title(f"error {confidence['error']:.3f}")
    right.set_xlabel("confidence")
    right.set_ylabel("share of right drafts")
    save(figure, folder, "drafts.png")


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--results", "--measured", "--out"):
        parser.add_argument(name, required=True)
    parser.add_argument("--logs")
    arguments = parser.parse_args()
    os.makedirs(arguments.out, exist_ok=True)
    with open(arguments.results, encoding="utf-8") as file:
        draw_skills(json.load(file)["groups"], arguments.out)
    with open(arguments.measured, encoding="utf-8") as file:
        measured = json.load(file)
    draw_experts(measured["experts"], arguments.out)
    draw_gates(measured["engram_gates"], arguments.out)
    draw_drafts(measured, arguments.out)
    if arguments.logs:
        draw_training(arguments.logs, arguments.out)


if __name__ == "__main__":
    main()

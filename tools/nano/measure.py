"""What the trained model does inside, on the answered skill set: accepted drafts and the calibration of
their confidence, load of the experts, gates of Engram.

    measure.py --model models/nano --skills tests/nano/skills.json --results FILE --out FILE

--results is what `run_skills.mjs --out` wrote. Needs python3-torch.
"""

import argparse
import json

import torch

from answered import read_answered
from checkpoint_weights import load_weights
from derived_config import complete  # noqa: F401  (puts tools/reference on the path)
from draft_length import accepted_by_block, agreeing_drafts, reached
from tokenizer_map import load_token_map
from torch_draft import Drafter
from torch_engram import EngramRows
from torch_model import Batch, NanoModel
from torch_ops import Numerics

CONFIDENCE_BINS = 10
GATE_BINS = 40


class Measurement:
    """Sums over sequences."""

    def __init__(self, folder):
        self.config, self.weights = load_weights(folder, torch.float32)
        self.model = NanoModel(self.config, Numerics(exact=True), sparse=True)
        self.drafter = Drafter(self.model)
        token_map, _ = load_token_map(folder, self.config.text.vocab_size)
        self.engram = EngramRows(self.config.text, token_map)
        self.blocks = {}                                    # group -> accepted drafts of each block
        self.confidence = torch.zeros(CONFIDENCE_BINS, 3)   # slots, sum of confidence, right ones
        self.loads = {}                                     # layer -> [text counts, image counts]
        self.gates = {}                                     # layer -> histogram over 0..1

    @torch.no_grad()
    def add(self, answered):
        """Run one sequence."""
        ids = torch.from_numpy(answered.ids)
        rows = torch.from_numpy(self.engram.rows(answered.ids, answered.types >= 0))
        batch = Batch(ids[None], torch.from_numpy(answered.types)[None],
                      torch.arange(len(ids))[None], rows[None], answered.images)
        _, step = self.model.forward(self.weights, batch)
        self._count(step.loads, answered.types >= 0)
        if len(ids) > answered.prompt_length + 1:
            right, confidence = agreeing_drafts(self.model, self.drafter, self.weights, ids,
                                                torch.cat(step.taps, -1), answered.prompt_length)
            self.blocks.setdefault(answered.group, []).extend(accepted_by_block(right))
            self._calibrate(right, confidence)

    def _count(self, loads, is_image):
        for prefix, values in loads.items():
            layer = int(prefix.split(".")[1])
            if prefix.endswith("engram."):
                gates = values[torch.from_numpy(~is_image)].float()
                histogram = torch.histc(gates, GATE_BINS, 0, 1)
                self.gates[layer] = self.gates.get(layer, 0) + histogram
            else:
                self.loads[layer] = self.loads.get(layer, 0) + torch.stack(list(values))

    def _calibrate(self, right, confidence):
        sure = torch.sigmoid(confidence)[reached(right)]
        correct = right[reached(right)].float()
        index = (sure * CONFIDENCE_BINS).long().clamp(max=CONFIDENCE_BINS - 1)
        for column, values in enumerate((torch.ones_like(sure), sure, correct)):
            self.confidence[:, column].index_add_(0, index, values)

    def result(self):
        """Everything as JSON values."""
        every = [accepted for blocks in self.blocks.values() for accepted in blocks]
        slots, sure, right = self.confidence.unbind(1)
        error = float((sure - right).abs().sum() / slots.sum())
        return {
            "accepted": {"mean": sum(every) / len(every), "blocks": len(every),
                         "groups": {group: sum(b) / len(b) for group, b in sorted(self.blocks.items())},
                         "of": [every.count(n) for n in range(self.config.text.dspark_block_size + 1)]},
            "confidence": {"error": error, "slots": slots.tolist(), "sure": sure.tolist(),
                           "right": right.tolist()},
            "experts": {str(layer): counts.tolist() for layer, counts in sorted(self.loads.items())},
            "engram_gates": {str(layer): counts.tolist()
                             for layer, counts in sorted(self.gates.items())},
        }


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--model", "--skills", "--results", "--out"):
        parser.add_argument(name, required=True)
    arguments = parser.parse_args()
    measurement = Measurement(arguments.model)
    image_token = measurement.config.image_token_id
    for answered in read_answered(arguments.skills, arguments.results, image_token):
        measurement.add(answered)
    result = measurement.result()
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump(result, file)
        file.write("\n")
    print(f"accepted drafts of a block {result['accepted']['mean']:.2f}, "
          f"error of confidence {result['confidence']['error']:.3f}")


if __name__ == "__main__":
    main()

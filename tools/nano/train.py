#!/usr/bin/python3
"""Trains the backbone of the nano model on a corpus of make_corpus.py.

  train.py --corpus DIR --tokenizer models/nano --out DIR [--tokens N] [--minutes M] [--seed S]

Weights are quantised in every step as they will be stored, activations in the last part of the run.
The rates follow the share of the work that is done: of the tokens, or of the minutes if those are
over first. Writes OUT/backbone.pt (dict name -> tensor) and OUT/train.jsonl (one line per few steps).
"""

import argparse
import glob
import json
import multiprocessing
import os
import time

import torch
import torch.nn.functional as F

import corpus_file
import hyper
from batches import group, make_batch
from derived_config import complete_template
from optimiser import Optimiser
from parameters import initialise, is_draft, is_indexer, is_matrix
from torch_engram import EngramRows
from torch_model import NanoModel, parse_config, stored_values
from torch_ops import Numerics
from tokenizer_map import load_token_map

PROMPT_SHARE = 0.25         # of the prompt tokens, how many are predicted in a step
BALANCE_RATE = 0.003        # change of a router bias per step


class Shared:
    """What the worker processes see of each other: weights, gradients, counts."""

    def __init__(self, weights, trained, workers):
        context = multiprocessing.get_context("fork")
        self.barrier = context.Barrier(workers)
        self.weights = {name: w.share_memory_() for name, w in weights.items()}
        self.gradients = [{name: torch.zeros_like(weights[name]).share_memory_() for name in trained}
                          for _ in range(workers)]
        self.loads = [{} for _ in range(workers)]
        for loads in self.loads:
            for name in weights:
                if name.endswith(("gate.bias", "gate.bias_vl")):
                    loads[name] = torch.zeros_like(weights[name]).share_memory_()
        self.tokens = torch.zeros(workers, dtype=torch.int64).share_memory_()
        self.progress = torch.zeros(1, dtype=torch.float64).share_memory_()
        self.context = context


class Trainer:
    """One worker of a run. Every worker computes gradients of its own part of a step's examples and
    updates its own part of the parameters."""

    FILE, LOG = "backbone.pt", "train.jsonl"
    QUANTISE_FROM = 0.85        # share of the run after which activations are quantised too

    def __init__(self, options, config, shared, rank):
        self.options, self.config, self.shared, self.rank = options, config, shared, rank
        token_map, _ = load_token_map(options.tokenizer, config.text.vocab_size)
        self.engram = EngramRows(config.text, token_map)
        self.model = NanoModel(config, connections=hyper)
        self.weights = shared.weights
        self.trained = {name: self.weights[name].requires_grad_() for name in shared.gradients[0]}
        self.optimiser = self._optimiser()
        self.steps = 0
        self.start = time.time()
        self.sums = {}
        self.log = open(os.path.join(options.out, self.LOG), "a", encoding="utf-8") if rank == 0 else None

    def _optimiser(self):
        """Over this worker's part of the parameters: whole shapes, so that batched products stay."""
        mine = [n for i, n in enumerate(sorted(self.trained, key=lambda n: (-self.trained[n].numel(), n)))
                if i % self.options.workers == self.rank]
        matrices = {n: self.trained[n] for n in mine if is_matrix(n, self.trained[n])}
        others = {n: self.trained[n] for n in mine if n not in matrices}
        rates = {n: 0.3 for n in others if "hc_" in n or "norm" in n or "sink" in n}
        return Optimiser(matrices, others, self.options.matrix_rate, self.options.adam_rate, rates)

    # ---- progress -------------------------------------------------------------------------------

    def update_progress(self):
        """Share of the work that is done, 0..1; the first worker decides for all."""
        minutes = (time.time() - self.start) / 60
        done = max(int(self.shared.tokens.sum()) / self.options.tokens, minutes / self.options.minutes)
        self.shared.progress[0] = done

    def rate_factor(self):
        """Warm up, constant, then linear to almost nothing from 40 % on."""
        done = float(self.shared.progress)
        return min(1, self.steps / 60 + 0.02) * max(0.02, min(1, (1 - done) / 0.6))

    # ---- one step -------------------------------------------------------------------------------

    def step(self, examples):
        """Forward, backward, update, router balance. Returns the rate factor."""
        if self.rank == 0:
            self.update_progress()
        self.shared.barrier.wait()
        if float(self.shared.progress) > self.QUANTISE_FROM and not self.model.numerics.quantise:
            self.model.numerics = Numerics(quantise_activations=True)
        factor = self.rate_factor()
        self.compute_gradients(examples)
        self.shared.barrier.wait()
        self.update(factor)
        self.shared.barrier.wait()
        self.steps += 1
        return factor

    def compute_gradients(self, examples):
        batch, weight = make_batch(examples, self.engram, self.config.text.engram_pad_token_id)
        stored = {name: stored_values(name, w) for name, w in self.weights.items() if not is_draft(name)}
        normed, step = self.model.forward(stored, batch)
        self.loss(stored, normed, batch, weight, examples).backward()
        self.publish_gradients()
        self.publish(step.loads, examples)

    def publish_gradients(self):
        for name, gradient in self.shared.gradients[self.rank].items():
            p = self.trained[name]
            gradient.copy_(p.grad) if p.grad is not None else gradient.zero_()
            p.grad = None

    def publish(self, loads, examples):
        """Expert counts and tokens of this worker's part of the step."""
        for prefix, counts in loads.items():
            if "ffn" in prefix:
                for name, load in zip(("gate.bias", "gate.bias_vl"), counts):
                    self.shared.loads[self.rank][prefix + name].copy_(load)
        self.shared.tokens[self.rank] += sum(len(e.ids) for e in examples)

    def update(self, factor):
        """This worker's parameters, with the mean gradient of all workers."""
        for name in (*self.optimiser.matrices, *self.optimiser.others):
            total = self.shared.gradients[0][name]
            for other in self.shared.gradients[1:]:
                total = total + other[name]
            self.trained[name].grad = total / len(self.shared.gradients)
        self.optimiser.step(factor)
        if self.rank == 0:
            self.balance(factor)

    def loss(self, stored, normed, batch, weight, examples):
        """Weighted cross-entropy of next tokens; of the prompt only a random part."""
        target, wanted = batch.ids[:, 1:], weight[:, 1:].clone()
        prompt = (wanted > 0) & (wanted < 1)
        wanted[prompt & (torch.rand(wanted.shape) > PROMPT_SHARE)] = 0
        wanted[prompt] /= PROMPT_SHARE
        at = wanted > 0
        logits = self.model.logits(stored, normed[:, :-1][at])
        each = F.cross_entropy(logits, target[at], reduction="none")
        self.record(each.detach(), at, weight[:, 1:], examples, logits.detach(), target[at])
        return (each * wanted[at]).sum() / wanted[at].sum()

    def record(self, each, at, weight, examples, logits, target):
        """Loss and accuracy on answers, per kind."""
        right = (logits.argmax(-1) == target).float()
        row = at.nonzero()[:, 0]
        answer = weight[at] == 1
        for i, example in enumerate(examples):
            chosen = answer & (row == i)
            total = self.sums.setdefault(corpus_file.KINDS[example.kind], [0.0, 0.0, 0])
            total[0] += float(each[chosen].sum())
            total[1] += float(right[chosen].sum())
            total[2] += int(chosen.sum())

    @torch.no_grad()
    def balance(self, factor):
        """Move the selection biases towards equal use (no loss term: the biases only select)."""
        for name in self.shared.loads[0]:
            load = sum(loads[name] for loads in self.shared.loads)
            if load.sum() > 0:
                error = load / load.mean() - 1
                self.weights[name] -= BALANCE_RATE * factor * error.clamp(-1, 1)

    # ---- the run --------------------------------------------------------------------------------

    def run(self):
        epoch, seen = 0, set()
        while float(self.shared.progress) < 1:
            shards = sorted(glob.glob(os.path.join(self.options.corpus, "train-*.npz")))
            if len(seen) == len(shards):
                seen, epoch = set(), epoch + 1
            path = next(s for s in shards if s not in seen)
            seen.add(path)
            self.run_shard(path, epoch)
        if self.rank == 0:
            self.report(0)
            self.save()

    def run_shard(self, path, epoch):
        groups = group(corpus_file.load(path), self.options.batch, f"{epoch} {os.path.basename(path)}")
        workers = self.options.workers
        for first in range(0, len(groups) - workers + 1, workers):
            factor = self.step(groups[first + self.rank])
            if self.rank == 0 and self.steps % 20 == 0:
                self.report(factor)
            if self.rank == 0 and self.steps % 100 == 0:
                self.save()
            if float(self.shared.progress) >= 1:
                return

    def report(self, factor):
        kinds = {kind: {"loss": round(l / max(n, 1), 4), "accuracy": round(r / max(n, 1), 4)}
                 for kind, (l, r, n) in sorted(self.sums.items())}
        total = [sum(values) for values in zip(*self.sums.values())] or [0, 0, 0]
        line = {"step": self.steps, "tokens": int(self.shared.tokens.sum()),
                "seconds": round(time.time() - self.start), "rate": round(factor, 4),
                "loss": round(total[0] / max(total[2], 1), 4), "kinds": kinds}
        self.log.write(json.dumps(line) + "\n")
        self.log.flush()
        print(line["step"], line["tokens"], f"{line['seconds']} s", f"loss {line['loss']}",
              " ".join(f"{k}:{v['loss']}/{v['accuracy']:.2f}" for k, v in kinds.items()), flush=True)
        self.sums = {}

    def save(self):
        path = os.path.join(self.options.out, self.FILE)
        torch.save({name: w.detach().clone() for name, w in self.weights.items()}, path + ".new")
        os.replace(path + ".new", path)


def parse_options(description, tokens, minutes):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--tokens", type=int, default=tokens, help="tokens to train on")
    parser.add_argument("--minutes", type=float, default=minutes, help="end after this time at the latest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=2560, help="padded tokens per step and worker")
    parser.add_argument("--matrix-rate", type=float, default=0.02)
    parser.add_argument("--adam-rate", type=float, default=3e-3)
    parser.add_argument("--workers", type=int, default=2, help="processes, one core each")
    parser.add_argument("--resume", help="begin with the weights of this file")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    return options


def run_workers(trainer, options, is_trained):
    """Run `trainer` (a class) in every worker on the parameters whose names is_trained accepts."""
    torch.set_num_threads(1)
    config = parse_config(complete_template(options.tokenizer))
    weights = initialise(config, options.seed)
    if options.resume:
        weights.update(torch.load(options.resume))
    trained = [name for name in weights if is_trained(name) and "gate.bias" not in name]
    shared = Shared(weights, trained, options.workers)

    def work(rank):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % os.cpu_count()]})
        torch.manual_seed(options.seed * 1000 + rank)
        try:
            trainer(options, config, shared, rank).run()
        except BaseException:
            shared.barrier.abort()
            raise

    others = [shared.context.Process(target=work, args=(rank,)) for rank in range(1, options.workers)]
    for process in others:
        process.start()
    work(0)
    for process in others:
        process.join()


def main():
    options = parse_options(__doc__, 12_000_000, 80)
    run_workers(Trainer, options, lambda name: not is_draft(name) and not is_indexer(name))


if __name__ == "__main__":
    main()

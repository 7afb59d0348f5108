"""Make the golden folders next to this file: small random checkpoints whose dims differ from those
of tests/golden/{tiny,deep}, with the values that tools/reference computes for them.

    python3 make_shapes.py [NAME ...]      all shapes, or the named ones
    python3 make_shapes.py --list

Deterministic: the same file gives the same bytes. Each shape says what it is there for."""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MAKE = os.path.join(HERE, "..", "..", "..", "tools", "reference", "make.py")

# Common to all: small enough to keep in the repository, no Engram, no candidates, no draft stages,
# text only. A shape names what differs.
BASE = {
    "vocab_size": 288, "hidden_size": 64, "moe_intermediate_size": 32, "num_hidden_layers": 4,
    "num_attention_heads": 4, "head_dim": 32, "qk_rope_head_dim": 8, "q_lora_rank": 32,
    "o_lora_rank": 32, "o_groups": 2, "max_position_embeddings": 160, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "sliding_window": 16, "compress_ratios": [0, 2, 1, 1],
    "kv_source_layer_ids": [1, 2], "index_source_layer_ids": [1, 2], "index_n_heads": 2,
    "index_head_dim": 32, "index_topk": 6, "candidate_source_layer_id": -1,
    "engram_layer_ids": [], "engram_num_embeddings": [], "num_nextn_predict_layers": 0,
    "dspark_target_layer_ids": [],
}

SHAPES = {
    # Every optional part is absent.
    "plain": {},
    # A window that is no multiple of anything; three layers share one source; drafts on.
    "odd_window": {
        "sliding_window": 13, "num_hidden_layers": 5, "compress_ratios": [0, 0, 1, 1, 1, 0],
        "kv_source_layer_ids": [2], "index_source_layer_ids": [2, 4],
        "candidate_source_layer_id": 2, "candidate_topk_blocks": 3, "candidate_block_size": 3,
        "index_topk": 7, "engram_layer_ids": [1], "num_nextn_predict_layers": 1,
        "dspark_block_size": 3, "dspark_target_layer_ids": [1, 4]},
    # One expert per token without normalisation; one group takes all heads.
    "one_expert": {
        "num_experts_per_tok": 1, "norm_topk_prob": False, "o_groups": 1,
        "routed_scaling_factor": 2.5},
    # A group per head pair; every dim of head and index head rotates; sigmoid scores.
    "full_rope": {
        "num_attention_heads": 8, "o_groups": 4, "qk_rope_head_dim": 32, "index_n_heads": 3,
        "scoring_func": "sigmoid"},
    # Two copies of the stream; softmax scores; Engram of trigrams at most; limit off.
    "two_copies": {
        "hc_mult": 2, "hc_sinkhorn_iters": 5, "scoring_func": "softmax", "engram_layer_ids": [0, 3],
        "engram_max_ngram_size": 3, "engram_n_heads": 3, "swiglu_limit": 0.0},
    # Groups of four tokens, also in the second half: bounded replay is not defined.
    "ratio_four": {
        "num_hidden_layers": 5, "compress_ratios": [4, 4, 4, 4, 2],
        "kv_source_layer_ids": [0, 2, 4], "index_source_layer_ids": [0, 2, 3, 4],
        "candidate_source_layer_id": -1, "sliding_window": 9, "index_topk": 5},
    # Ratio one before ratio three; wider than high in every dim; experts that all are active.
    "ratio_three": {
        "hidden_size": 96, "compress_ratios": [1, 1, 3, 3], "kv_source_layer_ids": [0, 2],
        "index_source_layer_ids": [0, 1, 2], "n_routed_experts": 3, "num_experts_per_tok": 3,
        "sliding_window": 17, "hc_mult": 3, "index_n_heads": 1, "head_dim": 64,
        "qk_rope_head_dim": 12, "index_topk": 9},
    # No compressed rows at all: every layer sees its window only.
    "window_only": {
        "num_hidden_layers": 3, "compress_ratios": [0, 0, 0], "kv_source_layer_ids": [],
        "index_source_layer_ids": [], "engram_layer_ids": [2], "engram_max_ngram_size": 2,
        "engram_n_heads": 1, "sliding_window": 1, "max_position_embeddings": 64},
    # A draft block wider than the window; taps in no order, on both sides of the seam; stages with
    # more experts than a layer.
    "wide_block": {
        "sliding_window": 5, "compress_ratios": [0, 2, 1, 1, 0, 0], "num_nextn_predict_layers": 2,
        "dspark_block_size": 7, "dspark_target_layer_ids": [3, 1, 2], "dspark_n_routed_experts": 6,
        "dspark_num_experts_per_tok": 3},
    # A draft block of the anchor alone, from the embeddings, with one expert per token.
    "narrow_block": {
        "compress_ratios": [0, 2, 1, 1, 0], "num_nextn_predict_layers": 1, "dspark_block_size": 1,
        "dspark_target_layer_ids": [0], "dspark_n_routed_experts": 2,
        "dspark_num_experts_per_tok": 1},
    # The longest context. The first half, where every row of a prompt runs, has no compressed rows, so
    # that a million tokens take minutes; the second half selects among all of them.
    "long": {
        "max_position_embeddings": 1048576, "compress_ratios": [0, 0, 1, 1],
        "kv_source_layer_ids": [2], "index_source_layer_ids": [2, 3], "index_n_heads": 1},
}


def make(name, seed):
    """One folder. The prompt files that the comparison does not read are left out."""
    folder = os.path.join(HERE, name)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as dims:
        json.dump({"text_config": {**BASE, **SHAPES[name]}}, dims)
        dims.flush()
        subprocess.run([sys.executable, MAKE, "new", folder, "--dims", dims.name,
                        "--seed", str(seed)], check=True)
    subprocess.run([sys.executable, MAKE, "expected", folder, "--seed", str(seed + 1)], check=True)


def main():
    """Command line."""
    names = sys.argv[1:] or list(SHAPES)
    if names == ["--list"]:
        print("\n".join(SHAPES))
        return
    for name in names:
        print(name, flush=True)
        make(name, 100 + 10 * list(SHAPES).index(name))


if __name__ == "__main__":
    main()

#!/usr/bin/env bash
# Makes the nano model from nothing but this folder: tokenizer, corpus, training, export, measurement.
#   tools/nano/retrain.sh [SCRATCH]
# Needs scripts/deps.sh --nano, two cores and under three hours. Corpus, checkpoints and logs stay in
# SCRATCH (default build/nano); models/nano, tests/nano/skills.json and docs/nano are written anew.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=${1:-$root/build/nano}
python=/usr/bin/python3  # Debian's, which the python3-torch package belongs to
tools=$root/tools/nano
model=$root/models/nano
mkdir -p "$scratch"

# Every worker has one thread. Freed memory is kept: fresh pages cost more than the arithmetic.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=8589934592

echo "== tokenizer"
"$python" "$tools/make_corpus.py" --text "$scratch/text.txt" --tokens 875000 --seed 2
"$python" "$tools/tokenizer.py" --text "$scratch/text.txt" --out "$model"

echo "== corpus"
corpus() { "$python" "$tools/make_corpus.py" --tokenizer "$model/tokenizer.json" "$@"; }
corpus --out "$scratch/corpus" --tokens 9000000 --seed 1 &
corpus --out "$scratch/corpus_long" --tokens 1500000 --seed 3 --long-recall &
wait -n  # of either; a failure ends the script
wait -n

echo "== backbone"
"$python" "$tools/train.py" --corpus "$scratch/corpus" --tokenizer "$model" --out "$scratch/run" \
  --tokens 9000000 --minutes 110 --batch 1280
echo "== indexers and draft stages"
"$python" "$tools/train_heads.py" --resume "$scratch/run/backbone.pt" --corpus "$scratch/corpus_long" \
  --tokenizer "$model" --out "$scratch/run" --minutes 25

echo "== skill set"
"$python" "$tools/skills.py" --tokenizer "$model/tokenizer.json" --out "$root/tests/nano/skills.json"
exec "$tools/export_and_measure.sh" "$scratch/run"

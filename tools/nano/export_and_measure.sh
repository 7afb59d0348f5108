#!/usr/bin/env bash
# Writes models/nano from a training checkpoint, measures it, draws docs/nano, fills in the model card.
#   tools/nano/export_and_measure.sh [RUN]
# RUN: folder with final.pt, train.jsonl and heads.jsonl (default build/nano/run). Exit status 1 where
# the model misses a goal; everything is written all the same. Needs scripts/deps.sh --nano.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
run=${1:-$root/build/nano/run}
python=/usr/bin/python3
tools=$root/tools/nano
model=$root/models/nano
out=$root/build/nano
cedra=$root/build/release/cedra
mkdir -p "$out"

"$root/scripts/deps.sh"
(cd "$root" && cmake --preset release >"$out/configure.log")
cmake --build "$root/build/release" --target cedra

"$python" "$tools/export.py" --checkpoint "$run/final.pt" --tokenizer "$model" --out "$model"

rm -f "$out"/{results,drafted,measured}.json
missed=0
skills() { node "$root/tests/nano/run_skills.mjs" --binary "$cedra" --model "$model" "$@" || missed=1; }
skills --out "$out/results.json"
skills --speculative --out "$out/drafted.json"

"$python" "$tools/measure.py" --model "$model" --skills "$root/tests/nano/skills.json" \
  --results "$out/results.json" --out "$out/measured.json"
"$python" "$tools/pictures.py" --results "$out/results.json" --measured "$out/measured.json" \
  --logs "$run" --out "$root/docs/nano"
"$python" "$tools/model_card.py" --model "$model" --results "$out/results.json" \
  --drafted "$out/drafted.json" --measured "$out/measured.json" --logs "$run" \
  --record "$root/docs/nano/measured.json"
((missed == 0)) || echo "the model misses a goal, see the tables above" >&2
exit "$missed"

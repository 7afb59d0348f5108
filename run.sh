#!/usr/bin/env bash
# Builds cedra (installing the Debian packages it needs) and starts it.
#   ./run.sh                     serve on 127.0.0.1:8000; prints a first request to paste
#   ./run.sh chat                talk to the model in the terminal
#   ./run.sh --once "QUESTION"   print one answer and exit
#   ./run.sh ANYTHING ELSE       passed to cedra as it is, e.g. ./run.sh inspect models/nano
# A checkpoint folder of your own: ./run.sh --model DIR [chat | --once "QUESTION"]
# Flags of `cedra chat` and `cedra run` may follow `chat` and `--once "QUESTION"`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cedra=$here/build/release/cedra

once_flags=()
model=$here/models/nano
if [[ ! -f $model/config.json ]]; then
  model=$here/models/tiny
  once_flags=(--max-tokens 64 --no-thinking)  # random weights: the text is noise and has no end of its own
fi
if [[ ${1:-} == --model ]]; then
  if (($# < 2)); then echo "run.sh: --model needs a checkpoint folder" >&2; exit 2; fi
  model=$2
  once_flags=()
  shift 2
fi
if [[ ${1:-} == --once && $# -lt 2 ]]; then
  echo "run.sh: --once needs the question" >&2
  exit 2
fi

build() {
  "$here/scripts/deps.sh"
  cd "$here"
  mkdir -p build
  cmake --preset release >build/release.configure.log 2>&1 ||
    { cat build/release.configure.log; return 1; }
  cmake --build --preset release --target cedra
}
# Standard output is for the answer.
(build) >&2

case "${1:-}" in
  "") exec "$cedra" serve "$model" --host 127.0.0.1 --port 8000 ;;
  chat) exec "$cedra" chat "$model" "${@:2}" ;;
  --once) exec "$cedra" run "$model" "${once_flags[@]}" "${@:3}" -- "$2" ;;
  *) exec "$cedra" "$@" ;;
esac

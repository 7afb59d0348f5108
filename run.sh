#!/usr/bin/env bash
# Builds cedra (installing the Debian packages it needs) and starts it.
#   ./run.sh                     serve on 127.0.0.1:8000; prints a first request to paste
#   ./run.sh chat                talk to the model in the terminal
#   ./run.sh --once "QUESTION"   print one answer and exit
#   ./run.sh ANYTHING ELSE       passed to cedra as it is, e.g. ./run.sh inspect models/tiny
# A checkpoint folder of your own: ./run.sh --model DIR [chat | --once "QUESTION"]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cedra=$here/build/release/cedra
host=127.0.0.1
port=8000

model=$here/models/nano
[[ -d $model ]] || model=$here/models/tiny
if [[ ${1:-} == --model ]]; then
  if (($# < 2)); then echo "run.sh: --model needs a checkpoint folder" >&2; exit 2; fi
  model=$2
  shift 2
fi
if [[ ${1:-} == --once && $# -ne 2 ]]; then
  echo "run.sh: --once takes one argument, the question" >&2
  exit 2
fi

# Standard output is for the answer; everything about building goes to standard error.
build() {
  "$here/scripts/deps.sh"
  cd "$here"
  cmake --preset release -Wno-dev >build/release.configure.log ||
    { cat build/release.configure.log; return 1; }
  cmake --build --preset release --target cedra -- --quiet
}
mkdir -p "$here/build"
(build) >&2

case "${1:-}" in
  "")
    cat <<TEXT
Serving $model on http://$host:$port (Ctrl-C stops). A first request, for another terminal:

  curl http://$host:$port/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 32}'

TEXT
    exec "$cedra" serve "$model" --host "$host" --port "$port"
    ;;
  chat)
    shift
    exec "$cedra" chat "$model" "$@"
    ;;
  --once)
    exec "$cedra" run "$model" --prompt "$2"
    ;;
  *)
    exec "$cedra" "$@"
    ;;
esac

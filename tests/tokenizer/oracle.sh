#!/bin/sh
# oracle.sh ENCODE_IDS TOKENIZER_JSON NPM_PREFIX: compares this tokenizer with the Hugging Face
# library (npm "tokenizers", its Rust code as a Node add-on; installed into NPM_PREFIX if it is not
# there) on several megabytes of generated text. Prints what was compared, or the first difference.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ ! -f "$2" ]; then
  echo "$2 is missing: run scripts/fetch_tokenizer.sh" >&2
  exit 1
fi
if [ ! -d "$3/node_modules/tokenizers" ]; then
  mkdir -p "$3"
  npm install --prefix "$3" --no-save --no-audit --no-fund --ignore-scripts tokenizers@0.23.2
fi
exec node "$here/oracle.mjs" "$@"

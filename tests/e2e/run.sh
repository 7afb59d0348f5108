#!/usr/bin/env bash
# run.sh CEDRA [MODEL] [TEST...]: real npm clients against the program CEDRA, on a script and on the
# checkpoint MODEL (models/tiny). Packages come from the lock file into build/e2e and stay there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
CEDRA_BINARY=$(realpath "${1:?run.sh CEDRA [MODEL] [TEST...]}")
CEDRA_MODEL=$(realpath "${2:-$root/models/tiny}")
export CEDRA_BINARY CEDRA_MODEL
shift
shift || true
work=$root/build/e2e
mkdir -p "$work"
cd "$work"
rm -f ./*.mjs
cp "$here"/*.mjs "$here"/package.json "$here"/.npmrc .
if ! cmp -s "$here/package-lock.json" installed-lock.json; then
  cp "$here/package-lock.json" .
  npm ci --ignore-scripts --no-audit --no-fund
  cp package-lock.json installed-lock.json
fi
tests=("$@")
((${#tests[@]})) || tests=(./*.test.mjs)
# Keys and addresses of the shell's owner must not reach a client, nor a proxy its loopback.
exec env -i PATH="$PATH" HOME="$work" CEDRA_BINARY="$CEDRA_BINARY" CEDRA_MODEL="$CEDRA_MODEL" \
  node --test --test-reporter=spec --test-timeout=300000 "${tests[@]}"

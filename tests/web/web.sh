#!/bin/sh
# web.sh BINARY NPM_FOLDER: the web page in Debian's Chromium, against `BINARY serve --script`. The
# npm package that drives the browser is installed into NPM_FOLDER if it is not there.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v chromium >/dev/null; then
  echo "chromium is missing: run scripts/deps.sh --slow" >&2
  exit 1
fi
mkdir -p "$2"
if ! cmp -s "$here/package-lock.json" "$2/package-lock.json"; then
  cp "$here/package.json" "$here/package-lock.json" "$2"
  npm ci --prefix "$2" --no-audit --no-fund --ignore-scripts || { rm "$2/package-lock.json"; exit 1; }
fi
CEDRA_BINARY=$(realpath "$1") CEDRA_NPM=$(realpath "$2") exec node --test "$here/web.test.mjs"

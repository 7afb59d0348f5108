#!/bin/sh
# oracle.sh SAMPLE_GRAMMAR TOKENIZER_JSON FOLDER: has the structured outputs judged by ajv (JSON
# Schema), JavaScript's own regular expressions, and XGrammar (EBNF, schemas); the npm packages of
# package-lock.json are installed into FOLDER if they are not there. Prints what was compared, or the
# first differences.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ ! -d "$3/node_modules/ajv" ]; then
  mkdir -p "$3"
  cp "$here/package.json" "$here/package-lock.json" "$3/"
  npm ci --prefix "$3" --no-audit --no-fund --ignore-scripts
fi
# The package says that it is an ES module, and is none.
cp "$3/node_modules/@mlc-ai/web-xgrammar/lib/index.js" "$3/web-xgrammar.cjs"
exec node "$here/oracle.mjs" "$@"

#!/usr/bin/env bash
# agents.sh CEDRA AGENT...: real coding agents (codex, claude, opencode, cline) against the program
# CEDRA, one after the other. Each is fetched from npm into a temporary folder (about 400 MB), runs
# without any network but loopback, and is deleted. Needs scripts/fetch_tokenizer.sh, and root or
# user namespaces. KEEP=FOLDER uses FOLDER instead, and leaves it.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CEDRA_BINARY=$(realpath "${1:?agents.sh CEDRA AGENT...}")
CEDRA_MODEL=$(realpath "$here/../../build/tokenizer")
shift
declare -A packages=(
  [codex]=@openai/codex@0.171.0
  [claude]=@anthropic-ai/claude-code@2.1.332
  [opencode]=opencode-ai@1.18.33
  [cline]=cline@3.0.65
)
# A process that an agent leaves behind ends with the namespace.
namespace=(unshare --net --pid --fork --kill-child --mount-proc)
((EUID == 0)) || namespace+=(--map-root-user)
scratch_to_delete=
trap '[[ -z $scratch_to_delete ]] || rm -rf "$scratch_to_delete"' EXIT

status=0
for agent in "$@"; do
  [[ -n ${packages[$agent]:-} ]] || { echo "no such agent: $agent; known: ${!packages[*]}" >&2; exit 2; }
  if [[ -n ${KEEP:-} ]]; then
    scratch=$KEEP/$agent
  else
    scratch=$(mktemp -d)
    scratch_to_delete=$scratch
  fi
  mkdir -p "$scratch/npm"
  if [[ ! -d $scratch/npm/node_modules ]]; then
    npm install --prefix "$scratch/npm" --no-save --no-audit --no-fund --ignore-scripts \
      "${packages[$agent]}" || { status=1; continue; }
  fi
  # No ambient keys or proxies, no way out: telemetry and update checks end here.
  env -i PATH="$PATH" HOME="$scratch" AGENT_LOG="${AGENT_LOG:-}" \
    CEDRA_BINARY="$CEDRA_BINARY" CEDRA_MODEL="$CEDRA_MODEL" \
    "${namespace[@]}" bash -c 'ip link set lo up && exec node "$@"' _ \
    "$here/agents.mjs" "$agent" "$scratch" || { echo "$agent: FAILED"; status=1; }
  [[ -n ${KEEP:-} ]] || rm -rf "$scratch"
done
exit $status

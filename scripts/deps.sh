#!/usr/bin/env bash
# Installs every Debian package that building, running and testing cedra needs.
# `deps.sh` alone: what ./run.sh needs. `deps.sh --test`: the test tools as well. `deps.sh --slow`:
# also what only tests labelled slow need. `deps.sh --nano`: the first, and what training
# the nano model needs.
set -euo pipefail

build=(
  g++ cmake ninja-build ccache mold pkg-config ca-certificates
  libboost1.81-dev      # HTTP server (Beast, Asio)
  libsimdjson-dev       # JSON in: config, safetensors headers, tokenizer, requests
  nlohmann-json3-dev    # JSON out and cold documents
  libfmt-dev libspdlog-dev libcli11-dev
  libutf8proc-dev       # Unicode normalisation of the compressed token map
  libxxhash-dev         # block and file hashes
  libssl-dev            # SHA-256 of `inspect --hash`
  libcurl4-openssl-dev  # images from allowed hosts
  libspng-dev libturbojpeg0-dev libwebp-dev libgif-dev  # image decoders
)
test_tools=(
  libgtest-dev libgmock-dev libbenchmark-dev
  clang-19 clang-format-19 clang-tidy-19 libclang-rt-19-dev
  python3 python3-numpy python3-pil
  nodejs npm curl git
  iproute2  # loopback in the network namespace of tests/e2e/agents.sh
)

slow_tools=(
  chromium fonts-dejavu-core  # tests/web
)
nano_tools=(
  python3-numpy python3-torch libopenblas0-pthread  # the default BLAS is twenty times slower
  python3-pil python3-matplotlib
  nodejs  # tests/nano
)

packages=("${build[@]}")
case "${1:-}" in
  --test) packages+=("${test_tools[@]}") ;;
  --slow) packages+=("${test_tools[@]}" "${slow_tools[@]}" "${nano_tools[@]}") ;;
  --nano) packages+=("${nano_tools[@]}") ;;
esac

missing=()
for package in "${packages[@]}"; do
  # A machine may bring nodejs and npm from elsewhere; the program is what counts.
  case "$package" in
    nodejs) command -v node >/dev/null && continue ;;
    npm) command -v npm >/dev/null && continue ;;
  esac
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ "$status" == "installed" ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then exit 0; fi

sudo=()
if ((EUID != 0)); then sudo=(sudo); fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null

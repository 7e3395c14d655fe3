#!/usr/bin/env bash
# Installs from Debian what `ndkctl bench` compares with and counts with, as far as it is missing: UCX's and libfabric's own
# benchmarks, and valgrind. Where that is not possible it says so, and the bench says in its rows what is absent.
#
#   tools/bench-peers.sh
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

missing=()
command -v ucx_perftest >/dev/null || missing+=(ucx-utils)
command -v fi_pingpong >/dev/null || missing+=(libfabric-bin)
command -v valgrind >/dev/null || missing+=(valgrind)
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi

if ! command -v apt-get >/dev/null; then
    echo "not a Debian: install ${missing[*]} by other means" >&2
    exit 0
fi
install_packages "${missing[@]}" || echo "could not be installed: ${missing[*]}" >&2

#!/usr/bin/env bash
# Counts the instructions of the data path (callgrind) and fails if there are more than crates/tools/bench/counts.json allows.
# Installs valgrind from Debian if it is missing; where it cannot be had, nothing is counted and that is said.
#
#   tools/bench-smoke.sh
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

if ! command -v valgrind >/dev/null && command -v apt-get >/dev/null; then
    install_packages valgrind || echo "valgrind could not be installed" >&2
fi
cargo run --release -- bench --smoke

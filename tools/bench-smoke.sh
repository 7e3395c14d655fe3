#!/usr/bin/env bash
# Counts the instructions of the data path (callgrind) and fails if there are more than crates/bench/counts.json allows.
# Installs valgrind from Debian if it is missing; where it cannot be had, nothing is counted and that is said.
#
#   tools/bench-smoke.sh
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v valgrind >/dev/null && command -v apt-get >/dev/null; then
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo -n)
  fi
  { "${as_root[@]}" apt-get update -q && "${as_root[@]}" apt-get install -q -y --no-install-recommends valgrind; } ||
    echo "valgrind could not be installed" >&2
fi
cargo run --release -- bench --smoke

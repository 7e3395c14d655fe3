#!/usr/bin/env bash
# All figures of docs/performance, in one go: about five minutes on a machine that does nothing else.
#
#   tools/bench.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-docs/performance}

tools/bench-peers.sh
cargo build --release -p ndkctl
cargo build --release -p tests-host --example driver_suite
mkdir -p "$folder"
cargo run --release -- bench --json "$folder/results.json" --report "$folder/results.md" --plots "$folder"

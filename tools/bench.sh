#!/usr/bin/env bash
# All figures of docs/performance, in one go: some ten minutes on a machine that does nothing else. The table goes into the page
# between its two comments, beside the plots and results.json.
#
#   tools/bench.sh [FOLDER [OPTION...]]     the page of another folder is made from that of docs/performance; options of
#                                           `ndkctl bench`, as in tools/bench.sh target/figures --quick
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-docs/performance}
options=("${@:2}")

tools/bench-peers.sh
cargo build --release -p ndkctl
cargo build --release -p tests-host --example driver_suite
mkdir -p "$folder"
[[ -e $folder/README.md ]] || cp docs/performance/README.md "$folder/README.md"
cargo run --release -- bench --json "$folder/results.json" --report "$folder/README.md" --plots "$folder" "${options[@]}"

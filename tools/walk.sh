#!/usr/bin/env bash
# Walks through an RDMA write of one element with an armed completion queue, from the consumer's post to its callback, and prints
# the functions of this repository that it passes, in the order of their first call. Inlined ones count as well: nothing is
# inlined. Counted are functions of engine, provider, fallible and ndkpi with more than one line in their body; a generic
# function once, a closure with the function that it stands in. What the host does in place of a kernel is left out.
#
#   tools/walk.sh [direct|deferred] [--all] [--most FUNCTIONS FILES]
#
# Without an engine both are walked; a limit is for `deferred`, the engine that ships. --all lists also what is not counted.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

engines=(direct deferred)
WALK_LIST="" functions="" files=""
while (($# > 0)); do
    case $1 in
    direct | deferred) engines=("$1") ;;
    --all) WALK_LIST=yes ;;
    --most)
        functions=$2 files=$3
        shift 2
        ;;
    *)
        sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
    shift
done
export WALK_LIST

command -v gdb >/dev/null || install_packages gdb
cargo build --quiet --profile walk -p bench --example walk
# The walks go on beside each other. gdb shows where it stops at every step.
declare -A walks
for engine in "${engines[@]}"; do
    WALK_MOST_FUNCTIONS="" WALK_MOST_FILES=""
    if [[ $engine == deferred ]]; then WALK_MOST_FUNCTIONS=$functions WALK_MOST_FILES=$files; fi
    export WALK_MOST_FUNCTIONS WALK_MOST_FILES
    gdb -batch -nx -iex 'set auto-load no' -x tools/walk.py --args target/walk/examples/walk "$engine" \
        >"target/walk/gdb-$engine.txt" 2>&1 &
    walks[$engine]=$!
done
failed=0
for engine in "${engines[@]}"; do
    wait "${walks[$engine]}" || failed=1
    echo "== $engine engine"
    grep -E '^[- ] crates/|^[0-9]+ functions in |^too many |^walk\.py: ' "target/walk/gdb-$engine.txt"
done
exit "$failed"

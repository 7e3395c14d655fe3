#!/usr/bin/env bash
# Random schedules of the provider, through its dispatch tables: the cases about completion queues and those with several tasks on
# a machine of one thread, where a seed decides who runs at each lock, deferred call, timer and wait.
#
#   tools/schedules.sh [schedules] [first seed]     100000 by default, from seed 0: six minutes of one processor
#
# A schedule is one case with one seed. What fails says how to run it again: `ndkctl selftest --deterministic --seed ...`. Code
# between two such points runs as one step: interleavings of single loads and stores are tools/loom.sh's.
set -euo pipefail
cd "$(dirname "$0")/.."

schedules=${1:-100000} seed=${2:-0}
filter=arm.,notify.,overrun.,resize.,moderation.,flush.,close.
ndkctl() { cargo run --quiet --release -p ndkctl -- "$@"; }
cases=$(ndkctl selftest --list --filter "$filter" --json | grep -c '"name"')
repeat=$(((schedules + cases - 1) / cases))
started=$SECONDS
ndkctl selftest --deterministic --filter "$filter" --repeat "$repeat" --seed "$seed" | tail -3
echo "$((repeat * cases)) schedules ($cases cases with $repeat seeds from $seed) in $((SECONDS - started)) s"

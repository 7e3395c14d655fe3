#!/usr/bin/env bash
# Random schedules of the provider, through its dispatch tables, on a machine of one thread, where a seed decides who runs at each
# lock, DPC, timer and wait:
#
# - random programs of NDKPI calls by two consumers, each step compared with a sequential oracle (tests-host/programs);
# - the cases of the suite about completion queues and those with several tasks: a tenth as many, because each takes nine times as long.
#
#   tools/schedules.sh [schedules] [first seed]     1000000 by default, from seed 0: about seven minutes of two processors
#
# A schedule is one program or one case with one seed. What fails says how to run it again: `programs --program ...`, `ndkctl
# selftest --deterministic --seed ...`. Code between two such points runs as one step: interleavings of single loads and stores are
# tools/loom.sh's. NDKCTL names a build of ndkctl; without it one is made.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/ndkctl.sh

schedules=${1:-1000000} seed=${2:-0}
for number in "$schedules" "$seed"; do
    if ! [[ $number =~ ^[0-9]{1,9}$ ]] || ((schedules < 10)); then
        echo "tools/schedules.sh: at least 10 schedules, from a seed: both numbers, not '$schedules' and '$seed'" >&2
        exit 2
    fi
done
filter=arm.,notify.,overrun.,resize.,moderation.,flush.,close.
have_ndkctl release

cases=$("$NDKCTL" selftest --list --filter "$filter" --json | grep -c '"name"')
repeat=$(((schedules / 10 + cases - 1) / cases))
from_cases=$((repeat * cases))
from_programs=$((schedules > from_cases ? schedules - from_cases : 0))

cargo build --quiet --release -p programs --example programs
started=$SECONDS
# Beside each other: each is one thread.
target/release/examples/programs --programs "$from_programs" --seed "$seed" --report 0 &
programs=$!
trap 'kill "$programs" 2>/dev/null || true' EXIT
"$NDKCTL" selftest --deterministic --filter "$filter" --repeat "$repeat" --seed "$seed" | tail -3
wait "$programs"
echo "$((from_programs + from_cases)) schedules: $from_programs programs, $cases cases with $repeat seeds from $seed, in" \
    "$((SECONDS - started)) s"

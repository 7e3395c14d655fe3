#!/usr/bin/env bash
# The longest DPCs: the bytes that one copies, over every case of the suite and random traffic; and the instructions that one
# takes (callgrind), over the cases with large transfers, long rows of requests, overruns and flushes. On a machine of one thread,
# where nobody gets into a call.
#
#   tools/deferred-calls.sh [--most INSTRUCTIONS] [--all]     600000 by default
#
# --all counts the instructions of every call of the first part: many minutes. That no call copies more than a quantum may is
# also watched by the machine of the suite, of the soak and of the programs (`HostPlatform`): one that does breaks a rule.
# Instructions are those of the host's code, its locks included. A copied byte counts as one where memmove is the processor's own
# (`rep movsb`), as valgrind counts.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

most=600000 filter=transfer.,rdma.,overrun.,flush.,srq. rounds=0
while (($#)); do
    case $1 in
    --most) most=${2:?--most: a number} && shift ;;
    --all) filter="" rounds=1 ;;
    *)
        sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
    shift
done
command -v valgrind >/dev/null || install_packages valgrind
cargo build --quiet --release -p conformance --features host --example deferred_calls
program=target/release/examples/deferred_calls
"$program" "" 3

# A file for each call; the one without a number is what came after the last of them.
calls=$(mktemp -d)
trap 'rm -rf "$calls"' EXIT
call=host::machine::dpc::run_entry
valgrind --quiet --tool=callgrind --callgrind-out-file="$calls/call" --dump-line=no --zero-before="$call" --dump-after="$call" \
    "$program" "$filter" "$rounds" >"$calls/output" 2>&1 || { cat "$calls/output" >&2; exit 1; }
counted=$(awk '$3 == "deferred" { calls += $2 } END { print calls + 0 }' "$calls/output")
read -r found longest < <(cat "$calls"/call.* | awk '/^totals:/ { calls++; if ($2 > most) most = $2 } END { print calls + 0, most + 0 }')
echo "$found DPCs of ${filter:-all cases and random traffic}: the longest takes $longest instructions, of $most"
# Those that ran while a machine was shut down are not in its count.
if ((found < counted)); then
    echo "tools/deferred-calls.sh: there were $counted: is '$call' still the function that runs one?" >&2
    exit 1
fi
((longest <= most))

#!/usr/bin/env bash
# Runs the images of the sample consumer in C with `ndkctl run`, on the image of softndknic: the sample with many seeds, and each of its
# wrong variants, which has to break the rule that samples/consumer-c/README.md names; with the line, where the PDB file can tell it.
#
#   tools/run-sample.sh [SEEDS]     how many seeds for the sample as it is; 200 by default
#
# NDKCTL names a build of ndkctl; without it one is made. Needs target/drivers/x86_64/softndknic.sys (tools/build-drivers.sh) and
# target/runner/worker.exe (tools/build-runner.sh). Builds the rest. Skipped where Wine is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/ndkctl.sh

SEEDS=${1:-200}
NIC=target/drivers/x86_64/softndknic.sys
SAMPLE=samples/consumer-c
for needed in "$NIC" target/runner/worker.exe; do
    [[ -f $needed ]] || { echo "there is no $needed" >&2; exit 1; }
done
command -v wine >/dev/null || { echo "skipped: Wine is not installed"; exit 0; }
for compiler in clang mingw; do "$SAMPLE/build.sh" --compiler "$compiler" --out "target/consumer-c-$compiler" >/dev/null; done
have_ndkctl release
run() { "$NDKCTL" run "$NIC" "$@" --script "$SAMPLE/run.toml"; }

began=$(date +%s%N)
for compiler in clang mingw; do run "consumer=target/consumer-c-$compiler/consumer.sys" --seeds "1..$SEEDS"; done
echo "$((2 * SEEDS * 60 * 1000000000 / ($(date +%s%N) - began))) seeds a minute"
# The same images on processors that run side by side.
for processors in 2 4; do
    echo "$processors processors at once"
    run consumer=target/consumer-c-clang/consumer.sys --threads "$processors" --seeds 1..10 --jobs 1
done

# mistake NAME RULE: runs the variant, says what it has broken and where, and fails if that is not the rule
mistake() {
    local name=$1 rule=$2 seeds said found place
    # Some mistakes show with one seed in ten only.
    for seeds in 1..8 9..16 17..24 25..32; do
        if said=$(run "consumer=target/consumer-c-clang/consumer-$name.sys" --seeds "$seeds"); then said="nothing: $said"; else break; fi
    done
    # A line for each rule, with what belongs to it below; at the end the sum.
    found=$(grep -v '^ ' <<<"$said" | sed '$d' | cut -d: -f1 | sort -u)
    if [[ $found != "$rule" ]]; then
        printf '%s has to break %s:\n%s\n' "$name" "$rule" "$said"
        return 1
    fi
    # A call that is the last thing a function does leaves nothing of that function on the stack.
    place=$(grep -o "$name\.c:[0-9]*" <<<"$said" | head -1) || true
    echo "$name: $rule${place:+, $place}"
}

# A run waits more than it works, so that several go on at one time.
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
while read -r name rule; do
    while (($(jobs -rp | wc -l) >= 2 * $(nproc))); do wait -n || true; done
    { mistake "$name" "$rule" || touch "$results/failed"; } >"$results/$name.txt" 2>&1 &
done < <(sed -n 's/^| `\([a-z-]*\)\.patch` |.*| `\([A-Za-z0-9-]*\)` |$/\1 \2/p' "$SAMPLE/README.md")
wait
cat "$results"/*.txt
places=$(cat "$results"/*.txt | grep -c '\.c:[0-9]') || true
((places >= 10)) || { echo "only $places findings have a line" >&2; exit 1; }
[[ ! -e $results/failed ]]

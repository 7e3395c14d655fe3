#!/usr/bin/env bash
# Which lines of the engine and the provider no test runs: random programs against the oracle, the suite under both engines, and the
# tests of the rules (tests-host) that need no driver.
#
#   tools/coverage.sh           the files with the lines that were not run
#   tools/coverage.sh --short   only programs and the suite: a quarter of the time
#
# Needs llvm-profdata and llvm-cov of the compiler's LLVM: Debian's package llvm-22, which this installs.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

short=${1:-}
if [[ $short && $short != --short ]]; then
    echo "tools/coverage.sh: --short, or nothing; not '$short'" >&2
    exit 2
fi
major=$(llvm_of rustc)
command -v "llvm-cov-$major" >/dev/null || install_packages "llvm-$major" || true
if ! command -v "llvm-cov-$major" >/dev/null; then
    echo "tools/coverage.sh: there is no llvm-cov-$major, which this compiler's profiles need (Debian: llvm-$major)" >&2
    exit 1
fi

directory=target/coverage profiles=$PWD/target/coverage/profiles
rm -rf "$profiles"
mkdir -p "$profiles"
export RUSTFLAGS="-Cinstrument-coverage" CARGO_INCREMENTAL=0 LLVM_PROFILE_FILE="$profiles/%p-%m.profraw"
programs=()
# built ARGUMENTS...: builds, and remembers the programs that were made
built() {
    local made
    mapfile -t made < <(cargo "$@" --target-dir "$directory" --message-format json 2>/dev/null |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
    programs+=("${made[@]}")
}
built build -p programs --example programs
built build -p ndkctl --bin ndkctl
"$directory/debug/examples/programs" --programs 5000 --report 0
for nic in deferred direct; do
    "$directory/debug/ndkctl" selftest --deterministic --nic "$nic" --completion mixed | tail -1
done
if [[ ! $short ]]; then
    tests=(
        cq_rules qp_rules memory connection notify_decision cq_model out_of_memory provider_objects provider_notes profiles limits
        faults mdl_chains conformance conformance_cancel soak
    )
    built test --no-run -p tests-host "${tests[@]/#/--test=}"
    for program in "${programs[@]:2}"; do
        "$program" -q 2>&1 | tail -1
    done
fi

"llvm-profdata-$major" merge -sparse "$profiles"/*.profraw -o "$directory/all.profdata"
objects=()
for program in "${programs[@]}"; do
    objects+=(--object "$program")
done
"llvm-cov-$major" export --format=lcov --instr-profile "$directory/all.profdata" "${objects[@]}" \
    --sources "$PWD"/crates/engine/src "$PWD"/crates/provider/src >"$directory/lines.lcov"
awk -v root="$PWD/" '
    /^SF:/ { file = substr($0, 4); sub(root, "", file); all = none = 0; missing = "" }
    /^DA:/ { split(substr($0, 4), one, ","); all++; if (one[2] == 0) { none++; missing = missing " " one[1] } }
    /^end_of_record/ {
        total += all; left += none
        if (none) printf "%s: %d of %d lines not run:%s\n", file, none, all, missing
    }
    END { printf "total: %d of %d lines run (%.1f %%)\n", total - left, total, 100 * (total - left) / total }' \
    "$directory/lines.lcov" | sort

#!/usr/bin/env bash
# Which lines of the engine and the provider no test runs: random programs against the oracle, the suite under both engines, wrong
# providers, and the tests of the rules, the user-mode interface and the drivers. tests-host/uncovered.toml has the reason
# for each such line. Ends with 1 and names the line where the two disagree: a line that was not run and has no reason, or a reason
# whose line was run or is gone.
#
#   tools/coverage.sh           all of it
#   tools/coverage.sh --short   only programs and the suite, a quarter of the time: the lines that were not run, nothing is compared
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
    cargo "$@" --quiet --target-dir "$directory" --message-format json-render-diagnostics >"$directory/built.json"
    mapfile -t made < <(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$directory/built.json")
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
        faults mdl_chains conformance conformance_cancel soak host_machine reasons nd2 drivers nic
        slab
    )
    built test --no-run "${tests[@]/#/--test=}"
    for program in "${programs[@]:2}"; do
        if ! "$program" --quiet >"$directory/output" 2>&1; then
            cat "$directory/output"
            exit 1
        fi
        echo "$(basename "$program"): $(grep "^test result" "$directory/output")"
    done
fi

"llvm-profdata-$major" merge -sparse "$profiles"/*.profraw -o "$directory/all.profdata"
# One program at a time: of several, llvm-cov takes a function's record from the first that has one, and that is one of zeros where the
# compiler has inlined the function everywhere.
for program in "${programs[@]}"; do
    "llvm-cov-$major" export --format=lcov --instr-profile "$directory/all.profdata" "$program" \
        --sources "$PWD"/crates/provider/engine/src "$PWD"/crates/provider/provider/src 2> >(grep -v "mismatched data" >&2)
done >"$directory/lines.lcov"
known=tests-host/uncovered.toml
# A part of the tests leaves more lines than the list has reasons for.
if [[ $short ]]; then known=; fi
tools/coverage.py "$directory/lines.lcov" $known

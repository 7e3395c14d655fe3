#!/usr/bin/env bash
# Changes fallible, engine, provider and the drivers in one place at a time, and runs the tests that reach the place. A mutant that no test
# notices is a hole in the tests: the script ends with 1 and names it. Those that no test could notice stand in
# tests-host/mutants/survivors.toml, each with its reason.
#
#   tools/mutants.sh [OPTION]... [FILE]...   the mutants of these files, globs too: 'crates/provider/engine/src/cq/*'; without any, all
#     --diff BASE      only those in lines that differ from the commit BASE
#     --budget SECONDS of tests for each mutant, the quickest first (40)
#     --reach          only those that no test reaches
#     --known-too      also those with a reason: which of them are caught, or are no mutants any more
#     --again          also those that were caught before
#
# cargo-mutants says what the mutants are. All of them are built at once, and a number chooses one when a test program begins
# (tests-host/mutants), so thousands take hours rather than days. A mutant that was caught is not tried again while its file is the same:
# target/mutants/results.jsonl has what became of each, and by which test.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
results=target/mutants
mkdir -p "$results"
crates=(provider/fallible provider/engine provider/provider
    drivers/kernel drivers/driver-common drivers/softndk drivers/softndknic)
list=() options=() files=()
while (($#)); do
    case $1 in
    --diff)
        git diff "${2:?--diff: a commit}" -- "${crates[@]/#/crates/}" >"$results/diff"
        if ! [[ -s $results/diff ]]; then
            echo "nothing of ${crates[*]} differs from $2"
            exit 0
        fi
        list+=(--in-diff "$results/diff") && shift
        ;;
    --budget) options+=(--budget "${2:?--budget: seconds}") && shift ;;
    --reach | --known-too) options+=("$1") ;;
    --again) rm -f "$results/results.jsonl" ;;
    -*) usage ;;
    *) files+=("$1") ;;
    esac
    shift
done
((${#files[@]})) || for crate in "${crates[@]}"; do files+=("crates/$crate/src/**"); done

if ! command -v cargo-mutants >/dev/null && ! [[ -x ${CARGO_HOME:-$HOME/.cargo}/bin/cargo-mutants ]]; then
    echo "installing cargo-mutants"
    CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug cargo-mutants
fi
cargo mutants --list --json --workspace --config tests-host/mutants/cargo-mutants.toml "${list[@]}" "${files[@]/#/--file=}" \
    >"$results/list.json"
if [[ $(<"$results/list.json") == "[]" ]]; then
    echo "there are no mutants in ${files[*]}"
    exit 0
fi

# Tests that are about other things, and the stress tests of the simulation, reach nothing that these do not.
tests=(
    rules memory adviser conformance conformance_cancel connection cq_model cq_rules cq_stress driver_os driver_runs
    drivers faults host_machine interpose kernel_rules layers limits mdl_chains nd2 nd2_observe nd2_processes nd2_unload ndis_rules
    ndk_in_kernel nic notify_decision out_of_memory profiles programs protocol_model provider_notes provider_objects provider_rules
    qp_rules reasons replay runs semantics soak wdm_rules wrong_drivers
)
packages=(
    fallible engine provider host interpose replay conformance kernel driver-common softndk softndknic programs tests-host
)
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=line-tables-only
cargo run --quiet -p mutants --example mutants -- --list "$results/list.json" --out "$results" --known tests-host/mutants/survivors.toml "${options[@]}" \
    -- "${packages[@]/#/--package=}" --features softndk/faults --lib "${tests[@]/#/--test=}"

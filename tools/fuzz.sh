#!/usr/bin/env bash
# Fuzzes the drivers in the simulated kernel (the control codes of both, those of NetworkDirect, queries for the provider's
# interface, OIDs), the readers of recordings and of images, the wire by frames against a live connection, and the provider through its
# dispatch tables, beside a sequential oracle (tests-host/programs).
#
#   tools/fuzz.sh [seconds]              how long, for all targets together; 60 by default
#   tools/fuzz.sh --minimise [seconds]   then keeps, of all inputs of up to 512 bytes, the fewest that reach as much
#
# Each target begins with its inputs in tests-host/fuzz: seeds, which are written by hand, and corpus, which --minimise makes.
# libFuzzer needs a nightly compiler and a C++ compiler. Without them this says so and does nothing: `cargo test` runs the same
# targets for a moment, without looking at what they reach. What is found lies in target/fuzz-artifacts.
set -euo pipefail
cd "$(dirname "$0")/.."

MINIMISE="" LENGTH=2048
if [[ ${1:-} == --minimise ]]; then
    MINIMISE=yes LENGTH=512
    shift
fi
SECONDS_IN_ALL=${1:-60}
TARGETS=(control_codes nd2_codes query_interface recording programs images oids frames)

skip() {
    echo "fuzzing is left out: $*"
    exit 0
}
command -v rustup >/dev/null || skip "there is no rustup to ask for a nightly compiler"
rustup run nightly rustc --version >/dev/null 2>&1 || skip "there is no nightly compiler (rustup toolchain install nightly)"
command -v c++ >/dev/null || skip "there is no C++ compiler for libFuzzer"
if ! command -v cargo-fuzz >/dev/null && ! [[ -x ${CARGO_HOME:-$HOME/.cargo}/bin/cargo-fuzz ]]; then
    echo "installing cargo-fuzz"
    # Not optimised: it only calls others.
    CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug cargo-fuzz || skip "cargo-fuzz cannot be installed"
fi

# The targets are a workspace of their own, with versions of their own: cargo-fuzz would change them without a word.
cargo metadata --locked --format-version 1 --manifest-path tests-host/fuzz/Cargo.toml >/dev/null

# The kernel's pool has guards and poison of its own, and a handler for faults: no other sanitizer.
OPTIONS=(--fuzz-dir tests-host/fuzz --target-dir target/fuzz --sanitizer none)
for target in "${TARGETS[@]}"; do
    cargo +nightly fuzz build "${OPTIONS[@]}" "$target"
done
for target in "${TARGETS[@]}"; do
    corpus=target/fuzz-corpus/$target kept=target/fuzz-kept/$target packed=tests-host/fuzz/corpus/$target.txt
    rm -rf "$kept"
    mkdir -p "$corpus" "$kept" target/fuzz-artifacts
    if [[ -e $packed ]]; then tools/corpus.py unpack "$packed" "$kept"; fi
    echo "fuzzing $target for $((SECONDS_IN_ALL / ${#TARGETS[@]})) s"
    cargo +nightly fuzz run "${OPTIONS[@]}" "$target" "$corpus" "$kept" "tests-host/fuzz/seeds/$target" -- \
        -max_total_time="$((SECONDS_IN_ALL / ${#TARGETS[@]}))" -max_len="$LENGTH" -len_control=0 -timeout=60 -print_final_stats=1 \
        -artifact_prefix="$PWD/target/fuzz-artifacts/$target-"
    if [[ $MINIMISE ]]; then
        rm -rf "$kept.fewest"
        mkdir "$kept.fewest"
        cargo +nightly fuzz run "${OPTIONS[@]}" "$target" "$kept.fewest" "$corpus" "$kept" -- -merge=1 -max_len="$LENGTH" -timeout=60
        tools/corpus.py pack "$kept.fewest" "$packed"
        echo "$target: $(wc -l <"$packed") inputs in $packed"
    fi
done

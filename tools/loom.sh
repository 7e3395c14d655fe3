#!/usr/bin/env bash
# Model checks: loom runs the tests whose names begin with `loom_` in every interleaving that the memory model allows, up to
# a number of pre-emptions.
#
#   tools/loom.sh [test-name-filter]
#
# They need another build of the crates, with loom's atomics, and so have a target directory of their own.
set -euo pipefail
cd "$(dirname "$0")/.."

RUSTFLAGS="--cfg loom" cargo test --release --target-dir target/loom -p fallible -p engine --test 'loom_*' -- "$@"

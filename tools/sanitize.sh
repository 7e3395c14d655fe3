#!/usr/bin/env bash
# Engine, provider, host and suite under AddressSanitizer, which also looks for leaks, on a machine of threads: random traffic
# (`ndkctl soak`) and the cases that run several tasks, with both engines. Needs a nightly compiler.
#
#   tools/sanitize.sh [rounds]     rounds of traffic for each engine, 5 if not given
#
# The standard library is not instrumented: that needs the component rust-src. For that reason there is no ThreadSanitizer here: what
# the locks of the standard library order would be races to it.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-5}
if ! [[ $rounds =~ ^[1-9][0-9]*$ ]]; then
    echo "tools/sanitize.sh: rounds are a number from 1 on, not '$rounds'" >&2
    exit 2
fi
if ! host=$(rustc +nightly -vV 2>/dev/null | sed -n 's/^host: //p') || [[ ! $host ]]; then
    echo "tools/sanitize.sh: there is no nightly compiler: rustup toolchain install nightly" >&2
    exit 1
fi

# With a target given, build scripts and macros are not instrumented.
RUSTFLAGS="-Zsanitizer=address" cargo +nightly build --quiet -p ndkctl --target "$host" --target-dir target/sanitize
ndkctl=target/sanitize/$host/debug/ndkctl
export ASAN_OPTIONS=detect_leaks=1
for nic in deferred direct; do
    "$ndkctl" soak --rounds "$rounds" --workers 4 --nic "$nic" --completion mixed | tail -1
    "$ndkctl" selftest --filter stress.,close. --nic "$nic" | tail -2
done
"$ndkctl" soak --rounds "$rounds" --workers 4 --nic direct --locks plain | tail -1

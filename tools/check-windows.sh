#!/usr/bin/env bash
# Checks that what `cargo test` and `cargo run` build compiles for Windows too, tests included. Nothing is linked or run.
#
# rustup brings a standard library for the host only. Debian's compiler package comes with the source of the library, which
# is built here. Installs it if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

COMPILER=/usr/bin/rustc
if ! [[ -x $COMPILER && -f $("$COMPILER" --print sysroot)/lib/rustlib/src/rust/library/std/Cargo.toml ]]; then
    echo "installing rustc-web and rust-web-src"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends rustc-web rust-web-src >/dev/null
fi
RUSTC="$COMPILER" RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target/windows cargo check --quiet --all-targets \
    --target x86_64-pc-windows-gnu -Zbuild-std=std,panic_unwind,test
echo "the default members and their tests compile for x86_64-pc-windows-gnu"

#!/usr/bin/env bash
# Builds what runs in a kernel for a Windows target, without a standard library: whatever used one would not compile.
#
# rustup brings a core library for the host only. Debian's compiler package comes with the source of the library, which is
# built here. Installs it if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

COMPILER=/usr/bin/rustc
if ! [[ -x $COMPILER && -f $("$COMPILER" --print sysroot)/lib/rustlib/src/rust/library/core/Cargo.toml ]]; then
    echo "installing rustc-web and rust-web-src"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends rustc-web rust-web-src >/dev/null
fi
RUSTC="$COMPILER" RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target/no-std cargo check --quiet \
    --target x86_64-pc-windows-msvc -Zbuild-std=core,alloc,compiler_builtins \
    -p ndkpi -p fallible -p engine -p provider -p conformance
echo "ndkpi, fallible, engine, provider and conformance build for x86_64-pc-windows-msvc with core and alloc only"

#!/usr/bin/env bash
# Builds what runs in a kernel for a Windows target, without a standard library: whatever used one would not compile.
# Installs Debian's compiler, which does it, if that is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

has_compiler || install_packages "${COMPILER_PACKAGES[@]}"
check_compiler
RUSTC="$COMPILER" RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target/no-std cargo check --quiet \
    --target x86_64-pc-windows-msvc -Zbuild-std=core,alloc,compiler_builtins \
    -p ntstatus -p ndkpi -p cable -p fallible -p roce -p engine -p provider -p conformance -p control -p ndk
echo "ntstatus, ndkpi, cable, fallible, roce, engine, provider, conformance, control and ndk build for x86_64-pc-windows-msvc with core and alloc only"

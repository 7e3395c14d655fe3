#!/usr/bin/env bash
# Checks that what `cargo test` and `cargo run` build compiles for Windows too, tests included. Nothing is linked or run.
# Installs Debian's compiler, which does it, if that is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

has_compiler || install_packages "${COMPILER_PACKAGES[@]}"
check_compiler
RUSTC="$COMPILER" RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target/windows cargo check --quiet --all-targets \
    --target x86_64-pc-windows-msvc -Zbuild-std=std,panic_unwind,test
echo "the default members and their tests compile for x86_64-pc-windows-msvc"

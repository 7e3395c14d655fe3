#!/usr/bin/env bash
# Checks that what `cargo test` and `cargo run` build compiles for Windows too, tests included. Of the installer, most of which is for Windows
# only, clippy has nothing to say, and it compiles for ARM64. Nothing is linked or run.
# Installs Debian's compiler and its clippy, which do it, if they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

CLIPPY=/usr/bin/clippy-driver
packages=()
has_compiler || packages+=("${COMPILER_PACKAGES[@]}")
[[ -x $CLIPPY ]] || packages+=(rust-web-clippy)
((${#packages[@]} == 0)) || install_packages "${packages[@]}"
check_compiler

# check TARGET ARGUMENT...: has cargo check something for a target
check() {
    local target=$1
    shift
    RUSTC="$COMPILER" RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target/windows cargo check --quiet --all-targets --target "$target" \
        -Zbuild-std=std,panic_unwind,test "$@"
}

check x86_64-pc-windows-msvc
echo "the default members and their tests compile for x86_64-pc-windows-msvc"
# What cargo-clippy would say to it, which takes the compiler of rustup.
RUSTC_WORKSPACE_WRAPPER=$CLIPPY CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__ check x86_64-pc-windows-msvc -p install
echo "clippy has nothing to say to the installer for x86_64-pc-windows-msvc"
check aarch64-pc-windows-msvc -p install
echo "the installer and its tests compile for aarch64-pc-windows-msvc"

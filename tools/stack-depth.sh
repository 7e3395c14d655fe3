#!/usr/bin/env bash
# How deep the stack gets in the drivers, over all calls: builds their images with types and examines them. Two minutes on two
# processors the first time, nearly all of it the build.
#
#   tools/stack-depth.sh [--path] [--most BYTES]
#
# What the figures mean is in tools/stack-depth.py, what types do not say in tools/stack-depth.toml.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

missing=()
command -v objdump >/dev/null && command -v addr2line >/dev/null || missing+=(binutils)
compgen -c | grep -q '^llvm-cxxfilt' || missing+=(llvm)
((${#missing[@]} == 0)) || install_packages "${missing[@]}" ||
    { echo "install these Debian packages: ${missing[*]}" >&2; exit 1; }

tools/build-drivers.sh --types
exec tools/stack-depth.py --rules tools/stack-depth.toml "$@" target/drivers/types/x86_64/*.sys

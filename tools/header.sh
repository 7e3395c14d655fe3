#!/usr/bin/env bash
# Compiles the header for consumers, crates/control/include/softndk.h, as C and as C++, and compares it with the Rust crate.
# Installs Debian's compilers for Windows, with their DDK headers, if they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

packages=()
command -v x86_64-w64-mingw32-gcc >/dev/null || packages+=(gcc-mingw-w64-x86-64-win32)
command -v x86_64-w64-mingw32-g++ >/dev/null || packages+=(g++-mingw-w64-x86-64-win32)
((${#packages[@]} == 0)) || install_packages "${packages[@]}"
SOFTNDK_REQUIRE_HEADER=1 cargo test -p tests-host --test driver_header

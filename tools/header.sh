#!/usr/bin/env bash
# The headers for consumers, and the sample that uses them. Compiles crates/consumer/control/include/softndk.h as C and as C++ and compares it
# with the Rust crate; compiles crates/abi/ndkpi/include and compares it with the facts; runs the sample in C and its wrong variants in the
# simulated kernel; builds their images with both compilers. Installs Debian's compilers, with their DDK headers, if they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

packages=()
command -v x86_64-w64-mingw32-gcc >/dev/null || packages+=(gcc-mingw-w64-x86-64-win32)
command -v x86_64-w64-mingw32-g++ >/dev/null || packages+=(g++-mingw-w64-x86-64-win32)
command -v clang >/dev/null || packages+=(clang)
command -v lld-link >/dev/null || packages+=(lld)
command -v llvm-dlltool >/dev/null || packages+=(llvm)
command -v patch >/dev/null || packages+=(patch)
((${#packages[@]} == 0)) || install_packages "${packages[@]}"
# Without a package: with the features of `cargo test`, whose build is used again.
SOFTNDK_REQUIRE_HEADER=1 cargo test --test driver_header --test ndkpi_header --test runs
samples/consumer-c/build.sh
samples/consumer-c/build.sh --compiler mingw --out target/consumer-c-mingw

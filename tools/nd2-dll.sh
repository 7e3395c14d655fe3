#!/usr/bin/env bash
# Builds softnd.dll, the user-mode NetworkDirect provider, for Windows on Linux (Debian), and runs test programs in C++ under
# Wine: a client of its interface, and one that loads and unloads it N times (10,000).
#
#   tools/nd2-dll.sh [--no-install] [--no-test] [--rounds N] [--check-reproducible]
#
# Result: target/nd2/softnd.dll. What is missing is installed from Debian (as root); without Wine the test is skipped with
# a message, and everything else still counts.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

INSTALL=1
TEST=1
ROUNDS=10000
CHECK_REPRODUCIBLE=0
while (($#)); do
    case $1 in
        --no-install) INSTALL=0 ;;
        --no-test) TEST=0 ;;
        --rounds) ROUNDS=$2; shift ;;
        --check-reproducible) CHECK_REPRODUCIBLE=1 ;;
        -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) echo "unknown option: $1 (see --help)" >&2; exit 2 ;;
    esac
    shift
done

TOP=$PWD
OUT=$TOP/target/nd2
CACHE=${ND2_TARGET_DIR:-$TOP/target/nd2-build}
TRIPLE=x86_64-pc-windows-gnu
LINKER=x86_64-w64-mingw32-gcc-win32

say() { printf '== %s\n' "$*"; }

may_install() { ((INSTALL)) && [[ $(id -u) == 0 ]]; }

packages=()
has_compiler || packages+=("${COMPILER_PACKAGES[@]}")
command -v "$LINKER" >/dev/null || packages+=(gcc-mingw-w64-x86-64-win32)
((TEST)) && { command -v x86_64-w64-mingw32-g++-win32 >/dev/null || packages+=(g++-mingw-w64-x86-64-win32); }
if ((${#packages[@]})) && ! { may_install && install_packages "${packages[@]}"; }; then
    echo "missing: ${packages[*]} (install these Debian packages, or run as root)" >&2
    exit 1
fi

# build DIRECTORY
build() {
    mkdir -p "$1.lock"
    # Begin from the committed lock file, and leave that alone.
    cp Cargo.lock "$1.lock/Cargo.lock"
    local flags=(-Cpanic=abort -Clink-arg=-static-libgcc -Clink-arg=-Wl,--no-insert-timestamp)
    # Variables of threads in the image's own section, which the loader takes back with the image. Without it the library of
    # Rust takes slots with TlsAlloc and never gives them back: after some hundred loads a process has none left.
    flags+=(-Zhas-thread-local=yes)
    # No path of this machine in the image.
    flags+=("--remap-path-prefix=$TOP=softndk" "--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo")
    flags+=("--remap-path-prefix=$("$COMPILER" --print sysroot)=rust")
    env RUSTC="$COMPILER" RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$1" \
        CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER="$LINKER" CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUSTFLAGS="${flags[*]}" \
        CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_RELEASE_STRIP=symbols \
        cargo build --quiet --release --target "$TRIPLE" --package softnd -Zbuild-std=std,panic_abort \
        -Zlockfile-path --config "resolver.lockfile-path='$1.lock/Cargo.lock'"
}

say "$("$COMPILER" --version | cut -d' ' -f1-2), $("$LINKER" --version | head -1)"
mkdir -p "$CACHE" "$OUT"
say "building softnd.dll"
build "$CACHE/first"
if ((CHECK_REPRODUCIBLE)); then
    say "building it again, elsewhere"
    rm -rf "$CACHE/second"
    build "$CACHE/second"
    cmp "$CACHE"/{first,second}/"$TRIPLE"/release/softnd.dll
    rm -rf "$CACHE/second"
    say "both builds gave the same bytes"
fi
cp "$CACHE/first/$TRIPLE/release/softnd.dll" "$OUT/"

# The exports that a client looks for, and no library that Windows does not have.
"${LINKER%gcc-win32}objdump" -p "$OUT/softnd.dll" >"$CACHE/image.txt"
for name in DllGetClassObject DllCanUnloadNow; do
    grep -q "\b$name\$" "$CACHE/image.txt" || { echo "softnd.dll does not export $name" >&2; exit 1; }
done
printf '%-12s %10s bytes  sha256 %s\n' softnd.dll "$(stat -c %s "$OUT/softnd.dll")" \
    "$(sha256sum "$OUT/softnd.dll" | cut -d' ' -f1)"
sed -n 's/^\s*DLL Name: /imports /p' "$CACHE/image.txt"
((TEST)) || exit 0

say "building the test programs"
for program in client rounds; do
    x86_64-w64-mingw32-g++-win32 -std=c++17 -O1 -Wall -Wextra -Wno-cast-function-type -Wno-non-virtual-dtor -static \
        -o "$OUT/nd2-$program.exe" "crates/nd2/dll/client/$program.cpp" -lws2_32
done
if ! command -v wine >/dev/null && ! { may_install && install_packages wine wine64; }; then
    say "skipped: Wine is not installed and cannot be"
    exit 0
fi
# Older Wines lack the library in which Windows keeps its random numbers.
DIRECTORY=$OUT/wine
mkdir -p "$DIRECTORY"
cp "$OUT/softnd.dll" "$OUT/nd2-client.exe" "$OUT/nd2-rounds.exe" "$DIRECTORY/"
cat >"$CACHE/prng.c" <<'C'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T length) { return SystemFunction036(bytes, (ULONG)length); }
C
"$LINKER" -shared -o "$DIRECTORY/bcryptprimitives.dll" "$CACHE/prng.c" -ladvapi32
export WINEPREFIX=$CACHE/prefix WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml="
say "$(wine --version 2>/dev/null): running the test program"
# The first start makes the prefix.
if ! timeout 300 wine wineboot >/dev/null 2>&1; then
    say "skipped: Wine does not start here"
    exit 0
fi
cd "$DIRECTORY"
if ! SOFTND_LOG=all timeout 300 wine ./nd2-client.exe softnd.dll >"$CACHE/client.txt" 2>&1; then
    tr -d '\r' <"$CACHE/client.txt"
    echo "the test program has failed" >&2
    exit 1
fi
tr -d '\r' <"$CACHE/client.txt" | grep -c ' passed$' | xargs printf '%s passed, 0 failed\n'
# No driver has its device under Wine: the adapter is in the process, and the library says so. Who wants the driver is refused.
grep -a '^softnd: process: ' "$CACHE/client.txt" | tr -d '\r' || { echo "softnd.dll does not say where its adapter is" >&2; exit 1; }
if SOFTND_BACKEND=driver timeout 300 wine ./nd2-client.exe softnd.dll >"$CACHE/driver.txt" 2>&1 ||
    ! grep -aq '^softnd: the setting `backend` wants the driver' "$CACHE/driver.txt"; then
    tr -d '\r' <"$CACHE/driver.txt"
    echo "softnd.dll is to refuse where only the driver will do" >&2
    exit 1
fi
say "loading and unloading it $ROUNDS times, and as often with an adapter"
if ! timeout 3000 wine ./nd2-rounds.exe softnd.dll "$ROUNDS" >"$CACHE/rounds.txt" 2>&1; then
    tr -d '\r' <"$CACHE/rounds.txt"
    echo "the library does not survive being loaded and unloaded" >&2
    exit 1
fi
tr -d '\r' <"$CACHE/rounds.txt" | tail -1

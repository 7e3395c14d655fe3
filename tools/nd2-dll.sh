#!/usr/bin/env bash
# Builds softnd.dll, the user-mode NetworkDirect provider, for Windows on Linux (Debian), for programs of 64 bits and of 32, and
# runs test programs in C++ under Wine: a client of its interface, and one that loads and unloads it N times (10,000).
#
#   tools/nd2-dll.sh [--no-install] [--no-test] [--bits 64|32] [--rounds N] [--check-reproducible]
#
# Results: target/nd2/softnd.dll, and target/nd2/32/softnd.dll for programs of 32 bits. What is missing is installed from Debian
# (as root); without Wine the tests are skipped with a message, and everything else still counts. Wine runs programs of 32 bits
# where Debian's wine32 is installed beside it, which needs `dpkg --add-architecture i386`; this script does not change that.
# WINE32 names another command that runs them.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

INSTALL=1
TEST=1
ROUNDS=10000
CHECK_REPRODUCIBLE=0
WIDTHS=(64 32)
while (($#)); do
    case $1 in
        --no-install) INSTALL=0 ;;
        --no-test) TEST=0 ;;
        --bits) WIDTHS=("$2"); shift ;;
        --rounds) ROUNDS=$2; shift ;;
        --check-reproducible) CHECK_REPRODUCIBLE=1 ;;
        -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) echo "unknown option: $1 (see --help)" >&2; exit 2 ;;
    esac
    shift
done

TOP=$PWD
CACHE=${ND2_TARGET_DIR:-$TOP/target/nd2-build}

say() { printf '== %s\n' "$*"; }

# width BITS: from now on it is about programs of so many bits
width() {
    BITS=$1
    case $BITS in
        64) PROCESSOR=x86_64 MINGW=x86_64-w64-mingw32 OUT=$TOP/target/nd2 WINE=wine ;;
        32) PROCESSOR=i686 MINGW=i686-w64-mingw32 OUT=$TOP/target/nd2/32 WINE=${WINE32:-wine} ;;
        *) echo "--bits is 64 or 32" >&2; exit 2 ;;
    esac
    TRIPLE=$PROCESSOR-pc-windows-gnu
    LINKER=$MINGW-gcc-win32
}

packages=()
has_compiler || packages+=("${COMPILER_PACKAGES[@]}")
for bits in "${WIDTHS[@]}"; do
    width "$bits"
    command -v "$LINKER" >/dev/null || packages+=("gcc-mingw-w64-${PROCESSOR/_/-}-win32")
    ((!TEST)) || command -v "$MINGW-g++-win32" >/dev/null || packages+=("g++-mingw-w64-${PROCESSOR/_/-}-win32")
done
if ((${#packages[@]})) && ! { may_install && install_packages "${packages[@]}"; }; then
    echo "missing: ${packages[*]} (install these Debian packages, or run as root)" >&2
    exit 1
fi
check_compiler

# build DIRECTORY
build() {
    mkdir -p "$1.lock"
    # Begin from the committed lock file, and leave that alone.
    cp Cargo.lock "$1.lock/Cargo.lock"
    local flags=(-Cpanic=abort -Clink-arg=-static-libgcc -Clink-arg=-Wl,--no-insert-timestamp) variable=${TRIPLE//-/_}
    # Variables of threads in the image's own section, which the loader takes back with the image. Without it the library of
    # Rust takes slots with TlsAlloc and never gives them back: after some hundred loads a process has none left.
    flags+=(-Zhas-thread-local=yes)
    # On 32 bits a function's symbol ends with the bytes of its arguments. Its exported name does not: clients look for that.
    ((BITS == 64)) || flags+=(-Clink-arg=-Wl,--kill-at)
    # On 32 bits an image registers its tables for unwinding, in two objects of the compiler's own that Debian does not have.
    # Nothing unwinds here: they are empty.
    local objects=()
    if ((BITS == 32)); then
        for name in rsbegin rsend; do "$LINKER" -c -x assembler /dev/null -o "$1.lock/$name.o"; done
        objects=("-Lnative=$1.lock")
    fi
    # No path of this machine in the image.
    flags+=("--remap-path-prefix=$TOP=softndk" "--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo")
    flags+=("--remap-path-prefix=$("$COMPILER" --print sysroot)=rust")
    env RUSTC="$COMPILER" RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$1" \
        "CARGO_TARGET_${variable^^}_LINKER=$LINKER" "CARGO_TARGET_${variable^^}_RUSTFLAGS=${flags[*]}" \
        CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_RELEASE_STRIP=symbols \
        cargo rustc --quiet --release --target "$TRIPLE" --package softnd -Zbuild-std=std,panic_abort \
        -Zlockfile-path --config "resolver.lockfile-path='$1.lock/Cargo.lock'" -- "${objects[@]}"
}

# Builds the library, and looks at its image.
library() {
    say "$("$COMPILER" --version | cut -d' ' -f1-2), $("$LINKER" --version | head -1)"
    mkdir -p "$CACHE" "$OUT"
    say "building softnd.dll for programs of $BITS bits"
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

    # The exports that a client looks for, by these names and no others, and no library that Windows does not have.
    local exported
    "$MINGW-objdump" -p "$OUT/softnd.dll" >"$CACHE/image.txt"
    exported=$(awk '/\[Ordinal\/Name Pointer\]/ { names = 1; next } !NF { names = 0 } names { print $NF }' "$CACHE/image.txt" |
        sort | paste -sd' ')
    [[ $exported == "DllCanUnloadNow DllGetClassObject" ]] || { echo "softnd.dll exports '$exported'" >&2; exit 1; }
    printf '%-12s %10s bytes  sha256 %s\n' softnd.dll "$(stat -c %s "$OUT/softnd.dll")" \
        "$(sha256sum "$OUT/softnd.dll" | cut -d' ' -f1)"
    sed -n 's/^\s*DLL Name: /imports /p' "$CACHE/image.txt"
}

# Runs the test programs.
programs() {
    say "building the test programs of $BITS bits"
    for program in client rounds; do
        "$MINGW-g++-win32" -std=c++17 -O1 -Wall -Wextra -Wno-cast-function-type -Wno-non-virtual-dtor -static \
            -o "$OUT/nd2-$program.exe" "crates/nd2/softnd/client/$program.cpp" -lws2_32
    done
    if ! install_wine "$WINE"; then
        say "skipped: Wine is not installed and cannot be"
        return
    fi
    # Older Wines lack the library in which Windows keeps its random numbers.
    local directory=$OUT/wine
    mkdir -p "$directory"
    cp "$OUT/softnd.dll" "$OUT/nd2-client.exe" "$OUT/nd2-rounds.exe" "$directory/"
    cat >"$CACHE/prng.c" <<'C'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T length) { return SystemFunction036(bytes, (ULONG)length); }
C
    "$LINKER" -shared -Wl,--kill-at -o "$directory/bcryptprimitives.dll" "$CACHE/prng.c" -ladvapi32
    export WINEPREFIX=$CACHE/prefix-$BITS WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml="
    say "$("$WINE" --version 2>/dev/null): running the test program of $BITS bits"
    # The first start makes the prefix.
    if ! timeout 300 "$WINE" wineboot >/dev/null 2>&1; then
        say "skipped: Wine does not start here"
        return
    fi
    cd "$directory"
    if ((BITS == 32)) && [[ $(timeout 100 "$WINE" ./nd2-rounds.exe --bits 2>/dev/null | tr -d '\r') != 32 ]]; then
        say "skipped: this Wine runs no programs of 32 bits; the library is built, and not run"
        return
    fi
    if ! SOFTND_LOG=all timeout 300 "$WINE" ./nd2-client.exe softnd.dll >"$CACHE/client.txt" 2>&1; then
        tr -d '\r' <"$CACHE/client.txt"
        echo "the test program has failed" >&2
        exit 1
    fi
    tr -d '\r' <"$CACHE/client.txt" | grep -c ' passed$' | xargs printf '%s passed, 0 failed\n'
    # No driver has its device under Wine: the adapter is in the process, and the library says so. Who wants the driver is refused.
    grep -a '^softnd: process: ' "$CACHE/client.txt" | tr -d '\r' ||
        { echo "softnd.dll does not say where its adapter is" >&2; exit 1; }
    if SOFTND_BACKEND=driver timeout 300 "$WINE" ./nd2-client.exe softnd.dll >"$CACHE/driver.txt" 2>&1 ||
        ! grep -aq '^softnd: the setting `backend` wants the driver' "$CACHE/driver.txt"; then
        tr -d '\r' <"$CACHE/driver.txt"
        echo "softnd.dll is to refuse where only the driver will do" >&2
        exit 1
    fi
    say "loading and unloading it $ROUNDS times, and as often with an adapter"
    if ! timeout 3000 "$WINE" ./nd2-rounds.exe softnd.dll "$ROUNDS" >"$CACHE/rounds.txt" 2>&1; then
        tr -d '\r' <"$CACHE/rounds.txt"
        echo "the library does not survive being loaded and unloaded" >&2
        exit 1
    fi
    tr -d '\r' <"$CACHE/rounds.txt" | tail -1
}

for bits in "${WIDTHS[@]}"; do
    cd "$TOP"
    width "$bits"
    library
    ((!TEST)) || programs
done

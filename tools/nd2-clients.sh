#!/usr/bin/env bash
# Builds the programs of the public NetworkDirect repository (github: microsoft/NetworkDirect) with MinGW and runs all of them
# under Wine against softnd.dll, each as a server and a client in one process. Compares what each ends with to
# crates/nd2/softnd/clients/outcomes.txt, which has the reasons.
#
#   tools/nd2-clients.sh CHECKOUT [--no-install] [--only NAME] [--seconds N] [--wall N]
#
# The programs that measure repeat what they do a thousand times less often than they would: what counts is that they end. One
# hangs if it has had nothing to do for half a minute, has used N seconds (120) of processor time, or has not ended after --wall
# seconds (900).
#
# Fetches no source: CHECKOUT is a checkout of that repository. softnd.dll is the one that tools/nd2-dll.sh has built, or is
# built by it. What each side printed is in target/nd2/clients/.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

CHECKOUT=
INSTALL=1
ONLY=
SECONDS_EACH=120
WALL_EACH=900
while (($#)); do
    case $1 in
        --no-install) INSTALL=0 ;;
        --only) ONLY=$2; shift ;;
        --seconds) SECONDS_EACH=$2; shift ;;
        --wall) WALL_EACH=$2; shift ;;
        -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
        -*) echo "unknown option: $1 (see --help)" >&2; exit 2 ;;
        *) CHECKOUT=$1 ;;
    esac
    shift
done
SOURCE=$CHECKOUT/src
[[ -n $CHECKOUT && -f $SOURCE/ndutil/ndspi.h ]] || {
    echo "CHECKOUT must be a checkout of microsoft/NetworkDirect: '$CHECKOUT' has no src/ndutil/ndspi.h (see --help)" >&2
    exit 2
}
SOURCE=$(realpath "$SOURCE")
OUT=$PWD/target/nd2/clients
FILES=$PWD/crates/nd2/softnd/clients
CXX=x86_64-w64-mingw32-g++-win32

packages=()
command -v "$CXX" >/dev/null || packages+=(g++-mingw-w64-x86-64-win32)
command -v wine >/dev/null || packages+=(wine wine64)
if ((${#packages[@]})); then
    { ((INSTALL)) && [[ $(id -u) == 0 ]] && install_packages "${packages[@]}"; } || {
        echo "missing: ${packages[*]} (install these Debian packages, or run as root)" >&2
        exit 1
    }
fi
if [[ ! -f target/nd2/softnd.dll ]]; then
    tools/nd2-dll.sh --no-test $( ((INSTALL)) || echo --no-install)
fi

rm -rf "$OUT"
mkdir -p "$OUT/include" "$OUT/objects"
# What the kit's message compiler makes of the statuses, and a header that MinGW does not have and nothing needs.
awk '
    /^;/ { print substr($0, 2) }
    { for (i = 1; i <= NF; i++) { split($i, pair, "="); value[pair[1]] = pair[2] } }
    /SymbolicName=/ {
        severity = value["Severity"]
        digit = severity == "Success" ? "0" : severity == "Informational" ? "4" : severity == "Warning" ? "8" : "C"
        printf "#define %s ((HRESULT)0x%s000%sL)\n", value["SymbolicName"], digit, substr(value["MessageId"], 3)
    }' <(tr -d '\r' <"$SOURCE/ndutil/ndstatus.mc") >"$OUT/include/ndstatus.h"
touch "$OUT/include/coguid.h"

# compile SOURCE OBJECT [FLAG...]
#
# Not optimised: ndrpingpong waits for a byte of a buffer that is not volatile to change.
compile() {
    "$CXX" -std=c++17 -O0 -w -fms-extensions -fpermissive -municode -DUNICODE -D_UNICODE -include "$FILES/compat.h" "${@:3}" \
        -I"$OUT/include" -I"$SOURCE/ndutil" -I"$SOURCE/examples" -I"$SOURCE/examples/ndtestutil" -c -o "$OUT/objects/$2.o" "$1"
}

echo "== comparing structures with the public headers"
for width in x86_64 i686; do
    command -v "$width-w64-mingw32-g++-win32" >/dev/null || { echo "skipped for $width: no compiler"; continue; }
    "$width-w64-mingw32-g++-win32" -std=c++17 -w -fms-extensions -fpermissive -DUNICODE -include "$FILES/compat.h" \
        -I"$OUT/include" -I"$SOURCE/ndutil" -fsyntax-only "$FILES/layouts.cpp"
done

echo "== building the programs"
compile "$FILES/side.cpp" side
compile "$SOURCE/ndutil/ndaddr.cpp" ndaddr
compile "$SOURCE/ndutil/ndprov.cpp" ndprov
compile "$SOURCE/ndutil/ndfrmwrk.cpp" ndfrmwrk -DOFFSET_BY_ADDRESS
compile "$SOURCE/examples/ndtestutil/ndtestutil.cpp" ndtestutil
common=("$OUT"/objects/{side,ndaddr,ndprov,ndfrmwrk,ndtestutil}.o)
for folder in "$SOURCE"/examples/*/ "$SOURCE"/unittests/*/; do
    program=$(basename "$folder")
    [[ $program != ndtestutil ]] || continue
    objects=()
    for file in "$folder"*.cpp; do
        name=$program-$(basename "$file" .cpp)
        # In a folder of its own, so that it finds the headers beside it.
        sed -E 's/(x_MaxIterations = [0-9]+)0000;/\10;/; s/\b500 \* x_MaxXfer/5 * x_MaxXfer/
            s/(x_MaxReg = 100)00;/\1;/; s/(x_MinReg = 20)00;/\1;/; s/(x_Iterations = 100)00;/\1;/' "$file" >"$OUT/objects/$name.cpp"
        compile "$OUT/objects/$name.cpp" "$name" -I"$folder"
        objects+=("$OUT/objects/$name.o")
    done
    "$CXX" -shared -static -municode -o "$OUT/$program.dll" "${objects[@]}" "${common[@]}" -lws2_32 -luuid
    # A second image of the same program has variables of its own.
    cp "$OUT/$program.dll" "$OUT/$program-client.dll"
done
"$CXX" -std=c++17 -O1 -Wall -Wextra -static -municode -o "$OUT/nd2-run.exe" "$FILES/run.cpp"

# Older Wines lack the library in which Windows keeps its random numbers.
cp target/nd2/softnd.dll "$OUT/"
cp target/nd2/wine/bcryptprimitives.dll "$OUT/" 2>/dev/null || {
    cat >"$OUT/prng.c" <<'C'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T length) { return SystemFunction036(bytes, (ULONG)length); }
C
    x86_64-w64-mingw32-gcc-win32 -shared -o "$OUT/bcryptprimitives.dll" "$OUT/prng.c" -ladvapi32
}
export WINEPREFIX=$OUT/../clients-prefix WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml=" SOFTND_DLL=softnd.dll
export SOFTND_ADDRESSES=127.0.0.1,127.0.0.2,::1
echo "== $(wine --version 2>/dev/null): running them"
timeout 300 wine wineboot >/dev/null 2>&1 || { echo "Wine does not start here" >&2; exit 1; }

cd "$OUT"
as_expected=0
otherwise=0
port=50000
while IFS='|' read -r name program first second expected reason; do
    name=$(xargs <<<"$name") program=$(xargs <<<"$program") expected=$(xargs <<<"$expected") reason=$(xargs -0 <<<"$reason")
    [[ -n $name && $name != \#* ]] || continue
    [[ -z $ONLY || $name == $ONLY* ]] || continue
    port=$((port + 1))
    read -ra server <<<"${first//ADDRESS/127.0.0.1:$port}"
    read -ra client <<<"${second//ADDRESS/127.0.0.1:$port}"
    sides=("$program.dll" "${server[@]}")
    ((${#client[@]})) && sides+=(-- "$program-client.dll" "${client[@]}")
    rm -f ./*.dll.txt
    outcome=$(timeout 3600 wine ./nd2-run.exe "$SECONDS_EACH" "$WALL_EACH" "${sides[@]}" 2>/dev/null | tr -d '\r' | paste -sd' ') ||
        outcome="${outcome:-crashed}"
    mkdir -p "$name"
    cp ./*.dll.txt "$name/" 2>/dev/null || true
    # How a failing side ends is a line of its source: which is not what counts.
    outcome=$(sed -E 's/exit 0\b/ok/g; s/exit -?[0-9]+/failed/g' <<<"$outcome")
    if [[ -n $outcome && " or $expected or " == *" or $outcome or "* ]]; then
        as_expected=$((as_expected + 1))
        printf '%-22s %-16s as expected%s\n' "$name" "$outcome" "${reason:+: $reason}"
    else
        otherwise=$((otherwise + 1))
        printf '%-22s %-16s EXPECTED %s\n' "$name" "$outcome" "$expected"
        tail -n 3 "$name"/*.txt | sed 's/^/    /'
    fi
done <"$FILES/outcomes.txt"
printf '%d passed, %d failed\n' "$as_expected" "$otherwise"
((otherwise == 0))

#!/usr/bin/env bash
# Builds softndk.sys and ndktest.sys on Linux (Debian), without the Windows Driver Kit, and test-signs them.
#
#   tools/build-drivers.sh [--arch x86_64|aarch64|all] [--debug] [--faults] [--check-reproducible] [--no-install] [--no-sign]
#   tools/build-drivers.sh --types
#
# Results: target/drivers/<arch>/{softndk,softndknic,ndktest}.sys, with the driver packages beside them; with --debug in
# target/drivers/debug/<arch>. With --types images of x86_64 for tools/stack-depth.sh, which nobody installs, in
# target/drivers/types. What the stand-ins for the kit's crates are and why they can be trusted is in docs/cross-build.md.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

TOP=$PWD
OUT=$TOP/target/drivers
ARCHES=(x86_64 aarch64)
PROFILE=release
CHECK_REPRODUCIBLE=0
INSTALL=1
SIGN=1
TYPES=0
FEATURES=()
while (($#)); do
    case $1 in
        --arch)
            case ${2:-} in
                x86_64 | aarch64) ARCHES=("$2") ;;
                all) ;;
                *) echo "--arch: x86_64, aarch64 or all" >&2; exit 2 ;;
            esac
            shift ;;
        --debug) PROFILE=dev OUT=$OUT/debug ;;
        # Failures can be asked for: for tests of consumers.
        --faults) FEATURES=(--features faults) ;;
        --check-reproducible) CHECK_REPRODUCIBLE=1 ;;
        --no-install) INSTALL=0 ;;
        --no-sign) SIGN=0 ;;
        --types) ARCHES=(x86_64) SIGN=0 TYPES=1 OUT=$OUT/types ;;
        -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) echo "unknown option: $1 (see --help)" >&2; exit 2 ;;
    esac
    shift
done

CACHE=${DRIVERS_TARGET_DIR:-$TOP/target/drivers-build}
((TYPES)) && CACHE+=/types
LINKER=lld-link-19

say() { printf '== %s\n' "$*"; }

install_what_is_missing() {
    local packages=()
    has_compiler || packages+=("${COMPILER_PACKAGES[@]}")
    command -v "$LINKER" >/dev/null || packages+=(lld-19)
    ((SIGN)) && { command -v osslsigncode >/dev/null || packages+=(osslsigncode); }
    ((SIGN)) && { command -v openssl >/dev/null || packages+=(openssl); }
    ((${#packages[@]})) || return 0
    if ((!INSTALL)) || [[ $(id -u) != 0 ]]; then
        echo "missing: ${packages[*]} (install these Debian packages, or run as root)" >&2
        exit 1
    fi
    if ! install_packages "${packages[@]}"; then
        echo "cannot install: ${packages[*]}; these Debian packages are needed (docs/cross-build.md)" >&2
        exit 1
    fi
    check_compiler
}

# What the kit's build support gives the linker for a KMDF driver, and what makes images of equal sources equal.
LINK_ARGUMENTS=(
    /DRIVER /NODEFAULTLIB /SUBSYSTEM:NATIVE,10.00 /OSVERSION:10.00 /ENTRY:FxDriverEntry /MANIFEST:NO
    /NXCOMPAT /DYNAMICBASE /INTEGRITYCHECK /OPT:REF,ICF
    /RELEASE /Brepro /DEBUG:NONE
)

# What notes the type of each function and indirect call (kcfi), keeps functions apart that have one body, and lets a tool find the
# function that an instruction comes from.
TYPES_FLAGS=(
    -Zsanitizer=kcfi -Cpanic=abort -Ccontrol-flow-guard=nochecks -Zmerge-functions=disabled
    -Clink-arg=/OPT:NOICF -Clink-arg=/MAP -Clink-arg=/DEBUG:DWARF
)

# target_with_types TRIPLE FILE: the compiler's description of the target, but for two things that it does not offer for Windows: kcfi,
# and debug information that addr2line reads. The file has to have the triple's name.
target_with_types() {
    RUSTC_BOOTSTRAP=1 "$COMPILER" -Zunstable-options --print target-spec-json --target "$1" |
        sed -e 's/"address"/"address", "kcfi"/' -e 's/"debuginfo-kind": "pdb"/"debuginfo-kind": "dwarf"/' \
            -e '/split-debuginfo/,/\]/s/"packed"/"off"/' >"$2"
    grep -q kcfi "$2" && grep -q dwarf "$2" ||
        { echo "$COMPILER describes $1 in another way than this script expects (target_with_types)" >&2; exit 1; }
}

# build ARCH TARGET_DIRECTORY: the three drivers
build() {
    local triple=$1-pc-windows-msvc directory=$2
    local target=(--target "$triple")
    local variable=${triple^^}
    variable=CARGO_TARGET_${variable//-/_}_LINKER
    local flags=(-Ctarget-feature=+crt-static -Ccontrol-flow-guard "${LINK_ARGUMENTS[@]/#/-Clink-arg=}" "-Clink-arg=/LIBPATH:$directory.lib")
    if ((TYPES)); then
        mkdir -p "$directory.target"
        target_with_types "$triple" "$directory.target/$triple.json"
        target=(--target "$directory.target/$triple.json" -Zjson-target-spec)
        flags+=("${TYPES_FLAGS[@]}")
    fi
    # No path of this machine in the image.
    flags+=("--remap-path-prefix=$TOP=softndk" "--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo")
    flags+=("--remap-path-prefix=$("$COMPILER" --print sysroot)=rust")
    # wdk-macros keeps what it has read in the bindings' types.rs, which is made from these facts, and never looks again.
    find "$directory" -name cached_function_info_map.json ! -newer tests-host/facts/wdk-facts.json -delete 2>/dev/null || true
    mkdir -p "$directory.lock" "$directory.lib"
    # The crate tracelogging has a function for programs that needs this library. The linker leaves the function out of a
    # driver, and with it the import; the test driver_pe would see it.
    printf 'LIBRARY rpcrt4.dll\nEXPORTS\nUuidCreate\n' >"$directory.lib/rpcrt4.def"
    local machine=${1/x86_64/x64}
    "$LINKER" /lib "/def:$directory.lib/rpcrt4.def" "/machine:${machine/aarch64/arm64}" "/out:$directory.lib/rpcrt4.lib"
    # The patches change what is locked: begin from the committed lock file, and leave that alone.
    cp Cargo.lock "$directory.lock/Cargo.lock"
    # In its own directory a driver has the profiles that it has on Windows. Cargo prefers the encoded flags to all others, so
    # that a RUSTFLAGS of the environment does not replace these.
    local driver features
    for driver in softndk softndknic ndktest; do
        features=()
        [[ $driver == softndk ]] && features=("${FEATURES[@]}")
        (
            cd "crates/drivers/$driver"
            env RUSTC="$COMPILER" RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$directory" "$variable=$LINKER" \
                CARGO_ENCODED_RUSTFLAGS="$(IFS=$'\x1f' && printf %s "${flags[*]}")" \
                cargo build --quiet --profile "$PROFILE" "${target[@]}" "${features[@]}" \
                -Zbuild-std=core,alloc,compiler_builtins -Zbuild-std-features=compiler-builtins-mem \
                -Zlockfile-path --config "resolver.lockfile-path='$directory.lock/Cargo.lock'" \
                --config "patch.crates-io.wdk-build.path='$TOP/xbuild/wdk-build'" \
                --config "patch.crates-io.wdk-sys.path='$TOP/xbuild/wdk-sys'"
        )
    done
}

# products ARCH TARGET_DIRECTORY: where cargo put them
products() { printf '%s\n' "$2/$1-pc-windows-msvc/${PROFILE/#dev/debug}/"{softndk,softndknic,ndktest}.dll; }

certificate() {
    # A certificate for tests: its key is made here and protects nothing.
    local directory=$CACHE/certificate
    [[ -f $directory/test.pem ]] && return
    say "making a test certificate"
    mkdir -p "$directory"
    openssl req -x509 -newkey rsa:2048 -nodes -sha256 -days 3650 -subj "/CN=SoftNDK test certificate" \
        -addext "extendedKeyUsage=codeSigning" -addext "basicConstraints=critical,CA:FALSE" \
        -keyout "$directory/test.key" -out "$directory/test.pem" 2>/dev/null
}

# sign FILE: in place, verified
sign() {
    local directory=$CACHE/certificate signed=$1.signed
    rm -f "$signed"
    osslsigncode sign -h sha256 -certs "$directory/test.pem" -key "$directory/test.key" -n SoftNDK -in "$1" \
        -out "$signed" >/dev/null
    osslsigncode verify -CAfile "$directory/test.pem" -in "$signed" >"$CACHE/verify.log" 2>&1 ||
        { cat "$CACHE/verify.log" >&2; exit 1; }
    mv "$signed" "$1"
}

# package ARCH: the INF files beside the drivers, with what stampinf would fill in
package() {
    local architecture=${1/x86_64/amd64} version date
    architecture=${architecture/aarch64/arm64}
    version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1.0/p' Cargo.toml)
    # Equal sources give equal packages: the date is that of the sources.
    date=$(date -u -d "@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}" +%m/%d/%Y)
    local source name
    for source in driver.inx crates/drivers/softndknic/softndknic.inx crates/drivers/ndktest/ndktest.inx; do
        name=$(sed -n 's/^CatalogFile *= *\(.*\)\.cat.*/\1/p' "$source")
        sed -e "s/[$]ARCH[$]/$architecture/g" -e "s/[$]KMDFVERSION[$]/$KMDF/" \
            -e "s|^\(DriverVer *= *\).*|\1$date,$version|" "$source" >"$OUT/$1/$name.inf"
    done
}

# The framework version that the drivers are built for.
KMDF=1.$(sed -n 's/^target-kmdf-version-minor = \([0-9]*\).*/\1/p' Cargo.toml)

install_what_is_missing
say "$("$COMPILER" --version | cut -d' ' -f1-2), $($LINKER --version | head -1)"
mkdir -p "$CACHE"
((SIGN)) && certificate
for arch in "${ARCHES[@]}"; do
    say "building for $arch"
    build "$arch" "$CACHE/first"
    if ((CHECK_REPRODUCIBLE)); then
        say "building for $arch again, elsewhere"
        rm -rf "$CACHE/second"
        build "$arch" "$CACHE/second"
        while read -r one && read -r other <&3; do
            cmp "$one" "$other" || { echo "not reproducible: $one" >&2; exit 1; }
        done < <(products "$arch" "$CACHE/first") 3< <(products "$arch" "$CACHE/second")
        rm -rf "$CACHE/second"
        say "both builds for $arch gave the same bytes"
    fi
    mkdir -p "$OUT/$arch"
    while read -r product; do
        sys=$OUT/$arch/$(basename "$product" .dll).sys
        cp "$product" "$sys"
        if ((SIGN)); then sign "$sys"; fi
        if ((TYPES)); then cp "${product%/*}/deps/$(basename "$product" .dll).map" "${sys%.sys}.map"; fi
    done < <(products "$arch" "$CACHE/first")
    ((TYPES)) || package "$arch"
done

printf '\n%-10s %-14s %10s %-7s %s\n' arch driver bytes signed sha256
for arch in "${ARCHES[@]}"; do
    for sys in "$OUT/$arch"/*.sys; do
        printf '%-10s %-14s %10s %-7s %s\n' "$arch" "$(basename "$sys")" "$(stat -c %s "$sys")" \
            "$( ((SIGN)) && echo yes || echo no)" "$(sha256sum "$sys" | cut -d' ' -f1)"
    done
done

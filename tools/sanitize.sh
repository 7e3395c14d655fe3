#!/usr/bin/env bash
# Engine, provider, host and suite under a sanitizer, on a machine of threads: random traffic (`ndkctl soak`) and the cases that run
# several tasks, with both engines.
#
#   tools/sanitize.sh [rounds] [address|thread]     rounds of traffic for each engine, 5 if not given; address if not given
#
# AddressSanitizer also looks for leaks. It needs a nightly compiler, and the standard library is not instrumented. ThreadSanitizer has
# to know what the locks of the standard library order, so it builds that too, from the source that comes with Debian's compiler
# (tools/debian.sh), and takes the sanitizer's runtime of the nightly toolchain, which Debian's lacks: both are of one LLVM.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

rounds=${1:-5} sanitizer=${2:-address}
if ! [[ $rounds =~ ^[1-9][0-9]*$ && $sanitizer =~ ^(address|thread)$ ]]; then
    echo "tools/sanitize.sh: rounds are a number from 1 on, not '$rounds', and a sanitizer is address or thread, not '$sanitizer'" >&2
    exit 2
fi
if ! host=$(rustc +nightly -vV 2>/dev/null | sed -n 's/^host: //p') || [[ ! $host ]]; then
    echo "tools/sanitize.sh: there is no nightly compiler: rustup toolchain install nightly" >&2
    exit 1
fi

# The libraries of Debian's compiler beside the runtime of the nightly toolchain, by the name that the former asks for.
make_sysroot() {
    local root=$1 libraries from
    has_compiler || install_packages "${COMPILER_PACKAGES[@]}" || true
    check_compiler
    if [[ $(llvm_of "$COMPILER") != $(llvm_of rustc +nightly) ]]; then
        echo "tools/sanitize.sh: Debian's compiler and the nightly one are of different versions of LLVM" >&2
        exit 1
    fi
    libraries=lib/rustlib/$host/lib
    from=$("$COMPILER" --print sysroot)/lib/rustlib
    rm -rf "$root"
    mkdir -p "$root/$libraries"
    ln -s "$from/$host"/lib/* "$root/$libraries/"
    ln -s "$from/src" "$root/lib/rustlib/src"
    cp "$(rustc +nightly --print sysroot)/$libraries"/librustc-*_rt.tsan.a "$root/$libraries/librustc-stable_rt.tsan.a"
}

# With a target given, build scripts and macros are not instrumented.
directory=target/sanitize
if [[ $sanitizer == address ]]; then
    RUSTFLAGS="-Zsanitizer=address" cargo +nightly build --quiet -p ndkctl --target "$host" --target-dir "$directory"
else
    directory=target/sanitize-thread
    make_sysroot "$PWD/$directory/sysroot"
    RUSTC=$COMPILER RUSTC_BOOTSTRAP=1 \
        RUSTFLAGS="--sysroot=$PWD/$directory/sysroot -Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
        cargo +nightly build --quiet -Zbuild-std -p ndkctl --target "$host" --target-dir "$directory"
fi
ndkctl=$directory/$host/debug/ndkctl
export ASAN_OPTIONS=detect_leaks=1 TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tools/tsan.supp"
for nic in deferred direct; do
    "$ndkctl" soak --rounds "$rounds" --workers 4 --nic "$nic" --completion mixed | tail -1
    "$ndkctl" selftest --filter stress.,close. --nic "$nic" | tail -2
done
"$ndkctl" soak --rounds "$rounds" --workers 4 --nic direct --locks plain | tail -1

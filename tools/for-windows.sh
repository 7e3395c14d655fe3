# For the scripts beside it, which source it: programs for Windows, built with Debian's Rust compiler and mingw-w64's linker.

INSTALL=1
CACHE=${IMAGES_TARGET_DIR:-$PWD/target/images-build}
TRIPLE=x86_64-pc-windows-gnu
LINKER=x86_64-w64-mingw32-gcc-win32

say() { printf '== %s\n' "$*"; }

# prepare_for_windows [PACKAGE...]: has the compiler, the linker and these packages, or ends the script
prepare_for_windows() {
    local packages=("$@")
    has_compiler || packages+=("${COMPILER_PACKAGES[@]}")
    command -v "$LINKER" >/dev/null || packages+=(gcc-mingw-w64-x86-64-win32)
    if ((${#packages[@]})) && ! { may_install && install_packages "${packages[@]}"; }; then
        echo "missing: ${packages[*]} (install these Debian packages, or run as root)" >&2
        exit 1
    fi
    # The lock file as it is committed, where cargo may write.
    mkdir -p "$CACHE.lock"
    cp Cargo.lock "$CACHE.lock/Cargo.lock"
}

# The library and others' crates are optimised a little too, without their assertions: the tests run twice as fast under Wine.
cargo_for_windows() {
    env RUSTC="$COMPILER" RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$CACHE" CARGO_INCREMENTAL=0 \
        CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=line-tables-only \
        CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER="$LINKER" \
        CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUSTFLAGS="-Clink-arg=-static-libgcc" \
        cargo "$@" --target "$TRIPLE" -Zbuild-std=std,panic_unwind,test \
        --config 'profile.test.package."*".opt-level=1' --config 'profile.test.package."*".debug-assertions=false' \
        -Zlockfile-path --config "resolver.lockfile-path='$CACHE.lock/Cargo.lock'"
}

# keep_worker: puts the worker of ndkctl run, which has been built, where ndkctl looks for it
keep_worker() {
    mkdir -p target/runner
    cp "$CACHE/$TRIPLE/debug/worker.exe" target/runner/
    random_numbers target/runner
}

# random_numbers FOLDER: Wines before 9 lack the library in which Windows keeps its random numbers
random_numbers() {
    cat >"$CACHE/prng.c" <<'C'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T length) { return SystemFunction036(bytes, (ULONG)length); }
C
    "$LINKER" -shared -o "$1/bcryptprimitives.dll" "$CACHE/prng.c" -ladvapi32
}

# For the scripts beside it, which source it: Debian's packages, and Debian's Rust compiler.
#
# rustup brings libraries for the host only. Debian's compiler package comes with the source of the library, from which that
# of a Windows target is built.

COMPILER=/usr/bin/rustc
COMPILER_PACKAGES=(rustc-web rust-web-src)

# Whether the compiler is there, is recent enough (Rust 1.91) and has the library's source beside it.
has_compiler() {
    [[ -x $COMPILER ]] && [[ -f $("$COMPILER" --print sysroot)/lib/rustlib/src/rust/library/std/Cargo.toml ]] &&
        (($("$COMPILER" --version | sed -E 's/^rustc 1\.([0-9]+).*/\1/') >= 91))
}

# Ends the script if there is no such compiler.
check_compiler() {
    has_compiler && return
    echo "$COMPILER is older than Rust 1.91 or has no library source beside it;" \
        "needed: Debian's rustc-web and rust-web-src of 1.91 or later (docs/cross-build.md)" >&2
    exit 1
}

# llvm_of COMPILER...: the major version of its LLVM
llvm_of() { "$@" -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p'; }

# install_packages PACKAGE...: false if they cannot be installed
install_packages() {
    local as_root=() archives result=0
    [[ $(id -u) == 0 ]] || as_root=(sudo -n)
    echo "== installing $*"
    # An archive directory of its own: another apt process may clean the common one. While that one installs, this waits.
    archives=$(mktemp -d)
    mkdir "$archives/partial"
    { "${as_root[@]}" apt-get update -qq &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o Dir::Cache::archives="$archives" \
            -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" >/dev/null; } || result=$?
    rm -rf "$archives"
    return $result
}

# Packages may be installed: by root, unless the script was called with --no-install (INSTALL=0).
may_install() { ((INSTALL)) && [[ $(id -u) == 0 ]]; }

# install_wine [COMMAND]: false if the command, wine without it, is not there and Wine cannot be installed
install_wine() { command -v "${1:-wine}" >/dev/null || { may_install && install_packages wine wine64; }; }

#!/usr/bin/env bash
# Runs under Wine what of the installer only looks at Windows (crates/tools/install/tests/windows.rs), and the tests on the model: how far
# Wine's setupapi, crypt32 and iphlpapi go is printed call by call. docs/windows-vm.md says what to expect.
#
#   tools/install-wine.sh [--no-install]
#
# What is missing is installed from Debian (as root); without Wine the tests are built, not run, and a message says so.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh
source tools/for-windows.sh

while (($#)); do
    case $1 in
        --no-install) INSTALL=0 ;;
        -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) echo "unknown option: $1 (see --help)" >&2; exit 2 ;;
    esac
    shift
done

prepare_for_windows
check_compiler
mkdir -p "$CACHE"
say "building the tests of the installer for Windows"
cargo_for_windows test --no-run -p install --message-format=json >"$CACHE/install.json"
programs=$(sed -n 's/.*"executable":"\([^"]*\.exe\)".*/\1/p' "$CACHE/install.json" | sort -u)
[[ -n $programs ]] || { echo "no tests were built" >&2; exit 1; }

if ! install_wine; then
    say "there is no Wine: the tests were built, not run"
    exit 0
fi
export WINEDEBUG=${WINEDEBUG:--all} WINEPREFIX=${WINEPREFIX:-$CACHE/wine}
for program in $programs; do
    random_numbers "$(dirname "$program")"
    say "$(basename "$program")"
    wine "$program" --nocapture --test-threads 1
done
say "the installer's tests pass under $(wine --version)"

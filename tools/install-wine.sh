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
# netshell.dll FOLDER: the crate windows imports a function of it that nobody calls, and Wine has no such library
netshell() {
    cat >"$CACHE/netshell.c" <<'C'
__declspec(dllexport) void NcFreeNetconProperties(void *properties) { (void)properties; }
C
    "$LINKER" -shared -o "$1/netshell.dll" "$CACHE/netshell.c"
}
export WINEDEBUG=${WINEDEBUG:--all} WINEPREFIX=${WINEPREFIX:-$CACHE/wine}
# The version of Windows that the drivers want.
wine winecfg -v win10 >/dev/null 2>&1
# Wine 8 has no CM_Register_Notification, and ends a program that calls it.
WAITS=a_device_can_be_waited_for
for program in $programs; do
    [[ $(basename "$program") != windows-* ]] || windows=$program
    random_numbers "$(dirname "$program")"
    netshell "$(dirname "$program")"
    say "$(basename "$program")"
    wine "$program" --nocapture --test-threads 1 --skip "$WAITS"
done
say "notifications of devices"
if said=$(wine "${windows:?no test of Windows was built}" --exact "$WAITS" 2>&1); then
    say "Wine has them: this test belongs to the others now"
else
    grep -o 'unimplemented function [A-Za-z0-9_.]*' <<<"$said" | head -1 || { echo "$said" >&2; exit 1; }
fi
say "the other tests of the installer pass under $(wine --version 2>/dev/null)"

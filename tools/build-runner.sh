#!/usr/bin/env bash
# Builds the program in which `ndkctl run` runs driver images under Wine, on Linux (Debian): target/runner/worker.exe.
#
#   tools/build-runner.sh [--no-install]
#
# What is missing is installed from Debian (as root), Wine too.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh
source tools/for-windows.sh

[[ ${1-} != --no-install ]] || INSTALL=0
prepare_for_windows
say "building the worker of ndkctl run for $TRIPLE"
cargo_for_windows build --quiet --package driver-images --bin worker
keep_worker
say "target/runner/worker.exe"
install_wine || say "Wine is not installed, and ndkctl run needs it"

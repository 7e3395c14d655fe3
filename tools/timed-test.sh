#!/usr/bin/env bash
# Runs a test program so that it says how long each test takes: for cargo, as the `runner` of the host's target (.ci/run).
# The option is an unstable one of the test harness, which the variable allows; nothing is built with it.
set -euo pipefail

case $1 in
*/deps/*) exec env RUSTC_BOOTSTRAP=1 "$@" -Zunstable-options --report-time ;;
# A documentation test.
*) exec "$@" ;;
esac

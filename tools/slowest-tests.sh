#!/usr/bin/env bash
# Prints the ten slowest tests of a run with tools/timed-test.sh.
#
#   tools/slowest-tests.sh OUTPUT
set -euo pipefail

# Lines: "     Running tests/x.rs (target/debug/deps/x-0123456789abcdef)", "test name ... ok <0.123s>".
awk '
    $1 == "Running" { program = $NF; gsub(/^.*\/|-[0-9a-f]+\)$/, "", program) }
    $1 == "test" && match($0, /<[0-9.]+s>$/) { printf "%9.3f s  %s: %s\n", substr($0, RSTART + 1), program, $2; count++ }
    END { if (!count) { print "no test says how long it took" > "/dev/stderr"; exit 1 } }
' "$1" | sort -rn | sed -n 1,10p

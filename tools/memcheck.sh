#!/usr/bin/env bash
# The tests of shared references, rings, completion queues and tokens under valgrind's memcheck: what is read before it was written,
# used after it was freed or past its end. It stands in for Miri, whose component is a download of rustup's. What only Miri sees,
# aliasing and provenance, this does not. What is never freed tools/sanitize.sh finds.
#
#   tools/memcheck.sh
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

command -v valgrind >/dev/null || install_packages valgrind
# check FILTER CARGO_ARGUMENTS...: the tests whose names contain the filter
check() {
    local filter=$1 program
    shift
    program=$(cargo test --no-run "$@" --message-format json 2>/dev/null | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
    valgrind --quiet --error-exitcode=1 --leak-check=no "$program" ${filter:+"$filter"} --test-threads 1 | grep '^test result'
}
check "" -p fallible --test rules
check ring:: -p engine --test cq_rules
check queue:: -p engine --test cq_rules
check tokens:: -p engine --test memory

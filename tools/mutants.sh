#!/usr/bin/env bash
# Changes fallible, engine and provider in one place at a time (cargo-mutants), and runs the tests that are about the file. A mutant
# that no test notices is a hole in the tests: the script ends with 1 and names it. Those that no test could notice stand in
# tests-host/mutants.toml, each with its reason.
#
#   tools/mutants.sh [--shard I/N] FILE...     the mutants of these files, globs too: 'crates/engine/src/cq/*'; without any, all
#   tools/mutants.sh --diff BASE [--most N]    those in lines that differ from the commit BASE, N of them at most (8 by default)
#
# All of engine and provider are some 2900 mutants, each of them a build: files are done one after the other, and one that was done
# is not done again while target/mutants has its result (a file FILE.done; remove it to repeat). Where --diff leaves some out, that is
# said, and which ones are tried changes with the commit.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
base="" most=8 shard=""
while (($#)); do
    case $1 in
    --diff) base=${2:?--diff: a commit} && shift ;;
    --most) most=${2:?--most: a number} && shift ;;
    --shard) shard=${2:?--shard: I/N} && shift ;;
    -*) usage ;;
    *) break ;;
    esac
    shift
done

# tests_of FILE: which tests are about it, as arguments of cargo-mutants
tests_of() {
    local engine="--test-package=engine --test-package=rules -- --lib"
    case $1 in
    crates/fallible/*) echo "--test-package=fallible -- --lib --test rules --test memory" ;;
    crates/engine/src/connection/*) echo "$engine --test connection" ;;
    crates/engine/src/memory/*) echo "$engine --test memory --test qp_rules" ;;
    crates/engine/src/cq/* | crates/engine/src/ring/*) echo "$engine --test cq_rules --test notify_decision" ;;
    crates/engine/*) echo "$engine --test qp_rules --test cq_rules" ;;
    crates/provider/*) echo "--test-package=provider --test-package=programs -- --lib --test programs" ;;
    *) return 1 ;;
    esac
}

if ! command -v cargo-mutants >/dev/null && ! [[ -x ${CARGO_HOME:-$HOME/.cargo}/bin/cargo-mutants ]]; then
    echo "installing cargo-mutants"
    cargo install --quiet --locked cargo-mutants
fi

results=target/mutants
mkdir -p "$results"
selected=()
if [[ $base ]]; then
    git diff "$base" -- crates/fallible/src crates/engine/src crates/provider/src >"$results/diff"
    if ! [[ -s $results/diff ]]; then
        echo "nothing of fallible, engine and provider differs from $base"
        exit 0
    fi
    selected=(--in-diff "$results/diff")
    mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- crates/{fallible,engine,provider}/src)
else
    (($#)) || set -- 'crates/fallible/src/*' 'crates/engine/src/*' 'crates/provider/src/*'
    mapfile -t files < <(git ls-files -- "$@" | grep '\.rs$')
    ((${#files[@]})) || usage
fi

# The mutants are made in a copy of the tree. What it is built from in target stays for the next one.
export CARGO_TARGET_DIR=$PWD/$results/build CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
OPTIONS=(--config tests-host/mutants.toml --colors never --no-times --no-shuffle)

count() { cargo mutants --list "${OPTIONS[@]}" "${selected[@]}" "${@/#/--file=}" | wc -l; }
if [[ $base ]]; then
    all=$(count "${files[@]}")
    if ((all > most)); then
        parts=$(((all + most - 1) / most))
        shard=$((16#$(git rev-parse HEAD | cut -c1-6) % parts))/$parts
        echo "$all mutants, of which these are tried: one of $parts parts"
    fi
fi

result=0
for file in "${files[@]}"; do
    done=$results/${file//\//.}.done
    if ! read -ra tests < <(tests_of "$file"); then
        echo "tools/mutants.sh: it is not known what tests are about $file" >&2
        exit 2
    fi
    [[ $base || $shard || ! -e $done ]] || continue
    (($(count "$file"))) || continue
    status=0
    # Whoever asks for these has run the tests before: what is not changed passes.
    cargo mutants "${OPTIONS[@]}" "${selected[@]}" --file="$file" ${shard:+--shard "$shard"} --baseline skip --timeout 120 \
        --output "$results" "${tests[@]}" >"$results/output" 2>&1 || status=$?
    grep -E '^(MISSED|TIMEOUT)|mutants? tested' "$results/output" | sed "s|^|$file: |" || true
    case $status in
    0 | 3) [[ $base || $shard ]] || cp "$results/mutants.out/outcomes.json" "$done" ;;
    2) result=1 ;;
    *)
        cat "$results/output" >&2
        exit "$status"
        ;;
    esac
done
exit "$result"

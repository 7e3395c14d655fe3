#!/usr/bin/env bash
# Builds the drivers and the simulated kernel for Windows on Linux (Debian), and runs the drivers' tests once more under Wine, with the
# images of the drivers in place of their code. What tools/build-runner.sh makes is made too.
#
#   tools/run-images.sh [--no-install] [--no-drivers] [--seeds N] [--jobs N]
#
# --no-drivers takes the images that are in target/drivers/x86_64; else they are built (tools/build-drivers.sh). --seeds N: as many runs of
# the suite with a seed each (2). --jobs N: as much at a time, without it as there are processors. What is missing is installed from
# Debian (as root); without Wine the tests are built and not run.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh
source tools/for-windows.sh

DRIVERS=1
SEEDS=2
JOBS=$(nproc)
while (($#)); do
    case $1 in
        --no-install) INSTALL=0 ;;
        --no-drivers) DRIVERS=0 ;;
        --seeds) SEEDS=$2; shift ;;
        --jobs) JOBS=$2; shift ;;
        -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) echo "unknown option: $1 (see --help)" >&2; exit 2 ;;
    esac
    shift
done

packages=()
command -v clang >/dev/null || packages+=(clang)
command -v lld-link-19 >/dev/null || packages+=(lld-19)
prepare_for_windows "${packages[@]}"
if ((DRIVERS)); then tools/build-drivers.sh --arch x86_64; fi
for driver in softndk softndknic ndktest; do
    [[ -f target/drivers/x86_64/$driver.sys ]] || { echo "there is no target/drivers/x86_64/$driver.sys" >&2; exit 1; }
done

# Small images, one for each thing that code of an image may do without a call: clang and lld have the exceptions of C for Windows.
PROBES=15
probes() {
    local name exports arguments
    exports=$(sed -n 's/^IMPORT.*[ *]\([A-Za-z0-9_]*\)(.*/\1/p; s/^IMPORT.*[ *]\([A-Za-z0-9_]*\);/\1 DATA/p' tests-host/driver-images/probe/probe.c)
    printf 'LIBRARY ntoskrnl.exe\nEXPORTS\n__C_specific_handler\n__chkstk\n%s\n' "$exports" >"$CACHE/probe.def"
    lld-link-19 /lib "/def:$CACHE/probe.def" /machine:x64 "/out:$CACHE/probe.lib"
    # Probe 14 has what probe 15 wants: a routine by its number, one by a name that leads on to the kernel, and one that is asked for late.
    printf 'LIBRARY probe14.sys\nEXPORTS\nDoubled @7 NONAME\nClock\n' >"$CACHE/probe14.def"
    printf 'LIBRARY probe14.dll\nEXPORTS\nTripled\n' >"$CACHE/probe14-late.def"
    for name in probe14 probe14-late; do lld-link-19 /lib "/def:$CACHE/$name.def" /machine:x64 "/out:$CACHE/$name.lib"; done
    for ((name = 1; name <= PROBES; name++)); do
        clang --target=x86_64-pc-windows-msvc -ffreestanding -O1 -fms-extensions -fasync-exceptions -Wall -Werror -c \
            "-DPROBE=$name" -o "$CACHE/probe.obj" tests-host/driver-images/probe/probe.c
        arguments=()
        case $name in
            14) arguments=(/export:Doubled=Double,@7,NONAME /export:Tripled=Triple /export:Clock=ntoskrnl.KeQueryUnbiasedInterruptTime) ;;
            15) arguments=("$CACHE/probe14.lib" "$CACHE/probe14-late.lib" /delayload:probe14.dll) ;;
        esac
        lld-link-19 /driver /nodefaultlib /subsystem:native,10.00 /entry:DriverEntry /manifest:no /dynamicbase /debug:none \
            "/out:$IMAGES/probe$name.sys" "$CACHE/probe.obj" "$CACHE/probe.lib" "${arguments[@]}"
    done
}

# Everything in one folder.
IMAGES=$CACHE/images
mkdir -p "$IMAGES"
cp target/drivers/x86_64/{softndk,softndknic,ndktest}.sys "$IMAGES/"
say "building the probes"
probes

say "building the simulated kernel and the tests for $TRIPLE"
cargo_for_windows test --quiet --no-run --package driver-images
# The worker of ndkctl run is made with the tests.
keep_worker
# The newest of each: cargo names them in JSON only.
program() { ls -t "$CACHE/$TRIPLE/debug/deps/$1"-*.exe | head -1; }

if ! install_wine; then
    say "skipped: Wine is not installed and cannot be"
    exit 0
fi
DIRECTORY=$CACHE/wine
mkdir -p "$DIRECTORY"
random_numbers "$DIRECTORY"
export WINEPREFIX=$CACHE/prefix WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml="
say "$(wine --version 2>/dev/null): running the tests with the drivers' images"
# The first start makes the prefix.
if ! timeout 300 wine wineboot >/dev/null 2>&1; then
    say "skipped: Wine does not start here"
    exit 0
fi
export SOFTNDK_IMAGES="Z:${IMAGES//\//\\}"

# run TEST OUTPUT ARGUMENT...: runs a test program; if it fails, says the end of what it said
run() {
    local test=$1 output=$CACHE/$2.txt
    shift 2
    if ! (cd "$DIRECTORY" && timeout 2400 wine "./$test.exe" "$@" >"$output" 2>&1); then
        tr -d '\r' <"$output" | tail -60
        echo "the tests $test have failed with the images" >&2
        return 1
    fi
    tr -d '\r' <"$output" | grep '^test result'
}

# The test of the seeds has its turn after the others.
SEEDED=suite::the_suite_counts_the_same_with_every_seed_finder_and_engine
for test in probes drivers driver_runs nic; do
    cp "$(program "$test")" "$DIRECTORY/$test.exe"
    say "$test"
    run "$test" "$test" "--test-threads=$JOBS" --skip "$SEEDED"
done

# Each process takes a share of the seeds.
say "the suite with the seeds 1 to $SEEDS"
jobs=()
for ((job = 0; job < JOBS; job++)); do
    SOFTNDK_SEEDS=$((SEEDS * job / JOBS + 1))..$((SEEDS * (job + 1) / JOBS)) run nic "seeds-$job" --exact "$SEEDED" &
    jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job"; done

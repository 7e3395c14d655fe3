#!/usr/bin/env bash
# Linux' rxe judges the wire. A QEMU guest with rdma_rxe runs rping and ucmatose; `ndkctl wire` is the other end, as an ordinary program: no
# privileges, no kernel module here. Both directions, IPv4 and IPv6, data compared; clean over one frame a datagram, and over VXLAN with
# 1 and 5 % of frames lost each way; refusals; many connections; a guest that is stopped in the middle.
#
#   tools/rxe.sh [guest|run [--short]]
#
# `guest` only makes the guest from Debian's packages, kept in target/rxe; `run`, which is the default, makes it if it is not there.
# `--short` is for CI: less of everything. IMAGE names a kernel (linux-image-6.12...); without it the distribution's own is taken.
# LIMIT is the guest's time in seconds, NDKCTL the program, which is built otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

GUEST=target/rxe
TOOLS=(busybox-static iproute2 rdmacm-utils ibverbs-utils ibverbs-providers librdmacm1 libibverbs1 libnl-3-200 libnl-route-3-200
    libc6 libmnl0 libelf1 libbpf1 libcap2 libbsd0 libmd0 libselinux1 libpcre2-8-0 libtirpc3 libxtables12 zlib1g libgcc-s1
    libdb5.3 libzstd1 liblzma5 libgssapi-krb5-2 libkrb5-3 libk5crypto3 libkrb5support0 libcom-err2 libkeyutils1)
PROGRAMS=(bin/busybox bin/ip usr/bin/rdma usr/bin/rping usr/bin/ucmatose lib/x86_64-linux-gnu/libgcc_s.so.1)
MODULES=(crc32_generic crc32-pclmul virtio_pci virtio_net vxlan rdma_rxe rdma_ucm)
RECIPE=$({ echo "${TOOLS[@]}" "${PROGRAMS[@]}" "${MODULES[@]}"; cat tools/rxe-init.sh; } | sha256sum | cut -c1-8)

# Copies programs and the libraries they need from the unpacked packages to the guest's root.
copy_programs() {
    local from=$1 to=$2 todo=("${@:3}") next file library folder
    while ((${#todo[@]})); do
        next=()
        for file in "${todo[@]}"; do
            [[ -e $to/$file ]] && continue
            mkdir -p "$to/${file%/*}"
            cp -L "$from/$file" "$to/$file"
            while read -r library; do
                for folder in lib/x86_64-linux-gnu usr/lib/x86_64-linux-gnu; do
                    [[ -e $from/$folder/$library ]] && { next+=("$folder/$library"); break; }
                done
            done < <(readelf -d "$from/$file" 2>/dev/null | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
        done
        todo=("${next[@]}")
    done
}

# Copies modules, and for each the list of those that must be loaded before it.
copy_modules() {
    local from=$1 version=$2 to=$3 module path name
    for module in "${MODULES[@]}"; do
        : >"$to/$module.list"
        while read -r path; do
            name=$(basename "${path%.xz}")
            echo "$name" >>"$to/$module.list"
            case $path in
                *.xz) xz -dc "$path" >"$to/$name" ;;
                *) cp "$path" "$to/$name" ;;
            esac
        done < <(modprobe -S "$version" -d "$from" --show-depends "$module" | awk '/^insmod/ {print $2}')
    done
}

make_guest() {
    local image version scratch root package
    for program in qemu-system-x86_64 cpio depmod xz readelf; do
        command -v $program >/dev/null || { install_packages qemu-system-x86 cpio kmod xz-utils binutils; break; }
    done
    image=${IMAGE:-$(apt-cache depends linux-image-amd64 | awk '/Depends:/ {print $2; exit}')}
    CPIO=$GUEST/$image-$RECIPE.cpio KERNEL=$GUEST/$image.vmlinuz
    [[ -f $CPIO && -f $KERNEL ]] && return
    version=${image#linux-image-}
    scratch=$(mktemp -d)
    root=$scratch/root
    mkdir -p "$GUEST" "$scratch"/{debs,packages,kernel} "$root"/{bin,proc,sys,dev,tmp,run,modules,lib64,etc/libibverbs.d}
    (cd "$scratch/debs" && apt-get download -qq "$image" "${TOOLS[@]}")
    for package in "$scratch"/debs/*.deb; do
        case $package in
            */linux-image*)
                dpkg-deb --fsys-tarfile "$package" | tar -x -C "$scratch/kernel" --wildcards './boot/vmlinuz*' './lib/modules/*' ;;
            *) dpkg-deb -x "$package" "$scratch/packages" ;;
        esac
    done
    depmod -b "$scratch/kernel" "$version"
    cp "$scratch/packages/etc/libibverbs.d/rxe.driver" "$root/etc/libibverbs.d/"
    cp -L "$scratch/packages/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" "$root/lib64/"
    copy_programs "$scratch/packages" "$root" "${PROGRAMS[@]}" \
        "$(cd "$scratch/packages" && ls usr/lib/x86_64-linux-gnu/libibverbs/librxe*.so)"
    copy_modules "$scratch/kernel" "$version" "$root/modules"
    cp tools/rxe-init.sh "$root/init"
    chmod +x "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet) >"$GUEST/base.cpio"
    cp "$scratch/kernel/boot/vmlinuz-$version" "$KERNEL"
    mv "$GUEST/base.cpio" "$CPIO"
    rm -rf "$scratch"
}

# start_guest JOB LOG NETWORK: the guest's process is in $guest.
#   dgram: its frames are datagrams. vxlan: QEMU's user network; the guest has a VXLAN device over it.
start_guest() {
    local scratch netdev
    scratch=$(mktemp -d)
    cp "$1" "$scratch/job.sh"
    (cd "$scratch" && echo job.sh | cpio -o -H newc --quiet) | cat - "$CPIO" >"$2.cpio"
    rm -r "$scratch"
    case $3 in
        dgram) netdev="dgram,id=n0,local.type=inet,local.host=127.0.0.1,local.port=$THERE,remote.type=inet,remote.host=127.0.0.1,remote.port=$HERE" ;;
        vxlan) netdev="user,id=n0,hostfwd=udp:127.0.0.1:$THERE-:$HERE" ;;
    esac
    timeout "${LIMIT:-500}" qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -M q35 -accel tcg -cpu max -smp 1 \
        -m 384 -serial "file:$2" -kernel "$KERNEL" -initrd "$2.cpio" \
        -append "console=ttyS0 panic=-1 quiet no_timer_check rcupdate.rcu_cpu_stall_suppress=1 network=$3 port=$HERE" \
        -netdev "$netdev" -device virtio-net-pci,netdev=n0,mac=02:00:00:00:00:01 &
    guest=$!
}

HERE=25202 THERE=25201
# What rping takes is 64 KiB at most, and at least what its text needs.
if [[ ${2:-} == --short ]]; then
    CASES=("4 64 10" "4 3000 5" "4 60000 3" "6 3000 5") MANY=50 SIZES=(1 1048576) AT_ONCE=16
else
    CASES=("4 32 20" "4 64 100" "4 1024 20" "4 1025 20" "4 3000 50" "4 60000 20" "6 32 20" "6 64 100" "6 3000 50" "6 65000 20") MANY=1000 SIZES=(1 2 1024 1025 65536 1048576) AT_ONCE=64
fi

# run NAME NETWORK LOSS CONNECTIONS LARGEST: the largest size of ucmatose's messages. rxe's own time-out is 2 s or more, and with each lost
# NAK it has one.
run() {
    local name=$1 network=$2 loss=$3 connections=$4 largest=$5 scratch=$GUEST/$1 case family size count guest_at our
    local begun=$SECONDS judged=0 failures=() log
    rm -rf "$scratch"
    mkdir -p "$scratch"
    log=$scratch/guest.txt
    # Fewer messages where each loss costs time.
    local todo=()
    for case in "${CASES[@]}"; do
        read -r family size count <<<"$case"
        todo+=("$family $size $((loss ? count / 4 + 1 : count))")
    done
    local sizes=()
    for size in "${SIZES[@]}"; do ((size > largest)) || sizes+=("$size"); done
    local of=(--local 10.0.0.2/24 --local fd00::2/64 --network "$network" --bind "127.0.0.1:$HERE" --peer "127.0.0.1:$THERE"
        --lose "$loss" --seed "${SEED:-1}" --json)
    {
        for case in "${todo[@]}"; do
            read -r family size count <<<"$case"
            [[ $family == 4 ]] && guest_at=10.0.0.1 || guest_at=fd00::1
            echo "rping -s -a $guest_at -S $size -C $count -V > /tmp/out 2>&1; echo \"JUDGE server $case: rc \$?\"; cat /tmp/out"
        done
        for case in "${todo[@]}"; do
            read -r family size count <<<"$case"
            [[ $family == 4 ]] && our=10.0.0.2 || our=fd00::2
            # Until the program at the other end has come to this case.
            echo "n=0; until rping -c -a $our -S $size -C $count -V > /tmp/out 2>&1 || [ \$n -gt 60 ]; do n=\$((n+1)); sleep 1; done"
            echo "echo \"JUDGE client $case: rc \$((n > 60))\"; cat /tmp/out"
            # While the program is there: one more case follows.
            [[ $judged == 0 ]] && echo "rping -c -a 10.0.0.2 -p 9999 -C 1 > /tmp/out 2>&1; echo \"JUDGE refused: rc \$((\$? == 0))\"; cat /tmp/out"
            judged=1
        done
        # Sizes that rping does not have; then connections all at once.
        for size in "${sizes[@]}"; do
            echo "ucmatose -b 10.0.0.1 -S $size -C 5 > /tmp/out 2>&1; echo \"JUDGE ucmatose server $size: rc \$?\"; cat /tmp/out"
        done
        for size in "${sizes[@]}"; do
            echo "n=0; until ucmatose -s 10.0.0.2 -S $size -C 5 > /tmp/out 2>&1 || [ \$n -gt 60 ]; do n=\$((n+1)); sleep 1; done"
            echo "echo \"JUDGE ucmatose client $size: rc \$((n > 60))\"; cat /tmp/out"
        done
        echo "n=0; until ucmatose -s 10.0.0.2 -p 7472 -S 3000 -C 10 -c $AT_ONCE > /tmp/out 2>&1 || [ \$n -gt 60 ]; do n=\$((n+1)); sleep 1; done"
        echo "echo \"JUDGE ucmatose at once: rc \$((n > 60))\"; cat /tmp/out"
        # For many connections, and for the end in the middle.
        echo "rping -s -P -a 10.0.0.1 > /tmp/out 2>&1"
    } >"$scratch/job.sh"
    start_guest "$scratch/job.sh" "$log" "$network"
    trap 'kill -9 $guest 2>/dev/null || true' EXIT

    # lost_dreq RESULT: nothing is wrong but that the peer says no more when it might begin again. A Linux process that ends sends its
    # DREQ once: if that is lost this side waits in vain. The guest says if all messages were right.
    lost_dreq() {
        local wrong
        ((loss)) && wrong=$(grep '"what"' "$1") && ! grep -v 'a source: the peer does not answer any more' <<<"$wrong"
    }

    # ours CODE NAME ARGUMENT...: our side of a case, which must end with this code
    ours() {
        local expected=$1 what=$2 code=0
        "$NDKCTL" wire "${@:3}" "${of[@]}" --patience "${patience:-60}" >"$scratch/$what.json" 2>"$scratch/$what.err" || code=$?
        [[ $code == "$expected" ]] || lost_dreq "$scratch/$what.json" || { failures+=("$what: code $code: $(cat "$scratch/$what.err")"); return 0; }
        echo "  $name $what: right"
    }
    local number=0
    for case in "${todo[@]}"; do
        read -r family size count <<<"$case"
        [[ $family == 4 ]] && guest_at=10.0.0.1 || guest_at=[fd00::1]:7174
        ours 0 "ping-IPv$family-$size" ping "$guest_at" --size "$size" --count "$count" --wait 200 \
            --pcap "$scratch/ping-$((number++)).pcap"
    done
    ours 4 refused ping 10.0.0.1:9999
    ours 0 serve serve --connections "${#todo[@]}" --pcap "$scratch/serve.pcap"
    for size in "${sizes[@]}"; do
        ours 0 "ucmatose-ping-$size" ping 10.0.0.1:7471 --ucmatose --size "$size" --count 5 --wait 60
    done
    for size in "${sizes[@]}"; do
        ours 0 "ucmatose-serve-$size" serve --ucmatose --size "$size" --count 5 --connections 1 \
            --pcap "$scratch/ucmatose-serve-$size.pcap"
    done
    ours 0 ucmatose-at-once serve --ucmatose --port 7472 --size 3000 --count 10 --connections "$AT_ONCE"
    ours 0 connections ping 10.0.0.1 --connections "$connections" --count 1 --wait 60
    ours 0 info info 10.0.0.1
    # The guest stops in the middle of a long run: our side ends by itself, and says so.
    { sleep 3; kill -STOP "$(pgrep -P $guest || echo $guest)"; } &
    patience=20 ours 8 stopped ping 10.0.0.1 --count 100000000
    wait $!
    kill -9 "$(pgrep -P $guest || echo $guest)" 2>/dev/null || true
    wait $guest 2>/dev/null || true
    trap - EXIT
    judged=$(tr -d '\r' <"$log" | grep -ac 'JUDGE.*: rc 0' || true)
    local cases=$((2 * ${#todo[@]} + 1 + 2 * ${#sizes[@]} + 1))
    if [[ $judged != "$cases" ]]; then
        failures+=("the guest agrees with $judged of $cases cases; $log has what it says")
        tr -d '\r' <"$log" | grep -a 'JUDGE' | grep -av 'rc 0' || true
    fi
    if ((${#failures[@]})); then
        printf '%s: %s\n' "$name" "${failures[@]/#/    }"
        return 1
    fi
    echo "$name: rxe agrees, $((SECONDS - begun)) s"
}

make_guest
[[ ${1:-run} == guest ]] && exit
if [[ -z ${NDKCTL:-} ]]; then
    cargo build -q --release -p ndkctl
    NDKCTL=target/release/ndkctl
fi
failed=0
run clean dgram 0 "$MANY" 1048576 || failed=1
run lossy vxlan 1 10 1048576 || failed=1
[[ ${2:-} == --short ]] || run very-lossy vxlan 5 5 65536 || failed=1
for capture in "$GUEST"/clean/*.pcap; do
    tools/roce-tshark.sh "$capture" || failed=1
done
exit $failed

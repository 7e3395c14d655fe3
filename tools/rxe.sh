#!/usr/bin/env bash
# Linux' rxe judges the protocol crate `roce`. A QEMU guest with rdma_rxe runs rping; an ordinary program on this side is the other
# end, frame by frame over a UDP socket: no privileges, no kernel module here. Both directions, IPv4 and IPv6, data compared, and
# once more with one frame in a hundred lost each way.
#
#   tools/rxe.sh [guest|run]
#
# `guest` only makes the guest from Debian's packages, kept in target/rxe; `run`, which is the default, makes it if it is not there.
# IMAGE names a kernel (linux-image-6.12...); without it the distribution's own is taken. LIMIT is the guest's time in seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

GUEST=target/rxe
TOOLS=(busybox-static iproute2 rdmacm-utils ibverbs-utils ibverbs-providers librdmacm1 libibverbs1 libnl-3-200 libnl-route-3-200
    libc6 libmnl0 libelf1 libbpf1 libcap2 libbsd0 libmd0 libselinux1 libpcre2-8-0 libtirpc3 libxtables12 zlib1g libgcc-s1
    libdb5.3 libzstd1 liblzma5 libgssapi-krb5-2 libkrb5-3 libk5crypto3 libkrb5support0 libcom-err2 libkeyutils1)
PROGRAMS=(bin/busybox bin/ip usr/bin/rdma usr/bin/rping lib/x86_64-linux-gnu/libgcc_s.so.1)
MODULES=(crc32_generic crc32-pclmul virtio_pci virtio_net rdma_rxe rdma_ucm)

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
    [[ -f $GUEST/$image.cpio ]] && return
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
    write_init >"$root/init"
    chmod +x "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet) >"$GUEST/base.cpio"
    cp "$scratch/kernel/boot/vmlinuz-$version" "$GUEST/$image.vmlinuz"
    mv "$GUEST/base.cpio" "$GUEST/$image.cpio"
    rm -rf "$scratch"
}

# What the guest does: an rxe on its network card, then the job. busybox has an `ip` of its own, hence the path.
write_init() {
    cat <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin 2>/dev/null
export PATH=/usr/bin:/bin
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev; mount -t tmpfs t /tmp; mount -t tmpfs t /run
for module in crc32_generic crc32-pclmul virtio_pci virtio_net rdma_rxe rdma_ucm; do
    while read -r file; do insmod /modules/$file 2>/dev/null; done < /modules/$module.list
done
/bin/ip link set lo up
/bin/ip link set eth0 up
/bin/ip addr add 10.0.0.1/24 dev eth0
/bin/ip addr add fd00::1/64 dev eth0 nodad
rdma link add rxe0 type rxe netdev eth0
. /job.sh
poweroff -f
INIT
}

# start_guest JOB LOG LOCAL-PORT REMOTE-PORT: its frames go to the remote port, one a datagram. The guest's process is in $guest.
start_guest() {
    local scratch image
    image=$(basename "$(ls "$GUEST"/${IMAGE:-linux-image-}*.cpio | tail -1)" .cpio)
    scratch=$(mktemp -d)
    cp "$1" "$scratch/job.sh"
    (cd "$scratch" && echo job.sh | cpio -o -H newc --quiet) | cat - "$GUEST/$image.cpio" >"$2.cpio"
    rm -r "$scratch"
    timeout "${LIMIT:-400}" qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -M q35 -accel tcg -cpu max -smp 1 \
        -m 384 -serial "file:$2" -kernel "$GUEST/$image.vmlinuz" -initrd "$2.cpio" \
        -append "console=ttyS0 panic=-1 quiet no_timer_check rcupdate.rcu_cpu_stall_suppress=1" \
        -netdev "dgram,id=n0,local.type=inet,local.host=127.0.0.1,local.port=$3,remote.type=inet,remote.host=127.0.0.1,remote.port=$4" \
        -device virtio-net-pci,netdev=n0,mac=02:00:00:00:00:01 &
    guest=$!
}

# The cases in order: here and in the guest.
SERVERS=("10.0.0.1 64 10" "10.0.0.1 3000 10" "10.0.0.1 60000 5" "fd00::1 3000 5")
CLIENTS=("10.0.0.2 64 10" "10.0.0.2 3000 10" "10.0.0.2 60000 5" "fd00::2 3000 5")

# run NAME [OPTION...]: the options are those of the example.
run() {
    local name=$1 scratch=$GUEST/$1 cases=() address size count
    mkdir -p "$scratch"
    {
        for case in "${SERVERS[@]}"; do
            read -r address size count <<<"$case"
            echo "rping -s -a $address -S $size -C $count -V > /tmp/out 2>&1; echo \"JUDGE server $case: rc \$?\"; cat /tmp/out"
            cases+=("client/$address/$size/$count")
        done
        for case in "${CLIENTS[@]}"; do
            read -r address size count <<<"$case"
            # Until the program at the other end has come to this case.
            echo "n=0; until rping -c -a $address -S $size -C $count -V > /tmp/out 2>&1 || [ \$n -gt 20 ]; do n=\$((n+1)); sleep 1; done"
            echo "echo \"JUDGE client $case: rc \$((n > 20))\"; cat /tmp/out"
            cases+=("server/$size/$count")
        done
        echo "rping -c -a 10.0.0.2 -p 9999 -C 1 > /tmp/out 2>&1; echo \"JUDGE refused: rc \$((\$? == 0))\"; cat /tmp/out"
    } >"$scratch/job.sh"
    start_guest "$scratch/job.sh" "$scratch/guest.txt" 25201 25202
    trap 'kill $guest 2>/dev/null || true' EXIT
    local result=0
    target/release/examples/rping 25202 25201 "${@:2}" --pcap "$scratch/frames.pcap" "${cases[@]}" --linger 10 || result=$?
    wait $guest || true
    trap - EXIT
    grep -a JUDGE "$scratch/guest.txt" | tr -d '\r' || true
    [[ $result == 0 ]] || { echo "$name: the program failed"; tail -20 "$scratch/guest.txt"; return 1; }
    [[ $(grep -ac 'JUDGE.*: rc 0' "$scratch/guest.txt") == $((${#SERVERS[@]} + ${#CLIENTS[@]} + 1)) ]] ||
        { echo "$name: the guest does not agree"; return 1; }
    echo "$name: rxe agrees"
}

make_guest
[[ ${1:-run} == guest ]] && exit
cargo build -q --release -p roce --example rping
run clean
run lossy --lose 10
tools/roce-tshark.sh "$GUEST/clean/frames.pcap"

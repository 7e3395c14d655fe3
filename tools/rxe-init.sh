#!/bin/busybox sh
# The first program of the guest of cargo xtask rxe: an rxe on its network, then the job. The kernel's command line has the network and the
# port of VXLAN. busybox has an `ip` of its own, hence the path.
/bin/busybox --install -s /bin 2>/dev/null
export PATH=/usr/bin:/bin
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev; mount -t tmpfs t /tmp; mount -t tmpfs t /run
for module in crc32_generic crc32-pclmul virtio_pci virtio_net vxlan rdma_rxe rdma_ucm; do
    while read -r file; do insmod /modules/$file 2>/dev/null; done < /modules/$module.list
done
for word in $(cat /proc/cmdline); do
    case $word in network=*|port=*) eval "$word" ;; esac
done
/bin/ip link set lo up
/bin/ip link set eth0 up
device=eth0
if [ "$network" = vxlan ]; then
    # QEMU's user network: this machine is 10.0.2.15, the host 10.0.2.2.
    /bin/ip addr add 10.0.2.15/24 dev eth0
    /bin/ip link add vx0 type vxlan id 42 remote 10.0.2.2 dstport "$port"
    /bin/ip link set vx0 up
    device=vx0
fi
/bin/ip addr add 10.0.0.1/24 dev $device
/bin/ip addr add fd00::1/64 dev $device nodad
rdma link add rxe0 type rxe netdev $device
. /job.sh
poweroff -f

#!/usr/bin/env bash
# Has tshark read the packets of a recording: every one has to be RoCE v2, with a good IP checksum, and none malformed, neither by a field nor by
# what the column of information says. Without a recording it makes one, in which every kind of request has to be found. Installs tshark from
# Debian if it is missing.
#
#   tools/packets.sh [recording]
#
# NDKCTL names a build of ndkctl; without it one is made.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh
source tools/ndkctl.sh

command -v tshark >/dev/null || install_packages tshark
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
have_ndkctl dev
recording=${1:-$scratch/recording}
opcodes=()
if [[ $# -eq 0 ]]; then
    "$NDKCTL" soak --rounds 1 --workers 4 --deterministic --record-slots 1M --record "$recording" >/dev/null
    # Send, write, read request, read response, acknowledgement.
    opcodes=(4 10 12 16 17)
fi
"$NDKCTL" packets "$recording" "$scratch/packets.pcapng"

# The bytes of messages are zeros, which tshark would take for a protocol above RDMA: it is not to guess.
read_packets() {
    tshark -r "$scratch/packets.pcapng" -o ip.check_checksum:TRUE --disable-heuristic rpcrdma_infiniband "$@" 2>/dev/null
}
all=$(read_packets | wc -l)
known=$(read_packets -Y 'infiniband.bth' | wc -l)
bad=$(read_packets -Y '_ws.malformed || ip.checksum.status == "Bad"' | wc -l)
said=$(read_packets -T fields -e _ws.col.Info | grep -ciE 'invalid|malformed|unknown' || true)
for opcode in "${opcodes[@]}"; do
    [[ -n $(read_packets -c 5000 -Y "infiniband.bth.opcode == $opcode" | head -1) ]] || { echo "no packet with opcode $opcode"; exit 1; }
done
echo "$all packets, $known of RoCE v2, $bad malformed, $said of which the column says so"
[[ $all -gt 0 && $known -eq $all && $bad -eq 0 && $said -eq 0 ]]

#!/usr/bin/env bash
# Has tshark read the frames that the crate `roce` sends: none may be malformed, and all but ARP and neighbour discovery are RoCEv2.
# Without a capture it makes one, of two stacks that exchange every kind of request. Without tshark it says so and does nothing.
#
#   tools/roce-tshark.sh [capture]
set -euo pipefail
cd "$(dirname "$0")/.."

command -v tshark >/dev/null || { echo "tshark is not there: nothing was read"; exit 0; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
capture=${1:-$scratch/frames.pcap}
[[ $# -gt 0 ]] || cargo run -q -p roce --example pair -- "$capture"

# What messages carry are no protocols: tshark is not to guess one (docs/reference/rocev2.md 0.11).
read_frames() { tshark -r "$capture" -o ip.check_checksum:TRUE --disable-heuristic rpcrdma_infiniband "$@" 2>/dev/null; }
all=$(read_frames | wc -l)
known=$(read_frames -Y 'infiniband.bth' | wc -l)
others=$(read_frames -Y 'arp || icmpv6' | wc -l)
bad=$(read_frames -Y '_ws.malformed || ip.checksum.status == "Bad" || icmpv6.checksum.status == "Bad"' | wc -l)
echo "$all frames, $known of RoCEv2, $others of neighbours, $bad malformed"
[[ $known -gt 0 && $((known + others)) -eq $all && $bad -eq 0 ]]

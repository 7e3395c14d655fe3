#!/usr/bin/env bash
# Has tshark read the packets of a recording, and fails if its dissector finds a packet malformed or not RoCE v2. Installs tshark from
# Debian if it is missing.
#
#   tools/packets.sh [recording]
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

command -v tshark >/dev/null || DEBIAN_FRONTEND=noninteractive install_packages tshark
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cargo build --quiet -p ndkctl
recording=${1:-$scratch/recording}
[[ $# -gt 0 ]] || target/debug/ndkctl selftest --filter rdma.,transfer.,results. --deterministic --record "$recording" >/dev/null
target/debug/ndkctl packets "$recording" "$scratch/packets.pcapng"

all=$(tshark -r "$scratch/packets.pcapng" 2>/dev/null | wc -l)
known=$(tshark -r "$scratch/packets.pcapng" -Y 'infiniband.bth' 2>/dev/null | wc -l)
bad=$(tshark -r "$scratch/packets.pcapng" -Y '_ws.malformed || ip.checksum.status == "Bad"' 2>/dev/null | wc -l)
echo "$all packets, $known of RoCE v2, $bad malformed"
[[ $all -gt 0 && $known -eq $all && $bad -eq 0 ]]

//! Statistics of an adapter: its frames, and RDMA, which counts as directed frames (`NDIS-NDK 3`).

use cable::Kind;
use ndis::{
    NDIS_STATISTICS_FLAGS_VALID_BROADCAST_BYTES_RCV, NDIS_STATISTICS_FLAGS_VALID_BROADCAST_BYTES_XMIT,
    NDIS_STATISTICS_FLAGS_VALID_BROADCAST_FRAMES_RCV, NDIS_STATISTICS_FLAGS_VALID_BROADCAST_FRAMES_XMIT,
    NDIS_STATISTICS_FLAGS_VALID_BYTES_RCV, NDIS_STATISTICS_FLAGS_VALID_BYTES_XMIT,
    NDIS_STATISTICS_FLAGS_VALID_DIRECTED_BYTES_RCV, NDIS_STATISTICS_FLAGS_VALID_DIRECTED_BYTES_XMIT,
    NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_RCV, NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_XMIT,
    NDIS_STATISTICS_FLAGS_VALID_MULTICAST_BYTES_RCV, NDIS_STATISTICS_FLAGS_VALID_MULTICAST_BYTES_XMIT,
    NDIS_STATISTICS_FLAGS_VALID_MULTICAST_FRAMES_RCV, NDIS_STATISTICS_FLAGS_VALID_MULTICAST_FRAMES_XMIT,
    NDIS_STATISTICS_FLAGS_VALID_RCV_DISCARDS, NDIS_STATISTICS_FLAGS_VALID_RCV_ERROR,
    NDIS_STATISTICS_FLAGS_VALID_XMIT_DISCARDS, NDIS_STATISTICS_FLAGS_VALID_XMIT_ERROR, NDIS_STATISTICS_INFO,
};

use crate::adapter::Adapter;

/// Everything that there is to count is counted.
pub const STATISTICS: u32 = NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_MULTICAST_FRAMES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_BROADCAST_FRAMES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_BYTES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_RCV_DISCARDS
    | NDIS_STATISTICS_FLAGS_VALID_RCV_ERROR
    | NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_MULTICAST_FRAMES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_BROADCAST_FRAMES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_BYTES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_XMIT_ERROR
    | NDIS_STATISTICS_FLAGS_VALID_XMIT_DISCARDS
    | NDIS_STATISTICS_FLAGS_VALID_DIRECTED_BYTES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_MULTICAST_BYTES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_BROADCAST_BYTES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_DIRECTED_BYTES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_MULTICAST_BYTES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_BROADCAST_BYTES_XMIT;

/// What an adapter has counted.
pub struct Totals<'adapter> {
    adapter: &'adapter Adapter,
    rdma: ndkpi::NDIS_NDK_PERFORMANCE_COUNTERS,
}

impl<'adapter> Totals<'adapter> {
    /// What the adapter has counted until now.
    pub fn of(adapter: &'adapter Adapter) -> Self {
        Self { adapter, rdma: adapter.provider().counters() }
    }

    /// Frames received, of RDMA too.
    pub fn in_frames(&self) -> u64 {
        self.adapter.received().sum().frames + self.rdma.RDMAInFrames
    }

    /// Frames sent, of RDMA too.
    pub fn out_frames(&self) -> u64 {
        self.adapter.sent().sum().frames + self.rdma.RDMAOutFrames
    }

    /// The structure of `OID_GEN_STATISTICS`.
    pub fn information(&self) -> NDIS_STATISTICS_INFO {
        let (sent, received) = (self.adapter.sent(), self.adapter.received());
        let [directed_in, multicast_in, broadcast_in] =
            [Kind::Directed, Kind::Multicast, Kind::Broadcast].map(|kind| received.of(kind));
        let [directed_out, multicast_out, broadcast_out] =
            [Kind::Directed, Kind::Multicast, Kind::Broadcast].map(|kind| sent.of(kind));
        NDIS_STATISTICS_INFO {
            Header: NDIS_STATISTICS_INFO::HEADER,
            SupportedStatistics: STATISTICS,
            ifInDiscards: received.discards(),
            ifInErrors: received.errors(),
            ifHCInOctets: received.sum().bytes + self.rdma.RDMAInOctets,
            ifHCInUcastPkts: directed_in.frames + self.rdma.RDMAInFrames,
            ifHCInMulticastPkts: multicast_in.frames,
            ifHCInBroadcastPkts: broadcast_in.frames,
            ifHCOutOctets: sent.sum().bytes + self.rdma.RDMAOutOctets,
            ifHCOutUcastPkts: directed_out.frames + self.rdma.RDMAOutFrames,
            ifHCOutMulticastPkts: multicast_out.frames,
            ifHCOutBroadcastPkts: broadcast_out.frames,
            ifOutErrors: sent.errors(),
            ifOutDiscards: sent.discards() + self.adapter.tunnel().map_or(0, |tunnel| tunnel.lost()),
            ifHCInUcastOctets: directed_in.bytes + self.rdma.RDMAInOctets,
            ifHCInMulticastOctets: multicast_in.bytes,
            ifHCInBroadcastOctets: broadcast_in.bytes,
            ifHCOutUcastOctets: directed_out.bytes + self.rdma.RDMAOutOctets,
            ifHCOutMulticastOctets: multicast_out.bytes,
            ifHCOutBroadcastOctets: broadcast_out.bytes,
        }
    }
}

//! Device profiles: adapters that are limited as hardware is, so that a consumer meets the limits before it meets the hardware.
//!
//! A profile only takes away: no limit of a [`Config`] rises, and no flag is added. What is left is enforced, as all limits are. The
//! figures are of the order that adapters of a kind have; no profile is a copy of a product.

use engine::nic::NotReady;
use ndkpi::{
    NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED as MODERATION, NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED as RESIZE,
    NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED as IN_ORDER, NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED as LOOPBACK,
    NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED as MULTI_ENGINE,
    NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED as LOCAL_INVALIDATE,
    NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED as SINK_NOT_REQUIRED, NDK_ADAPTER_INFO, NDK_RDMA_TECHNOLOGY,
    NDK_VERSION,
};

use crate::{
    Config,
    device::{RNR_RETRIES, VERSIONS},
};

/// What kind of adapter a device is like. The numbers are those of the registry (`docs/registry.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Profile {
    /// The provider's own limits.
    #[default]
    Own = 0,
    /// RoCE v2: 16 reads in progress, the private data of RDMA CM (56 and 148 bytes), no inline data, bytes that land in any order. A
    /// message that meets no receive is sent again a few times, and then its connection ends. Answers may come before the
    /// completion of what they answer.
    RoceV2ConnectX = 1,
    /// iWARP: reads with one element into regions that grant the read sink, no connections of an adapter with itself, no shared
    /// receive queues, no moderation and no resize. A message that meets no receive ends its connection. Answers may come before the
    /// completion of what they answer.
    Iwarp = 2,
    /// A small adapter: 3 elements, 2 reads in progress, short queues, small transfers, read sinks.
    Small = 3,
    /// NDKPI 1.2, as Windows Server 2012 R2 has it, and no other major version.
    Ndkpi12 = 4,
    /// The least that a consumer may meet: NDKPI 1.1, one element, one read, no flag, 16 pages of a fast registration.
    Minimum = 5,
}

/// Microseconds: longer than an answer takes.
const INITIATOR_DELAY: u32 = 200;

/// Only the smaller ones of two limits are left.
macro_rules! at_most {
    ($info:ident, $($field:ident: $most:expr),+ $(,)?) => { $($info.$field = $info.$field.min($most);)+ };
}

impl Profile {
    /// All of them, by number.
    pub const ALL: [Self; 6] =
        [Self::Own, Self::RoceV2ConnectX, Self::Iwarp, Self::Small, Self::Ndkpi12, Self::Minimum];

    /// The profile with that number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::RoceV2ConnectX => "rocev2-connectx",
            Self::Iwarp => "iwarp",
            Self::Small => "small",
            Self::Ndkpi12 => "ndkpi-1.2",
            Self::Minimum => "minimum",
        }
    }

    /// What it is, in a few words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Own => "the provider's own limits",
            Self::RoceV2ConnectX => "RoCE v2: 16 reads in progress, 56 bytes of private data, no inline data",
            Self::Iwarp => "iWARP: read sinks with one element, no connections with itself, no shared receive queues",
            Self::Small => "3 elements, 2 reads in progress, short queues, read sinks",
            Self::Ndkpi12 => "NDKPI 1.2 and nothing newer",
            Self::Minimum => "the least that a consumer may meet",
        }
    }

    /// The versions that it has, of each major version the highest minor.
    #[must_use]
    pub const fn versions(self) -> &'static [NDK_VERSION] {
        match self {
            Self::Ndkpi12 => &[NDK_VERSION::V1_2],
            Self::Minimum => &[NDK_VERSION::V1_1],
            Self::Own | Self::RoceV2ConnectX | Self::Iwarp | Self::Small => &VERSIONS,
        }
    }

    /// Limits an adapter as the profile says. The technology is set, unless the profile has none of its own.
    pub fn limit(self, config: &mut Config) {
        if self.versions().len() < config.versions.len() {
            config.versions = self.versions();
        }
        let info = &mut config.info;
        match self {
            Self::Own => {}
            Self::RoceV2ConnectX => {
                rocev2_connectx(info);
                config.not_ready = match config.rnr_retries {
                    retries @ 0..=RNR_RETRIES => NotReady::Retry { retries, interval: config.rnr_timer.into() },
                    _ => NotReady::Wait,
                };
                config.initiator_delay = INITIATOR_DELAY;
            }
            Self::Iwarp => {
                iwarp(info);
                config.not_ready = NotReady::End;
                config.initiator_delay = INITIATOR_DELAY;
            }
            Self::Small => small(info),
            Self::Ndkpi12 => info.Version = NDK_VERSION::V1_2,
            Self::Minimum => minimum(info),
        }
    }
}

fn rocev2_connectx(info: &mut NDK_ADAPTER_INFO) {
    info.RdmaTechnology = NDK_RDMA_TECHNOLOGY::ROCE_V2;
    info.AdapterFlags &= !IN_ORDER;
    at_most!(info, MaxInlineDataSize: 0, MaxInboundReadLimit: 16, MaxOutboundReadLimit: 16);
    at_most!(info, MaxReceiveQueueDepth: 8192, MaxInitiatorQueueDepth: 8192, MaxSrqDepth: 8192, MaxCqDepth: 1 << 16);
    at_most!(info, MaxCallerData: 56, MaxCalleeData: 148);
}

fn iwarp(info: &mut NDK_ADAPTER_INFO) {
    info.RdmaTechnology = NDK_RDMA_TECHNOLOGY::IWARP;
    info.AdapterFlags &= !(LOOPBACK | SINK_NOT_REQUIRED | MODERATION | RESIZE | MULTI_ENGINE);
    at_most!(info, MaxInitiatorRequestSge: 4, MaxReceiveRequestSge: 4, MaxReadRequestSge: 1);
    at_most!(info, MaxInboundReadLimit: 32, MaxOutboundReadLimit: 32, MaxSrqDepth: 0, MaxInlineDataSize: 64);
    at_most!(info, MaxCallerData: 512, MaxCalleeData: 512);
}

fn small(info: &mut NDK_ADAPTER_INFO) {
    info.AdapterFlags &= !(SINK_NOT_REQUIRED | LOCAL_INVALIDATE);
    at_most!(info, MaxInitiatorRequestSge: 3, MaxReceiveRequestSge: 3, MaxReadRequestSge: 3);
    at_most!(info, MaxInboundReadLimit: 2, MaxOutboundReadLimit: 2, FRMRPageCount: 64, MaxInlineDataSize: 32);
    at_most!(info, MaxReceiveQueueDepth: 512, MaxInitiatorQueueDepth: 512, MaxSrqDepth: 512, MaxCqDepth: 4096);
    at_most!(info, MaxTransferLength: 1 << 23, MaxCallerData: 56, MaxCalleeData: 148);
}

fn minimum(info: &mut NDK_ADAPTER_INFO) {
    info.Version = NDK_VERSION::V1_1;
    info.AdapterFlags = 0;
    at_most!(info, MaxInitiatorRequestSge: 1, MaxReceiveRequestSge: 1, MaxReadRequestSge: 1, FRMRPageCount: 16);
    at_most!(info, MaxInboundReadLimit: 1, MaxOutboundReadLimit: 1, MaxSrqDepth: 0, MaxInlineDataSize: 0);
    at_most!(info, MaxReceiveQueueDepth: 256, MaxInitiatorQueueDepth: 256, MaxCqDepth: 1024);
    at_most!(info, MaxTransferLength: 1 << 23, MaxCallerData: 56, MaxCalleeData: 148);
}

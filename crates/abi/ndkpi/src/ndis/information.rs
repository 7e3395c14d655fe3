//! The information requests of NDK and their structures: counters, connections, local endpoints (NDIS-NDK 6).

use super::{NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT};
use crate::{BOOLEAN, GUID, SOCKADDR_INET};

/// Set: a [`BOOLEAN`] that enables or disables NDK (NDIS-NDK 5). The handler must not pend.
pub const OID_NDK_SET_STATE: u32 = 0xFC04_0201;
/// Query: [`NDIS_NDK_STATISTICS_INFO`]. Also comes as a direct request, so at any IRQL <= `DISPATCH_LEVEL` and at any time.
pub const OID_NDK_STATISTICS: u32 = 0xFC04_0202;
/// Query: [`NDIS_NDK_CONNECTIONS`].
pub const OID_NDK_CONNECTIONS: u32 = 0xFC04_0203;
/// Query: [`NDIS_NDK_LOCAL_ENDPOINTS`].
pub const OID_NDK_LOCAL_ENDPOINTS: u32 = 0xFC04_0204;

/// The name under which management asks for the capabilities.
pub const GUID_NDIS_NDK_CAPABILITIES: GUID = GUID::from_u128(0x7969_BA4D_DD80_4BC7_B3E6_6804_3997_E519);
/// The name under which management asks whether NDK is enabled.
pub const GUID_NDIS_NDK_STATE: GUID = GUID::from_u128(0x530C_69C9_2F51_49DE_A1AF_088D_54FF_A474);

/// The counters of an adapter (NDIS-NDK 3), which never go back, with one exception. Activity of user-mode consumers counts
/// as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NDIS_NDK_PERFORMANCE_COUNTERS {
    /// Outgoing connections that were established.
    pub Connect: u64,
    /// Incoming connections that were established.
    pub Accept: u64,
    /// Connections, incoming and outgoing, that could not be established.
    pub ConnectFailure: u64,
    /// Established connections that failed before a consumer disconnected them.
    pub ConnectionError: u64,
    /// Connections that are established now: the exception.
    pub ActiveConnection: u64,
    /// Zero.
    pub Reserved01: u64,
    /// Zero.
    pub Reserved02: u64,
    /// Zero.
    pub Reserved03: u64,
    /// Zero.
    pub Reserved04: u64,
    /// Zero.
    pub Reserved05: u64,
    /// Zero.
    pub Reserved06: u64,
    /// Zero.
    pub Reserved07: u64,
    /// Zero.
    pub Reserved08: u64,
    /// Zero.
    pub Reserved09: u64,
    /// Zero.
    pub Reserved10: u64,
    /// Zero.
    pub Reserved11: u64,
    /// Zero.
    pub Reserved12: u64,
    /// Zero.
    pub Reserved13: u64,
    /// Zero.
    pub Reserved14: u64,
    /// Zero.
    pub Reserved15: u64,
    /// Zero.
    pub Reserved16: u64,
    /// Zero.
    pub Reserved17: u64,
    /// Zero.
    pub Reserved18: u64,
    /// Zero.
    pub Reserved19: u64,
    /// Zero.
    pub Reserved20: u64,
    /// Completion queues that failed.
    pub CQError: u64,
    /// Bytes that came in, with everything the link layer adds.
    pub RDMAInOctets: u64,
    /// Bytes that went out, with everything the link layer adds.
    pub RDMAOutOctets: u64,
    /// Frames that came in.
    pub RDMAInFrames: u64,
    /// Frames that went out.
    pub RDMAOutFrames: u64,
}

layout!(NDIS_NDK_PERFORMANCE_COUNTERS: size 0xF0, align 8, {
    Connect @ 0x00,
    Accept @ 0x08,
    ConnectFailure @ 0x10,
    ConnectionError @ 0x18,
    ActiveConnection @ 0x20,
    Reserved01 @ 0x28,
    Reserved02 @ 0x30,
    Reserved03 @ 0x38,
    Reserved04 @ 0x40,
    Reserved05 @ 0x48,
    Reserved06 @ 0x50,
    Reserved07 @ 0x58,
    Reserved08 @ 0x60,
    Reserved09 @ 0x68,
    Reserved10 @ 0x70,
    Reserved11 @ 0x78,
    Reserved12 @ 0x80,
    Reserved13 @ 0x88,
    Reserved14 @ 0x90,
    Reserved15 @ 0x98,
    Reserved16 @ 0xA0,
    Reserved17 @ 0xA8,
    Reserved18 @ 0xB0,
    Reserved19 @ 0xB8,
    Reserved20 @ 0xC0,
    CQError @ 0xC8,
    RDMAInOctets @ 0xD0,
    RDMAOutOctets @ 0xD8,
    RDMAInFrames @ 0xE0,
    RDMAOutFrames @ 0xE8,
});

impl NDIS_NDK_PERFORMANCE_COUNTERS {
    /// The bit in `MissingCounterMask` of the counter at this offset, which [`core::mem::offset_of!`] tells.
    ///
    /// # Panics
    ///
    /// Panics, at compile time if the offset is constant there, if no counter is at this offset.
    #[must_use]
    pub const fn mask_of(offset: usize) -> u64 {
        assert!(offset < size_of::<Self>() && offset.is_multiple_of(size_of::<u64>()), "no counter is at this offset");
        1 << (offset / size_of::<u64>())
    }
}

/// The only revision of [`NDIS_NDK_STATISTICS_INFO`].
pub const NDIS_NDK_STATISTICS_INFO_REVISION_1: u8 = 1;
/// The bytes of [`NDIS_NDK_STATISTICS_INFO`].
pub const NDIS_SIZEOF_NDK_STATISTICS_INFO_REVISION_1: u16 = 0xF8;

/// The answer to [`OID_NDK_STATISTICS`] (NDIS-NDK 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NDIS_NDK_STATISTICS_INFO {
    /// See [`Self::HEADER`].
    pub Header: NDIS_OBJECT_HEADER,
    /// Zero.
    pub Flags: u32,
    /// The counters.
    pub CounterSet: NDIS_NDK_PERFORMANCE_COUNTERS,
}

layout!(NDIS_NDK_STATISTICS_INFO: size 0xF8, align 8, { Header @ 0x00, Flags @ 0x04, CounterSet @ 0x08 });

header!(
    NDIS_NDK_STATISTICS_INFO:
    NDIS_OBJECT_TYPE_DEFAULT,
    NDIS_NDK_STATISTICS_INFO_REVISION_1,
    NDIS_SIZEOF_NDK_STATISTICS_INFO_REVISION_1
);

const _: () = assert!(NDIS_NDK_STATISTICS_INFO::HEADER.Size as usize == size_of::<NDIS_NDK_STATISTICS_INFO>());

/// A connection (NDIS-NDK 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NDIS_NDK_CONNECTION_ENTRY {
    /// The local address and port.
    pub Local: SOCKADDR_INET,
    /// The remote address and port.
    pub Remote: SOCKADDR_INET,
    /// True if the owner is a user-mode consumer.
    pub UserModeOwner: BOOLEAN,
    /// The process of the owner, if it is a user-mode consumer.
    pub OwnerPid: u32,
}

layout!(NDIS_NDK_CONNECTION_ENTRY: size 0x40, align 4, {
    Local @ 0x00,
    Remote @ 0x1C,
    UserModeOwner @ 0x38,
    OwnerPid @ 0x3C,
});

/// The only revision of [`NDIS_NDK_CONNECTIONS`].
pub const NDIS_NDK_CONNECTIONS_REVISION_1: u8 = 1;

/// The answer to [`OID_NDK_CONNECTIONS`] (NDIS-NDK 3). Its length varies: the last field is the first element of an array.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_NDK_CONNECTIONS {
    /// See [`Self::header_for`].
    pub Header: NDIS_OBJECT_HEADER,
    /// Zero.
    pub Flags: u32,
    /// The number of elements in the array.
    pub Count: u32,
    /// True if every second entry is the address of the same connection in TCP.
    pub NDConnectionsMappedtoTCPConnections: BOOLEAN,
    /// The first of `Count` entries; see [`Self::entries`].
    pub Connections: [NDIS_NDK_CONNECTION_ENTRY; 1],
}

layout!(NDIS_NDK_CONNECTIONS: size 0x50, align 4, {
    Header @ 0x00,
    Flags @ 0x04,
    Count @ 0x08,
    NDConnectionsMappedtoTCPConnections @ 0x0C,
    Connections @ 0x10,
});

/// A listener or a shared endpoint (NDIS-NDK 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NDIS_NDK_LOCAL_ENDPOINT_ENTRY {
    /// The local address and port.
    pub Local: SOCKADDR_INET,
    /// True if the owner is a user-mode consumer.
    pub UserModeOwner: BOOLEAN,
    /// True if it is a listener; otherwise it is a shared endpoint.
    pub Listener: BOOLEAN,
    /// The process of the owner, if it is a user-mode consumer.
    pub OwnerPid: u32,
}

layout!(NDIS_NDK_LOCAL_ENDPOINT_ENTRY: size 0x24, align 4, {
    Local @ 0x00,
    UserModeOwner @ 0x1C,
    Listener @ 0x1D,
    OwnerPid @ 0x20,
});

/// The only revision of [`NDIS_NDK_LOCAL_ENDPOINTS`].
pub const NDIS_NDK_LOCAL_ENDPOINTS_REVISION_1: u8 = 1;

/// The answer to [`OID_NDK_LOCAL_ENDPOINTS`] (NDIS-NDK 3). Its length varies: the last field is the first element of an
/// array.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_NDK_LOCAL_ENDPOINTS {
    /// See [`Self::header_for`].
    pub Header: NDIS_OBJECT_HEADER,
    /// Zero.
    pub Flags: u32,
    /// The number of elements in the array.
    pub Count: u32,
    /// True if every second entry is the address of the same endpoint in TCP.
    pub NDLocalEndpointsMappedtoTCPLocalEndpoints: BOOLEAN,
    /// The first of `Count` entries; see [`Self::entries`].
    pub LocalEndpoints: [NDIS_NDK_LOCAL_ENDPOINT_ENTRY; 1],
}

layout!(NDIS_NDK_LOCAL_ENDPOINTS: size 0x34, align 4, {
    Header @ 0x00,
    Flags @ 0x04,
    Count @ 0x08,
    NDLocalEndpointsMappedtoTCPLocalEndpoints @ 0x0C,
    LocalEndpoints @ 0x10,
});

/// The common shape of the two lists: a fixed part and an array at its end.
macro_rules! list {
    ($list:ident.$array:ident: $entry:ident, $revision:ident) => {
        impl $list {
            /// The bytes that a list of this many entries takes.
            #[must_use]
            pub const fn size_for(count: u32) -> usize {
                core::mem::offset_of!(Self, $array) + count as usize * size_of::<$entry>()
            }

            /// The header of a list of this many entries. The length is the greatest one if the list is longer.
            #[must_use]
            #[expect(clippy::cast_possible_truncation, reason = "the length is checked")]
            pub const fn header_for(count: u32) -> NDIS_OBJECT_HEADER {
                let size = Self::size_for(count);
                let size = if size < u16::MAX as usize { size as u16 } else { u16::MAX };
                NDIS_OBJECT_HEADER::new(NDIS_OBJECT_TYPE_DEFAULT, $revision, size)
            }

            /// The first entry, from which all `Count` entries can be reached.
            ///
            /// # Safety
            ///
            /// `this` must point to a list of [`size_for`](Self::size_for) its number of entries.
            #[must_use]
            pub const unsafe fn entries(this: *mut Self) -> *mut $entry {
                // SAFETY: the caller gives a list, so the field is within its memory. No reference is made, so the
                // pointer keeps the right to all of the memory.
                unsafe { (&raw mut (*this).$array).cast() }
            }
        }
    };
}

list!(NDIS_NDK_CONNECTIONS.Connections: NDIS_NDK_CONNECTION_ENTRY, NDIS_NDK_CONNECTIONS_REVISION_1);
list!(NDIS_NDK_LOCAL_ENDPOINTS.LocalEndpoints: NDIS_NDK_LOCAL_ENDPOINT_ENTRY, NDIS_NDK_LOCAL_ENDPOINTS_REVISION_1);

#[cfg(test)]
mod tests {
    extern crate std;

    use core::mem::offset_of;
    use std::vec;

    use super::*;

    #[test]
    fn the_mask_of_a_counter_is_its_bit() {
        assert_eq!(NDIS_NDK_PERFORMANCE_COUNTERS::mask_of(offset_of!(NDIS_NDK_PERFORMANCE_COUNTERS, Connect)), 1);
        assert_eq!(NDIS_NDK_PERFORMANCE_COUNTERS::mask_of(offset_of!(NDIS_NDK_PERFORMANCE_COUNTERS, CQError)), 1 << 25);
        let last = offset_of!(NDIS_NDK_PERFORMANCE_COUNTERS, RDMAOutFrames);
        assert_eq!(NDIS_NDK_PERFORMANCE_COUNTERS::mask_of(last), 1 << 29);
    }

    #[test]
    #[should_panic(expected = "no counter")]
    fn no_counter_is_behind_the_last() {
        let _: u64 = NDIS_NDK_PERFORMANCE_COUNTERS::mask_of(size_of::<NDIS_NDK_PERFORMANCE_COUNTERS>());
    }

    #[test]
    #[should_panic(expected = "no counter")]
    fn no_counter_is_within_another() {
        let _: u64 = NDIS_NDK_PERFORMANCE_COUNTERS::mask_of(4);
    }

    #[test]
    fn the_length_in_the_header_of_a_list_saturates() {
        assert_eq!(NDIS_NDK_CONNECTIONS::size_for(0), 0x10);
        assert_eq!(NDIS_NDK_CONNECTIONS::size_for(1), size_of::<NDIS_NDK_CONNECTIONS>());
        assert_eq!(NDIS_NDK_CONNECTIONS::header_for(2).Size, 0x10 + 2 * 0x40);
        assert_eq!(NDIS_NDK_CONNECTIONS::header_for(1023).Size, 0xFFD0);
        assert_eq!(NDIS_NDK_CONNECTIONS::header_for(1024).Size, 0xFFFF);
        assert_eq!(NDIS_NDK_LOCAL_ENDPOINTS::size_for(1), size_of::<NDIS_NDK_LOCAL_ENDPOINTS>());
        assert_eq!(NDIS_NDK_LOCAL_ENDPOINTS::header_for(3).Size, 0x10 + 3 * 0x24);
        assert_eq!(NDIS_NDK_LOCAL_ENDPOINTS::header_for(u32::MAX).Size, 0xFFFF);
    }

    #[test]
    fn every_entry_of_a_list_is_reached_from_the_first() {
        let mut memory = vec![0_u32; NDIS_NDK_LOCAL_ENDPOINTS::size_for(3) / 4];
        // SAFETY: the memory has room for three entries.
        let entries = unsafe { NDIS_NDK_LOCAL_ENDPOINTS::entries(memory.as_mut_ptr().cast()) };
        for index in 0..3 {
            // SAFETY: the index is below three.
            let entry = unsafe { entries.add(index) };
            // SAFETY: the entry is within the memory.
            unsafe { entry.write(NDIS_NDK_LOCAL_ENDPOINT_ENTRY { OwnerPid: 7, ..Default::default() }) };
        }
        let owners = memory[4..].chunks(9).map(|entry| entry[8]);
        assert!(owners.eq([7, 7, 7]));
    }
}

//! OID requests: every one that the adapter says it answers, with room and without.

use std::sync::Arc;

use ndis::{
    NDIS_INTERRUPT_MODERATION_PARAMETERS, NDIS_LINK_PARAMETERS, NDIS_STATUS, NDIS_STATUS_INVALID_DATA,
    NDIS_STATUS_MULTICAST_FULL, OID_802_3_CURRENT_ADDRESS, OID_802_3_MAXIMUM_LIST_SIZE, OID_802_3_MULTICAST_LIST,
    OID_802_3_PERMANENT_ADDRESS, OID_GEN_CURRENT_LOOKAHEAD, OID_GEN_CURRENT_PACKET_FILTER,
    OID_GEN_INTERRUPT_MODERATION as MODERATION, OID_GEN_LINK_PARAMETERS, OID_GEN_MAXIMUM_TOTAL_SIZE, OID_GEN_RCV_OK,
    OID_GEN_RECEIVE_BUFFER_SPACE, OID_GEN_TRANSMIT_BUFFER_SPACE, OID_GEN_VENDOR_DESCRIPTION, OID_GEN_XMIT_OK,
    OID_PNP_SET_POWER,
};
use ndkpi::{
    OID_NDK_CONNECTIONS, OID_NDK_LOCAL_ENDPOINTS, OID_NDK_SET_STATE, OID_NDK_STATISTICS,
    status::{NDIS_STATUS_BUFFER_TOO_SHORT, NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_NOT_SUPPORTED},
};
use simulated_kernel::{Kernel, Nic};

use crate::{
    control_device::use_it,
    faulty::{MESSAGE, MESSAGES},
    machine::{add, configure, frame, load, statistics, with_pair},
    oids, rows,
};

/// OIDs that are only set.
const ONLY_SET: [u32; 3] = [OID_GEN_LINK_PARAMETERS, OID_PNP_SET_POWER, OID_NDK_SET_STATE];

#[test]
fn every_oid_of_the_list_is_answered() {
    with_pair(&Kernel::threads().start(), &[], |nic, _| {
        let oids = nic.supported_oids();
        assert_eq!(oids.len(), softndknic::oid::SUPPORTED.len());
        for oid in oids {
            let whole = nic.query(oid, 4096);
            if ONLY_SET.contains(&oid) {
                assert_eq!(whole.status, NDIS_STATUS_NOT_SUPPORTED, "{oid:#x}");
                assert_ne!(nic.set(oid, &[]).status, NDIS_STATUS_NOT_SUPPORTED, "{oid:#x}");
                continue;
            }
            assert_eq!(whole.status, NDIS_STATUS::SUCCESS, "{oid:#x}");
            if !whole.bytes.is_empty() {
                let short = nic.query(oid, 0);
                assert_eq!(short.status, NDIS_STATUS_BUFFER_TOO_SHORT, "{oid:#x}");
                assert!(short.needed > 0);
            }
        }
        assert_eq!(nic.query(0x0001_0199, 64).status, NDIS_STATUS_NOT_SUPPORTED);
        assert_eq!(nic.set(0x0001_0199, &[0; 64]).status, NDIS_STATUS_NOT_SUPPORTED);
        assert_eq!(nic.method(OID_NDK_STATISTICS, &[], 64).status, NDIS_STATUS_NOT_SUPPORTED);
    });
}

#[test]
fn answers_are_what_they_should_be() {
    with_pair(&Kernel::threads().start(), &[], |nic, _| {
        assert_eq!(nic.query(OID_GEN_MAXIMUM_TOTAL_SIZE, 4).bytes, 1514_u32.to_le_bytes());
        let all = 1514 * u32::from(softndknic::receive::BUFFERS);
        for space in [OID_GEN_RECEIVE_BUFFER_SPACE, OID_GEN_TRANSMIT_BUFFER_SPACE] {
            assert_eq!(nic.query(space, 4).bytes, all.to_le_bytes());
        }
        assert_eq!(nic.query(OID_802_3_CURRENT_ADDRESS, 6).bytes, nic.mac());
        assert_eq!(nic.query(OID_802_3_PERMANENT_ADDRESS, 6).bytes, nic.mac());
        assert_eq!(nic.query(OID_802_3_MAXIMUM_LIST_SIZE, 4).bytes, 32_u32.to_le_bytes());
        assert_eq!(nic.query(OID_GEN_VENDOR_DESCRIPTION, 64).bytes.last(), Some(&0));
        // Four bytes of a count that has eight are an answer, and it says that there are more.
        assert_eq!(nic.query(OID_GEN_RCV_OK, 8).bytes.len(), 8);
        let lower = nic.query(OID_GEN_RCV_OK, 4);
        assert_eq!((lower.status, lower.bytes.len(), lower.needed), (NDIS_STATUS::SUCCESS, 4, 8));
    });
}

#[test]
fn values_that_are_no_good_change_nothing() {
    with_pair(&Kernel::threads().start(), &[], |nic, _| {
        let before = nic.query(OID_GEN_CURRENT_PACKET_FILTER, 4).bytes;
        assert_eq!(nic.set(OID_GEN_CURRENT_PACKET_FILTER, &[0; 3]).status, NDIS_STATUS_INVALID_LENGTH);
        let unknown = 0x8000_0000_u32.to_le_bytes();
        assert_eq!(nic.set(OID_GEN_CURRENT_PACKET_FILTER, &unknown).status, NDIS_STATUS_NOT_SUPPORTED);
        assert_eq!(nic.query(OID_GEN_CURRENT_PACKET_FILTER, 4).bytes, before);
        assert_eq!(nic.set(OID_802_3_MULTICAST_LIST, &[1; 6 * 33]).status, NDIS_STATUS_MULTICAST_FULL);
        assert_eq!(nic.set(OID_802_3_MULTICAST_LIST, &[1; 7]).status, NDIS_STATUS_INVALID_LENGTH);
        assert_eq!(nic.set(OID_802_3_MULTICAST_LIST, &[1; 6 * 32]).read, 6 * 32);
        assert_eq!(nic.query(OID_802_3_MULTICAST_LIST, 512).bytes, [1; 6 * 32]);
        for (oid, length, status) in [
            (OID_GEN_LINK_PARAMETERS, size_of::<NDIS_LINK_PARAMETERS>(), NDIS_STATUS_INVALID_DATA),
            (OID_GEN_LINK_PARAMETERS, size_of::<NDIS_LINK_PARAMETERS>() - 1, NDIS_STATUS_INVALID_LENGTH),
            (MODERATION, size_of::<NDIS_INTERRUPT_MODERATION_PARAMETERS>(), NDIS_STATUS_INVALID_DATA),
            (MODERATION, size_of::<NDIS_INTERRUPT_MODERATION_PARAMETERS>() - 1, NDIS_STATUS_INVALID_LENGTH),
        ] {
            assert_eq!(nic.set(oid, &vec![0; length]).status, status, "{oid:#x}, {length} bytes");
        }
        for (bytes, status) in [(1514, NDIS_STATUS::SUCCESS), (1515, NDIS_STATUS_INVALID_DATA)] {
            assert_eq!(nic.set(OID_GEN_CURRENT_LOOKAHEAD, &u32::to_le_bytes(bytes)).status, status, "{bytes}");
        }
        assert!(!nic.set(OID_PNP_SET_POWER, &9_u32.to_le_bytes()).status.is_success());
        assert_eq!(nic.set(OID_NDK_SET_STATE, &[]).status, NDIS_STATUS_INVALID_LENGTH);
    });
}

#[test]
fn frames_and_rdma_are_counted_together() {
    let kernel = Kernel::seeded(5).start();
    let driver = load(&kernel).expect("it loads");
    let (one, other) = (Arc::new(add(&driver, &[])), add(&driver, &[]));
    configure(&kernel, [&one, &other]);
    // Messages of the adapter to itself.
    let (messages, message_bytes) = (MESSAGES as u64, (MESSAGES * MESSAGE.len()) as u64);
    assert_eq!(use_it(&driver, &one), Ok(()));
    let to = |nic: &Nic, destination: [u8; 6], length| {
        let mut bytes = frame(nic, nic, 0, length);
        bytes[..6].copy_from_slice(&destination);
        bytes
    };
    let group = [1, 0, 0x5E, 0, 0, 9];
    for (from, to_whom, [multicast, broadcast], directed) in
        [(&*one, &other, [300, 400], &[100, 200][..]), (&other, &*one, [310, 420], &[110, 230, 340])]
    {
        assert_eq!(to_whom.set(OID_802_3_MULTICAST_LIST, &group).status, NDIS_STATUS::SUCCESS);
        let mut frames = vec![to(from, group, multicast), to(from, [0xFF; 6], broadcast)];
        frames.extend(directed.iter().map(|length| frame(from, to_whom, 1, *length)));
        let _ = from.send(&frames.iter().map(Vec::as_slice).collect::<Vec<_>>()).wait();
        kernel.wait_until(|| to_whom.received() == frames.len());
    }
    let counted = statistics(&one);
    assert_eq!(
        (counted.ifHCOutUcastPkts, counted.ifHCOutMulticastPkts, counted.ifHCOutBroadcastPkts),
        (2 + messages, 1, 1)
    );
    assert_eq!((counted.ifHCOutUcastOctets, counted.ifHCOutOctets), (300 + message_bytes, 1_000 + message_bytes));
    assert_eq!((counted.ifHCOutMulticastOctets, counted.ifHCOutBroadcastOctets), (300, 400));
    assert_eq!(
        (counted.ifHCInUcastPkts, counted.ifHCInMulticastPkts, counted.ifHCInBroadcastPkts),
        (3 + messages, 1, 1)
    );
    assert_eq!((counted.ifHCInUcastOctets, counted.ifHCInOctets), (680 + message_bytes, 1_410 + message_bytes));
    assert_eq!((counted.ifHCInMulticastOctets, counted.ifHCInBroadcastOctets), (310, 420));
    let count = |oid| u64::from_le_bytes(one.query(oid, 8).bytes.try_into().expect("eight bytes"));
    assert_eq!((count(OID_GEN_XMIT_OK), count(OID_GEN_RCV_OK)), (4 + messages, 5 + messages));
    Arc::into_inner(one).expect("nobody has it open").remove();
    other.remove();
    driver.unload();
}

#[test]
fn statistics_of_ndk_come_by_the_direct_path_too() {
    with_pair(&Kernel::threads().start(), &[], |nic, _| {
        let regular = nic.query(OID_NDK_STATISTICS, 0xF8);
        let direct = nic.query_directly(OID_NDK_STATISTICS, 0xF8);
        assert_eq!((direct.status, direct.bytes.len()), (NDIS_STATUS::SUCCESS, 0xF8));
        assert_eq!(direct.bytes, regular.bytes);
        assert_eq!(nic.query_directly(OID_NDK_STATISTICS, 0xF7).status, NDIS_STATUS_BUFFER_TOO_SHORT);
        for other in [OID_NDK_CONNECTIONS, OID_NDK_LOCAL_ENDPOINTS, OID_GEN_MAXIMUM_TOTAL_SIZE] {
            assert_eq!(nic.query_directly(other, 64).status, NDIS_STATUS_NOT_SUPPORTED);
        }
        let set = nic.set_directly(OID_GEN_CURRENT_PACKET_FILTER, &0_u32.to_le_bytes());
        assert_eq!(set.status, NDIS_STATUS_NOT_SUPPORTED, "that may take its time");
        assert_eq!(nic.query(OID_NDK_CONNECTIONS, 64).bytes[..4], [0x80, 1, 0x10, 0]);
        assert_eq!(nic.query(OID_NDK_LOCAL_ENDPOINTS, 64).bytes[..4], [0x80, 1, 0x10, 0]);
    });
}

#[test]
fn any_request_is_answered() {
    rows::each("oids", oids::exercise);
}

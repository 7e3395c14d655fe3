//! NDK over the wire: connections, and every kind of transfer, with the bytes compared.

use std::{net::IpAddr, sync::atomic::Ordering::SeqCst, time::Duration};

use ndkpi::{NDIS_NDK_PERFORMANCE_COUNTERS, OID_NDK_CONNECTIONS, OID_NDK_STATISTICS};
use simulated_kernel::{Impairment, Kernel, Medium, Nic};

use crate::{
    machine::{ADDRESSES, IPV6_ADDRESSES, on_both, statistics},
    sides::{Side, connect, connected, exchange, with_wire},
};

/// Lengths of messages: nothing, a byte, about a packet, several.
const LENGTHS: [usize; 8] = [0, 1, 255, 1023, 1024, 1025, 9000, 100_000];

#[test]
fn messages_of_every_length_arrive() {
    on_both(3, |kernel| {
        with_wire(kernel, &[], |driver, nics| {
            connected(driver, nics, |near, far| {
                for (round, length) in (0..).zip(LENGTHS) {
                    exchange(near, far, round, length).expect("it arrives");
                    exchange(far, near, round, length).expect("it arrives the other way");
                }
            });
        });
    });
}

#[test]
fn connections_are_made_over_ipv6_too() {
    on_both(2, |kernel| {
        with_wire(kernel, &[], |driver, nics| {
            driver.run(|| {
                let [mut near, mut far] = nics.map(|nic| Side::open(nic).expect("it opens"));
                connect(&mut near, &mut far, IPV6_ADDRESSES).expect("a connection");
                exchange(&mut near, &mut far, 1, 5000).expect("it arrives");
            });
        });
    });
}

/// Of a million.
const FEW: u32 = 20_000;

#[test]
fn a_network_that_spoils_datagrams_changes_no_byte() {
    let kinds = [
        Impairment { lost: FEW, ..Impairment::default() },
        Impairment { doubled: FEW, late: FEW, lateness: Duration::from_millis(2), ..Impairment::default() },
        Impairment {
            lost: FEW / 2,
            doubled: FEW / 2,
            late: FEW / 2,
            lateness: Duration::from_micros(500),
            delay: Duration::from_micros(100),
            ..Impairment::default()
        },
    ];
    for (seed, impairment) in (1..).zip(kinds) {
        let kernel = Kernel::seeded(seed).start();
        kernel.network().set_medium(Medium::Memory { impairment, seed });
        with_wire(&kernel, &[], |driver, nics| {
            connected(driver, nics, |near, far| {
                for round in 0..12 {
                    exchange(near, far, round, 20_000).expect("it arrives");
                }
            });
        });
    }
}

/// The keywords of the cable apply to the wire: what comes in is late, or lost.
#[test]
fn the_cable_s_keywords_apply_to_what_comes_in() {
    let kernel = Kernel::seeded(9).start();
    let keywords = [("CableLoss", "10000"), ("CableDelay", "200"), ("CableJitter", "100"), ("CableSeed", "3")];
    with_wire(&kernel, &keywords, |driver, nics| {
        let before = kernel.now();
        connected(driver, nics, |near, far| {
            for round in 0..8 {
                exchange(near, far, round, 20_000).expect("it arrives");
            }
        });
        assert!(kernel.now() - before > 8 * 3 * 200, "every message waits for an answer");
    });
}

/// `NDIS_NDK_STATISTICS_INFO` of an adapter.
fn counters(nic: &Nic) -> NDIS_NDK_PERFORMANCE_COUNTERS {
    let answer = nic.query(OID_NDK_STATISTICS, 0xF8);
    assert_eq!(answer.bytes.len(), 0xF8);
    let place = answer.bytes.len() - size_of::<NDIS_NDK_PERFORMANCE_COUNTERS>();
    // SAFETY: the structure ends with the counters, which are numbers.
    unsafe { answer.bytes[place..].as_ptr().cast::<NDIS_NDK_PERFORMANCE_COUNTERS>().read_unaligned() }
}

#[test]
fn connections_are_listed_with_the_address_of_the_other_machine_and_counted() {
    let kernel = Kernel::seeded(4).start();
    with_wire(&kernel, &[], |driver, nics| {
        let sides = driver.run(|| {
            let [mut near, mut far] = nics.map(|nic| Side::open(nic).expect("it opens"));
            connect(&mut near, &mut far, ADDRESSES).expect("a connection");
            exchange(&mut near, &mut far, 1, 10_000).expect("it arrives");
            (near, far)
        });
        for (nic, remote) in nics.into_iter().zip([ADDRESSES[1], ADDRESSES[0]]) {
            let list = nic.query(OID_NDK_CONNECTIONS, 4096).bytes;
            let IpAddr::V4(remote) = remote else { panic!("addresses of IPv4") };
            assert!(list.windows(4).any(|window| window == remote.octets()), "{remote} in {list:02x?}");
            let counted = counters(nic);
            assert_eq!(counted.ActiveConnection, 1);
            assert!(counted.RDMAInOctets >= 10_000 && counted.RDMAOutOctets >= 10_000, "{counted:?}");
            assert!(counted.RDMAInFrames > 0 && counted.RDMAOutFrames > 0, "{counted:?}");
        }
        driver.run(|| drop(sides));
    });
}

/// NDIS-NDK 3: frames of layer 2, with their overhead. Who only acknowledges sends some too.
#[test]
fn acknowledgements_are_counted_as_frames() {
    const LENGTH: u32 = 10_000;
    // Headers of Ethernet, IPv4, UDP and transport, and an ICRC.
    const LEAST: u64 = 14 + 20 + 8 + 12 + 4;
    // And an AETH.
    const ACK: u64 = LEAST + 4;
    let kernel = Kernel::seeded(5).start();
    with_wire(&kernel, &[], |driver, nics| {
        connected(driver, nics, |near, far| {
            let before = nics.map(counters);
            let source = near.memory.sge(0, LENGTH).expect("memory");
            near.qp.initiator.write(1, &[source], far.memory.remote(0), ndk::Flags::empty()).expect("it is posted");
            near.complete().expect("it arrives");
            let after = nics.map(counters);
            let acks = after[1].RDMAOutFrames - before[1].RDMAOutFrames;
            assert!(acks >= 1);
            assert_eq!(after[1].RDMAOutOctets - before[1].RDMAOutOctets, acks * ACK);
            let packets = after[0].RDMAOutFrames - before[0].RDMAOutFrames;
            assert!(packets >= u64::from(LENGTH.div_ceil(1024)), "{packets} packets");
            assert!(after[0].RDMAOutOctets - before[0].RDMAOutOctets > u64::from(LENGTH) + packets * LEAST);
        });
        for nic in nics {
            let (all, rdma) = (statistics(nic), counters(nic));
            // Its ARP is broadcast, and there are answers to it.
            assert!(all.ifHCOutOctets > rdma.RDMAOutOctets && all.ifHCInOctets > rdma.RDMAInOctets, "{all:?}");
            assert!(all.ifHCOutUcastOctets >= rdma.RDMAOutOctets, "{all:?}");
        }
    });
}

#[test]
fn a_peer_that_disconnects_is_heard_of() {
    on_both(3, |kernel| {
        with_wire(kernel, &[], |driver, nics| {
            connected(driver, nics, |near, far| {
                near.connection.take().expect("a connection").disconnect().expect("it begins").wait().expect("it ends");
                let event = kernel::Event::try_new().expect("memory");
                let heard = (0..1_000).any(|_| far.lost.load(SeqCst) == 1 || event.wait_micros(1_000));
                assert!(heard, "the far side hears of it");
            });
        });
    });
}

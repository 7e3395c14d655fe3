//! What is not RDMA goes between TCP/IP and the wire, whole and in order; what is RDMA never comes up.

use ndis::NDIS_STATUS;
use ndkpi::OID_NDK_SET_STATE;
use simulated_kernel::{Kernel, Nic};

use crate::{
    machine::{frame, number, on_both, statistics},
    sides::with_wire,
};

/// Bytes of the longest frame: those of Ethernet, without what VXLAN puts around it.
const LONGEST: usize = 1514 - 50;

#[test]
fn frames_of_protocols_go_both_ways() {
    on_both(3, |kernel| {
        with_wire(kernel, &[], |_, [one, other]| {
            const COUNT: usize = 600;
            for (from, to) in [(one, other), (other, one)] {
                let length = |index: usize| 60 + index * 37 % (LONGEST - 59);
                let sent: Vec<_> = (0..COUNT).map(|index| frame(from, to, index as u64, length(index))).collect();
                for frames in sent.chunks(40) {
                    let lists: Vec<Vec<&[u8]>> = frames.iter().map(|one| vec![one.as_slice()]).collect();
                    let statuses = from.send_lists(&lists).wait();
                    assert!(statuses.iter().all(|status| *status == NDIS_STATUS::SUCCESS), "{statuses:?}");
                    // The network has room for so much at a time.
                    kernel.sleep(3_000);
                }
                kernel.wait_until(|| to.received() >= COUNT);
                let mut received = to.take_received();
                // Datagrams of one sender may overtake each other in Winsock Kernel.
                received.sort_by_key(|frame| number(frame));
                assert_eq!(received, sent);
                let (counted, theirs) = (statistics(from), statistics(to));
                assert_eq!((counted.ifHCOutUcastPkts, theirs.ifHCInUcastPkts), (COUNT as u64, COUNT as u64));
                assert_eq!((counted.ifOutDiscards, theirs.ifInDiscards, theirs.ifInErrors), (0, 0, 0));
            }
        });
    });
}

#[test]
fn frames_without_a_receive_buffer_are_lost_and_counted_and_the_next_ones_come() {
    let kernel = Kernel::seeded(4).start();
    with_wire(&kernel, &[], |_, [one, other]| {
        const COUNT: u64 = 1_200;
        let send = |number| {
            let _ = one.send(&[&frame(one, other, number, 60)]).wait();
        };
        // The protocols give none back.
        other.keep_received(true);
        for number in 0..COUNT {
            send(number);
            if number % 40 == 39 {
                kernel.sleep(3_000);
            }
        }
        kernel.sleep(20_000);
        let kept = other.received() as u64;
        assert!((100..COUNT).contains(&kept), "{kept}: the buffers are there from the start, and no more are made");
        assert_eq!(statistics(other).ifInDiscards, COUNT - kept);
        other.keep_received(false);
        assert_eq!(other.give_back() as u64, kept);
        let _ = other.take_received();
        send(COUNT);
        kernel.wait_until(|| other.received() == 1);
        assert_eq!(other.take_received(), [frame(one, other, COUNT, 60)]);
    });
}

#[test]
fn the_mtu_leaves_room_for_what_is_around_a_frame() {
    let first = Kernel::seeded(1).start();
    with_wire(&first, &[], |_, [one, other]| {
        assert_eq!(one.mtu_and_speed().0, 1450);
        let longest = frame(one, other, 1, LONGEST);
        let too_long = frame(one, other, 2, LONGEST + 1);
        let _ = one.send(&[&too_long, &longest]).wait();
        first.wait_until(|| other.received() == 1);
        assert_eq!(other.take_received(), [longest]);
        assert_eq!(statistics(one).ifOutErrors, 1);
    });
    // One machine at a time.
    drop(first);
    let second = Kernel::seeded(2).start();
    with_wire(&second, &[("*JumboPacket", "9014")], |_, [one, other]| {
        assert_eq!(one.mtu_and_speed().0, 9000 - 50);
        let longest = frame(one, other, 1, 9014 - 50);
        let _ = one.send(&[&longest]).wait();
        second.wait_until(|| other.received() == 1);
        assert_eq!(other.take_received(), [longest]);
    });
}

#[test]
fn a_tag_crosses_the_wire_in_its_frame() {
    let kernel = Kernel::seeded(3).start();
    with_wire(&kernel, &[], |_, [one, other]| {
        let sent = frame(one, other, 1, 100);
        // Priority 5 of the virtual LAN 7, as NDIS has it beside a frame.
        let tag = 5 | 7 << 4;
        let _ = one.send_tagged(&[&sent], tag).wait();
        kernel.wait_until(|| other.received() == 1);
        assert_eq!((other.take_received(), other.take_tags()), (vec![sent], vec![tag]));
    });
}

/// A frame with a packet of UDP to that port.
fn datagram(from: &Nic, to: &Nic, port: u16) -> Vec<u8> {
    let mut frame = frame(from, to, 0, 14);
    frame[12..14].copy_from_slice(&[8, 0]);
    let mut packet = [0; 40];
    (packet[0], packet[3], packet[9]) = (0x45, 40, 17);
    packet[22..24].copy_from_slice(&port.to_be_bytes());
    frame.extend(packet);
    frame
}

#[test]
fn packets_of_rdma_come_up_only_while_ndk_is_disabled() {
    let kernel = Kernel::seeded(5).start();
    with_wire(&kernel, &[], |_, [one, other]| {
        let (rdma, dns) = (datagram(one, other, 4791), datagram(one, other, 53));
        let _ = one.send(&[&rdma, &dns]).wait();
        kernel.wait_until(|| other.received() == 1);
        kernel.sleep(10_000);
        assert_eq!(other.take_received(), [dns.as_slice()]);
        assert_eq!(other.set(OID_NDK_SET_STATE, &[0]).status, NDIS_STATUS::SUCCESS);
        kernel.wait_until(|| !other.is_ndk_enabled());
        let _ = one.send(&[&rdma]).wait();
        kernel.wait_until(|| other.received() == 1);
        assert_eq!(other.take_received(), [rdma.as_slice()]);
    });
}

/// Both the engine and TCP/IP want to know who is where.
#[test]
fn arp_comes_up() {
    let kernel = Kernel::seeded(6).start();
    with_wire(&kernel, &[], |_, [one, other]| {
        let mut arp = frame(one, other, 0, 60);
        arp[..6].fill(0xFF);
        arp[12..14].copy_from_slice(&[8, 6]);
        let _ = one.send(&[&arp]).wait();
        kernel.wait_until(|| other.received() == 1);
        assert_eq!(other.take_received(), [arp]);
    });
}

//! Frames between the two ends: none lost, none doubled, in order, unless the cable is told to.

use ndis::{
    NDIS_DEVICE_POWER_STATE, NDIS_STATUS, NDIS_STATUS_PAUSED, NDIS_STATUS_SEND_ABORTED, OID_802_3_MULTICAST_LIST,
    OID_GEN_CURRENT_PACKET_FILTER,
};
use simulated_kernel::{Kernel, Nic};

use crate::machine::{add, frame, load, number, on_both, statistics, with_pair};

fn send_all(kernel: &Kernel, from: &Nic, to: &Nic, count: usize, in_a_list: usize) -> usize {
    let frames: Vec<_> = (0..count).map(|one| frame(from, to, one as u64, 60 + (one * 37) % 1400)).collect();
    let mut bytes = 0;
    for lists in frames.chunks(in_a_list * 16) {
        let lists: Vec<Vec<&[u8]>> =
            lists.chunks(in_a_list).map(|list| list.iter().map(Vec::as_slice).collect()).collect();
        let statuses = from.send_lists(&lists).wait();
        assert!(statuses.iter().all(|status| *status == NDIS_STATUS::SUCCESS), "{statuses:?}");
        bytes += lists.iter().flatten().map(|one| one.len()).sum::<usize>();
    }
    kernel.sleep(1_000);
    bytes
}

#[test]
fn frames_arrive_whole_once_and_in_order() {
    on_both(3, |kernel| {
        with_pair(kernel, &[], |one, other| {
            const COUNT: usize = 1_500;
            let bytes = send_all(kernel, one, other, COUNT, 3);
            kernel.wait_until(|| other.received() == COUNT);
            let received = other.take_received();
            for (index, bytes) in received.iter().enumerate() {
                assert_eq!(bytes, &frame(one, other, index as u64, 60 + (index * 37) % 1400), "frame {index}");
            }
            let (sent, received) = (statistics(one), statistics(other));
            assert_eq!((sent.ifHCOutUcastPkts, sent.ifHCOutOctets), (COUNT as u64, bytes as u64));
            assert_eq!((received.ifHCInUcastPkts, received.ifHCInUcastOctets), (COUNT as u64, bytes as u64));
            assert_eq!((sent.ifOutDiscards, sent.ifOutErrors, received.ifInDiscards), (0, 0, 0));
        });
    });
}

#[test]
fn both_ways_at_once_under_load() {
    let kernel = Kernel::threads().start();
    with_pair(&kernel, &[], |one, other| {
        const COUNT: usize = 3_000;
        std::thread::scope(|scope| {
            scope.spawn(|| send_all(&kernel, other, one, COUNT, 1));
            send_all(&kernel, one, other, COUNT, 5);
        });
        for (from, to) in [(one, other), (other, one)] {
            kernel.wait_until(|| to.received() == COUNT);
            assert!(to.take_received().iter().map(|frame| number(frame)).eq(0..COUNT as u64), "each once, in order");
            assert_eq!(statistics(from).ifOutDiscards, 0);
        }
    });
}

#[test]
fn a_full_pool_holds_the_sender_up_and_nothing_is_lost() {
    let kernel = Kernel::threads().start();
    with_pair(&kernel, &[], |one, other| {
        const COUNT: usize = 700;
        other.keep_received(true);
        let frames: Vec<_> = (0..COUNT).map(|each| frame(one, other, each as u64, 100)).collect();
        let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
        let sent = one.send(&frames);
        let buffers = usize::from(softndknic::receive::BUFFERS);
        kernel.wait_until(|| other.kept() == buffers);
        kernel.sleep(5_000);
        assert!(!sent.is_complete() && other.received() == buffers, "the pool is bounded");
        other.keep_received(false);
        assert_eq!(other.give_back(), buffers);
        assert_eq!(sent.wait(), [NDIS_STATUS::SUCCESS; COUNT]);
        kernel.wait_until(|| other.received() == COUNT);
        assert!(other.take_received().iter().map(|frame| number(frame)).eq(0..COUNT as u64));
        assert_eq!((statistics(one).ifOutDiscards, statistics(other).ifInDiscards), (0, 0));
    });
}

#[test]
fn sends_that_wait_are_cancelled_or_given_back_by_a_pause() {
    let kernel = Kernel::threads().start();
    with_pair(&kernel, &[], |one, other| {
        other.keep_received(true);
        let frames: Vec<_> = (0..600).map(|each| frame(one, other, each, 100)).collect();
        let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
        let first = one.send(&frames);
        kernel.wait_until(|| other.kept() == usize::from(softndknic::receive::BUFFERS));
        let second = one.send_cancellable(&frames[..10], 77);
        one.cancel_sends(76);
        assert!(!second.is_complete());
        one.cancel_sends(77);
        assert_eq!(second.wait(), [NDIS_STATUS_SEND_ABORTED; 10]);
        one.pause();
        let ended = first.wait();
        assert_eq!(ended.iter().filter(|status| **status == ndis::NDIS_STATUS_PAUSED).count(), 88);
        one.restart().expect("it restarts");
        other.keep_received(false);
        let _ = other.give_back();
    });
}

#[test]
fn a_cancel_that_comes_while_the_sender_has_the_lists_is_not_lost() {
    let kernel = Kernel::threads().start();
    with_pair(&kernel, &[], |one, other| {
        other.keep_received(true);
        let frames: Vec<_> = (0..600).map(|each| frame(one, other, each, 100)).collect();
        let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
        let first = one.send(&frames);
        kernel.wait_until(|| other.kept() == usize::from(softndknic::receive::BUFFERS));
        // The DPC runs on a processor of its own, and has the lists now and then.
        for round in 0..2000 {
            let second = one.send_cancellable(&frames[..3], 77);
            one.cancel_sends(77);
            assert_eq!(second.wait(), [NDIS_STATUS_SEND_ABORTED; 3], "round {round}");
        }
        one.pause();
        let _ = first.wait();
        one.restart().expect("it restarts");
        other.keep_received(false);
        let _ = other.give_back();
    });
}

#[test]
fn frames_on_their_way_to_an_adapter_that_sleeps_are_dropped_and_counted() {
    let kernel = Kernel::seeded(3).start();
    with_pair(&kernel, &[("CableDelay", "20000")], |one, other| {
        let bytes = frame(one, other, 1, 100);
        assert_eq!(one.send(&[bytes.as_slice(); 5]).wait(), [NDIS_STATUS::SUCCESS; 5]);
        assert_eq!(other.set_power(NDIS_DEVICE_POWER_STATE::D3).status, NDIS_STATUS::SUCCESS);
        assert_eq!(statistics(other).ifInDiscards, 5);
        kernel.sleep(100_000);
        assert_eq!(other.received(), 0);
        assert_eq!(other.set_power(NDIS_DEVICE_POWER_STATE::D0).status, NDIS_STATUS::SUCCESS);
        kernel.sleep(100_000);
        assert_eq!(other.received(), 0, "they do not come after all");
    });
}

#[test]
fn an_adapter_goes_to_sleep_while_frames_come_to_it() {
    for seed in 1..8 {
        let kernel = Kernel::seeded(seed).start();
        with_pair(&kernel, &[], |one, other| {
            let frames: Vec<_> = (0..200).map(|each| frame(one, other, each, 100)).collect();
            let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
            let sent = one.send(&frames);
            for state in [NDIS_DEVICE_POWER_STATE::D2, NDIS_DEVICE_POWER_STATE::D0] {
                assert_eq!(other.set_power(state).status, NDIS_STATUS::SUCCESS);
            }
            assert_eq!(sent.wait(), [NDIS_STATUS::SUCCESS; 200]);
            let before = other.received();
            assert_eq!(one.send(&frames[..1]).wait(), [NDIS_STATUS::SUCCESS]);
            kernel.wait_until(|| other.received() > before);
        });
    }
}

/// The simulated protocols leave something in each list that they give back.
#[test]
fn lists_are_indicated_as_if_they_were_new() {
    let kernel = Kernel::threads().start();
    with_pair(&kernel, &[], |one, other| {
        const COUNT: usize = 3 * softndknic::receive::BUFFERS as usize;
        let bytes = frame(one, other, 1, 100);
        for round in 1..=COUNT / 64 {
            let _ = one.send(&vec![bytes.as_slice(); 64]).wait();
            kernel.wait_until(|| other.received() == 64 * round);
        }
    });
}

/// The value of `NDIS_NET_BUFFER_LIST_8021Q_INFO`.
const fn tag(priority: usize, vlan: usize) -> usize {
    priority | vlan << 4
}

/// A frame with a tag in its bytes.
fn tagged(bytes: &[u8], priority: u16, vlan: u16) -> Vec<u8> {
    let control = (priority << 13 | vlan).to_be_bytes();
    [&bytes[..12], &[0x81, 0], &control, &bytes[12..]].concat()
}

/// What arrives of a frame that is sent with a tag beside it: the bytes, and the tag beside them.
fn through(
    sender: &str,
    receiver: &str,
    frame_of: impl Fn(&[u8]) -> Vec<u8>,
    beside: usize,
) -> (Vec<u8>, Vec<u8>, usize) {
    let kernel = Kernel::threads().start();
    let driver = load(&kernel).expect("it loads");
    let (one, other) = (add(&driver, &[("*PriorityVLANTag", sender)]), add(&driver, &[("*PriorityVLANTag", receiver)]));
    let plain = frame(&one, &other, 7, 1_514);
    let sent = frame_of(&plain);
    assert_eq!(one.send_tagged(&[&sent], beside).wait(), [NDIS_STATUS::SUCCESS]);
    kernel.wait_until(|| other.received() == 1);
    let (bytes, beside) = (other.take_received().remove(0), other.take_tags().remove(0));
    let (sent, received) = (statistics(&one), statistics(&other));
    assert_eq!((sent.ifOutErrors, sent.ifOutDiscards, received.ifInErrors, received.ifInDiscards), (0, 0, 0, 0));
    assert_eq!(sent.ifHCOutOctets, received.ifHCInOctets, "what was on the cable, with its tag");
    one.remove();
    other.remove();
    driver.unload();
    (plain, bytes, beside)
}

#[test]
fn priority_and_vlan_go_beside_a_frame_from_list_to_list() {
    let same = |plain: &[u8]| plain.to_vec();
    for (sender, receiver, given, arrives) in [
        ("3", "3", tag(5, 0x123), tag(5, 0x123)),
        ("3", "3", tag(0, 0), tag(0, 0)),
        ("3", "3", tag(7, 4095), tag(7, 4095)),
        ("1", "3", tag(5, 0x123), tag(5, 0)),
        ("2", "3", tag(5, 0x123), tag(0, 0x123)),
        ("0", "3", tag(5, 0x123), 0),
        ("3", "1", tag(5, 0x123), tag(5, 0)),
        ("3", "2", tag(5, 0x123), tag(0, 0x123)),
    ] {
        let (plain, bytes, beside) = through(sender, receiver, same, given);
        assert!(bytes == plain, "*PriorityVLANTag {sender} and {receiver}: the frame is as it was");
        assert_eq!(beside, arrives, "*PriorityVLANTag {sender} and {receiver}, {given:#x}");
    }
}

#[test]
fn a_tag_is_in_the_frame_for_an_adapter_that_takes_none_beside_it() {
    let (plain, bytes, beside) = through("3", "0", <[u8]>::to_vec, tag(5, 0x123));
    assert!(bytes == tagged(&plain, 5, 0x123), "it was inserted");
    assert_eq!((bytes.len(), beside), (1_518, 0));
}

#[test]
fn a_frame_that_is_tagged_already_may_be_four_bytes_longer() {
    let in_it = |plain: &[u8]| tagged(plain, 3, 77);
    for (sender, receiver, arrives) in
        [("3", "3", Some(tag(3, 77))), ("0", "3", Some(tag(3, 77))), ("3", "0", None), ("0", "0", None)]
    {
        let (plain, bytes, beside) = through(sender, receiver, in_it, 0);
        assert_eq!(beside, arrives.unwrap_or(0), "*PriorityVLANTag {sender} and {receiver}");
        let expected = if arrives.is_some() { plain } else { tagged(&plain, 3, 77) };
        assert!(bytes == expected, "*PriorityVLANTag {sender} and {receiver}");
    }
    // One byte more is too much.
    let kernel = Kernel::threads().start();
    with_pair(&kernel, &[], |one, other| {
        let long = tagged(&frame(one, other, 0, 1_515), 3, 77);
        assert_eq!(one.send(&[&long]).wait().len(), 1);
        assert_eq!(statistics(one).ifOutErrors, 1);
    });
}

#[test]
fn sends_that_wait_come_back_when_the_power_goes() {
    let kernel = Kernel::threads().start();
    with_pair(&kernel, &[], |one, other| {
        other.keep_received(true);
        let buffers = usize::from(softndknic::receive::BUFFERS);
        let bytes = frame(one, other, 1, 100);
        let sent = one.send(&vec![bytes.as_slice(); buffers + 20]);
        kernel.wait_until(|| other.kept() == buffers);
        kernel.sleep(2_000);
        assert!(!sent.is_complete(), "the other end has no buffer for them");
        assert_eq!(one.set_power(NDIS_DEVICE_POWER_STATE::D3).status, NDIS_STATUS::SUCCESS);
        let returned = sent.wait().iter().filter(|status| **status == NDIS_STATUS_PAUSED).count();
        assert_eq!(returned, 20);
        assert_eq!(one.set_power(NDIS_DEVICE_POWER_STATE::D0).status, NDIS_STATUS::SUCCESS);
        other.keep_received(false);
        let _ = other.give_back();
    });
}

#[test]
fn what_waits_is_bounded_and_the_rest_is_counted() {
    let kernel = Kernel::threads().start();
    with_pair(&kernel, &[], |one, other| {
        other.keep_received(true);
        let bytes = frame(one, other, 0, 60);
        let buffers = usize::from(softndknic::receive::BUFFERS);
        let sent = one.send(&vec![bytes.as_slice(); buffers]);
        assert_eq!(sent.wait().len(), buffers);
        let most = softndknic::transmit::MAX_QUEUED as usize;
        let sent = one.send(&vec![bytes.as_slice(); most + 10]);
        kernel.sleep(5_000);
        let discards = statistics(one).ifOutDiscards;
        assert_eq!(discards, 10);
        one.pause();
        let refused = sent.wait().iter().filter(|status| **status == ndkpi::NtStatus::INSUFFICIENT_RESOURCES).count();
        assert_eq!(refused as u64, discards);
        one.restart().expect("it restarts");
        other.keep_received(false);
        let _ = other.give_back();
    });
}

#[test]
fn the_filter_decides_what_is_indicated() {
    let kernel = Kernel::threads().start();
    with_pair(&kernel, &[], |one, other| {
        let to = |destination: [u8; 6]| {
            let mut bytes = frame(one, other, 0, 60);
            bytes[..6].copy_from_slice(&destination);
            bytes
        };
        let group = [1, 0, 0x5E, 0, 0, 9];
        let frames = [to([0xFF; 6]), to(group), to([2, 9, 9, 9, 9, 9]), frame(one, other, 0, 60)];
        let send = |expected: usize| {
            let _ = other.take_received();
            let _ = one.send(&frames.each_ref().map(Vec::as_slice)).wait();
            kernel.wait_until(|| other.received() >= expected);
            kernel.sleep(3_000);
            assert_eq!(other.received(), expected);
        };
        send(2);
        assert_eq!(other.set(OID_802_3_MULTICAST_LIST, &group).status, NDIS_STATUS::SUCCESS);
        send(3);
        let promiscuous = ndis::NDIS_PACKET_TYPE_PROMISCUOUS;
        let _ = other.set(OID_GEN_CURRENT_PACKET_FILTER, &promiscuous.to_le_bytes());
        send(4);
        let _ = other.set(OID_GEN_CURRENT_PACKET_FILTER, &[0; 4]);
        send(0);
        let counted = statistics(other);
        assert_eq!((counted.ifHCInBroadcastPkts, counted.ifHCInMulticastPkts, counted.ifHCInUcastPkts), (3, 2, 4));
    });
}

#[test]
fn frames_of_a_wrong_length_are_errors_and_not_frames() {
    let kernel = Kernel::threads().start();
    with_pair(&kernel, &[], |one, other| {
        let (long, short) = (frame(one, other, 0, 1_515), vec![0; 13]);
        let good = frame(one, other, 1, 1_514);
        let _ = one.send(&[&long, &short, &good]).wait();
        kernel.wait_until(|| other.received() == 1);
        assert_eq!(other.take_received(), [good]);
        assert_eq!(statistics(one).ifOutErrors, 2);
    });
}

#[test]
fn the_cable_loses_what_its_seed_says() {
    let lost = |seed: &str| {
        let kernel = Kernel::seeded(1).start();
        let mut received = Vec::new();
        with_pair(&kernel, &[("CableLoss", "200000"), ("CableSeed", seed)], |one, other| {
            send_all(&kernel, one, other, 500, 1);
            kernel.wait_until(|| statistics(other).ifInDiscards + other.received() as u64 == 500);
            received = other.take_received().iter().map(|frame| number(frame)).collect();
        });
        assert!((330..470).contains(&received.len()), "four fifths, more or less: {}", received.len());
        received
    };
    assert_eq!(lost("1"), lost("1"));
    assert_ne!(lost("1"), lost("2"));
}

#[test]
fn the_cable_delays_frames_and_keeps_their_order() {
    let kernel = Kernel::seeded(3).start();
    with_pair(&kernel, &[("CableDelay", "20000"), ("CableJitter", "5000"), ("CableRate", "100")], |one, other| {
        let started = kernel.now();
        send_all(&kernel, one, other, 100, 1);
        assert_eq!(other.received(), 0, "not yet: {} us", kernel.now() - started);
        kernel.wait_until(|| other.received() == 100);
        assert!(kernel.now() - started >= 20_000);
        assert!(other.take_received().iter().map(|frame| number(frame)).eq(0..100));
    });
}

#[test]
fn a_delay_is_as_long_whenever_it_begins() {
    let kernel = Kernel::seeded(3).start();
    with_pair(&kernel, &[("CableDelay", "20000")], |one, other| {
        kernel.sleep(10_000_000);
        let started = kernel.now();
        assert_eq!(one.send(&[&frame(one, other, 1, 100)]).wait(), [NDIS_STATUS::SUCCESS]);
        kernel.wait_until(|| other.received() == 1);
        let took = kernel.now() - started;
        assert!((20_000..1_000_000).contains(&took), "{took} us");
    });
}

#[test]
fn more_frames_than_one_dpc_indicates_all_arrive() {
    let kernel = Kernel::seeded(3).start();
    with_pair(&kernel, &[("CableDelay", "20000")], |one, other| {
        const COUNT: usize = 500;
        let frames: Vec<_> = (0..COUNT).map(|each| frame(one, other, each as u64, 100)).collect();
        let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
        assert_eq!(one.send(&frames).wait().len(), COUNT);
        kernel.wait_until(|| other.received() == COUNT);
        assert!(other.take_received().iter().map(|frame| number(frame)).eq(0..COUNT as u64));
    });
}

#[test]
fn frames_on_their_way_to_an_adapter_that_is_paused_are_dropped_and_counted() {
    let kernel = Kernel::seeded(3).start();
    with_pair(&kernel, &[("CableDelay", "20000")], |one, other| {
        let bytes = frame(one, other, 1, 100);
        assert_eq!(one.send(&[bytes.as_slice(); 5]).wait(), [NDIS_STATUS::SUCCESS; 5]);
        other.pause();
        assert_eq!(statistics(other).ifInDiscards, 5);
        other.restart().expect("it restarts");
        kernel.sleep(100_000);
        assert_eq!(other.received(), 0);
    });
}

/// Lists of five frames each to an end that has room for two of the first list's only. Those with the identifier 77 are cancelled.
/// The numbers of the frames that arrive.
fn cancelled_in_the_middle_of_a_list(first_is_cancelled: bool) -> Vec<u64> {
    let kernel = Kernel::threads().start();
    let mut numbers = Vec::new();
    with_pair(&kernel, &[], |one, other| {
        other.keep_received(true);
        let buffers = usize::from(softndknic::receive::BUFFERS);
        let bytes = frame(one, other, u64::MAX, 100);
        assert_eq!(one.send(&vec![bytes.as_slice(); buffers - 2]).wait().len(), buffers - 2);
        let frames: Vec<_> = (0..15).map(|each| frame(one, other, each, 100)).collect();
        let lists: Vec<Vec<&[u8]>> = frames.chunks(5).map(|list| list.iter().map(Vec::as_slice).collect()).collect();
        let cancel = |index| if (index == 0) == first_is_cancelled { 77 } else { 76 };
        let sent =
            (0..3).map(|index| (cancel(index), one.send_lists_cancellable(&lists[index..=index], cancel(index))));
        let (cancelled, others): (Vec<_>, Vec<_>) = sent.partition(|(id, _)| *id == 77);
        kernel.wait_until(|| other.kept() == buffers);
        kernel.sleep(20_000);
        one.cancel_sends(77);
        for (_, sent) in cancelled {
            assert_eq!(sent.wait(), [NDIS_STATUS_SEND_ABORTED]);
        }
        other.keep_received(false);
        let _ = other.give_back();
        for (_, sent) in others {
            assert_eq!(sent.wait(), [NDIS_STATUS::SUCCESS]);
        }
        kernel.sleep(20_000);
        numbers =
            other.take_received().iter().map(|frame| number(frame)).filter(|number| *number != u64::MAX).collect();
    });
    numbers
}

#[test]
fn sends_that_are_cancelled_in_the_middle_of_a_list_leave_the_others_whole() {
    let all_of = |lists: &[u64]| lists.iter().flat_map(|list| 5 * list..5 * list + 5).collect::<Vec<_>>();
    // The first two frames were sent before.
    let first = cancelled_in_the_middle_of_a_list(true);
    assert_eq!((&first[..2], &first[2..]), (&[0, 1][..], &all_of(&[1, 2])[..]));
    assert_eq!(cancelled_in_the_middle_of_a_list(false), all_of(&[0]), "it goes on where it was");
}

#[test]
fn a_pair_does_not_hear_another_pair() {
    let kernel = Kernel::threads().start();
    let driver = load(&kernel).expect("it loads");
    let nics: Vec<_> = (0..4).map(|_| add(&driver, &[])).collect();
    let bytes = frame(&nics[0], &nics[2], 0, 60);
    let own = frame(&nics[0], &nics[1], 1, 60);
    let _ = nics[0].send(&[&bytes, &own]).wait();
    kernel.wait_until(|| nics[1].received() == 1);
    assert_eq!(nics[2].received() + nics[3].received(), 0);
    nics.into_iter().for_each(Nic::remove);
    driver.unload();
}

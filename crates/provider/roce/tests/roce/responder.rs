//! Rules of the responder (RoCEv2 5), each with a test named after it.

use roce::{
    Failure,
    psn::Psn,
    qp::Work,
    wire::{Extended, Opcode, Reth, Syndrome},
};

use crate::common::{
    self,
    rig::{IN, OUT, Rig},
};

const NONE: Extended = Extended { reth: None, aeth: None, deth: None, immediate: None, invalidate: None };

fn reth(address: u64, key: u32, length: u32) -> Extended {
    Extended { reth: Some(Reth::new(address, key, length)), ..NONE }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 256) as u8).collect()
}

#[test]
fn a_send_fills_a_receive_and_is_acknowledged() {
    let mut rig = Rig::new();
    rig.memory.post_receive(1, 1000);
    let data = bytes(600);
    rig.feed(Opcode::SendFirst, 0, NONE, &data[..256]);
    rig.feed(Opcode::SendMiddle, 1, NONE, &data[256..512]);
    assert!(rig.take().is_none(), "nobody asked for an ACK yet");
    rig.feed(Opcode::SendLast, 2, NONE, &data[512..]);
    let ack = rig.take().expect("an ACK");
    assert_eq!((ack.short(IN), ack.syndrome(), ack.msn()), ((Opcode::Acknowledge, 2), 0x1F, 1));
    let (received, filled) = &rig.memory.received[0];
    assert_eq!((received.outcome, filled), (Ok(()), &data));
}

#[test]
fn a_packet_ahead_is_refused_once_until_the_expected_one_comes() {
    let mut rig = Rig::new();
    rig.memory.post_receive(1, 16);
    rig.memory.post_receive(2, 16);
    rig.send_only(1, b"second");
    let naks = rig.take_all();
    assert_eq!(naks.len(), 1);
    rig.send_only(2, b"third");
    assert!(rig.take().is_none(), "it has been asked for");
    assert_eq!((naks[0].short(IN), naks[0].syndrome()), ((Opcode::Acknowledge, 0), 0x60));
    assert_eq!(rig.counters.psn_ahead, 2);
    rig.send_only(0, b"first");
    rig.send_only(2, b"third");
    let sent: Vec<_> = rig.take_all().iter().map(|sent| (sent.short(IN).1, sent.syndrome())).collect();
    assert_eq!(sent, [(1, 0x60)], "which acknowledges the first");
}

#[test]
fn a_packet_that_was_asked_for_is_acknowledged_without_being_asked() {
    let mut rig = Rig::new();
    rig.memory.post_receive(1, 2000);
    let data = bytes(256);
    rig.feed(Opcode::SendFirst, 0, NONE, &data);
    rig.feed(Opcode::SendMiddle, 2, NONE, &data);
    let nak = rig.take().expect("a NAK");
    assert_eq!((nak.short(IN), nak.syndrome()), ((Opcode::Acknowledge, 1), 0x60));
    // In the middle of a message, where the peer asks for nothing.
    rig.feed(Opcode::SendMiddle, 1, NONE, &data);
    let ack = rig.take().expect("an ACK");
    assert_eq!((ack.short(IN), ack.syndrome()), ((Opcode::Acknowledge, 1), 0x1F));
    rig.feed(Opcode::SendMiddle, 2, NONE, &data);
    assert!(rig.take().is_none(), "only the one that was lost");
}

#[test]
fn acks_are_coalesced() {
    let mut rig = Rig::new();
    for index in 0..3 {
        rig.memory.post_receive(index, 16);
        rig.send_only(index as u32, b"x");
    }
    assert_eq!(rig.short(IN), [(Opcode::Acknowledge, 2)]);
}

const SEND: Work = Work::Send { invalidate: None };

#[test]
fn an_ack_goes_behind_requests_but_not_behind_many() {
    let mut rig = Rig::new();
    let mut posted = 0;
    for (index, requests) in [(0, 1), (1, 8), (2, 9), (3, 0)] {
        rig.memory.post_receive(u64::from(index), 16);
        rig.send_only(index, b"x");
        let first = posted;
        for _ in 0..requests {
            rig.post(u64::from(posted), SEND, bytes(10));
            posted += 1;
        }
        let sent: Vec<_> = rig.take_all().iter().map(|sent| (sent.bth.opcode, sent.bth.psn)).collect();
        let mut expected: Vec<_> = (first..posted).map(|psn| (Opcode::SendOnly, Psn::new(OUT).plus(psn))).collect();
        expected.insert(requests.min(8), (Opcode::Acknowledge, Psn::new(IN).plus(index)));
        assert_eq!(sent, expected);
        if posted > first {
            rig.answer(Syndrome::Ack, posted - 1);
        }
    }
}

#[test]
fn a_nak_and_the_data_of_a_read_do_not_wait_for_requests() {
    let mut rig = Rig::new();
    let opcodes = |rig: &mut Rig| rig.take_all().iter().map(|sent| sent.bth.opcode).collect::<Vec<_>>();
    rig.post(1, SEND, bytes(10));
    rig.send_only(1, b"ahead");
    assert_eq!(opcodes(&mut rig), [Opcode::Acknowledge, Opcode::SendOnly]);
    rig.memory.register(7, 0x1000, bytes(10));
    rig.post(2, SEND, bytes(10));
    rig.read(0, 0x1000, 7, 10);
    assert_eq!(opcodes(&mut rig), [Opcode::ReadResponseOnly, Opcode::SendOnly]);
    // Nor does an ACK that is before one of them.
    rig.memory.post_receive(1, 16);
    rig.post(3, SEND, bytes(10));
    rig.send_only(1, b"good");
    rig.read(2, 0x1000, 7, 10);
    assert_eq!(opcodes(&mut rig), [Opcode::Acknowledge, Opcode::ReadResponseOnly, Opcode::SendOnly]);
    rig.memory.post_receive(1, 16);
    rig.post(4, SEND, bytes(10));
    rig.send_only(3, b"good");
    rig.send_only(5, b"ahead");
    assert_eq!(opcodes(&mut rig), [Opcode::Acknowledge, Opcode::SendOnly], "the NAK says what the ACK would");
}

#[test]
fn a_duplicate_is_not_executed_and_acknowledged_with_the_newest_number() {
    let mut rig = Rig::new();
    rig.memory.post_receive(1, 16);
    rig.memory.post_receive(2, 16);
    rig.send_only(0, b"first");
    rig.send_only(1, b"second");
    let _ = rig.take_all();
    rig.send_only(0, b"first");
    assert_eq!(rig.short(IN), [(Opcode::Acknowledge, 1)]);
    assert_eq!((rig.memory.received.len(), rig.counters.duplicates), (2, 1));
}

#[test]
fn a_sequence_that_cannot_be_is_an_invalid_request() {
    let cases: [&[(Opcode, usize)]; 7] = [
        &[(Opcode::SendMiddle, 256)],
        &[(Opcode::SendLast, 1)],
        &[(Opcode::SendFirst, 256), (Opcode::SendOnly, 1)],
        &[(Opcode::SendFirst, 256), (Opcode::WriteLast, 1)],
        &[(Opcode::SendFirst, 255)],
        &[(Opcode::SendFirst, 256), (Opcode::SendLast, 0)],
        &[(Opcode::SendOnly, 257)],
    ];
    for case in cases {
        let mut rig = Rig::new();
        rig.memory.post_receive(1, 1000);
        for (index, (opcode, length)) in case.iter().enumerate() {
            rig.feed(*opcode, index as u32, NONE, &bytes(*length));
        }
        let sent = rig.take_all();
        let nak = sent.last().expect("a NAK");
        assert_eq!((nak.syndrome(), nak.short(IN).1), (0x61, case.len() as u32 - 1), "{case:?}");
        assert_eq!(rig.failure(), Some(Failure::PeerBroke), "{case:?}");
    }
}

/// Extended headers that a packet with this opcode has.
fn extended(opcode: Opcode) -> Extended {
    match opcode {
        Opcode::WriteFirst | Opcode::WriteOnly | Opcode::ReadRequest => reth(0, 7, 600),
        _ => NONE,
    }
}

#[test]
fn in_the_middle_of_a_write_only_its_rest_is_taken() {
    let others = [
        (Opcode::WriteFirst, 256),
        (Opcode::WriteOnly, 1),
        (Opcode::SendFirst, 256),
        (Opcode::SendMiddle, 256),
        (Opcode::SendLast, 1),
        (Opcode::SendOnly, 1),
        (Opcode::ReadRequest, 0),
    ];
    for (opcode, length) in others {
        let mut rig = Rig::new();
        rig.memory.register(7, 0, vec![0; 600]);
        rig.memory.post_receive(1, 1000);
        rig.feed(Opcode::WriteFirst, 0, extended(Opcode::WriteFirst), &bytes(256));
        rig.feed(opcode, 1, extended(opcode), &bytes(length));
        let nak = rig.take().expect("a NAK");
        assert_eq!((nak.syndrome(), nak.short(IN).1), (0x61, 1), "{opcode:?}");
        assert!(rig.memory.received.is_empty(), "{opcode:?}");
    }
}

#[test]
fn behind_a_packet_that_is_refused_nothing_is_taken_even_before_the_nak_has_gone() {
    let mut rig = Rig::new();
    rig.memory.post_receive(1, 16);
    rig.feed(Opcode::SendMiddle, 0, NONE, &bytes(256));
    rig.send_only(0, b"in its place");
    assert_eq!((rig.counters.wrong_state, rig.memory.received.len()), (1, 0));
    assert_eq!(rig.take().expect("a NAK").syndrome(), 0x61);
    assert_eq!(rig.counters.naks_sent, 1);
}

#[test]
fn after_a_nak_nothing_is_answered_not_even_duplicates() {
    let mut rig = Rig::new();
    rig.memory.post_receive(1, 16);
    rig.send_only(0, b"good");
    rig.feed(Opcode::SendMiddle, 1, NONE, &bytes(256));
    assert_eq!(rig.take_all().len(), 1);
    rig.send_only(0, b"good");
    rig.send_only(1, b"good");
    assert!(rig.take().is_none());
    assert_eq!(rig.counters.wrong_state, 2);
}

#[test]
fn without_a_receive_the_peer_is_told_to_come_back_and_nothing_is_consumed() {
    let mut rig = Rig::new();
    rig.send_only(0, b"early");
    rig.send_only(1, b"behind it");
    let naks = rig.take_all();
    assert_eq!(naks.len(), 1, "the one behind it is not asked for");
    assert_eq!((naks[0].short(IN).1, naks[0].syndrome()), (0, 0x20 + 14));
    rig.memory.post_receive(1, 16);
    rig.send_only(0, b"early");
    assert_eq!(rig.short(IN), [(Opcode::Acknowledge, 0)]);
    assert_eq!(rig.memory.received[0].1, b"early");
}

#[test]
fn a_receive_that_is_too_short_overflows_and_is_an_invalid_request() {
    let mut rig = Rig::new();
    rig.memory.post_receive(1, 16);
    rig.send_only(0, &bytes(100));
    assert_eq!(rig.take().expect("a NAK").syndrome(), 0x61);
    let (received, _) = &rig.memory.received[0];
    assert_eq!(received.outcome, Err(Failure::ReceiveTooShort));
    assert_eq!(Failure::ReceiveTooShort.status().to_string(), "STATUS_BUFFER_OVERFLOW");
}

#[test]
fn a_receive_whose_memory_is_bad_is_a_remote_operation_error() {
    let mut rig = Rig::new();
    rig.memory.post_receive(1, 16);
    rig.memory.unusable.push(1);
    rig.send_only(0, b"data");
    assert_eq!(rig.take().expect("a NAK").syndrome(), 0x63);
    assert_eq!(rig.memory.received[0].0.outcome, Err(Failure::ReceiveProtection));
}

#[test]
fn a_write_goes_to_memory_that_its_token_allows() {
    let mut rig = Rig::new();
    rig.memory.register(7, 0x1000, vec![0; 600]);
    let data = bytes(600);
    rig.feed(Opcode::WriteFirst, 0, reth(0x1000, 7, 600), &data[..256]);
    rig.feed(Opcode::WriteMiddle, 1, NONE, &data[256..512]);
    rig.feed(Opcode::WriteLast, 2, NONE, &data[512..]);
    assert_eq!(rig.short(IN), [(Opcode::Acknowledge, 2)]);
    assert_eq!(rig.memory.regions[&7].bytes, data);
}

#[test]
fn a_write_to_memory_that_its_token_does_not_allow_is_a_remote_access_error() {
    let cases = [(0x1000, 8, 256), (0x0FFF, 7, 256), (0x1001, 7, 256), (0x1000, 7, 257), (u64::MAX, 7, 256)];
    for (address, key, length) in cases {
        let mut rig = Rig::new();
        rig.memory.register(7, 0x1000, vec![0xAA; 256]);
        let opcode = if length > 256 { Opcode::WriteFirst } else { Opcode::WriteOnly };
        rig.feed(opcode, 0, reth(address, key, length), &bytes(256));
        assert_eq!(rig.take().expect("a NAK").syndrome(), 0x62, "{address:#x} {key} {length}");
        assert_eq!(rig.memory.regions[&7].bytes, [0xAA; 256], "{address:#x} {key} {length}");
    }
}

#[test]
fn a_token_that_ends_in_the_middle_of_a_write_is_a_remote_access_error() {
    let mut rig = Rig::new();
    rig.memory.register(7, 0, vec![0; 600]);
    rig.feed(Opcode::WriteFirst, 0, reth(0, 7, 600), &bytes(256));
    rig.memory.regions.get_mut(&7).expect("the region").write = false;
    rig.feed(Opcode::WriteMiddle, 1, NONE, &bytes(256));
    let nak = rig.take().expect("a NAK");
    assert_eq!((nak.syndrome(), nak.short(IN).1), (0x62, 1));
}

#[test]
fn a_token_that_ends_before_immediate_data_fails_the_receive_that_they_take() {
    let mut rig = Rig::new();
    rig.memory.register(7, 0, vec![0; 600]);
    rig.memory.post_receive(5, 16);
    rig.feed(Opcode::WriteFirst, 0, reth(0, 7, 300), &bytes(256));
    rig.memory.regions.get_mut(&7).expect("the region").write = false;
    rig.feed(Opcode::WriteLastImmediate, 1, Extended { immediate: Some(9), ..NONE }, &bytes(44));
    assert_eq!(rig.take().expect("a NAK").syndrome(), 0x62);
    let (received, _) = &rig.memory.received[0];
    assert_eq!((received.context, received.outcome), (5, Err(Failure::PeerBroke)));
}

#[test]
fn a_write_of_another_length_than_it_said_is_an_invalid_request() {
    for (length, packets) in [(256, 2), (100, 1), (300, 1), (600, 2)] {
        let mut rig = Rig::new();
        // What goes beyond its length would have room.
        rig.memory.register(7, 0, vec![0; 1000]);
        if packets == 1 {
            rig.feed(Opcode::WriteOnly, 0, reth(0, 7, length), &bytes(200));
        } else {
            rig.feed(Opcode::WriteFirst, 0, reth(0, 7, length), &bytes(256));
            rig.feed(Opcode::WriteLast, 1, NONE, &bytes(10));
        }
        assert_eq!(rig.take().expect("a NAK").syndrome(), 0x61, "{length}");
    }
}

#[test]
fn a_write_that_has_all_of_its_bytes_before_its_last_packet_is_an_invalid_request() {
    let mut rig = Rig::new();
    rig.memory.register(7, 0, vec![0; 1000]);
    rig.feed(Opcode::WriteFirst, 0, reth(0, 7, 256), &bytes(256));
    let nak = rig.take().expect("a NAK");
    assert_eq!((nak.syndrome(), nak.short(IN).1), (0x61, 0), "the last packet would have none");
}

#[test]
fn a_message_longer_than_messages_may_be_is_an_invalid_request() {
    // The longest is taken for what it is: the memory is not there.
    for (length, syndrome) in [(1 << 31, 0x62), ((1 << 31) + 1, 0x61), (u32::MAX, 0x61)] {
        let mut rig = Rig::new();
        rig.feed(Opcode::WriteFirst, 0, reth(0, 7, length), &bytes(256));
        assert_eq!(rig.take().expect("a NAK").syndrome(), syndrome, "WRITE of {length}");
        let mut rig = Rig::new();
        rig.read(0, 0, 7, length);
        assert_eq!(rig.take().expect("a NAK").syndrome(), syndrome, "READ of {length}");
    }
}

#[test]
fn without_bytes_address_and_token_are_not_looked_at() {
    let mut rig = Rig::new();
    rig.feed(Opcode::WriteOnly, 0, reth(0x1234, 0, 0), &[]);
    rig.read(1, 0x1234, 0, 0);
    assert_eq!(rig.short(IN), [(Opcode::Acknowledge, 0), (Opcode::ReadResponseOnly, 1)]);
}

#[test]
fn a_read_takes_as_many_numbers_as_its_answer_has_packets() {
    let mut rig = Rig::new();
    let data = bytes(600);
    rig.memory.register(7, 0x1000, data.clone());
    rig.memory.post_receive(1, 16);
    rig.read(0, 0x1000, 7, 600);
    rig.send_only(3, b"next");
    let sent = rig.take_all();
    let short: Vec<_> = sent.iter().map(|sent| sent.short(IN)).collect();
    let expected = [
        (Opcode::ReadResponseFirst, 0),
        (Opcode::ReadResponseMiddle, 1),
        (Opcode::ReadResponseLast, 2),
        (Opcode::Acknowledge, 3),
    ];
    assert_eq!(short, expected, "the ACK waits for the data before it");
    let read: Vec<u8> = sent[..3].iter().flat_map(|sent| sent.payload.clone()).collect();
    assert_eq!(read, data);
    assert_eq!((sent[0].msn(), sent[3].msn()), (2, 2), "a READ is counted at its receipt");
}

#[test]
fn a_read_of_memory_that_its_token_does_not_allow_is_a_remote_access_error() {
    let mut rig = Rig::new();
    rig.memory.register(7, 0x1000, vec![0; 256]);
    rig.memory.post_receive(1, 16);
    rig.send_only(0, b"before");
    rig.read(1, 0x1000, 7, 257);
    let sent = rig.take_all();
    assert_eq!(sent.len(), 1, "the NAK says that what comes before it is done");
    assert_eq!((sent[0].syndrome(), sent[0].short(IN).1), (0x62, 1));
    assert_eq!(rig.failure(), Some(Failure::PeerBroke));
}

#[test]
fn a_token_that_ends_in_the_middle_of_a_read_is_a_remote_access_error() {
    let mut rig = Rig::new();
    rig.memory.register(7, 0, bytes(600));
    rig.read(0, 0, 7, 600);
    assert_eq!(rig.take().expect("data").short(IN), (Opcode::ReadResponseFirst, 0));
    rig.memory.regions.clear();
    let nak = rig.take().expect("a NAK");
    assert_eq!((nak.syndrome(), nak.short(IN).1), (0x62, 1));
    assert!(rig.take().is_none());
}

#[test]
fn more_reads_than_were_agreed_on_are_an_invalid_request() {
    let mut rig = Rig::new();
    rig.memory.register(7, 0, bytes(600));
    for psn in 0..3 {
        rig.read(psn, 0, 7, 10);
    }
    let sent = rig.take_all();
    assert_eq!(sent.len(), 3);
    assert_eq!((sent[2].syndrome(), sent[2].short(IN).1), (0x61, 2), "behind the answers of those before");
}

#[test]
fn a_queue_pair_serves_no_more_reads_than_it_has_room_for() {
    let link = roce::qp::Link { inbound_reads: 9, outbound_reads: 9, ..common::rig::link() };
    let rig = Rig::with(link);
    let agreed = rig.qp.link().expect("it is connected");
    assert_eq!((agreed.inbound_reads, agreed.outbound_reads), (2, 2));
}

/// The network may have doubled it, or it was late: the peer has the answer, and may ask for as many as before.
#[test]
fn a_read_that_comes_again_does_not_count_against_the_limit() {
    for again in [&[0][..], &[1], &[0, 1]] {
        let mut rig = Rig::new();
        rig.memory.register(7, 0, bytes(600));
        for psn in 0..2 {
            rig.read(psn, 0, 7, 10);
            assert_eq!(rig.short(IN), [(Opcode::ReadResponseOnly, psn)]);
        }
        for psn in again {
            rig.read(*psn, 0, 7, 10);
        }
        rig.read(2, 0, 7, 10);
        let sent = rig.short(IN);
        // The oldest makes room for the new one, and is not answered again.
        let expected = again.iter().chain(&[2]).filter(|psn| **psn != 0);
        assert!(sent.iter().copied().eq(expected.map(|psn| (Opcode::ReadResponseOnly, *psn))), "{again:?}: {sent:?}");
        assert_eq!(rig.failure(), None, "{again:?}");
    }
}

#[test]
fn a_read_request_with_data_is_an_invalid_request() {
    let mut rig = Rig::new();
    rig.memory.register(7, 0, bytes(600));
    rig.feed(Opcode::ReadRequest, 0, reth(0, 7, 10), &[0; 4]);
    assert_eq!(rig.take().expect("a NAK").syndrome(), 0x61);
}

#[test]
fn without_reads_a_read_is_an_invalid_request() {
    let mut rig = Rig::with(roce::qp::Link { inbound_reads: 0, ..common::rig::link() });
    rig.memory.register(7, 0, bytes(600));
    rig.read(0, 0, 7, 10);
    assert_eq!(rig.take().expect("a NAK").syndrome(), 0x61);
}

#[test]
fn a_read_that_comes_again_from_the_middle_is_answered_from_there() {
    let mut rig = Rig::new();
    let data = bytes(600);
    rig.memory.register(7, 0x1000, data.clone());
    rig.read(0, 0x1000, 7, 600);
    let _ = rig.take_all();
    rig.read(1, 0x1100, 7, 344);
    let sent = rig.take_all();
    let short: Vec<_> = sent.iter().map(|sent| sent.short(IN)).collect();
    assert_eq!(short, [(Opcode::ReadResponseFirst, 1), (Opcode::ReadResponseLast, 2)]);
    assert_eq!([&sent[0].payload[..], &sent[1].payload[..]].concat(), data[256..]);
}

#[test]
fn a_read_that_comes_again_with_other_memory_is_dropped() {
    let mut rig = Rig::new();
    rig.memory.register(7, 0x1000, bytes(600));
    rig.memory.register(8, 0x1000, bytes(600));
    rig.read(0, 0x1000, 7, 600);
    let _ = rig.take_all();
    for (psn, address, key, length) in
        [(0, 0x1000, 8, 600), (0, 0x1001, 7, 599), (1, 0x1100, 7, 345), (0, 0x1000, 7, 601)]
    {
        rig.read(psn, address, key, length);
        assert!(rig.take().is_none(), "{psn} {address:#x} {key} {length}");
    }
}

#[test]
fn a_read_that_is_not_among_the_last_is_dropped() {
    let mut rig = Rig::new();
    rig.memory.register(7, 0, bytes(600));
    for psn in 0..3 {
        rig.read(psn, 0, 7, 10);
        assert_eq!(rig.short(IN), [(Opcode::ReadResponseOnly, psn)]);
    }
    rig.read(0, 0, 7, 10);
    assert!(rig.take().is_none());
    rig.read(1, 0, 7, 10);
    assert_eq!(rig.short(IN), [(Opcode::ReadResponseOnly, 1)]);
}

/// The peer may have the answer, and this side's consumer have deregistered the memory because of that.
#[test]
fn a_read_that_comes_again_when_its_token_has_ended_is_dropped() {
    let mut rig = Rig::new();
    rig.memory.register(7, 0, bytes(600));
    rig.memory.register(8, 0x1000, bytes(600));
    rig.read(0, 0, 7, 600);
    let _ = rig.take_all();
    rig.memory.regions.remove(&7);
    for psn in [0, 1] {
        rig.read(psn, u64::from(psn) * 256, 7, 600 - psn * 256);
        assert!(rig.take().is_none(), "no byte, and no NAK, which would end the connection");
    }
    // The connection goes on. What is behind the one that is dropped is answered.
    rig.read(0, 0, 7, 600);
    rig.read(3, 0x1000, 8, 10);
    let next = rig.take().expect("the data of the next one");
    assert_eq!((next.short(IN), next.payload.len()), ((Opcode::ReadResponseOnly, 3), 10));
    assert!(rig.take().is_none());
}

/// The peer cannot have all of the answer yet: it is told.
#[test]
fn a_read_that_comes_again_in_the_middle_of_its_answer_when_its_token_has_ended_is_a_remote_access_error() {
    let mut rig = Rig::new();
    rig.memory.register(7, 0, bytes(600));
    rig.read(0, 0, 7, 600);
    assert_eq!(rig.take().expect("data").short(IN), (Opcode::ReadResponseFirst, 0));
    rig.read(0, 0, 7, 600);
    rig.memory.regions.clear();
    assert_eq!(rig.take().expect("a NAK").syndrome(), 0x62);
}

#[test]
fn a_send_with_invalidate_ends_the_token_before_the_receive_completes() {
    let mut rig = Rig::new();
    rig.memory.register(7, 0, bytes(600));
    rig.memory.post_receive(1, 16);
    rig.feed(Opcode::SendOnlyInvalidate, 0, Extended { invalidate: Some(7), ..NONE }, b"over");
    assert_eq!(rig.short(IN), [(Opcode::Acknowledge, 0)]);
    assert!(!rig.memory.regions.contains_key(&7));
    assert_eq!(rig.memory.received[0].0.invalidated, Some(7));
}

#[test]
fn a_bad_invalidate_is_acknowledged_and_ends_the_connection() {
    let mut rig = Rig::new();
    rig.memory.post_receive(1, 16);
    rig.feed(Opcode::SendOnlyInvalidate, 0, Extended { invalidate: Some(7), ..NONE }, b"over");
    let ack = rig.take().expect("an ACK");
    assert_eq!((ack.syndrome(), ack.msn()), (0x1F, 0), "the message does not count");
    assert_eq!(rig.memory.received[0].0.outcome, Err(Failure::BadInvalidate));
    assert_eq!(Failure::BadInvalidate.status().to_string(), "STATUS_INVALID_DEVICE_REQUEST");
    assert_eq!(rig.failure(), Some(Failure::BadInvalidate));
}

#[test]
fn atomics_are_an_invalid_request() {
    for opcode in [Opcode::CompareSwap, Opcode::FetchAdd] {
        let mut rig = Rig::new();
        rig.feed(opcode, 0, NONE, &[0; 28]);
        assert_eq!(rig.take().expect("a NAK").syndrome(), 0x61);
    }
}

#[test]
fn a_solicited_send_completes_a_solicited_receive_and_immediate_data_arrive() {
    let mut rig = Rig::new();
    rig.memory.register(7, 0, vec![0; 16]);
    rig.memory.post_receive(1, 16);
    rig.memory.post_receive(2, 16);
    rig.feed(Opcode::SendOnlyImmediate, 0, Extended { immediate: Some(5), ..NONE }, b"a");
    rig.feed(Opcode::WriteOnlyImmediate, 1, Extended { immediate: Some(6), ..reth(0, 7, 4) }, b"data");
    let received: Vec<_> = rig.memory.received.iter().map(|(it, _)| (it.context, it.immediate, it.length)).collect();
    assert_eq!(received, [(1, Some(5), 1), (2, Some(6), 4)]);
    assert_eq!(rig.memory.regions[&7].bytes[..4], *b"data");
}

#[test]
fn a_packet_of_another_sender_is_dropped() {
    let mut rig = Rig::new();
    rig.memory.post_receive(1, 16);
    rig.feed_from(Opcode::SendOnly, roce::psn::Psn::new(IN), NONE, b"x", [10, 0, 0, 3].into());
    assert!(rig.take().is_none());
    assert_eq!((rig.counters.unknown_source, rig.memory.received.len()), (1, 0));
}

#[test]
fn the_answer_to_an_atomic_is_one_to_nothing() {
    let mut rig = Rig::new();
    let aeth = Some(roce::wire::Aeth { syndrome: 0x1F, msn: roce::wire::U24::new(0) });
    rig.feed(Opcode::AtomicAcknowledge, 0, Extended { aeth, ..NONE }, &[0; 8]);
    assert!(rig.take().is_none());
    assert_eq!((rig.counters.ghosts, rig.failure()), (1, None));
}

#[test]
fn a_datagram_is_not_for_a_connected_queue_pair() {
    let mut rig = Rig::new();
    rig.memory.post_receive(1, 16);
    rig.feed(Opcode::UdSendOnly, 0, Extended { deth: Some(roce::wire::Deth::new(5, 1)), ..NONE }, b"data");
    assert!(rig.take().is_none());
    assert_eq!((rig.counters.unknown_queue_pair, rig.memory.received.len()), (1, 0));
}

#[test]
fn a_queue_pair_has_heard_of_its_peer_when_a_request_has_come_in_order() {
    let mut rig = Rig::new();
    rig.memory.post_receive(1, 16);
    assert!(!rig.qp.has_heard());
    rig.send_only(1, b"ahead");
    assert!(!rig.qp.has_heard(), "it may be of an earlier connection");
    rig.send_only(0, b"first");
    assert!(rig.qp.has_heard());
}

#[test]
fn a_congestion_notification_is_dropped_in_silence() {
    let mut rig = Rig::new();
    rig.feed(Opcode::Cnp, 0, NONE, &[0; 16]);
    assert!(rig.take().is_none());
    assert_eq!(rig.counters.congestion_notifications, 1);
}

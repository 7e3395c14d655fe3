//! Rules of the requester (RoCEv2 6), each with a test named after it.

use std::iter;

use roce::{
    Failure,
    qp::{Flags, Link, PostError, Request, Work},
    wire::{Nak, Opcode, Syndrome},
};

use crate::common::{
    self,
    rig::{OUT, Rig, Sent, TIMEOUT},
};

const SEND: Work = Work::Send { invalidate: None };
const WRITE: Work = Work::Write { address: 0x1000, key: 7 };
const READ: Work = Work::Read { address: 0x1000, key: 7 };

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 256) as u8).collect()
}

#[test]
fn a_message_is_cut_into_packets_and_completes_with_the_ack_of_its_last() {
    let mut rig = Rig::new();
    rig.post(1, SEND, bytes(600));
    let sent = rig.take_all();
    let short: Vec<_> = sent.iter().map(|sent| (sent.short(OUT), sent.bth.acknowledge, sent.payload.len())).collect();
    let expected = [
        ((Opcode::SendFirst, 0), false, 256),
        ((Opcode::SendMiddle, 1), false, 256),
        ((Opcode::SendLast, 2), true, 88),
    ];
    assert_eq!(short, expected);
    rig.answer(Syndrome::Ack, 1);
    assert!(rig.memory.completed.is_empty());
    rig.answer(Syndrome::Ack, 2);
    assert_eq!(rig.memory.outcomes(), [(1, Ok(()))]);
    assert_eq!(rig.qp.deadline(), None, "nothing is waited for");
}

/// Which of the packets ask for an ACK, by their numbers.
fn asking(sent: &[Sent]) -> Vec<u32> {
    sent.iter().filter(|sent| sent.bth.acknowledge).map(|sent| sent.short(OUT).1).collect()
}

#[test]
fn short_messages_that_follow_each_other_share_an_ack_and_the_last_one_asks() {
    let mut rig = Rig::new();
    for context in 0..13 {
        rig.post(context, SEND, bytes(10));
    }
    // A quarter of the window, which begins with 32.
    assert_eq!(asking(&rig.take_all()), [7, 12]);
    rig.answer(Syndrome::Ack, 7);
    assert_eq!(rig.memory.completed.len(), 8);
    rig.answer(Syndrome::Ack, 12);
    assert_eq!(rig.memory.completed.len(), 13);
    rig.post(13, SEND, bytes(10));
    assert_eq!(asking(&rig.take_all()), [13], "alone it asks");
}

#[test]
fn a_message_asks_before_one_that_is_long_or_may_have_to_wait() {
    let fenced = Flags { read_fence: true, ..Flags::default() };
    for (work, length, flags) in [(SEND, 300, Flags::default()), (READ, 10, Flags::default()), (SEND, 10, fenced)] {
        let mut rig = Rig::new();
        rig.post(1, SEND, bytes(10));
        rig.post_with(2, work, bytes(length), flags);
        assert!(rig.take_all()[0].bth.acknowledge, "{work:?} of {length} bytes, {flags:?}");
    }
}

#[test]
fn a_long_message_asks_though_a_short_one_follows() {
    let mut rig = Rig::new();
    rig.post(1, SEND, bytes(600));
    rig.post(2, SEND, bytes(10));
    assert_eq!(asking(&rig.take_all()), [2, 3]);
}

#[test]
fn what_goes_out_again_asks_as_if_it_were_alone() {
    let mut rig = Rig::new();
    for context in 0..4 {
        rig.post(context, SEND, bytes(10));
    }
    assert_eq!(asking(&rig.take_all()), [3]);
    rig.wait();
    assert_eq!(asking(&rig.take_all()), [0, 1, 2, 3]);
}

#[test]
fn who_left_asking_to_a_message_that_fails_here_asks_itself() {
    let mut rig = Rig::new();
    rig.memory.unusable.push(2);
    for context in 0..4 {
        rig.post(context, SEND, bytes(10));
    }
    let sent = rig.take_all();
    assert_eq!((sent.len(), asking(&sent).len()), (2, 0));
    let again = rig.take_all();
    assert_eq!(again.iter().map(|sent| sent.short(OUT).1).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(asking(&again), [1]);
    assert!(rig.memory.completed.is_empty());
    rig.answer(Syndrome::Ack, 1);
    let failures = [(2, Err(Failure::LocalProtection)), (3, Err(Failure::Flushed))];
    assert_eq!(rig.memory.outcomes()[..2], [(0, Ok(())), (1, Ok(()))]);
    assert_eq!(rig.memory.outcomes()[2..], failures);
}

#[test]
fn a_message_that_fails_behind_an_own_packet_sends_nothing_again_that_has_asked() {
    let mut rig = Rig::new();
    rig.post(1, SEND, bytes(600));
    rig.memory.unusable.push(2);
    rig.post(2, SEND, bytes(600));
    assert_eq!(asking(&rig.take_all()), [2]);
    assert!(rig.take().is_none());
}

#[test]
fn a_write_has_its_address_in_the_first_packet_only() {
    let mut rig = Rig::new();
    rig.post(1, WRITE, bytes(300));
    rig.post(2, WRITE, Vec::new());
    let sent = rig.take_all();
    let reth = sent[0].extended.reth.expect("a RETH");
    assert_eq!((reth.address.get(), reth.key.get(), reth.length.get()), (0x1000, 7, 300));
    assert_eq!(sent[1].extended.reth, None);
    assert_eq!((sent[2].short(OUT), sent[2].payload.len()), ((Opcode::WriteOnly, 2), 0));
}

#[test]
fn one_ack_completes_all_before_it_in_order() {
    let mut rig = Rig::new();
    for context in 0..4 {
        rig.post(context, SEND, bytes(10));
    }
    let _ = rig.take_all();
    rig.answer(Syndrome::Ack, 2);
    assert_eq!(rig.memory.outcomes(), [(0, Ok(())), (1, Ok(())), (2, Ok(()))]);
}

#[test]
fn a_silent_success_has_no_completion_and_a_failure_has() {
    let mut rig = Rig::new();
    let silent = Flags { silent_success: true, ..Flags::default() };
    rig.post_with(1, SEND, bytes(10), silent);
    rig.post_with(2, SEND, bytes(10), silent);
    let _ = rig.take_all();
    rig.answer(Syndrome::Ack, 0);
    assert!(rig.memory.completed.is_empty());
    rig.answer(Syndrome::Nak(Nak::RemoteOperation), 1);
    assert_eq!(rig.memory.outcomes(), [(2, Err(Failure::RemoteOperation))]);
}

#[test]
fn inline_data_are_those_of_the_post() {
    let mut rig = Rig::new();
    let request = |context| Request { context, work: SEND, flags: Flags::default(), length: 5 };
    assert_eq!(rig.qp.post(request(1), Some(b"hello")), Ok(()));
    assert_eq!(rig.qp.post(request(2), Some(&[0; 33])), Err(PostError::TooLong));
    assert_eq!(rig.take().expect("a SEND").payload, b"hello");
    rig.wait();
    assert_eq!(rig.take().expect("the SEND again").payload, b"hello");
}

#[test]
fn a_request_is_not_longer_than_messages_may_be_nor_its_inline_data_than_there_is_room() {
    let mut rig = Rig::new();
    let request = |length| Request { context: 1, work: READ, flags: Flags::default(), length };
    assert_eq!(rig.qp.post(request((1 << 31) + 1), None), Err(PostError::TooLong));
    assert_eq!(rig.qp.post(request(1 << 31), None), Ok(()));
    let request = |length| Request { context: 1, work: SEND, flags: Flags::default(), length };
    assert_eq!(rig.qp.post(request(33), Some(&[0; 33])), Err(PostError::TooLong));
    assert_eq!(rig.qp.post(request(32), Some(&[0; 32])), Ok(()));
    assert_eq!(rig.qp.outstanding(), 2);
}

#[test]
fn inline_data_of_several_packets_go_out_in_order() {
    let mut rig = Rig::new();
    let sizes = roce::qp::Sizes { send_depth: 2, inline_bytes: 600, ..roce::qp::Sizes::default() };
    rig.qp = roce::qp::QueuePair::new(common::rig::QP, sizes).expect("memory");
    assert!(rig.qp.connect(common::rig::link()));
    let data = bytes(1200);
    let request = Request { context: 1, work: SEND, flags: Flags::default(), length: 600 };
    // Two have a place each, and the next two the same places again.
    for round in 0..2 {
        let [first, second] =
            if round == 0 { [&data[..600], &data[600..]] } else { [&data[300..900], &data[100..700]] };
        assert_eq!((rig.qp.post(request, Some(first)), rig.qp.outstanding()), (Ok(()), 1));
        assert_eq!((rig.qp.post(request, Some(second)), rig.qp.outstanding()), (Ok(()), 2));
        assert_eq!(rig.qp.post(request, Some(first)), Err(PostError::Full));
        let sent: Vec<u8> = rig.take_all().iter().flat_map(|sent| sent.payload.clone()).collect();
        assert_eq!(sent, [first, second].concat());
        rig.answer(Syndrome::Ack, 6 * round + 5);
    }
}

#[test]
fn without_bytes_local_memory_is_not_looked_at() {
    let mut rig = Rig::new();
    rig.memory.unusable.extend([1, 2, 3]);
    for (context, work) in [(1, SEND), (2, WRITE), (3, READ)] {
        rig.post(context, work, Vec::new());
    }
    assert_eq!(rig.short(OUT), [(Opcode::SendOnly, 0), (Opcode::WriteOnly, 1), (Opcode::ReadRequest, 2)]);
    rig.response(Opcode::ReadResponseOnly, 2, &[]);
    assert_eq!(rig.memory.outcomes(), [(1, Ok(())), (2, Ok(())), (3, Ok(()))]);
}

#[test]
fn a_solicited_send_says_so_in_its_last_packet() {
    let mut rig = Rig::new();
    let solicited = Flags { solicited: true, ..Flags::default() };
    rig.post_with(1, Work::Send { invalidate: Some(9) }, bytes(300), solicited);
    rig.post_with(2, WRITE, bytes(10), solicited);
    let sent = rig.take_all();
    let flags: Vec<_> = sent.iter().map(|sent| (sent.bth.opcode, sent.bth.solicited)).collect();
    let expected = [(Opcode::SendFirst, false), (Opcode::SendLastInvalidate, true), (Opcode::WriteOnly, false)];
    assert_eq!(flags, expected);
    assert_eq!((sent[0].extended.invalidate, sent[1].extended.invalidate), (None, Some(9)));
}

#[test]
fn a_read_takes_as_many_numbers_as_its_answer_has_packets() {
    let mut rig = Rig::new();
    rig.post(1, READ, vec![0; 600]);
    rig.post(2, SEND, bytes(1));
    let sent = rig.take_all();
    assert_eq!(
        sent.iter().map(|sent| sent.short(OUT)).collect::<Vec<_>>(),
        [(Opcode::ReadRequest, 0), (Opcode::SendOnly, 3)]
    );
    let data = bytes(600);
    rig.response(Opcode::ReadResponseFirst, 0, &data[..256]);
    rig.response(Opcode::ReadResponseMiddle, 1, &data[256..512]);
    assert!(rig.memory.completed.is_empty());
    rig.response(Opcode::ReadResponseLast, 2, &data[512..]);
    assert_eq!(rig.memory.outcomes(), [(1, Ok(()))]);
    assert_eq!(rig.memory.local[&1], data);
}

#[test]
fn reads_beyond_the_limit_wait_and_so_does_what_is_behind_them() {
    let mut rig = Rig::new();
    for context in 0..3 {
        rig.post(context, READ, vec![0; 10]);
    }
    rig.post(3, SEND, bytes(1));
    assert_eq!(rig.short(OUT), [(Opcode::ReadRequest, 0), (Opcode::ReadRequest, 1)]);
    rig.response(Opcode::ReadResponseOnly, 0, &bytes(10));
    assert_eq!(rig.short(OUT), [(Opcode::ReadRequest, 2), (Opcode::SendOnly, 3)]);
}

#[test]
fn without_reads_a_read_is_not_taken() {
    let mut rig = Rig::with(Link { outbound_reads: 0, ..common::rig::link() });
    let request = Request { context: 1, work: READ, flags: Flags::default(), length: 5 };
    assert_eq!(rig.qp.post(request, None), Err(PostError::NoReads));
}

#[test]
fn a_long_read_goes_out_in_requests_that_a_loss_does_not_hurt() {
    let mut rig = Rig::new();
    rig.post(1, READ, vec![0; 256 * 70]);
    let sent = rig.take_all();
    let reths: Vec<_> = sent.iter().map(|sent| sent.extended.reth.expect("a RETH")).collect();
    let ranges: Vec<_> = reths.iter().map(|reth| (reth.address.get(), reth.length.get())).collect();
    assert_eq!(ranges, [(0x1000, 16 * 256), (0x2000, 16 * 256)], "the read limit is kept");
    for packet in 0..64 {
        rig.response(Opcode::ReadResponseMiddle, packet, &bytes(256));
        let _ = (packet < 63).then(|| rig.take_all());
    }
    rig.wait();
    let sent = rig.take_all();
    assert_eq!(sent[0].short(OUT), (Opcode::ReadRequest, 64));
    assert_eq!(sent[0].extended.reth.expect("a RETH").length.get(), 6 * 256);
}

#[test]
fn a_fence_waits_until_no_read_is_outstanding() {
    let mut rig = Rig::new();
    rig.post(1, READ, vec![0; 300]);
    rig.post_with(2, SEND, bytes(1), Flags { read_fence: true, ..Flags::default() });
    assert_eq!(rig.short(OUT), [(Opcode::ReadRequest, 0)]);
    rig.response(Opcode::ReadResponseFirst, 0, &bytes(256));
    assert!(rig.take().is_none());
    rig.response(Opcode::ReadResponseLast, 1, &bytes(44));
    assert_eq!(rig.short(OUT), [(Opcode::SendOnly, 2)]);
}

#[test]
fn local_memory_that_is_bad_is_an_access_violation() {
    let mut rig = Rig::new();
    rig.memory.unusable.push(1);
    rig.post(1, SEND, bytes(1));
    rig.post(2, SEND, bytes(1));
    assert!(rig.take().is_none());
    assert_eq!(rig.memory.outcomes(), [(1, Err(Failure::LocalProtection)), (2, Err(Failure::Flushed))]);
    assert_eq!(Failure::LocalProtection.status().to_string(), "STATUS_ACCESS_VIOLATION");
}

#[test]
fn data_for_local_memory_that_is_bad_is_an_access_violation() {
    let mut rig = Rig::new();
    rig.post(1, READ, vec![0; 10]);
    rig.post(2, SEND, bytes(1));
    let _ = rig.take_all();
    rig.memory.unusable.push(1);
    rig.response(Opcode::ReadResponseOnly, 0, &bytes(10));
    assert_eq!(rig.memory.outcomes(), [(1, Err(Failure::LocalProtection)), (2, Err(Failure::Flushed))]);
    assert_eq!(Failure::Flushed.status().to_string(), "STATUS_CANCELLED");
    assert!(!rig.qp.connect(common::rig::link()), "a queue pair connects once");
}

#[test]
fn an_ack_of_nothing_that_is_outstanding_is_a_ghost() {
    let mut rig = Rig::new();
    rig.post(1, READ, vec![0; 10]);
    rig.post(2, SEND, bytes(1));
    let _ = rig.take_all();
    for psn in [40, 2, 0xFF_FFFF] {
        rig.answer(Syndrome::Ack, psn);
        rig.response(Opcode::ReadResponseOnly, psn, &bytes(10));
    }
    assert!(rig.memory.completed.is_empty());
    assert!(rig.take().is_none(), "no READ goes out again");
    assert_eq!(rig.counters.ghosts, 6);
}

#[test]
fn data_for_what_is_no_read_are_a_ghost() {
    let mut rig = Rig::new();
    rig.post(1, SEND, bytes(10));
    rig.post(2, SEND, bytes(10));
    let _ = rig.take_all();
    rig.response(Opcode::ReadResponseOnly, 1, &[0; 10]);
    assert_eq!((rig.counters.ghosts, &rig.memory.local[&2]), (1, &bytes(10)));
    assert_eq!(rig.memory.outcomes(), [(1, Ok(()))], "what is before it has an answer by that");
}

#[test]
fn an_ack_behind_a_read_without_its_data_is_an_implied_nak() {
    let mut rig = Rig::new();
    rig.post(1, SEND, bytes(1));
    rig.post(2, READ, vec![0; 600]);
    rig.post(3, SEND, bytes(1));
    let _ = rig.take_all();
    rig.response(Opcode::ReadResponseFirst, 1, &bytes(256));
    rig.answer(Syndrome::Ack, 4);
    assert_eq!(rig.memory.outcomes(), [(1, Ok(()))]);
    let sent = rig.take_all();
    assert_eq!(
        sent.iter().map(|sent| sent.short(OUT)).collect::<Vec<_>>(),
        [(Opcode::ReadRequest, 2), (Opcode::SendOnly, 4)]
    );
    let reth = sent[0].extended.reth.expect("a RETH");
    assert_eq!((reth.address.get(), reth.length.get()), (0x1100, 344), "from its first missing packet on");
    rig.answer(Syndrome::Ack, 4);
    assert!(rig.take().is_none(), "not twice for the same gap");
}

#[test]
fn a_read_that_is_answered_from_the_middle_may_go_on_or_begin_again() {
    for opcodes in
        [[Opcode::ReadResponseFirst, Opcode::ReadResponseLast], [Opcode::ReadResponseMiddle, Opcode::ReadResponseLast]]
    {
        let mut rig = Rig::new();
        let data = bytes(600);
        rig.post(1, READ, vec![0; 600]);
        let _ = rig.take_all();
        rig.response(Opcode::ReadResponseFirst, 0, &data[..256]);
        rig.response(Opcode::ReadResponseLast, 2, &data[512..]);
        assert_eq!(rig.short(OUT), [(Opcode::ReadRequest, 1)], "a gap");
        rig.response(opcodes[0], 1, &data[256..512]);
        rig.response(opcodes[1], 2, &data[512..]);
        assert_eq!((rig.memory.outcomes(), &rig.memory.local[&1]), (vec![(1, Ok(()))], &data));
    }
}

/// The requests for a READ of 16 packets that have gone out again, from which packet on, after these answers in this order.
fn asked_again(rig: &mut Rig, answers: &[(Opcode, u32)]) -> Vec<u32> {
    let data = bytes(256 * 16);
    let mut again = Vec::new();
    for (opcode, psn) in answers {
        let offset = *psn as usize * 256;
        rig.response(*opcode, *psn, &data[offset..][..256]);
        again.extend(rig.short(OUT).iter().map(|(opcode, psn)| {
            assert_eq!(*opcode, Opcode::ReadRequest);
            *psn
        }));
    }
    again
}

fn middle(numbers: std::ops::Range<u32>) -> impl Iterator<Item = (Opcode, u32)> {
    numbers.map(|psn| (Opcode::ReadResponseMiddle, psn))
}

fn long_read() -> Rig {
    let mut rig = Rig::new();
    rig.post(1, READ, vec![0; 256 * 16]);
    assert_eq!(rig.short(OUT), [(Opcode::ReadRequest, 0)]);
    rig
}

const LAST: (Opcode, u32) = (Opcode::ReadResponseLast, 15);

#[test]
fn an_answer_out_of_order_has_the_rest_of_a_read_asked_for_once() {
    let mut rig = long_read();
    // 2 comes late. What is behind 3 was dropped with it, and is on its way once more.
    let first: Vec<_> = iter::once((Opcode::ReadResponseFirst, 0))
        .chain(middle(1..2))
        .chain(middle(3..5))
        .chain(middle(2..3))
        .chain(middle(5..15))
        .chain([LAST])
        .collect();
    assert_eq!(asked_again(&mut rig, &first), [2]);
    let second: Vec<_> = iter::once((Opcode::ReadResponseFirst, 2)).chain(middle(3..15)).chain([LAST]).collect();
    assert_eq!(asked_again(&mut rig, &second), []);
    assert_eq!((rig.memory.outcomes(), &rig.memory.local[&1]), (vec![(1, Ok(()))], &bytes(256 * 16)));
    assert_eq!(rig.counters.goes_back, 1);
}

#[test]
fn an_answer_that_is_lost_a_second_time_is_asked_for_again() {
    // The second answer begins anew, as ours does, or goes on, as that of rxe (RoCEv2 6.4).
    for opcode in [Opcode::ReadResponseFirst, Opcode::ReadResponseMiddle] {
        let mut rig = long_read();
        let first: Vec<_> = iter::once((Opcode::ReadResponseFirst, 0)).chain(middle(2..15)).chain([LAST]).collect();
        assert_eq!(asked_again(&mut rig, &first), [1]);
        let second: Vec<_> = iter::once((opcode, 1)).chain(middle(3..15)).chain([LAST]).collect();
        assert_eq!(asked_again(&mut rig, &second), [2], "3 says so, and what is behind it says no more");
        let third: Vec<_> = iter::once((opcode, 2)).chain(middle(3..15)).chain([LAST]).collect();
        assert_eq!(asked_again(&mut rig, &third), []);
        assert_eq!((rig.memory.outcomes(), rig.counters.goes_back), (vec![(1, Ok(()))], 2));
    }
}

#[test]
fn a_gap_in_the_second_answer_is_its_own_if_that_begins_anew() {
    let mut rig = long_read();
    let first: Vec<_> = iter::once((Opcode::ReadResponseFirst, 0)).chain(middle(2..3)).collect();
    assert_eq!(asked_again(&mut rig, &first), [1]);
    let second: Vec<_> = iter::once((Opcode::ReadResponseFirst, 1)).chain(middle(3..4)).collect();
    assert_eq!(asked_again(&mut rig, &second), [2], "where it begins the first answer has ended");
}

#[test]
fn a_gap_behind_one_that_was_found_by_time_is_its_own() {
    let mut rig = long_read();
    let first: Vec<_> = iter::once((Opcode::ReadResponseFirst, 0)).chain(middle(1..2)).collect();
    assert_eq!(asked_again(&mut rig, &first), []);
    rig.wait();
    assert_eq!(rig.short(OUT), [(Opcode::ReadRequest, 2)]);
    let second: Vec<_> = middle(4..5).chain(middle(2..3)).chain(middle(5..6)).collect();
    assert_eq!(asked_again(&mut rig, &second), [3], "4 came while it was asked for");
    assert_eq!((rig.counters.goes_back, rig.counters.timeouts), (1, 1));
}

#[test]
fn what_was_sent_after_a_gap_was_seen_may_show_another_one() {
    let mut rig = long_read();
    let answers: Vec<_> = iter::once((Opcode::ReadResponseFirst, 0)).chain(middle(2..3)).collect();
    assert_eq!(asked_again(&mut rig, &answers), [1]);
    rig.post(2, SEND, bytes(1));
    assert_eq!(rig.short(OUT), [(Opcode::SendOnly, 16)]);
    rig.response(Opcode::ReadResponseMiddle, 1, &bytes(512)[256..]);
    rig.answer(Syndrome::Ack, 15);
    assert!(rig.take().is_none(), "it may be of what was sent before");
    rig.answer(Syndrome::Ack, 16);
    assert_eq!(rig.short(OUT), [(Opcode::ReadRequest, 2)], "this one is not, and the window holds no more");
}

#[test]
fn read_data_of_another_length_is_dropped() {
    let mut rig = Rig::new();
    rig.post(1, READ, vec![0; 300]);
    let _ = rig.take_all();
    rig.response(Opcode::ReadResponseFirst, 0, &bytes(255));
    rig.response(Opcode::ReadResponseOnly, 0, &[]);
    assert_eq!((rig.counters.wrong_length, rig.memory.local[&1].clone()), (2, vec![0; 300]));
    rig.response(Opcode::ReadResponseFirst, 0, &bytes(256));
    rig.response(Opcode::ReadResponseLast, 1, &bytes(44));
    assert_eq!(rig.memory.outcomes(), [(1, Ok(()))]);
}

#[test]
fn a_sequence_nak_acknowledges_what_is_before_it_and_goes_back() {
    let mut rig = Rig::new();
    rig.post(1, SEND, bytes(1));
    rig.post(2, WRITE, bytes(700));
    let _ = rig.take_all();
    rig.answer(Syndrome::Nak(Nak::Sequence), 2);
    assert_eq!(rig.memory.outcomes(), [(1, Ok(()))]);
    assert_eq!(rig.short(OUT), [(Opcode::WriteMiddle, 2), (Opcode::WriteLast, 3)], "the message goes on where it was");
    rig.answer(Syndrome::Nak(Nak::Sequence), 2);
    assert!(rig.take().is_none(), "the same gap again");
    assert_eq!((rig.counters.naks_received, rig.counters.goes_back), (2, 1));
    rig.answer(Syndrome::Ack, 3);
    assert_eq!(rig.memory.outcomes().len(), 2);
}

#[test]
fn an_ack_of_what_was_sent_before_going_back_counts() {
    let mut rig = Rig::new();
    rig.post(1, WRITE, bytes(700));
    let _ = rig.take_all();
    rig.wait();
    assert_eq!(rig.take().expect("the first again").short(OUT), (Opcode::WriteFirst, 0));
    rig.answer(Syndrome::Ack, 1);
    assert_eq!(rig.short(OUT), [(Opcode::WriteLast, 2)], "the second need not go again");
}

#[test]
fn silence_is_repeated_to_and_then_is_a_time_out() {
    let mut rig = Rig::new();
    let started = rig.now;
    rig.post(1, SEND, bytes(1));
    rig.post(2, SEND, bytes(1));
    for _ in 0..4 {
        assert_eq!(rig.short(OUT), [(Opcode::SendOnly, 0), (Opcode::SendOnly, 1)]);
        rig.wait();
    }
    assert_eq!(rig.memory.outcomes(), [(1, Err(Failure::RetryExceeded)), (2, Err(Failure::Flushed))]);
    assert_eq!((rig.now - started, rig.counters.timeouts), (4 * TIMEOUT, 4), "three retries");
    assert_eq!(Failure::RetryExceeded.status().to_string(), "STATUS_IO_TIMEOUT");
    assert!(rig.take().is_none());
}

#[test]
fn seven_retries_are_seven() {
    let mut rig = Rig::with(Link { retry_count: 7, ..common::rig::link() });
    rig.post(1, SEND, bytes(1));
    let mut sent = 0;
    while rig.failure().is_none() {
        sent += rig.take_all().len();
        rig.wait();
    }
    assert_eq!(sent, 8);
}

#[test]
fn progress_gives_all_retries_back() {
    let mut rig = Rig::new();
    for context in 0..16 {
        rig.post(context, SEND, bytes(1));
    }
    for psn in 0..16 {
        let _ = rig.take_all();
        rig.wait();
        let _ = rig.take_all();
        rig.wait();
        let _ = rig.take_all();
        rig.answer(Syndrome::Ack, psn);
    }
    assert_eq!((rig.memory.completed.len(), rig.failure()), (16, None));
}

#[test]
fn a_loss_makes_the_window_smaller() {
    let mut rig = Rig::new();
    rig.post(1, WRITE, bytes(256 * 100));
    let sent = rig.take_all();
    assert_eq!(sent.len(), 32);
    assert!(sent[31].bth.acknowledge, "or the window would never open");
    rig.wait();
    let sent = rig.take_all();
    assert_eq!(sent.len(), 16);
    assert!(sent[15].bth.acknowledge);
}

#[test]
fn an_rnr_nak_is_waited_for_and_then_goes_back() {
    let mut rig = Rig::new();
    rig.post(1, SEND, bytes(1));
    rig.post(2, SEND, bytes(1));
    let _ = rig.take_all();
    rig.answer(Syndrome::RnrNak(14), 1);
    assert_eq!(rig.memory.outcomes(), [(1, Ok(()))]);
    assert!(rig.take().is_none());
    let before = rig.now;
    // Time that passes before does not end it.
    rig.now += 1279;
    rig.qp.tick(rig.now, &mut rig.memory, &mut rig.counters);
    assert!(rig.take().is_none());
    rig.wait();
    assert_eq!((rig.now - before, rig.qp.deadline()), (1280, None));
    assert_eq!((rig.counters.rnr_naks_received, rig.counters.naks_received), (1, 0));
    assert_eq!(rig.short(OUT), [(Opcode::SendOnly, 1)]);
    rig.answer(Syndrome::Ack, 1);
    assert_eq!(rig.memory.outcomes().len(), 2);
}

#[test]
fn an_rnr_nak_is_waited_for_as_long_as_it_says_and_no_longer() {
    let mut rig = Rig::new();
    rig.post(1, SEND, bytes(1));
    let _ = rig.take_all();
    rig.answer(Syndrome::RnrNak(1), 0);
    rig.now += 9;
    assert!(!rig.qp.may_transmit(rig.now) && rig.take().is_none());
    // Without a tick: who transmits need not have looked at the time first.
    rig.now += 1;
    assert!(rig.qp.may_transmit(rig.now));
    assert_eq!(rig.short(OUT), [(Opcode::SendOnly, 0)]);
}

#[test]
fn rnr_naks_while_one_is_waited_for_are_the_same_one() {
    let mut rig = Rig::new();
    rig.post(1, SEND, bytes(1));
    let _ = rig.take_all();
    rig.answer(Syndrome::RnrNak(14), 0);
    let deadline = rig.qp.deadline();
    for _ in 0..3 {
        rig.now += 100;
        rig.answer(Syndrome::RnrNak(14), 0);
    }
    assert_eq!((rig.failure(), rig.qp.deadline()), (None, deadline));
}

#[test]
fn an_rnr_nak_for_a_message_that_has_failed_here_is_not_waited_for() {
    let mut rig = Rig::new();
    rig.post(1, SEND, bytes(1));
    rig.post(2, SEND, bytes(600));
    assert_eq!(rig.take().expect("the first").short(OUT), (Opcode::SendOnly, 0));
    assert_eq!(rig.take().expect("a part of the second").short(OUT), (Opcode::SendFirst, 1));
    rig.memory.unusable.push(2);
    assert!(rig.take().is_none());
    rig.answer(Syndrome::RnrNak(14), 1);
    assert_eq!(rig.memory.outcomes(), [(1, Ok(())), (2, Err(Failure::LocalProtection))]);
    assert_eq!(rig.qp.deadline(), None);
}

#[test]
fn rnr_retries_end() {
    let mut rig = Rig::new();
    rig.post(1, SEND, bytes(1));
    for _ in 0..2 {
        let _ = rig.take_all();
        rig.answer(Syndrome::RnrNak(14), 0);
        rig.wait();
    }
    let _ = rig.take_all();
    rig.answer(Syndrome::RnrNak(14), 0);
    assert_eq!(rig.memory.outcomes(), [(1, Err(Failure::RnrRetryExceeded))]);
    assert_eq!(Failure::RnrRetryExceeded.status().to_string(), "STATUS_IO_TIMEOUT");
}

#[test]
fn seven_rnr_retries_end_with_the_time_and_not_with_the_count() {
    let mut rig = Rig::with(Link { rnr_retry_count: 7, ..common::rig::link() });
    rig.post(1, SEND, bytes(1));
    let (started, mut count) = (rig.now, 0);
    while rig.failure().is_none() {
        let _ = rig.take_all();
        rig.answer(Syndrome::RnrNak(0), 0);
        count += 1;
        if rig.failure().is_none() {
            rig.wait();
        }
    }
    assert!(count > 80, "{count}");
    assert!(rig.now - started > 60_000_000);
}

#[test]
fn a_minute_is_waited_for_a_receive_and_no_longer() {
    let mut rig = Rig::with(Link { rnr_retry_count: 7, ..common::rig::link() });
    rig.post(1, SEND, bytes(1));
    let _ = rig.take_all();
    let started = rig.now;
    rig.answer(Syndrome::RnrNak(1), 0);
    for (passed, failure) in [(60_000_000, None), (60_000_001, Some(Failure::RnrRetryExceeded))] {
        rig.now = started + passed;
        assert_eq!(rig.short(OUT), [(Opcode::SendOnly, 0)]);
        rig.answer(Syndrome::RnrNak(0), 0);
        assert_eq!(rig.failure(), failure, "after {passed}");
        rig.now += 655_360;
        rig.qp.tick(rig.now, &mut rig.memory, &mut rig.counters);
    }
}

#[test]
fn a_refused_request_fails_with_its_reason_and_those_behind_it_are_flushed() {
    let cases = [
        (Syndrome::Nak(Nak::InvalidRequest), Failure::RemoteInvalidRequest),
        (Syndrome::Nak(Nak::RemoteAccess), Failure::RemoteAccess),
        (Syndrome::Nak(Nak::RemoteOperation), Failure::RemoteOperation),
        (Syndrome::Reserved, Failure::RemoteOperation),
    ];
    for (syndrome, failure) in cases {
        let mut rig = Rig::new();
        for context in 1..4 {
            rig.post(context, WRITE, bytes(300));
        }
        let _ = rig.take_all();
        rig.answer(syndrome, 3);
        assert_eq!(rig.memory.outcomes(), [(1, Ok(())), (2, Err(failure)), (3, Err(Failure::Flushed))]);
        assert_eq!(failure.status().to_string(), "STATUS_REMOTE_RESOURCES");
        assert_eq!(rig.failure(), Some(failure));
        // What came before the refusal was progress, which gives requests their time anew: not those that have failed.
        assert_eq!(rig.qp.deadline(), None);
    }
}

#[test]
fn a_refusal_behind_a_read_waits_for_its_data() {
    let mut rig = Rig::new();
    rig.post(1, READ, vec![0; 10]);
    rig.post(2, WRITE, bytes(1));
    let _ = rig.take_all();
    rig.answer(Syndrome::Nak(Nak::RemoteAccess), 1);
    assert!(rig.memory.completed.is_empty());
    rig.response(Opcode::ReadResponseOnly, 0, &bytes(10));
    assert_eq!(rig.memory.outcomes(), [(1, Ok(())), (2, Err(Failure::RemoteAccess))]);
}

#[test]
fn what_lies_between_a_read_and_a_refusal_has_succeeded() {
    let mut rig = Rig::new();
    rig.post(1, READ, vec![0; 10]);
    rig.post(2, WRITE, bytes(300));
    rig.post(3, READ, vec![0; 10]);
    rig.post(4, WRITE, bytes(1));
    rig.post(5, WRITE, bytes(300));
    let _ = rig.take_all();
    rig.answer(Syndrome::Nak(Nak::RemoteAccess), 5);
    assert!(rig.memory.completed.is_empty());
    rig.response(Opcode::ReadResponseOnly, 0, &bytes(10));
    assert_eq!(rig.memory.outcomes(), [(1, Ok(())), (2, Ok(()))]);
    rig.response(Opcode::ReadResponseOnly, 3, &bytes(10));
    let refused = [(3, Ok(())), (4, Ok(())), (5, Err(Failure::RemoteAccess))];
    assert_eq!(rig.memory.outcomes()[2..], refused);
    assert_eq!(rig.counters.naks_received, 1);
}

#[test]
fn behind_a_refusal_nothing_is_answered_and_nothing_is_asked_for_again() {
    let mut rig = Rig::new();
    rig.post(1, READ, vec![0; 600]);
    rig.post(2, WRITE, bytes(1));
    rig.post(3, READ, vec![0; 10]);
    let _ = rig.take_all();
    rig.answer(Syndrome::Nak(Nak::RemoteAccess), 3);
    rig.post(4, SEND, bytes(1));
    assert!(rig.take().is_none(), "nor does anything more go out");
    rig.answer(Syndrome::Ack, 3);
    rig.response(Opcode::ReadResponseOnly, 4, &bytes(10));
    assert_eq!(rig.counters.ghosts, 2);
    rig.response(Opcode::ReadResponseLast, 2, &bytes(88));
    assert_eq!((rig.counters.goes_back, rig.take().is_none()), (0, true), "the responder would not hear it");
    rig.response(Opcode::ReadResponseFirst, 0, &bytes(256));
    rig.response(Opcode::ReadResponseMiddle, 1, &bytes(256));
    rig.response(Opcode::ReadResponseLast, 2, &bytes(88));
    let flushed = [3, 4].map(|context| (context, Err(Failure::Flushed)));
    assert_eq!(rig.memory.outcomes()[..2], [(1, Ok(())), (2, Err(Failure::RemoteAccess))]);
    assert_eq!(rig.memory.outcomes()[2..], flushed);
}

#[test]
fn a_refusal_behind_a_read_whose_data_never_comes_is_a_time_out() {
    let mut rig = Rig::new();
    rig.post(1, READ, vec![0; 10]);
    rig.post(2, WRITE, bytes(1));
    let _ = rig.take_all();
    rig.answer(Syndrome::Nak(Nak::RemoteAccess), 1);
    while rig.failure().is_none() {
        rig.wait();
        let _ = rig.take_all();
    }
    assert_eq!(rig.memory.outcomes(), [(1, Err(Failure::RetryExceeded)), (2, Err(Failure::Flushed))]);
}

#[test]
fn the_completions_of_one_call_are_bounded() {
    let link = common::rig::link();
    let sizes = roce::qp::Sizes { send_depth: 200, window: 200, ..roce::qp::Sizes::default() };
    let mut rig = Rig::new();
    rig.qp = roce::qp::QueuePair::new(common::rig::QP, sizes).expect("memory");
    assert!(rig.qp.connect(link));
    for context in 0..200 {
        rig.post(context, WRITE, Vec::new());
    }
    let mut psn = 0;
    while rig.memory.completed.is_empty() || psn < 199 {
        psn += rig.take_all().len() as u32;
        let before = rig.memory.completed.len();
        if psn < 200 {
            rig.answer(Syndrome::Ack, psn - 1);
        }
        assert!(rig.memory.completed.len() - before <= 64);
        if psn >= 200 {
            break;
        }
    }
    rig.answer(Syndrome::Ack, 199);
    while rig.qp.deadline() == Some(0) {
        let before = rig.memory.completed.len();
        rig.wait();
        assert!(rig.memory.completed.len() - before <= 64);
    }
    assert_eq!(rig.memory.completed.len(), 200);
}

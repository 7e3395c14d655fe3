//! Each reason that a REJ can have (RoCEv2 8.9), in each state of the connection that it is about.

use ntstatus::NtStatus;
use roce::{
    FRAME,
    cm::{Ending, EventKind, Refusal, State},
    wire::{
        Envelope, Packet,
        cm::{Attribute, Mad, Message, Reason, Rej, Rep, Req},
    },
};
use zerocopy::IntoBytes as _;

use crate::common::world::{PORT, World};

/// Every reason of RoCEv2 8.9, some numbers that it does not name, and the largest.
fn reasons() -> impl Iterator<Item = Reason> {
    (0..=36).chain([0x8000, u16::MAX]).map(Reason)
}

/// A REJ by a side about the last message of the other side that has this attribute.
fn rej(world: &World, by: usize, about: Attribute, reason: Reason) -> Vec<u8> {
    let sent = world.sent.iter().rev().filter(|(_, from, _)| *from == 1 - by);
    let found = sent.filter_map(|(.., frame)| {
        let (envelope, packet) = Envelope::parse(frame).ok()?;
        let mad = *Mad::parse(packet.payload).filter(|mad| mad.attribute() == Some(about))?;
        Some((envelope, packet.bth, packet.extended, mad))
    });
    let (mut envelope, bth, extended, mad) = found.into_iter().next().expect("the message");
    core::mem::swap(&mut envelope.ip.source, &mut envelope.ip.destination);
    core::mem::swap(&mut envelope.ethernet.source, &mut envelope.ethernet.destination);
    let (theirs, ours, message) = if about == Attribute::Req {
        (mad.message::<Req>().expect("a REQ").local_id.get(), 0, Message::Req)
    } else {
        let rep: &Rep = mad.message().expect("a REP");
        (rep.local_id.get(), rep.remote_id.get(), Message::Rep)
    };
    let transaction = mad.header.transaction.get();
    let mad = Mad::new(Attribute::Rej, transaction, &Rej::new(ours, theirs, message, reason, &[]));
    let mut frame = vec![0; FRAME];
    let length = envelope.emit(&Packet { bth, extended, payload: mad.as_bytes() }, &mut frame);
    frame.truncate(length);
    frame
}

#[test]
fn a_connect_ends_with_the_status_of_each_reason() {
    for reason in reasons() {
        let mut world = World::new(1);
        world.meet();
        world.deaf[1] = true;
        let (connection, _) = world.ask(false, b"");
        world.run(1_000);
        let first = rej(&world, 1, Attribute::Req, reason);
        world.inject(0, &first);
        world.run(1_000);
        if reason == Reason::STALE {
            // It is asked once more, with another id; the old answer is not one to that.
            world.inject(0, &first);
            world.run(1_000);
            assert_eq!(world.take_event(0, |kind| matches!(kind, EventKind::Connected(_))), None);
            let second = rej(&world, 1, Attribute::Req, reason);
            world.inject(0, &second);
        }
        let event = world.take_event(0, |kind| matches!(kind, EventKind::Connected(_))).expect("an answer");
        let refusal = Refusal::Rejected(reason);
        assert_eq!((event.connection, event.kind), (connection, EventKind::Connected(Err(refusal))));
        let status = if reason == Reason::TIMEOUT { NtStatus::IO_TIMEOUT } else { NtStatus::CONNECTION_REFUSED };
        assert_eq!((refusal.status(), refusal.reason()), (status, Some(reason)));
        assert_eq!(world.sides[0].stack.connection(connection).expect("it is not closed").state, State::Over);
    }
}

#[test]
fn an_accept_ends_aborted_with_each_reason() {
    for reason in reasons() {
        let mut world = World::new(2);
        world.sides[1].stack.listen(None, PORT).expect("free");
        world.ask(false, b"");
        let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
        world.accept(asked, b"");
        world.deaf = [true; 2];
        world.run(1_000);
        let frame = rej(&world, 0, Attribute::Rep, reason);
        world.inject(1, &frame);
        let event = world.take_event(1, |kind| matches!(kind, EventKind::Accepted(_))).expect("an answer");
        let refusal = Refusal::Withdrawn(reason);
        assert_eq!((event.connection, event.kind), (asked, EventKind::Accepted(Err(refusal))));
        assert_eq!((refusal.status(), refusal.reason()), (NtStatus::CONNECTION_ABORTED, Some(reason)));
    }
}

#[test]
fn an_established_connection_ends_with_each_reason_as_with_a_dreq() {
    for reason in reasons() {
        let mut world = World::new(3);
        let [_, passive] = world.connect(false);
        let frame = rej(&world, 0, Attribute::Rep, reason);
        world.inject(1, &frame);
        let event = world.take_event(1, |kind| matches!(kind, EventKind::Disconnected(_))).expect("an event");
        assert_eq!((event.connection, event.kind), (passive.0, EventKind::Disconnected(Ending::Graceful)));
    }
}

#[test]
fn a_rej_of_another_connection_or_sender_changes_nothing() {
    let mut world = World::new(4);
    world.meet();
    world.deaf[1] = true;
    let (connection, _) = world.ask(false, b"");
    world.run(1_000);
    let right = rej(&world, 1, Attribute::Req, Reason::CONSUMER);
    let changed = |change: &dyn Fn(&mut Envelope, &mut Rej)| {
        let (mut envelope, packet) = Envelope::parse(&right).expect("a packet");
        let mut rej: Rej = *Mad::parse(packet.payload).expect("a message").message().expect("a REJ");
        change(&mut envelope, &mut rej);
        let mad = Mad::new(Attribute::Rej, 1, &rej);
        let mut frame = vec![0; FRAME];
        let length = envelope.emit(&Packet { payload: mad.as_bytes(), ..packet }, &mut frame);
        frame.truncate(length);
        frame
    };
    for frame in [
        changed(&|envelope, _| envelope.ip.source = [10, 0, 0, 9].into()),
        changed(&|_, rej| rej.remote_id = (rej.remote_id.get() + 1).into()),
        changed(&|_, rej| rej.message = (Message::Rep as u8) << 6),
    ] {
        world.inject(0, &frame);
        assert_eq!(world.take_event(0, |_| true), None);
        assert_eq!(world.sides[0].stack.connection(connection).expect("it is there").state, State::RequestSent);
    }
    world.inject(0, &right);
    assert!(world.take_event(0, |kind| matches!(kind, EventKind::Connected(Err(_)))).is_some());
}

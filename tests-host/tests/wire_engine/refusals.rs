//! Connects and accepts that another machine refuses end with the status of the REJ's reason (RoCEv2 8.5, 8.6), which has a page of its own.

use conformance::{
    Check,
    client::Session,
    fixture::{Plan, Side, Terms, listen},
    host::{HostPlatform, Setup},
    platform::Family,
};
use engine::wire::{RejectReason, Wire};
use ndkpi::NtStatus;
use provider::{About, Reason};
use roce::{
    FRAME,
    wire::{
        Envelope, Packet,
        cm::{Attribute, Mad, Message, Rej, Rep, Req},
    },
};
use zerocopy::IntoBytes as _;

use super::{CLEAN, SEEDED, on_cable, run};

/// The reasons that RoCEv2 8.9 names, and one that it does not.
const REASONS: [u16; 23] = [1, 3, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 16, 17, 24, 25, 26, 27, 28, 29, 30, 31, 99];

/// What comes to an adapter as the answer of its peer to the last message that it has sent.
fn answer(platform: &HostPlatform, adapter: usize, reason: u16) {
    let frame = platform.last_frame(adapter);
    let (mut envelope, packet) = Envelope::parse(&frame).expect("a message of the connection manager");
    let mad = *Mad::parse(packet.payload).expect("a message");
    let (ours, theirs, about) = if mad.attribute() == Some(Attribute::Req) {
        (mad.message::<Req>().expect("a REQ").local_id.get(), 0, Message::Req)
    } else {
        let rep: &Rep = mad.message().expect("a REP");
        (rep.local_id.get(), rep.remote_id.get(), Message::Rep)
    };
    core::mem::swap(&mut envelope.ip.source, &mut envelope.ip.destination);
    core::mem::swap(&mut envelope.ethernet.source, &mut envelope.ethernet.destination);
    let rej = Rej::new(theirs, ours, about, RejectReason(reason), &[]);
    let mad = Mad::new(Attribute::Rej, mad.header.transaction.get(), &rej);
    let mut out = vec![0; FRAME];
    let length = envelope.emit(&Packet { payload: mad.as_bytes(), ..packet }, &mut out);
    Wire::receive(&platform.devices()[adapter].wire().expect("a wire"), &out[..length]);
}

fn on_machine(work: impl Fn(&Session<'_>, &HostPlatform) -> Check) {
    let setup = Setup { patience: 200_000_000, ..on_cable(SEEDED, CLEAN) };
    run(setup, |s, platform| {
        work(s, platform)?;
        conformance::HELD
    });
}

/// The page of a reason, which says its number.
fn page(reason: u16) -> &'static Reason {
    let page = Reason::of_rejection(RejectReason(reason));
    let About::Rejections(numbers) = page.about else { panic!("{page} is of another kind") };
    assert!(numbers.is_empty() || numbers.contains(&reason), "{page} for {reason}");
    page
}

#[test]
fn each_reason_has_a_page_of_its_own() {
    let pages: Vec<_> =
        REASONS.into_iter().filter(|reason| *reason != 25).map(|reason| page(reason).number()).collect();
    let mut once = pages.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), pages.len(), "{pages:?}");
    for reason in Reason::ALL {
        let About::Rejections(numbers) = reason.about else { continue };
        assert!(numbers.iter().all(|number| reason.what.contains(&number.to_string())), "{reason} says which it is");
        let expected = if numbers == [4] { NtStatus::IO_TIMEOUT } else { NtStatus::CONNECTION_REFUSED };
        assert_eq!(reason.status, expected, "{reason}");
    }
}

#[test]
fn a_connect_ends_with_the_status_of_the_page() {
    on_machine(|s, platform| {
        let (from, to) = (s.address(0, Family::V4, 0)?, s.address(1, Family::V4, 9)?);
        let (side, offer) = (Side::new(&s.adapter()?, &Plan::new(), 1)?, Terms::new().a);
        let first = s.adapter()?.create_connector()?;
        let status = first.core().connect(side.qp.core(), from, to, &offer)?.wait()?;
        assert_eq!(status, page(8).status, "nobody listens");
        // Who has the address is known now, and nobody else answers.
        platform.pull_cable();
        for reason in REASONS {
            let connector = s.adapter()?.create_connector()?;
            let connecting = connector.core().connect(side.qp.core(), from, to, &offer)?;
            s.settle();
            answer(platform, 0, reason);
            s.settle();
            if RejectReason(reason) == RejectReason::STALE {
                // It was asked again, with other numbers.
                answer(platform, 0, reason);
            }
            assert_eq!(connecting.wait()?, page(reason).status, "REJ {reason}");
        }
        Ok(())
    });
}

/// The reason of the REJ that an adapter has sent last, and the first bytes that it has for the consumer.
fn refused_with(platform: &HostPlatform, adapter: usize) -> (u16, [u8; 2]) {
    let frame = platform.last_frame(adapter);
    let (_, packet) = Envelope::parse(&frame).expect("a message of the connection manager");
    let mad = Mad::parse(packet.payload).expect("a message");
    let rej: &Rej = mad.message().expect("a REJ");
    (rej.reason.get(), [rej.private[0], rej.private[1]])
}

#[test]
fn a_paused_listener_answers_as_if_nobody_listened_and_one_that_rejects_does_not() {
    on_machine(|s, platform| {
        let (listener, to) = listen(s, Family::V4)?;
        let (side, from) = (Side::new(&s.adapter()?, &Plan::new(), 1)?, s.address(0, Family::V4, 0)?);
        let connect = || {
            let connector = s.adapter()?.create_connector()?;
            let connecting = connector.core().connect(side.qp.core(), from, to, &Terms::new().a)?;
            Ok::<_, conformance::Stop>((connector, connecting))
        };
        listener.pause(true)?;
        connect()?.1.ends_with(NtStatus::CONNECTION_REFUSED)?;
        assert_eq!(refused_with(platform, 1), (8, [0; 2]));
        assert_eq!(listener.events(), 0);
        listener.pause(false)?;
        let (_connector, connecting) = connect()?;
        let passive = listener.take()?;
        assert_eq!(passive.core().reject(b"no")?, NtStatus::SUCCESS);
        connecting.ends_with(NtStatus::CONNECTION_REFUSED)?;
        assert_eq!(refused_with(platform, 1), (28, *b"no"), "as one whose connector is closed does without a word");
        Ok(())
    });
}

#[test]
fn an_accept_is_aborted_whatever_the_reason() {
    for reason in REASONS {
        on_machine(|s, platform| {
            let (listener, to) = listen(s, Family::V4)?;
            let (plan, terms) = (Plan::new(), Terms::new());
            let sides = [Side::new(&s.adapter()?, &plan, 1)?, Side::new(&s.peer_adapter()?, &plan, 2)?];
            let connector = s.adapter()?.create_connector()?;
            let from = s.address(0, Family::V4, 0)?;
            let connecting = connector.core().connect(sides[0].qp.core(), from, to, &terms.a)?;
            let passive = listener.take()?;
            platform.pull_cable();
            let accepting = passive.core().accept(sides[1].qp.core(), &terms.b, terms.on_b)?;
            s.settle();
            answer(platform, 1, reason);
            assert_eq!(accepting.wait()?, NtStatus::CONNECTION_ABORTED, "REJ {reason}");
            assert_eq!(connecting.wait()?, NtStatus::IO_TIMEOUT, "its REP is lost");
            Ok(())
        });
    }
}

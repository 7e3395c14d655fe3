//! Calls that come in the wrong state or too late, adapters that go in the middle of a connect, and what a wire has no room for.

use std::net::IpAddr;

use conformance::{
    Check, HELD, Verdict,
    client::{Connector, Pending, Session},
    fixture::{Pair, Plan, Side, Terms, listen},
    host::{HostPlatform, Setup},
    platform::Family,
};
use engine::{connection::InterfaceAddress, wire::Wire};
use ndkpi::NtStatus;
use roce::{
    FRAME,
    wire::{Envelope, Opcode, Packet},
};

use super::{CLEAN, SEEDED, on_cable, run};

/// A connect that the passive side has been told of: both connectors, and a queue pair for each.
struct Connecting<'s> {
    active: Connector<'s>,
    passive: Connector<'s>,
    connect: Pending<'s>,
    sides: [Side<'s>; 2],
}

impl<'s> Connecting<'s> {
    fn new(s: &'s Session<'s>) -> Check<Self> {
        let (listener, to) = listen(s, Family::V4)?;
        let plan = Plan::new();
        let sides = [Side::new(&s.adapter()?, &plan, 1)?, Side::new(&s.peer_adapter()?, &plan, 2)?];
        let active = s.adapter()?.create_connector()?;
        let connect = active.core().connect(sides[0].qp.core(), s.address(0, Family::V4, 0)?, to, &Terms::new().a)?;
        let passive = listener.take()?;
        Ok(Self { active, passive, connect, sides })
    }

    fn accept(&self) -> Check<Pending<'s>> {
        let terms = Terms::new();
        self.passive.core().accept(self.sides[1].qp.core(), &terms.b, terms.on_b)
    }
}

fn on_wire(work: impl Fn(&Session<'_>, &HostPlatform) -> Verdict) {
    run(on_cable(SEEDED, CLEAN), work);
}

/// As [`on_wire`], for what takes longer than the suite waits: two minutes, in microseconds of the machine.
fn on_slow_wire(work: impl Fn(&Session<'_>, &HostPlatform) -> Verdict) {
    run(Setup { patience: 120_000_000, ..on_cable(SEEDED, CLEAN) }, work);
}

#[test]
fn an_adapter_on_a_wire_has_no_room_for_more_addresses() {
    on_wire(|_, platform| {
        let port = platform.devices()[0].port();
        let address = |number| InterfaceAddress::new(IpAddr::from([10, 9, 8, number]), 24);
        let added = (1..40).take_while(|&number| port.add_address(address(number)).is_ok()).count();
        let one_more = u8::try_from(added).expect("few") + 1;
        assert!((2..=16).contains(&one_more), "{added} addresses were added");
        assert_eq!(port.add_address(address(one_more)), Err(NtStatus::INSUFFICIENT_RESOURCES));
        // It has left nothing behind.
        port.remove_address(address(1).address);
        assert_eq!(port.add_address(address(one_more)), Ok(()));
        HELD
    });
}

#[test]
fn a_wire_has_room_for_so_many_listeners() {
    on_wire(|s, _| {
        let adapter = s.peer_adapter()?;
        let anywhere = s.address(adapter.number(), Family::V4, 0)?;
        let mut listeners = Vec::new();
        let last = loop {
            assert!(listeners.len() < 1000, "there is an end");
            let listener = adapter.create_listener(None)?;
            match listener.core().listen(anywhere)?.wait()? {
                NtStatus::SUCCESS => listeners.push(listener),
                status => {
                    assert_eq!(status, NtStatus::INSUFFICIENT_RESOURCES);
                    break listener;
                }
            }
        };
        // It listens when another one does not any more.
        listeners.pop().expect("there were some").close()?;
        last.core().listen(anywhere)?.succeeds()?;
        HELD
    });
}

#[test]
fn a_connection_that_is_broken_off_ends_on_both_sides() {
    on_wire(|s, platform| {
        let pair = Pair::new(s)?;
        platform.devices()[0].port().lose_connections();
        pair.link.a.core().wait_disconnect()?;
        pair.link.b.core().wait_disconnect()?;
        HELD
    });
}

#[test]
fn an_adapter_without_power_refuses_what_comes_over_the_wire() {
    on_wire(|s, platform| {
        let (listener, to) = listen(s, Family::V4)?;
        let side = Side::new(&s.adapter()?, &Plan::new(), 1)?;
        let from = s.address(0, Family::V4, 0)?;
        let port = platform.devices()[1].port();
        port.suspend();
        let refused = s.adapter()?.create_connector()?;
        let status = refused.core().connect(side.qp.core(), from, to, &Terms::new().a)?.wait()?;
        assert_eq!(status, NtStatus::CONNECTION_REFUSED);
        port.resume();
        let asks = s.adapter()?.create_connector()?;
        let asking = asks.core().connect(side.qp.core(), from, to, &Terms::new().a)?;
        listener.take()?;
        assert_eq!(asking.outcome(), None, "it waits for an answer");
        HELD
    });
}

#[test]
fn calls_in_the_wrong_state_are_refused() {
    on_wire(|s, _| {
        let pair = Pair::new(s)?;
        let (plan, terms) = (Plan::new(), Terms::new());
        let spare = [Side::new(&s.adapter()?, &plan, 3)?, Side::new(&s.peer_adapter()?, &plan, 4)?];
        let (active, passive) = (pair.link.a.core(), pair.link.b.core());
        passive.accept(spare[1].qp.core(), &terms.b, terms.on_b)?.ends_with(NtStatus::CONNECTION_ACTIVE)?;
        active.accept(spare[0].qp.core(), &terms.b, terms.on_b)?.ends_with(NtStatus::CONNECTION_INVALID)?;
        passive.complete_connect(terms.on_b)?.ends_with(NtStatus::CONNECTION_INVALID)?;
        active.complete_connect(terms.on_a)?.ends_with(NtStatus::CONNECTION_INVALID)?;
        assert_eq!(passive.reject(&[])?, NtStatus::CONNECTION_INVALID);
        pair.deliver(1, false)?;
        pair.b.receive_done(1)?;
        HELD
    });
}

#[test]
fn an_adapter_that_goes_ends_the_connect_of_its_own() {
    on_wire(|s, platform| {
        let connecting = Connecting::new(s)?;
        platform.devices()[0].port().abort();
        connecting.connect.ends_with(NtStatus::CONNECTION_ABORTED)?;
        s.settle();
        // The other side has heard of it.
        connecting.accept()?.ends_with(NtStatus::CONNECTION_ABORTED)?;
        HELD
    });
}

#[test]
fn an_adapter_that_goes_ends_the_accept_of_its_own() {
    on_wire(|s, platform| {
        let connecting = Connecting::new(s)?;
        let accepting = connecting.accept()?;
        connecting.connect.succeeds()?;
        platform.devices()[1].port().abort();
        accepting.ends_with(NtStatus::CONNECTION_ABORTED)?;
        s.settle();
        let active = connecting.active.core();
        for _ in 0..2 {
            active.complete_connect(Terms::new().on_a)?.ends_with(NtStatus::CONNECTION_ABORTED)?;
        }
        assert_eq!(active.reject(&[])?, NtStatus::CONNECTION_ABORTED);
        HELD
    });
}

#[test]
fn a_request_whose_wire_was_taken_away_is_not_accepted() {
    on_wire(|s, platform| {
        let connecting = Connecting::new(s)?;
        platform.devices()[1].port().unplug();
        connecting.accept()?.ends_with(NtStatus::DEVICE_REMOVED)?;
        connecting.connect.ends_with(NtStatus::IO_TIMEOUT)?;
        HELD
    });
}

#[test]
fn a_receive_whose_message_does_not_come_whole_is_as_good_as_before() {
    on_wire(|s, platform| {
        let pair = Pair::new(s)?;
        pair.a.write(1, 0, 64, pair.b.remote(0), 0)?;
        pair.a.initiator_done(1)?;
        pair.b.receive(7, 0, 4096)?;
        begin_a_message(platform, 1024);
        s.settle();
        pair.b.region.buffer.is_filled(0, 1024, 0xEE)?;
        platform.devices()[1].port().lose_connections();
        pair.link.b.core().wait_disconnect()?;
        // The end of a connection does not flush (`NDKPI 7.7.6`).
        pair.b.receive_cq.core().stays_empty()?;
        pair.b.qp.core().flush()?;
        let flushed = pair.b.receive_cq.core().take_one()?;
        assert_eq!((flushed.request, flushed.status), (7, NtStatus::CANCELLED));
        HELD
    });
}

#[test]
fn an_accept_that_nobody_completes_ends_in_time() {
    on_slow_wire(|s, _| {
        let connecting = Connecting::new(s)?;
        let accepting = connecting.accept()?;
        connecting.connect.succeeds()?;
        let status = accepting.wait()?;
        assert!([NtStatus::IO_TIMEOUT, NtStatus::CONNECTION_ABORTED].contains(&status), "{status:?}");
        let passive = connecting.passive.core();
        assert_eq!(passive.reject(&[])?, NtStatus::CONNECTION_ABORTED);
        connecting.accept()?.ends_with(NtStatus::CONNECTION_ABORTED)?;
        HELD
    });
}

#[test]
fn an_accept_of_what_was_a_connection_is_refused() {
    on_wire(|s, platform| {
        let pair = Pair::new(s)?;
        platform.devices()[0].port().lose_connections();
        pair.link.b.core().wait_disconnect()?;
        let (spare, terms) = (Side::new(&s.peer_adapter()?, &Plan::new(), 3)?, Terms::new());
        let passive = pair.link.b.core();
        passive.accept(spare.qp.core(), &terms.b, terms.on_b)?.ends_with(NtStatus::CONNECTION_INVALID)?;
        HELD
    });
}

#[test]
fn a_disconnect_whose_wire_was_taken_away_ends_in_time() {
    on_slow_wire(|s, platform| {
        let pair = Pair::new(s)?;
        platform.devices()[0].port().unplug();
        pair.link.a.core().disconnect()?.ends_with(NtStatus::IO_TIMEOUT)?;
        HELD
    });
}

#[test]
fn an_invalidation_of_what_cannot_be_invalidated_fails_in_its_turn() {
    on_wire(|s, _| {
        let pair = Pair::new(s)?;
        pair.a.write(1, 0, 64, pair.b.remote(0), 0)?;
        let status = pair.a.qp.core().invalidate_mr(2, pair.a.region.mr.core(), 0)?;
        pair.a.initiator_done(1)?;
        if status.is_success() {
            let failed = pair.a.initiated().take_one()?;
            assert_eq!((failed.request, failed.status.is_success()), (2, false));
        }
        HELD
    });
}

#[test]
fn a_flush_ends_a_receive_whose_message_never_ends() {
    on_wire(|s, platform| {
        let pair = Pair::new(s)?;
        pair.a.write(1, 0, 64, pair.b.remote(0), 0)?;
        pair.a.initiator_done(1)?;
        pair.b.receive(7, 0, 4096)?;
        begin_a_message(platform, 1024);
        s.settle();
        pair.b.qp.core().flush()?;
        let flushed = pair.b.receive_cq.core().take_one()?;
        assert_eq!((flushed.request, flushed.status), (7, NtStatus::CANCELLED));
        HELD
    });
}

/// The first packet of a message of several comes to the second adapter, as the first one would have sent it.
fn begin_a_message(platform: &HostPlatform, bytes: usize) {
    let frame = platform.last_frame(0);
    let (envelope, packet) = Envelope::parse(&frame).expect("the write");
    let (mut bth, mut extended) = (packet.bth, packet.extended);
    (bth.opcode, bth.psn, extended.reth) = (Opcode::SendFirst, bth.psn.plus(1), None);
    let mut out = vec![0; FRAME];
    let length = envelope.emit(&Packet { bth, extended, payload: &vec![0xEE; bytes] }, &mut out);
    Wire::receive(&platform.devices()[1].wire().expect("a wire"), &out[..length]);
}

//! Requests that fail over a wire end with the status of RoCEv2 7, and a reason for each cause.

use conformance::{
    Check,
    client::Done,
    fixture::{Pair, is_done},
    host::Setup,
};
use ndkpi::NtStatus;
use provider::Reason;

use super::{CLEAN, SEEDED, on_cable, run};

/// What it failed with has this reason, which is one of this status.
fn has_reason(done: &Done, number: u16) {
    let reason = Reason::from_number(number).expect("a reason");
    assert_eq!((done.error, done.status), (Some(number.into()), reason.status), "{reason}");
}

/// The oldest completion of the active side has failed for this reason, and its connection has ended.
fn fails(pair: &Pair<'_>, number: u16) -> Check {
    has_reason(&pair.a.initiated().take_one()?, number);
    pair.link.a.core().wait_disconnect()
}

fn each(work: impl Fn(&Pair<'_>) -> Check) {
    let setup = Setup { patience: 200_000_000, ..on_cable(SEEDED, CLEAN) };
    run(setup, |s, _| {
        work(&Pair::new(s)?)?;
        conformance::HELD
    });
}

#[test]
fn a_peer_that_does_not_answer() {
    run(on_cable(SEEDED, CLEAN), |s, platform| {
        let pair = Pair::new(s)?;
        platform.pull_cable();
        pair.a.read(1, 0, 64, pair.b.remote(0), 0)?;
        pair.a.write(2, 0, 64, pair.b.remote(0), 0)?;
        has_reason(&pair.a.initiated().take_one()?, 15);
        has_reason(&pair.a.initiated().take_one()?, 1);
        conformance::HELD
    });
}

#[test]
fn a_peer_that_never_has_a_receive() {
    each(|pair| {
        pair.a.send_unready(1, 0, 64, 0)?;
        fails(pair, 16)
    });
}

#[test]
fn a_receive_that_is_too_short() {
    each(|pair| {
        pair.b.receive(1, 0, 16)?;
        pair.a.send(2, 0, 64, 0)?;
        fails(pair, 17)?;
        has_reason(&pair.b.receive_cq.core().take_one()?, 2);
        Ok(())
    });
}

#[test]
fn memory_of_the_peer_that_refuses() {
    each(|pair| {
        let mut remote = pair.b.remote(0);
        remote.token ^= 0x100;
        pair.a.write(1, 0, 64, remote, 0)?;
        fails(pair, 18)
    });
    each(|pair| {
        pair.a.read(1, 0, 64, pair.b.remote(8192), 0)?;
        fails(pair, 18)
    });
}

#[test]
fn a_receive_whose_memory_may_not_be_written() {
    each(|pair| {
        let mut element = pair.b.region.element(0, 64);
        element.MemoryRegionToken ^= 0x100;
        assert!(!pair.b.qp.receive(1, &[element])?.is_error());
        pair.a.send(2, 0, 64, 0)?;
        fails(pair, 19)?;
        has_reason(&pair.b.receive_cq.core().take_one()?, 3);
        Ok(())
    });
}

#[test]
fn a_receive_whose_memory_may_not_be_written_fails_without_bytes_too() {
    each(|pair| {
        let mut element = pair.b.region.element(0, 64);
        element.MemoryRegionToken ^= 0x100;
        assert!(!pair.b.qp.receive(1, &[element])?.is_error());
        pair.a.send(2, 0, 0, 0)?;
        fails(pair, 19)?;
        has_reason(&pair.b.receive_cq.core().take_one()?, 3);
        Ok(())
    });
}

#[test]
fn requests_of_a_queue_pair_whose_receive_fails_are_cancelled() {
    each(|pair| {
        // On its way, and waiting for a receive.
        pair.b.send_unready(1, 0, 64, 0)?;
        pair.b.receive(2, 0, 16)?;
        pair.a.send(3, 0, 64, 0)?;
        fails(pair, 17)?;
        has_reason(&pair.b.receive_cq.core().take_one()?, 2);
        has_reason(&pair.b.initiated().take_one()?, 1);
        Ok(())
    });
}

#[test]
fn behind_a_request_that_the_end_of_the_connection_has_ended_all_are_cancelled() {
    each(|pair| {
        pair.a.send_unready(1, 0, 64, 0)?;
        // It would fail by itself, if its turn had come.
        let mut element = pair.a.region.element(0, 64);
        element.MemoryRegionToken ^= 0x100;
        assert!(!pair.a.qp.send(2, &[element], 0)?.is_error());
        let ending = pair.link.b.core().disconnect()?;
        pair.link.a.core().wait_disconnect()?;
        has_reason(&pair.a.initiated().take_one()?, 12);
        has_reason(&pair.a.initiated().take_one()?, 1);
        ending.ends_with(NtStatus::SUCCESS)
    });
}

#[test]
fn a_peer_that_disconnects() {
    each(|pair| {
        // While the send waits for a receive.
        pair.a.send_unready(1, 0, 64, 0)?;
        let ending = pair.link.b.core().disconnect()?;
        pair.link.a.core().wait_disconnect()?;
        has_reason(&pair.a.initiated().take_one()?, 12);
        ending.ends_with(NtStatus::SUCCESS)
    });
}

#[test]
fn requests_before_the_failed_one_have_succeeded_and_those_behind_it_are_cancelled() {
    each(|pair| {
        pair.a.write(1, 0, 64, pair.b.remote(0), 0)?;
        pair.a.write(2, 0, 64, pair.b.remote(8192), 0)?;
        pair.a.write(3, 0, 64, pair.b.remote(0), 0)?;
        is_done(&pair.a.initiated().take_one()?, 1, NtStatus::SUCCESS)?;
        fails(pair, 18)?;
        has_reason(&pair.a.initiated().take_one()?, 1);
        Ok(())
    });
}

//! How connections over a cable end when the other side says nothing.

use conformance::{HELD, fixture::Pair, fixture::is_done, host::Scheduler};
use ndkpi::NtStatus;

use super::{CLEAN, SEEDED, counters, on_cable, run};

#[test]
fn a_peer_that_is_silent_ends_the_connection() {
    for scheduler in [SEEDED, Scheduler::Threads] {
        run(on_cable(scheduler, CLEAN), |s, platform| {
            let pair = Pair::new(s)?;
            pair.deliver(1, false)?;
            pair.b.receive_done(1)?;
            platform.pull_cable();
            pair.a.write(2, 0, 64, pair.b.remote(0), 0)?;
            pair.a.write(3, 0, 64, pair.b.remote(0), 0)?;
            is_done(&pair.a.initiated().take_one()?, 2, NtStatus::IO_TIMEOUT)?;
            is_done(&pair.a.initiated().take_one()?, 3, NtStatus::CANCELLED)?;
            pair.link.a.core().wait_disconnect()?;
            // The other side has asked nothing, so it does not know.
            assert_eq!(pair.link.b.core().disconnects(), 0);
            assert!(counters(platform, 0).timeouts > 0);
            // Its disconnect is not answered.
            pair.link.b.core().disconnect()?.ends_with(NtStatus::IO_TIMEOUT)?;
            HELD
        });
    }
}

#[test]
fn an_adapter_that_goes_takes_its_connections_along() {
    run(on_cable(SEEDED, CLEAN), |s, platform| {
        let pair = Pair::new(s)?;
        pair.a.receive(1, 0, 64)?;
        pair.b.receive(2, 0, 64)?;
        platform.devices()[0].port().abort();
        pair.link.a.core().wait_disconnect()?;
        pair.link.b.core().wait_disconnect()?;
        // The adapter that goes flushes; the other side has only lost its peer.
        is_done(&pair.a.receive_cq.core().take_one()?, 1, NtStatus::CANCELLED)?;
        pair.b.receive_cq.core().stays_empty()?;
        assert_eq!(platform.devices()[1].counters().ActiveConnection, 0);
        HELD
    });
}

#[test]
fn a_wire_is_taken_away_before_its_connections_are_closed() {
    run(on_cable(SEEDED, CLEAN), |s, platform| {
        let pair = Pair::new(s)?;
        pair.deliver(1, false)?;
        pair.b.receive_done(1)?;
        let wire = platform.devices()[0].wire().expect("a wire");
        platform.devices()[0].port().unplug();
        let before = wire.counters().frames_received;
        pair.a.write(2, 0, 64, pair.b.remote(0), 0)?;
        s.settle();
        assert_eq!(wire.counters().frames_received, before, "nothing comes in any more");
        // The write is not answered. The close ends it, and the other side hears of that.
        pair.link.a.close()?;
        is_done(&pair.a.initiated().take_one()?, 2, NtStatus::CANCELLED)?;
        pair.link.b.core().wait_disconnect()?;
        HELD
    });
}

//! Invalidations and binds behind requests that are on their way over a wire: each is carried out in its turn, also when packets before it
//! have to go out again.

use conformance::{
    Check, HELD,
    client::{Mw, PAGE, QpSizes, Remote, Session},
    fixture::{Pair, Plan, is_done, posted},
    host::{HostPlatform, Impairments, Scheduler, Setup},
};
use ndkpi::{NDK_OP_FLAG_ALLOW_REMOTE_READ as REMOTE_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE as REMOTE_WRITE, NtStatus};

use super::{CLEAN, SEEDED, chains::Fast, counters, on_cable, run};

/// Every kind of cable: clean, each impairment by itself, all together.
fn cables() -> impl Iterator<Item = (u64, Impairments)> {
    let kinds = [
        CLEAN,
        Impairments { loss: 50, ..CLEAN },
        Impairments { duplicates: 80, ..CLEAN },
        Impairments { disorder: 80, ..CLEAN },
        Impairments { corruption: 50, ..CLEAN },
        Impairments::all(20),
    ];
    (1..).zip(kinds)
}

fn on_each_cable(work: impl Fn(&Session<'_>, &HostPlatform) -> Check) {
    for (seed, impairments) in cables() {
        let setup = Setup { seed, patience: 20_000_000, ..on_cable(SEEDED, impairments) };
        run(setup, |s, platform| {
            work(s, platform)?;
            HELD
        });
    }
}

fn invalidate(pair: &Pair<'_>, context: usize, fast: &Fast<'_>) -> Check {
    posted("NdkInvalidate", pair.a.qp.invalidate_mr(context, fast.mr.core(), 0)?)
}

fn invalidate_window(pair: &Pair<'_>, context: usize, window: &Mw<'_>) -> Check {
    posted("NdkInvalidate", pair.a.qp.invalidate_mw(context, window.core(), 0)?)
}

/// Whether a peer may write through a token, seen by a second connection of the same domains.
fn peer_writes(pair: &Pair<'_>, context: usize, remote: Remote) -> Check<NtStatus> {
    pair.b.write(context, 0, 8, remote, 0)?;
    Ok(pair.b.initiated().take_one()?.status)
}

#[test]
fn memory_of_a_request_that_goes_out_again_is_there_until_it_has_completed() {
    on_each_cable(|s, _| {
        let plain = Plan::new();
        let sizes = QpSizes { initiator_depth: 48, ..plain.sizes };
        let plan = Plan { bytes: 8 * PAGE, sizes, ..plain };
        let pair = Pair::with(s, &plan, &plan)?;
        let regions = (0..8).map(|_| Fast::new(s, &pair)).collect::<Check<Vec<_>>>()?;
        // Register, write the region's page and invalidate: each region twice, all in one row.
        let mut context = 0;
        for round in 0..2_u8 {
            for (index, fast) in (0_u8..).zip(&regions) {
                if round == 0 {
                    fast.buffer.fill(0, PAGE, 0x40 + index)?;
                }
                fast.register(&pair, context)?;
                fast.write(&pair, context + 1, PAGE.cast_signed() * isize::from(index))?;
                invalidate(&pair, context + 2, fast)?;
                context += 3;
            }
        }
        for done in 0..context {
            pair.a.initiator_done(done)?;
        }
        for index in 0..8_u8 {
            pair.b.region.buffer.is_filled(PAGE * usize::from(index), PAGE, 0x40 + index)?;
        }
        Ok(())
    });
}

#[test]
fn requests_behind_an_invalidation_do_not_wait_for_those_before_it() {
    for of_window in [false, true] {
        run(on_cable(SEEDED, CLEAN), |s, platform| {
            let pair = Pair::new(s)?;
            let (fast, window) = (Fast::new(s, &pair)?, pair.a.pd.core().create_mw()?);
            if of_window {
                bind(&pair, 1, &window)?;
            } else {
                fast.register(&pair, 1)?;
            }
            pair.a.initiator_done(1)?;
            platform.pull_cable();
            s.settle();
            let before = counters(platform, 0).packets_sent;
            pair.a.write(2, 0, 64, pair.b.remote(0), 0)?;
            if of_window {
                invalidate_window(&pair, 3, &window)?;
            } else {
                invalidate(&pair, 3, &fast)?;
            }
            pair.a.write(4, 0, 64, pair.b.remote(64), 0)?;
            while counters(platform, 0).packets_sent < before + 2 {
                assert_eq!(counters(platform, 0).timeouts, 0, "the second write waits for the first");
                s.settle();
            }
            is_done(&pair.a.initiated().take_one()?, 2, NtStatus::IO_TIMEOUT)?;
            is_done(&pair.a.initiated().take_one()?, 3, NtStatus::CANCELLED)?;
            is_done(&pair.a.initiated().take_one()?, 4, NtStatus::CANCELLED)?;
            HELD
        });
    }
}

#[test]
fn a_request_behind_an_invalidation_does_not_find_the_memory() {
    on_each_cable(|s, _| {
        let pair = Pair::new(s)?;
        let fast = Fast::new(s, &pair)?;
        pair.b.region.buffer.fill(0, 4096, 0xC3)?;
        fast.buffer.fill(0, PAGE, 0x11)?;
        fast.register(&pair, 1)?;
        pair.a.write(2, 0, 64, pair.b.remote(4096), 0)?;
        invalidate(&pair, 3, &fast)?;
        fast.write(&pair, 4, 0)?;
        pair.a.write(5, 0, 64, pair.b.remote(0), 0)?;
        pair.a.initiator_done(1)?;
        pair.a.initiator_done(2)?;
        pair.a.initiator_done(3)?;
        is_done(&pair.a.initiated().take_one()?, 4, NtStatus::ACCESS_VIOLATION)?;
        is_done(&pair.a.initiated().take_one()?, 5, NtStatus::CANCELLED)?;
        pair.link.a.core().wait_disconnect()?;
        pair.b.region.buffer.is_filled(0, 4096, 0xC3)
    });
}

#[test]
fn an_invalidation_that_fails_does_so_in_its_turn_and_nothing_behind_it_arrives() {
    on_each_cable(|s, _| {
        let pair = Pair::new(s)?;
        let fast = Fast::new(s, &pair)?;
        pair.a.region.buffer.fill(0, 64, 0x11)?;
        pair.b.region.buffer.fill(0, 4096, 0xC3)?;
        fast.register(&pair, 1)?;
        pair.a.write(2, 0, 64, pair.b.remote(0), 0)?;
        invalidate(&pair, 3, &fast)?;
        pair.a.write(4, 0, 64, pair.b.remote(64), 0)?;
        // Twice.
        invalidate(&pair, 5, &fast)?;
        pair.a.write(6, 0, 64, pair.b.remote(128), 0)?;
        for context in 1..=4 {
            pair.a.initiator_done(context)?;
        }
        is_done(&pair.a.initiated().take_one()?, 5, NtStatus::INVALID_DEVICE_REQUEST)?;
        is_done(&pair.a.initiated().take_one()?, 6, NtStatus::CANCELLED)?;
        pair.link.a.core().wait_disconnect()?;
        pair.b.region.buffer.is_filled(0, 128, 0x11)?;
        pair.b.region.buffer.is_filled(128, 4096 - 128, 0xC3)
    });
}

/// A window of the active side on its region.
fn bind(pair: &Pair<'_>, context: usize, window: &Mw<'_>) -> Check<Remote> {
    let region = &pair.a.region;
    let status = pair.a.qp.bind(
        context,
        region.mr.core(),
        window.core(),
        region.buffer.address(0),
        4096,
        REMOTE_READ | REMOTE_WRITE,
    )?;
    posted("NdkBind", status)?;
    Ok(Remote { address: region.buffer.address(0), token: window.core().remote_token()? })
}

#[test]
fn a_peer_that_is_told_of_a_bind_can_use_it_and_not_after_the_invalidation() {
    on_each_cable(|s, _| {
        let pair = Pair::new(s)?;
        let window = pair.a.pd.core().create_mw()?;
        let mut context = 1;
        let mut last = None;
        for round in 0..6_usize {
            pair.b.receive(context, 0, 64)?;
            // The write before the bind may have to go out again; the send behind it says that the window is there.
            pair.a.write(context, 512, 2048, pair.b.remote(4096), 0)?;
            let remote = bind(&pair, context + 1, &window)?;
            pair.a.send(context + 2, 0, 64, 0)?;
            pair.b.receive_done(context)?;
            assert_eq!(peer_writes(&pair, context, remote)?, NtStatus::SUCCESS, "round {round}");
            invalidate_window(&pair, context + 3, &window)?;
            for done in context..context + 4 {
                pair.a.initiator_done(done)?;
            }
            last = Some(remote);
            context += 4;
        }
        let remote = last.expect("there were rounds");
        let status = peer_writes(&pair, context, remote)?;
        // The NAK that says so may be lost, or the DREQ overtakes it.
        assert!([NtStatus::REMOTE_RESOURCES, NtStatus::IO_TIMEOUT].contains(&status), "{status}");
        Ok(())
    });
}

#[test]
fn a_bind_behind_a_request_that_fails_has_not_been() {
    on_each_cable(|s, _| {
        let pair = Pair::new(s)?;
        let window = pair.a.pd.core().create_mw()?;
        pair.a.write(1, 0, 64, pair.b.remote(8192), 0)?;
        bind(&pair, 2, &window)?;
        let first = pair.a.initiated().take_one()?;
        assert_eq!(first.request, 1);
        is_done(&pair.a.initiated().take_one()?, 2, NtStatus::CANCELLED)?;
        // The region of a window that is bound cannot be deregistered.
        assert_eq!(pair.a.region.mr.core().deregister()?.wait()?, NtStatus::SUCCESS);
        Ok(())
    });
}

/// Requests of a queue pair that a wire has on their way at a time.
const ROOM: usize = 64;

/// A connection whose first side has room for so many requests.
fn deep<'s>(s: &'s Session<'s>, initiator_depth: u32) -> Check<Pair<'s>> {
    let plain = Plan::new();
    let depths = [plain.depths[0], initiator_depth];
    let plan = Plan { sizes: QpSizes { initiator_depth, ..plain.sizes }, depths, ..plain };
    Pair::with(s, &plan, &plan)
}

#[test]
fn more_requests_than_are_on_their_way_at_a_time_are_carried_in_turn() {
    run(on_cable(SEEDED, CLEAN), |s, _| {
        let pair = deep(s, 4 * 64)?;
        let fast = Fast::new(s, &pair)?;
        let mut context = 0;
        for _ in 0..2 {
            fast.register(&pair, context)?;
            for write in 1..=ROOM + 10 {
                pair.a.write(context + write, 0, 8, pair.b.remote(0), 0)?;
            }
            context += ROOM + 11;
            invalidate(&pair, context, &fast)?;
            context += 1;
        }
        for done in 0..context {
            pair.a.initiator_done(done)?;
        }
        HELD
    });
}

#[test]
fn what_does_not_fit_on_the_way_waits_behind_what_is_never_answered() {
    for invalidates in [false, true] {
        run(on_cable(SEEDED, CLEAN), |s, platform| {
            let pair = deep(s, 2 * 64)?;
            let fast = Fast::new(s, &pair)?;
            fast.register(&pair, 0)?;
            pair.a.initiator_done(0)?;
            platform.pull_cable();
            for write in 1..=ROOM {
                pair.a.write(write, 0, 8, pair.b.remote(0), 0)?;
            }
            if invalidates {
                invalidate(&pair, ROOM + 1, &fast)?;
            } else {
                pair.a.write(ROOM + 1, 0, 8, pair.b.remote(0), 0)?;
            }
            is_done(&pair.a.initiated().take_one()?, 1, NtStatus::IO_TIMEOUT)?;
            for behind in 2..=ROOM + 1 {
                is_done(&pair.a.initiated().take_one()?, behind, NtStatus::CANCELLED)?;
            }
            HELD
        });
    }
}

#[test]
fn a_registration_that_is_flushed_first_is_not_carried_out() {
    let scheduler = Scheduler::Seeded { seed: 7, preemption: 0 };
    run(on_cable(scheduler, CLEAN), |s, _| {
        let pair = Pair::new(s)?;
        let fast = Fast::new(s, &pair)?;
        fast.register(&pair, 1)?;
        pair.a.qp.core().flush()?;
        is_done(&pair.a.initiated().take_one()?, 1, NtStatus::CANCELLED)?;
        HELD
    });
}

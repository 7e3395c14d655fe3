//! NDKPI 7.2: a flush, a failure or a disconnect may come at the same time as a post, on threads that really run at the same
//! time.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use engine::{
    nic::NicMode,
    qp::{Qp, QpParameters},
};
use host::machine::{Machine, MachineRef};
use ndkpi::NtStatus;
use testing::done::Done;
use testing::qp_fixture::{Net, PARAMETERS, PLAIN, SEND};

/// Runs `test` on a machine of threads, with either kind of NIC.
fn on_threads(test: impl Fn(&Net)) {
    for mode in [NicMode::Deferred, NicMode::Direct] {
        let machine = Machine::threads().processors(2).start();
        let net = Net::new(&machine, mode);
        test(&net);
        drop(net);
        machine.flush();
        machine.shutdown();
    }
}

/// Waits until the `count` is `all`, as long as it grows.
#[track_caller]
fn wait(machine: &MachineRef, what: &str, all: usize, mut count: impl FnMut() -> usize) {
    let (mut before, mut progress) = (0, Instant::now());
    loop {
        let now = count();
        if now == all {
            return;
        }
        if now > before {
            (before, progress) = (now, Instant::now());
        }
        assert!(progress.elapsed() < Duration::from_mins(1), "it never happens: {what}, {now} of {all}");
        machine.yield_now();
    }
}

/// Posts so many requests, each when there is room, unless the test ends before. Returns how many.
fn post_all(count: usize, done: &AtomicBool, post: impl Fn(usize) -> Result<(), NtStatus>) -> usize {
    let in_time = |&context: &usize| {
        while post(context) == Err(NtStatus::NO_MORE_ENTRIES) {
            if done.load(Ordering::Relaxed) {
                return false;
            }
            thread::yield_now();
        }
        true
    };
    (0..count).take_while(in_time).count()
}

//= NDKPI 7.2.5
#[test]
fn posts_and_flushes_at_the_same_time_lose_nothing() {
    const ROUNDS: usize = 20_000;
    on_threads(|net| {
        // Nobody counts what is outstanding: the queues hold everything.
        let deep = || net.cq(u32::try_from(2 * ROUNDS).expect("small"));
        let (a, b) = (net.qp_on(PARAMETERS, &deep(), &deep(), 4_096), net.qp_on(PARAMETERS, &deep(), &deep(), 4_096));
        Qp::link(a.qp(), b.qp()).expect("both are new");
        let done = AtomicBool::new(false);
        let (mut posted, mut accepted) = (0, 0);
        let (mut sent, mut received) = (0, 0);
        let mut cancelled = 0;
        thread::scope(|scope| {
            let _done = Done(&done);
            let posts = scope.spawn(|| post_all(ROUNDS, &done, |context| a.post(context, SEND, PLAIN, &[])));
            let accepts = scope.spawn(|| post_all(ROUNDS, &done, |context| b.post_receive(context, &[])));
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    a.flush();
                    thread::yield_now();
                    b.flush();
                    thread::yield_now();
                }
            });
            let (mut next_send, mut next_receive) = (0, 0);
            wait(net.machine(), "every request completes", 2 * ROUNDS, || {
                for (context, status) in a.sent() {
                    assert_eq!(context, next_send, "in order");
                    next_send += 1;
                    sent += usize::from(status == NtStatus::SUCCESS);
                    cancelled += usize::from(status == NtStatus::CANCELLED);
                }
                for (context, status) in b.received() {
                    assert_eq!(context, next_receive, "in order");
                    next_receive += 1;
                    received += usize::from(status == NtStatus::SUCCESS);
                    cancelled += usize::from(status == NtStatus::CANCELLED);
                }
                next_send + next_receive
            });
            assert_eq!((next_send, next_receive), (ROUNDS, ROUNDS));
            (posted, accepted) = (posts.join().expect("no panic"), accepts.join().expect("no panic"));
        });
        assert_eq!((posted, accepted), (ROUNDS, ROUNDS));
        assert_eq!(sent, received, "each send that succeeded filled one receive");
        assert_eq!(sent + received + cancelled, 2 * ROUNDS);
    });
}

#[test]
fn a_sender_that_waits_hears_of_every_receive() {
    const ROUNDS: usize = 50_000;
    on_threads(|net| {
        let parameters = QpParameters { initiator_depth: 4, receive_depth: 4, ..PARAMETERS };
        let (a, b) = net.pair_with(parameters);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let _done = Done(&done);
            scope.spawn(|| post_all(ROUNDS, &done, |context| b.post_receive(context, &[])));
            let (mut posted, mut completed) = (0, 0);
            wait(net.machine(), "every send finds its receive", ROUNDS, || {
                // Completions that were not taken count too: no more than the completion queues hold.
                while posted < ROUNDS && posted - completed < 100 && a.post(posted, SEND, PLAIN, &[]).is_ok() {
                    posted += 1;
                }
                completed += a.sent().len();
                b.received();
                completed
            });
        });
    });
}

#[test]
fn a_failure_at_the_same_time_as_posts_cancels_each_of_them_once() {
    on_threads(|net| {
        for round in 0..200 {
            let (a, b) = net.pair();
            let (mut sends, mut receives) = (0, 0);
            thread::scope(|scope| {
                let posts =
                    scope.spawn(|| (0..60).take_while(|&context| a.post(context, SEND, PLAIN, &[]).is_ok()).count());
                let accepts =
                    scope.spawn(|| (0..60).take_while(|&context| a.post_receive(context, &[]).is_ok()).count());
                for _ in 0..round % 20 {
                    thread::yield_now();
                }
                Qp::fail(a.qp());
                sends = posts.join().expect("no panic");
                receives = accepts.join().expect("no panic");
            });
            assert_eq!(receives, 60, "receives may be posted to a dead queue pair");
            let (mut sent, mut flushed) = (Vec::new(), Vec::new());
            wait(net.machine(), "everything is cancelled", sends + receives, || {
                sent.extend(a.sent());
                flushed.extend(a.received());
                sent.len() + flushed.len()
            });
            assert_eq!((sent.len(), flushed.len()), (sends, receives));
            assert!(sent.iter().chain(&flushed).all(|entry| entry.1 == NtStatus::CANCELLED));
            drop((a, b));
        }
    });
}

#[test]
fn an_unlink_at_the_same_time_as_posts_ends_each_of_them_once() {
    on_threads(|net| {
        for round in 0..200 {
            let (a, b) = net.pair();
            let mut sends = 0;
            thread::scope(|scope| {
                let sender =
                    scope.spawn(|| (0..60).take_while(|&context| a.post(context, SEND, PLAIN, &[]).is_ok()).count());
                for _ in 0..round % 20 {
                    thread::yield_now();
                }
                b.unlink();
                sends = sender.join().expect("no panic");
            });
            let mut sent = Vec::new();
            wait(net.machine(), "every send ends", sends, || {
                sent.extend(a.sent());
                sent.len()
            });
            assert!(!a.qp().is_linked() && !b.qp().is_linked());
            assert!(a.qp().peer().is_none() && b.qp().peer().is_none());
            drop((a, b));
        }
    });
}

#[test]
fn a_link_at_the_same_time_as_an_unlink_leaves_both_sides_alike() {
    on_threads(|net| {
        for round in 0..2_000_u32 {
            let (a, b) = (net.qp(PARAMETERS), net.qp(PARAMETERS));
            thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..round % 7 {
                        std::hint::spin_loop();
                    }
                    if round % 2 == 0 { a.unlink() } else { b.unlink() }
                });
                Qp::link(a.qp(), b.qp()).expect("both are new");
            });
            let states = [&a, &b].map(|side| (side.qp().is_linked(), side.qp().peer().is_some()));
            assert!(states == [(true, true); 2] || states == [(false, false); 2], "half a connection: {states:?}");
            drop((a, b));
            // What is left to do never becomes more than DPCs do before the machine ends.
            net.machine().flush();
        }
    });
}

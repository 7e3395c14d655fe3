//! Timers, and waiting with a limit.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
};

use host::machine::{Arguments, Dpc, Event, EventKind, Irql, Machine, MachineRef, Rule, Timer, lower, raise};

use super::{Log, breaks, is_seeded, logging, on_both, wait_until};

fn timer(machine: &MachineRef, log: &Log) -> (Timer, Dpc) {
    let dpc = logging(machine, log);
    (Timer::queueing(machine, "test timer", &dpc).expect("memory"), dpc)
}

#[test]
fn timer_one_shot() {
    on_both(|machine| {
        let log = Log::default();
        let (timer, _dpc) = timer(machine, &log);
        assert_eq!(timer.set(200, 0, Arguments::numbers(7, 0)), None);
        assert!(timer.is_set());
        wait_until(machine, || log.len() == 1);
        assert!(!timer.is_set());
        assert_eq!(timer.cancel(), None, "it has expired");
        machine.sleep(1_000);
        assert_eq!(log.taken(), [7], "once");
        assert!(machine.statistics().timers_fired == 1);
    });
}

#[test]
fn timer_does_not_expire_early() {
    on_both(|machine| {
        let (seen, clock) = (Arc::new(AtomicU64::new(0)), (**machine).clone());
        let of_timer = seen.clone();
        let timer = Timer::try_new(machine, "early?", move |_| of_timer.store(clock.now(), SeqCst)).expect("memory");
        for delay in [0, 1, 50, 333, 1_000] {
            let due = machine.now() + delay;
            seen.store(0, SeqCst);
            let _ = timer.set(delay, 0, Arguments::NONE);
            wait_until(machine, || !timer.is_set() && (due == 0 || seen.load(SeqCst) > 0));
            assert!(seen.load(SeqCst) >= due);
        }
    });
}

#[test]
fn timers_expire_in_the_order_in_which_they_are_due() {
    let machine = Machine::threads().start();
    let log = Log::default();
    let timers: Vec<Timer> = (0..3)
        .map(|number| {
            let log = log.clone();
            Timer::try_new(&machine, "in order", move |_| log.add(number)).expect("memory")
        })
        .collect();
    // Long enough apart that the last one is set before the first one is due.
    for (timer, delay) in timers.iter().zip([300_000, 200_000, 250_000]) {
        let _ = timer.set(delay, 0, Arguments::NONE);
    }
    wait_until(&machine, || log.len() == 3);
    assert_eq!(log.taken(), [1, 2, 0]);
}

#[test]
fn timer_set_again_replaces() {
    on_both(|machine| {
        let log = Log::default();
        let (timer, _dpc) = timer(machine, &log);
        assert_eq!(timer.set(3_600_000_000, 0, Arguments::numbers(1, 1)), None);
        assert_eq!(timer.set(100, 0, Arguments::numbers(2, 2)), Some(Arguments::numbers(1, 1)), "it was set");
        wait_until(machine, || log.len() == 1);
        assert_eq!(log.taken(), [2]);
        assert!(!timer.is_set());
    });
}

#[test]
fn timer_cancelled_does_not_expire() {
    on_both(|machine| {
        let log = Log::default();
        let (timer, _dpc) = timer(machine, &log);
        assert_eq!(timer.cancel(), None, "it is not set");
        let _ = timer.set(3_600_000_000, 0, Arguments::numbers(1, 2));
        assert_eq!(timer.cancel(), Some(Arguments::numbers(1, 2)));
        assert_eq!(timer.cancel(), None);
        machine.sleep(1_000);
        assert_eq!(log.len(), 0);
    });
}

/// A cancel that succeeds means no expiry; one that fails means exactly one.
#[test]
fn timer_cancel_races() {
    let machine = Machine::threads().processors(2).start();
    let expired = Arc::new(AtomicUsize::new(0));
    let of_timer = expired.clone();
    let timer = Timer::try_new(&machine, "racing", move |_| {
        of_timer.fetch_add(1, SeqCst);
    })
    .expect("memory");
    let (rounds, mut cancelled) = (2_000, 0);
    for round in 0..rounds {
        assert_eq!(timer.set(round % 150, 0, Arguments::NONE), None);
        let until = machine.now() + round % 170;
        wait_until(&machine, || machine.now() >= until);
        cancelled += usize::from(timer.cancel().is_some());
        assert!(!timer.is_set());
    }
    let expected = usize::try_from(rounds).expect("small") - cancelled;
    wait_until(&machine, || expired.load(SeqCst) == expected);
    assert_eq!(machine.statistics().timers_fired, expected as u64);
}

#[test]
fn periodic_timer_expires_until_it_is_cancelled() {
    on_both(|machine| {
        let log = Log::default();
        let (timer, _dpc) = timer(machine, &log);
        let _ = timer.set(100, 200, Arguments::numbers(5, 0));
        for _ in 0..3 {
            wait_until(machine, || log.len() >= 3);
            assert!(timer.is_set(), "a periodic timer stays in the queue");
            assert!(log.taken().iter().all(|&first| first == 5));
        }
        assert_eq!(timer.cancel(), Some(Arguments::numbers(5, 0)));
        machine.flush();
        log.taken();
        machine.sleep(2_000);
        assert_eq!(log.len(), 0);
    });
}

#[test]
fn timer_expires_on_the_processor_that_has_set_it() {
    on_both(|machine| {
        let (seen, on) = (Arc::new(AtomicUsize::new(99)), (**machine).clone());
        let of_timer = seen.clone();
        let expire = move |_| of_timer.store(on.current_processor() as usize, SeqCst);
        let timer = Timer::try_new(machine, "where", expire).expect("memory");
        machine.bind_current_thread(3);
        let _ = timer.set(10, 0, Arguments::NONE);
        wait_until(machine, || seen.load(SeqCst) == 3);
    });
}

#[test]
fn timer_above_dispatch_level_is_caught() {
    on_both(|machine| {
        let (timer, _dpc) = timer(machine, &Log::default());
        let before = raise(Irql::HIGH_LEVEL);
        breaks(Rule::IrqlTooHigh, || timer.set(1, 0, Arguments::NONE));
        breaks(Rule::IrqlTooHigh, || timer.cancel());
        lower(before);
    });
}

#[test]
fn timer_freed_while_set_is_caught() {
    on_both(|machine| {
        let (timer, _dpc) = timer(machine, &Log::default());
        let _ = timer.set(1_000, 0, Arguments::NONE);
        breaks(Rule::TimerFreedWhileSet, || drop(timer));
        // The machine still has it, as the kernel would: let it expire, so that nothing is left at the shutdown.
        wait_until(machine, || machine.statistics().timers_fired == 1);
        machine.flush();
    });
}

#[test]
fn waiting_with_a_limit_ends_at_the_limit_or_the_event() {
    on_both(|machine| {
        let event = Arc::new(Event::new(machine, EventKind::Notification));
        let before = machine.now();
        assert!(!event.wait_for(500));
        assert!(machine.now() >= before + 500);
        let of_dpc = event.clone();
        let dpc = Dpc::try_new(machine, "setting", move |_| {
            of_dpc.set();
        })
        .expect("memory");
        let timer = Timer::queueing(machine, "setting", &dpc).expect("memory");
        let _ = timer.set(100, 0, Arguments::NONE);
        assert!(event.wait_for(3_600_000_000));
        assert!(is_seeded(machine) || machine.now() < 3_600_000_000);
        assert!(event.wait_for(0) && event.try_wait(), "a notification event stays set");
        assert!(event.reset() && !event.try_wait());
        machine.flush();
    });
}

#[test]
fn synchronization_event_lets_one_go() {
    on_both(|machine| {
        let event = Event::new(machine, EventKind::Synchronization);
        assert!(!event.set());
        assert!(event.set(), "it was set before");
        event.wait();
        assert!(!event.is_set());
        assert!(!event.wait_for(10));
    });
}

/// A timer that cannot be cancelled any more has run after a flush: so a driver makes sure that it may free it.
#[test]
fn flush_waits_for_a_timer_that_has_expired() {
    let machine = Machine::threads().processors(2).start();
    let log = Log::default();
    let (timer, dpc) = timer(&machine, &log);
    let mut cancelled = 0;
    for round in 0..1_000 {
        let _ = timer.set(round % 120, 0, Arguments::NONE);
        let until = machine.now() + round % 130;
        wait_until(&machine, || machine.now() >= until);
        cancelled += usize::from(timer.cancel().is_some());
        machine.flush();
        assert!(!dpc.is_queued());
        assert_eq!(log.len() + cancelled, usize::try_from(round).expect("small") + 1);
    }
}

#[test]
fn flush_waits_for_the_expiry_of_a_timer() {
    let machine = Machine::threads().processors(2).start();
    let log = Log::default();
    let of_timer = log.clone();
    let timer = Timer::try_new(&machine, "slow expiry", move |_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        of_timer.add(1);
    })
    .expect("memory");
    let _ = timer.set(0, 0, Arguments::NONE);
    wait_until(&machine, || !timer.is_set());
    machine.flush();
    assert_eq!(log.taken(), [1]);
}

//! The engine's operating-system trait on the machine.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use engine::os::{Affinity, Dpc, Event, Os, Routine, SpinLock, Timer};
use fallible::Arc;
use host::{
    HostOs,
    machine::{Irql, Machine, Rule, current_irql, lower, raise},
};
use ndkpi::NtStatus;

use super::{breaks, on_both, wait_until};

struct Count;

#[derive(Default)]
struct Counted {
    runs: AtomicUsize,
}

impl Routine for Count {
    type Target = Counted;

    fn run(target: &Arc<Counted>) {
        assert_eq!(current_irql(), Irql::DISPATCH_LEVEL);
        target.runs.fetch_add(1, SeqCst);
    }
}

fn counted() -> Arc<Counted> {
    Arc::try_new(Counted::default()).expect("memory")
}

#[test]
fn dpc_holds_a_reference_until_it_has_run() {
    for seed in 0..8 {
        let machine = Machine::seeded(seed).start();
        let os = HostOs::new(&machine);
        let dpc = os.dpc::<Count>(1).expect("memory");
        let (first, second) = (counted(), counted());
        assert!(dpc.queue(&first));
        assert!(!dpc.queue(&second), "queued already, for the first target");
        assert_eq!((Arc::references_now(&first), Arc::references_now(&second)), (2, 1));
        machine.flush();
        assert_eq!((Arc::references_now(&first), Arc::references_now(&second)), (1, 1));
        assert_eq!((first.runs.load(SeqCst), second.runs.load(SeqCst)), (1, 0));
    }
}

#[test]
fn the_last_reference_may_go_with_the_run() {
    on_both(|machine| {
        let os = HostOs::new(machine);
        let dpc = os.dpc::<Count>(1).expect("memory");
        let target = counted();
        dpc.queue(&target);
        drop(target);
        machine.flush();
    });
}

#[test]
fn timer_holds_a_reference_until_it_has_run_or_was_cancelled() {
    on_both(|machine| {
        let timer = HostOs::new(machine).timer::<Count>().expect("memory");
        let target = counted();
        assert!(!timer.cancel(), "it is not set");
        timer.set(3_600_000_000, &target);
        assert_eq!(Arc::references_now(&target), 2);
        timer.set(3_600_000_000, &target);
        assert_eq!(Arc::references_now(&target), 2, "the forgotten due time holds none");
        assert!(timer.cancel());
        assert_eq!(Arc::references_now(&target), 1);
        timer.set(10, &target);
        wait_until(machine, || target.runs.load(SeqCst) == 1);
        machine.flush();
        assert_eq!(Arc::references_now(&target), 1);
        assert!(!timer.cancel(), "the routine has run");
    });
}

/// Expiries may be merged, as DPCs are, but no reference is lost.
#[test]
fn timer_races_lose_no_reference() {
    let machine = Machine::threads().processors(2).start();
    let timer = HostOs::new(&machine).timer::<Count>().expect("memory");
    let target = counted();
    for round in 0..3_000 {
        timer.set(round % 3 * 20, &target);
        if round % 7 == 0 {
            timer.cancel();
        }
    }
    timer.set(0, &target);
    wait_until(&machine, || Arc::references_now(&target) == 1);
    assert!(target.runs.load(SeqCst) > 0);
    for seed in 0..200 {
        let machine = Machine::seeded(seed).preemption(60).start();
        let timer = HostOs::new(&machine).timer::<Count>().expect("memory");
        for delay in [0, 3, 0, 0, 1] {
            timer.set(delay, &target);
            machine.step();
        }
        timer.cancel();
        machine.flush();
        assert_eq!(Arc::references_now(&target), 1, "seed {seed}");
    }
}

#[test]
fn event_once_set_stays_set() {
    on_both(|machine| {
        let event = HostOs::new(machine).event().expect("memory");
        let before = raise(Irql::DISPATCH_LEVEL);
        event.set();
        lower(before);
        event.wait();
        event.wait();
        assert!(event.is_set());
    });
}

#[test]
fn processor_for_spreads_over_the_affinity() {
    let machine = Machine::seeded(0).processors(4).start();
    let os = HostOs::new(&machine);
    assert_eq!((os.processors(), os.current_processor()), (4, 0));
    let ask = |group, mask| os.processor_for(Affinity { group, mask });
    for (mask, expected) in [(0b1010, vec![1, 3]), (0b0100, vec![2]), (u64::MAX, vec![0, 1, 2, 3])] {
        let got: HashSet<u32> = (0..16).filter_map(|_| ask(0, mask)).collect();
        assert_eq!(got, expected.into_iter().collect());
    }
    assert_eq!(ask(0, 0), None);
    assert_eq!(ask(0, 0xF0), None, "the machine has no such processor");
    assert_eq!(ask(1, 0b1), None, "nor such a group");
}

#[test]
fn processor_for_works_on_the_largest_machine() {
    let machine = Machine::seeded(0).processors(64).start();
    let os = HostOs::new(&machine);
    assert_eq!(os.processor_for(Affinity { group: 0, mask: 1 << 63 }), Some(63));
}

#[test]
fn the_clock_does_not_go_back_and_random_numbers_differ() {
    on_both(|machine| {
        let os = HostOs::new(machine);
        assert!(os.timer_resolution() > 0);
        let mut last = 0;
        for _ in 0..1_000 {
            let now = os.now();
            assert!(now >= last);
            last = now;
        }
        let random: HashSet<u32> = (0..100).map(|_| os.random()).collect();
        assert!(random.len() > 95);
    });
}

#[test]
fn every_creation_can_be_made_to_fail() {
    on_both(|machine| {
        let os = HostOs::new(machine);
        let create = || {
            let lock = os.lock(1)?;
            let dpc = os.dpc::<Count>(0)?;
            let timer = os.timer::<Count>()?;
            let event = os.event()?;
            Ok::<_, NtStatus>((lock, dpc, timer, event))
        };
        for nth in 1..=4 {
            let before = machine.creations();
            machine.fail_creation(nth);
            assert_eq!(create().err(), Some(NtStatus::INSUFFICIENT_RESOURCES));
            assert_eq!(machine.creations() - before, nth);
            assert!(create().is_ok(), "one creation fails");
        }
        machine.fail_creation(1);
        machine.fail_creation(0);
        let (lock, ..) = create().expect("none fails");
        assert_eq!(lock.with(|value| *value), 1);
    });
}

#[test]
fn queueing_above_dispatch_level_is_caught() {
    on_both(|machine| {
        let os = HostOs::new(machine);
        let (dpc, timer, target) =
            (os.dpc::<Count>(0).expect("memory"), os.timer::<Count>().expect("memory"), counted());
        let before = raise(Irql::HIGH_LEVEL);
        breaks(Rule::IrqlTooHigh, || dpc.queue(&target));
        breaks(Rule::IrqlTooHigh, || timer.set(1, &target));
        lower(before);
    });
}

//! Spin locks, IRQL and waiting.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use engine::os::{Event as _, Os, SpinLock};
use host::{
    HostOs,
    machine::{
        Arguments, Dpc, Event, EventKind, Irql, LockName, Machine, RawSpinLock, Rule, assert_irql_at_most,
        current_irql, locks_held, lower, no_locks_held, raise,
    },
};

use super::{breaks, on_both, wait_until};

const fn name(class: &'static str, instance: u64) -> LockName {
    LockName { class, instance }
}

#[test]
fn spin_lock_raises_and_restores_irql() {
    on_both(|machine| {
        let os = HostOs::new(machine);
        let (outer, inner) = (os.lock(1_u8).expect("memory"), os.lock(2_u16).expect("memory"));
        for level in [Irql::PASSIVE_LEVEL, Irql::APC_LEVEL, Irql::DISPATCH_LEVEL] {
            let before = raise(level);
            outer.with(|_| {
                assert_eq!((current_irql(), locks_held()), (Irql::DISPATCH_LEVEL, 1));
                inner.with(|_| assert_eq!((current_irql(), locks_held()), (Irql::DISPATCH_LEVEL, 2)));
                assert_eq!((current_irql(), locks_held()), (Irql::DISPATCH_LEVEL, 1));
            });
            assert_eq!(current_irql(), level);
            assert!(no_locks_held());
            lower(before);
        }
    });
}

#[test]
fn spin_lock_above_dispatch_level_is_caught() {
    let lock = RawSpinLock::new();
    let before = raise(Irql::HIGH_LEVEL);
    breaks(Rule::IrqlTooHigh, || lock.acquire(name("too high", 0)));
    lower(before);
    breaks(Rule::IrqlNotRaised, || lock.acquire_at_dispatch(name("too low", 0)));
}

#[test]
fn recursive_lock_is_caught() {
    let lock = RawSpinLock::new();
    let first = line!() + 1;
    let before = lock.acquire(name("recursive", 9));
    let message = breaks(Rule::RecursiveLock, || lock.acquire(name("recursive", 9)));
    let second = line!() - 1;
    lock.release(before);
    assert!(message.contains("`recursive` #9"), "{message}");
    for line in [first, second] {
        assert!(message.contains(&format!("lock.rs:{line}:")), "both places are named: {message}");
    }
}

#[test]
fn recursive_lock_of_the_engine_is_caught() {
    on_both(|machine| {
        let lock = HostOs::new(machine).lock(0_u32).expect("memory");
        let message = breaks(Rule::RecursiveLock, || lock.with(|_| lock.with(|_| ())));
        assert!(message.contains("`u32`"), "{message}");
        assert_eq!((current_irql(), locks_held()), (Irql::PASSIVE_LEVEL, 0), "the panic released the lock");
        lock.with(|_| ());
    });
}

#[test]
fn locks_of_two_classes_in_both_orders_are_caught() {
    let (a, b, c) = (RawSpinLock::new(), RawSpinLock::new(), RawSpinLock::new());
    let both = |first: &RawSpinLock, first_name, second: &RawSpinLock, second_name| {
        let before = first.acquire(first_name);
        second.acquire_at_dispatch(second_name);
        second.release_from_dispatch();
        first.release(before);
    };
    both(&a, name("order a", 1), &b, name("order b", 1));
    both(&b, name("order b", 2), &c, name("order c", 1));
    // c before a closes a circle, though nobody has held just these two.
    let before = c.acquire(name("order c", 3));
    let message = breaks(Rule::LockOrder, || a.acquire_at_dispatch(name("order a", 3)));
    c.release(before);
    assert!(message.contains("order c") && message.contains("order a"), "{message}");
    assert!(no_locks_held());
}

#[test]
fn two_locks_of_one_class_in_both_orders_are_caught() {
    let (a, b) = (RawSpinLock::new(), RawSpinLock::new());
    let (a_name, b_name) = (name("twins", 1), name("twins", 2));
    for _ in 0..2 {
        let before = a.acquire(a_name);
        b.acquire_at_dispatch(b_name);
        // Releasing in another order than acquiring is allowed.
        a.release_from_dispatch();
        b.release(before);
    }
    let before = b.acquire(b_name);
    breaks(Rule::LockOrder, || a.acquire_at_dispatch(a_name));
    b.release(before);
}

#[test]
fn the_locks_of_two_machines_are_ordered_apart() {
    struct OfTwoMachines;
    let both = |reversed: bool| {
        let machine = Machine::seeded(0).processors(1).start();
        let os = HostOs::new(&machine);
        let (a, b) = (os.lock(OfTwoMachines).expect("memory"), os.lock(OfTwoMachines).expect("memory"));
        let (first, second) = if reversed { (&b, &a) } else { (&a, &b) };
        first.with(|_| second.with(|_| ()));
        machine.shutdown();
    };
    // As addresses may have it: on one machine in this order, on the next in the other.
    both(false);
    both(true);
}

#[test]
fn try_acquire_does_not_wait() {
    let lock = RawSpinLock::new();
    let before = raise(Irql::DISPATCH_LEVEL);
    assert!(lock.try_acquire_at_dispatch(name("tried", 0)));
    assert!(lock.is_held_here());
    assert!(!lock.try_acquire_at_dispatch(name("tried", 0)));
    lock.release_from_dispatch();
    lower(before);
}

#[test]
fn a_lock_released_by_another_thread_is_caught() {
    let lock = RawSpinLock::new();
    breaks(Rule::LockNotHeld, || lock.release(Irql::PASSIVE_LEVEL));
    let before = lock.acquire(name("other thread", 0));
    std::thread::scope(|scope| {
        scope.spawn(|| breaks(Rule::LockNotHeld, || lock.release(Irql::PASSIVE_LEVEL)));
    });
    lock.release(before);
}

#[test]
fn irql_lowered_under_a_lock_is_caught() {
    let lock = RawSpinLock::new();
    let before = lock.acquire(name("lowered", 0));
    breaks(Rule::IrqlNotLowered, || lower(Irql::PASSIVE_LEVEL));
    let _ = raise(Irql::HIGH_LEVEL);
    breaks(Rule::IrqlNotRestored, || lock.release(before));
    lower(Irql::DISPATCH_LEVEL);
    lock.release(before);
}

#[test]
fn irql_raised_down_or_lowered_up_is_caught() {
    let before = raise(Irql::DISPATCH_LEVEL);
    breaks(Rule::IrqlNotRaised, || raise(Irql::PASSIVE_LEVEL));
    breaks(Rule::IrqlNotLowered, || lower(Irql::HIGH_LEVEL));
    assert_eq!(current_irql(), Irql::DISPATCH_LEVEL);
    breaks(Rule::IrqlTooHigh, || assert_irql_at_most(Irql::APC_LEVEL));
    lower(before);
}

#[test]
fn irql_belongs_to_the_thread() {
    let before = raise(Irql::DISPATCH_LEVEL);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(current_irql(), Irql::PASSIVE_LEVEL));
    });
    lower(before);
}

#[test]
fn spin_lock_excludes() {
    let machine = Machine::threads().processors(4).start();
    let lock = Arc::new(HostOs::new(&machine).lock((0_u64, 0_u64)).expect("memory"));
    let count = || {
        for _ in 0..2_000 {
            lock.with(|(first, second)| {
                *first += 1;
                assert_eq!(*first, *second + 1, "nobody else is inside");
                *second += 1;
            });
        }
    };
    let dpcs: Vec<Dpc> = (0..4)
        .map(|processor| {
            let lock = lock.clone();
            let add = move |_| lock.with(|(first, second)| (*first, *second) = (*first + 1, *second + 1));
            let dpc = Dpc::try_new(&machine, "adding", add).expect("memory");
            dpc.set_target(Some(processor));
            dpc
        })
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(count);
        }
        for _ in 0..100 {
            for dpc in &dpcs {
                dpc.queue(Arguments::NONE);
            }
        }
    });
    machine.flush();
    let total = machine.statistics().dpcs_run() + 6_000;
    assert_eq!(lock.with(|value| *value), (total, total));
}

#[test]
fn a_panic_in_a_critical_section_releases_the_lock() {
    let machine = Machine::threads().start();
    let lock = HostOs::new(&machine).lock(5).expect("memory");
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lock.with(|_| panic!("inside"))));
    assert!(caught.is_err() && no_locks_held());
    assert_eq!((current_irql(), lock.with(|value| *value)), (Irql::PASSIVE_LEVEL, 5));
}

#[test]
fn wait_at_dispatch_level_is_caught() {
    on_both(|machine| {
        let event = Event::new(machine, EventKind::Notification);
        event.set();
        let before = raise(Irql::DISPATCH_LEVEL);
        breaks(Rule::IrqlTooHigh, || event.wait());
        breaks(Rule::IrqlTooHigh, || event.wait_for(1));
        assert!(event.try_wait(), "a wait of no length is allowed");
        lower(before);
        // The engine's event is stricter than the kernel's.
        let event = HostOs::new(machine).event().expect("memory");
        event.set();
        let before = raise(Irql::APC_LEVEL);
        breaks(Rule::IrqlTooHigh, || event.wait());
        lower(before);
        event.wait();
    });
}

#[test]
fn wait_in_a_dpc_is_caught() {
    let machine = Machine::threads().start();
    let event = Arc::new(Event::new(&machine, EventKind::Notification));
    let of_dpc = event.clone();
    let dpc = Dpc::try_new(&machine, "waiting", move |_| of_dpc.wait()).expect("memory");
    dpc.queue(Arguments::NONE);
    let message = breaks(Rule::RoutinePanicked, || event.wait());
    assert!(message.contains("waiting") && message.contains(&Rule::IrqlTooHigh.to_string()), "{message}");
    assert_eq!(machine.take_failures().len(), 1);
}

#[test]
fn lock_held_at_a_callback_is_caught() {
    on_both(|machine| {
        let lock = HostOs::new(machine).lock('c').expect("memory");
        HostOs::assert_callback_context();
        let message = breaks(Rule::LockHeld, || lock.with(|_| HostOs::assert_callback_context()));
        assert!(message.contains("`char`"), "{message}");
        let before = raise(Irql::HIGH_LEVEL);
        breaks(Rule::IrqlTooHigh, HostOs::assert_callback_context);
        lower(before);
    });
}

#[test]
fn event_lets_several_threads_go() {
    let machine = Machine::threads().start();
    let (event, late) = (Event::new(&machine, EventKind::Notification), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                event.wait();
                assert!(late.load(SeqCst));
            });
        }
        late.store(true, SeqCst);
        event.set();
    });
    wait_until(&machine, || event.is_set());
}

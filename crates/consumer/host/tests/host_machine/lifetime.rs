//! How a machine begins, fails and ends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use host::machine::{Arguments, Dpc, Event, EventKind, Irql, Machine, Rule, Timer, lower, raise};

use super::{Log, breaks, logging, on_both};

fn panicking(machine: &Machine) -> Dpc {
    let dpc = Dpc::try_new(machine, "panicking", |_| panic!("on purpose")).expect("memory");
    dpc.set_target(Some(1));
    dpc
}

#[test]
fn panic_in_dpc_is_reported() {
    // At the shutdown
    let machine = Machine::threads().processors(2).start();
    let dpc = panicking(&machine);
    dpc.queue(Arguments::NONE);
    let message = breaks(Rule::RoutinePanicked, || machine.shutdown());
    assert!(message.contains("processor 1, `panicking`: on purpose"), "{message}");

    // When the machine is dropped
    let machine = Machine::threads().processors(2).start();
    let dpc = panicking(&machine);
    dpc.queue(Arguments::NONE);
    breaks(Rule::RoutinePanicked, || drop(machine));

    // At a wait for something that the routine would have done
    let machine = Machine::threads().processors(2).start();
    let (dpc, event) = (panicking(&machine), Event::new(&machine, EventKind::Notification));
    dpc.queue(Arguments::NONE);
    breaks(Rule::RoutinePanicked, || event.wait());

    // The processor goes on, and the failure can be taken by a test that expects it.
    let (log, failures) = (Log::default(), machine.take_failures());
    let other = logging(&machine, &log);
    other.set_target(Some(1));
    other.queue(Arguments::numbers(3, 0));
    machine.flush();
    assert_eq!((log.taken(), failures.len()), (vec![3], 1));
    machine.shutdown();
}

#[test]
fn panic_in_dpc_of_a_seeded_machine_ends_the_step() {
    let machine = Machine::seeded(3).start();
    let dpc = panicking(&machine);
    dpc.queue(Arguments::NONE);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| machine.run_until_idle()));
    assert_eq!(caught.expect_err("it panics").downcast_ref::<&str>(), Some(&"on purpose"));
    // Whoever catches it still cannot hide it.
    let message = breaks(Rule::RoutinePanicked, || machine.shutdown());
    assert!(message.contains("the seed is 3"), "{message}");
}

#[test]
fn panic_at_the_expiry_of_a_timer_is_reported() {
    let machine = Machine::threads().start();
    let timer = Timer::try_new(&machine, "panicking timer", |_| panic!("on purpose")).expect("memory");
    let _ = timer.set(0, 0, Arguments::NONE);
    let event = Event::new(&machine, EventKind::Notification);
    let message = breaks(Rule::RoutinePanicked, || event.wait());
    assert!(message.contains("panicking timer"), "{message}");
    assert_eq!(machine.take_failures().len(), 1);
}

#[test]
fn leaked_timer_reported() {
    for machine in [Machine::threads().start(), Machine::seeded(5).start()] {
        let timer = Timer::try_new(&machine, "forgotten", |_| ()).expect("memory");
        let _ = timer.set(3_600_000_000, 0, Arguments::NONE);
        assert!(machine.leaks().is_some());
        let message = breaks(Rule::Leak, || machine.shutdown());
        assert!(message.contains("timer `forgotten`"), "{message}");
    }
}

#[test]
fn leaked_dpc_reported() {
    for machine in [Machine::threads().start(), Machine::seeded(5).start()] {
        let dpc = Arc::new_cyclic(|weak: &std::sync::Weak<Dpc>| {
            let weak = weak.clone();
            let again = move |_| {
                let _ = weak.upgrade().map(|dpc| dpc.queue(Arguments::NONE));
            };
            Dpc::try_new(&machine, "restless", again).expect("memory")
        });
        dpc.queue(Arguments::NONE);
        let message = breaks(Rule::Leak, || machine.shutdown());
        assert!(message.contains("DPC `restless` queued on processor"), "{message}");
    }
}

#[test]
fn shutdown_runs_what_is_queued() {
    on_both(|_| {
        let machine = Machine::threads().start();
        let log = Log::default();
        let dpc = logging(&machine, &log);
        dpc.queue(Arguments::numbers(1, 0));
        machine.shutdown();
        assert_eq!(log.taken(), [1]);
    });
}

#[test]
fn a_machine_without_leaks_tells_so() {
    on_both(|machine| assert_eq!(machine.leaks(), None));
}

#[test]
fn use_after_shutdown_is_caught() {
    for machine in [Machine::threads().start(), Machine::seeded(1).start()] {
        let dpc = logging(&machine, &Log::default());
        let timer = Timer::queueing(&machine, "late", &dpc).expect("memory");
        machine.shutdown();
        breaks(Rule::MachineStopped, || dpc.queue(Arguments::NONE));
        breaks(Rule::MachineStopped, || timer.set(1, 0, Arguments::NONE));
        assert!(!dpc.is_queued() && !timer.is_set());
    }
}

#[test]
fn shutdown_at_dispatch_level_is_caught() {
    let machine = Machine::threads().start();
    let before = raise(Irql::DISPATCH_LEVEL);
    breaks(Rule::IrqlTooHigh, || machine.shutdown());
    lower(before);
}

#[test]
fn a_hang_is_reported() {
    let machine = Machine::threads().hang_limit(Duration::from_millis(1)).start();
    let event = Event::new(&machine, EventKind::Notification);
    let message = breaks(Rule::Hang, || event.wait());
    assert!(message.contains("processor 0 runs None"), "the message says what the machine does: {message}");
}

#[test]
fn a_failing_test_does_not_panic_twice() {
    // A panic in a drop during a panic would abort the program.
    let caught = std::panic::catch_unwind(|| {
        let machine = Machine::threads().start();
        let dpc = panicking(&machine);
        let timer = Timer::queueing(&machine, "set", &dpc).expect("memory");
        dpc.queue(Arguments::NONE);
        let _ = timer.set(3_600_000_000, 0, Arguments::NONE);
        let _ = raise(Irql::DISPATCH_LEVEL);
        panic!("the test fails");
    });
    assert_eq!(caught.expect_err("it panics").downcast_ref::<&str>(), Some(&"the test fails"));
    lower(Irql::PASSIVE_LEVEL);
}

#[test]
fn a_thread_stands_on_one_processor() {
    let machine = Machine::threads().processors(3).start();
    let mut seen = Vec::new();
    for _ in 0..6 {
        let stands = || {
            let first = machine.current_processor();
            assert!((0..20).all(|_| machine.current_processor() == first), "it stays there");
            first
        };
        seen.push(std::thread::scope(|scope| scope.spawn(stands).join().expect("no panic")));
    }
    assert!(seen.iter().all(|&processor| processor < 3));
    machine.bind_current_thread(2);
    assert_eq!(machine.current_processor(), 2);
}

#[test]
fn a_machine_of_one_processor_works() {
    for machine in [Machine::threads().processors(1).start(), Machine::seeded(0).processors(1).start()] {
        let done = Arc::new(AtomicBool::new(false));
        let of_dpc = done.clone();
        let dpc = Dpc::try_new(&machine, "alone", move |_| of_dpc.store(true, SeqCst)).expect("memory");
        dpc.queue(Arguments::NONE);
        machine.flush();
        assert!(done.load(SeqCst));
    }
}

#[test]
fn an_idle_processor_that_spins_finds_its_work() {
    let machine = Machine::threads().processors(2).spin(Duration::from_micros(200)).start();
    let log = Log::default();
    let dpc = logging(&machine, &log);
    for number in 0..200 {
        dpc.queue(Arguments::numbers(number, 0));
        machine.flush();
    }
    assert_eq!(log.taken(), (0..200).collect::<Vec<_>>());
}

#[test]
fn a_routine_that_does_not_end_is_reported() {
    static END: AtomicBool = AtomicBool::new(false);
    let machine = Machine::threads().hang_limit(Duration::from_millis(20)).start();
    let dpc = Dpc::try_new(&machine, "never ending", |_| {
        while !END.load(SeqCst) {
            std::thread::yield_now();
        }
    })
    .expect("memory");
    dpc.queue(Arguments::NONE);
    let message = breaks(Rule::Hang, || machine.shutdown());
    END.store(true, SeqCst);
    assert!(message.contains("never ending"), "{message}");
}

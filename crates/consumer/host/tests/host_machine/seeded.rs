//! The seeded machine.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
};

use engine::os::{Os as _, SpinLock as _};
use host::{
    HostOs,
    machine::{
        Arguments, Dpc, Event, EventKind, Irql, Machine, Outside, Rule, Timer, locks_held, lower, no_locks_held, raise,
    },
};

use super::{Log, breaks};

/// Two calls on each of three processors and two timers; what happened, and the trace.
fn history(seed: u64, preemption: u8) -> (Vec<usize>, u64, Vec<u64>) {
    let machine = Machine::seeded(seed).processors(3).preemption(preemption).start();
    let log = Log::default();
    let dpcs: Vec<Dpc> = (0..6)
        .map(|number| {
            let log = log.clone();
            let dpc = Dpc::try_new(&machine, "one of six", move |_| log.add(number)).expect("memory");
            dpc.set_target(Some(u32::try_from(number % 3).expect("small")));
            dpc
        })
        .collect();
    let timers: Vec<Timer> = (10..12)
        .map(|number| {
            let log = log.clone();
            Timer::try_new(&machine, "one of two", move |_| log.add(number)).expect("memory")
        })
        .collect();
    for _ in 0..3 {
        for timer in &timers {
            let _ = timer.set(5, 0, Arguments::NONE);
        }
        for dpc in &dpcs {
            dpc.queue(Arguments::NONE);
        }
        machine.run_for(100);
    }
    let random = (0..4).map(|_| machine.random()).collect();
    let trace = machine.trace_hash();
    machine.shutdown();
    (log.taken(), trace, random)
}

#[test]
fn seed_replays() {
    for preemption in [0, 40] {
        let mut traces = HashSet::new();
        for seed in 0..50 {
            let (first, again) = (history(seed, preemption), history(seed, preemption));
            assert_eq!(first, again, "seed {seed} does not replay");
            assert_eq!(first.0.len(), 24, "everything runs");
            traces.insert(first.1);
        }
        assert!(traces.len() > 45, "other seeds are other runs: {}", traces.len());
    }
}

#[test]
fn seeds_reach_every_order_of_two_processors() {
    let mut orders = HashSet::new();
    for seed in 0..64 {
        let machine = Machine::seeded(seed).processors(2).start();
        let log = Log::default();
        let dpcs = [0_u32, 0, 1, 1].map(|target| {
            let dpc = super::logging(&machine, &log);
            dpc.set_target(Some(target));
            dpc
        });
        for (number, dpc) in dpcs.iter().enumerate() {
            dpc.queue(Arguments::numbers(number, 0));
        }
        machine.run_until_idle();
        orders.insert(log.taken());
    }
    assert_eq!(orders.len(), 6, "two calls after two calls can be mixed in six ways: {orders:?}");
}

#[test]
fn a_wait_runs_the_machine() {
    let machine = Machine::seeded(9).start();
    let event = Arc::new(Event::new(&machine, EventKind::Notification));
    let of_dpc = event.clone();
    let dpc = Dpc::try_new(&machine, "setting", move |_| {
        of_dpc.set();
    })
    .expect("memory");
    let timer = Timer::queueing(&machine, "setting", &dpc).expect("memory");
    let _ = timer.set(1_000_000, 0, Arguments::NONE);
    event.wait();
    assert!(machine.now() >= 1_000_000, "time has passed, if only on the machine's clock");
}

#[test]
fn a_wait_for_nothing_is_a_deadlock() {
    let machine = Machine::seeded(9).start();
    let event = Event::new(&machine, EventKind::Notification);
    let message = breaks(Rule::Deadlock, || event.wait());
    assert!(message.contains("nothing left to run") && message.contains("the seed is 9"), "{message}");
}

#[test]
fn work_without_end_is_a_livelock() {
    let machine = Machine::seeded(4).step_limit(1_000).start();
    let timer = Timer::try_new(&machine, "endless", |_| ()).expect("memory");
    let event = Event::new(&machine, EventKind::Notification);
    let _ = timer.set(1, 1, Arguments::NONE);
    let message = breaks(Rule::Livelock, || event.wait());
    assert!(message.contains("endless"), "{message}");
    assert!(timer.cancel().is_some());
}

#[test]
fn idle_does_not_wait_for_later_timers() {
    let machine = Machine::seeded(2).start();
    let log = Log::default();
    let of_timer = log.clone();
    let timer = Timer::try_new(&machine, "later", move |_| of_timer.add(0)).expect("memory");
    let _ = timer.set(1_000, 0, Arguments::NONE);
    machine.run_until_idle();
    assert_eq!((log.len(), machine.now()), (0, 0));
    machine.run_for(999);
    assert_eq!((log.len(), machine.now()), (0, 999));
    machine.run_for(1);
    assert_eq!((log.len(), machine.now()), (1, 1_000));
    assert!(!machine.step(), "nothing is left");
}

/// With preemption, a call on another processor runs in the middle of a routine of this one; without, never.
#[test]
fn preemption_lets_other_processors_in_between() {
    let got_between = |preemption| {
        let mut count = 0;
        for seed in 0..50 {
            let machine = Machine::seeded(seed).processors(2).preemption(preemption).start();
            let (ran, between) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let of_other = ran.clone();
            let add = move |_| {
                of_other.fetch_add(1, SeqCst);
            };
            let other = Dpc::try_new(&machine, "other", add).expect("memory");
            other.set_target(Some(1));
            let (of_one, seen, clock) = (ran.clone(), between.clone(), (*machine).clone());
            let event = Event::new(&machine, EventKind::Notification);
            let one = Dpc::try_new(&machine, "one", move |_| {
                let before = of_one.load(SeqCst);
                event.set();
                assert_eq!(clock.current_processor(), 0, "this routine stands where it stood");
                seen.fetch_add(of_one.load(SeqCst) - before, SeqCst);
            })
            .expect("memory");
            one.set_target(Some(0));
            one.queue(Arguments::NONE);
            other.queue(Arguments::NONE);
            machine.run_until_idle();
            assert_eq!(ran.load(SeqCst), 1);
            count += between.load(SeqCst);
        }
        count
    };
    assert_eq!(got_between(0), 0);
    assert!(got_between(50) > 0);
}

/// A call on another processor runs in the middle of a critical section of this one, and between an inner and an outer lock.
#[test]
fn preemption_lets_other_processors_into_critical_sections() {
    let got_inside = |preemption| {
        let [mut before_inner, mut inside_both] = [0; 2];
        for seed in 0..100 {
            let machine = Machine::seeded(seed).processors(2).preemption(preemption).start();
            let os = HostOs::new(&machine);
            let (outer, inner) = (os.lock(()).expect("memory"), os.lock(0_u8).expect("memory"));
            let ran = Arc::new(AtomicUsize::new(0));
            let of_other = ran.clone();
            let add = move |_| {
                of_other.fetch_add(1, SeqCst);
            };
            let other = Dpc::try_new(&machine, "other", add).expect("memory");
            other.set_target(Some(1));
            outer.with(|()| {
                other.queue(Arguments::NONE);
                let start = ran.load(SeqCst);
                inner.with(|_| before_inner += ran.load(SeqCst) - start);
                let start = ran.load(SeqCst);
                inner.with(|_| {
                    assert_eq!(machine.current_processor(), 0, "this thread stands where it stood");
                    assert_eq!(locks_held(), 2);
                });
                inside_both += ran.load(SeqCst) - start;
            });
            machine.run_until_idle();
            assert_eq!(ran.load(SeqCst), 1);
        }
        [before_inner, inside_both]
    };
    assert_eq!(got_inside(0), [0; 2]);
    assert!(got_inside(60).iter().all(|count| *count > 0));
}

/// Calls that get into a critical section and want its lock wait for it, and have it one after the other. What happens is
/// the same for the same seed.
#[test]
fn what_gets_into_a_critical_section_waits_for_its_lock() {
    let run = |seed| {
        let machine = Machine::seeded(seed).processors(4).preemption(80).start();
        let os = HostOs::new(&machine);
        let locks = Arc::new((os.lock(Vec::new()).expect("memory"), os.lock(0_usize).expect("memory")));
        let dpcs: Vec<Dpc> = (1..4)
            .map(|processor| {
                let (locks, clock) = (locks.clone(), (*machine).clone());
                let dpc = Dpc::try_new(&machine, "waits", move |_| {
                    locks.0.with(|log: &mut Vec<u32>| {
                        let length = log.len();
                        locks.1.with(|count| *count += 1);
                        log.push(clock.current_processor());
                        assert_eq!(log.len(), length + 1, "nobody else has the lock");
                    });
                });
                let dpc = dpc.expect("memory");
                dpc.set_target(Some(processor));
                dpc
            })
            .collect();
        locks.0.with(|log| {
            for dpc in &dpcs {
                dpc.queue(Arguments::NONE);
            }
            for _ in 0..4 {
                locks.1.with(|_| ());
                assert!(log.is_empty(), "nobody else has the lock");
            }
        });
        machine.run_until_idle();
        assert_eq!(locks.1.with(|count| *count), 3);
        let log = locks.0.with(|log| log.clone());
        assert_eq!(log.len(), 3);
        (log, machine.trace_hash())
    };
    let all: Vec<_> = (0..50).map(|seed| (run(seed), run(seed))).collect();
    assert!(all.iter().all(|(first, again)| first == again));
    assert!(all.iter().any(|(first, _)| first.0 != all[0].0.0), "the seed decides who has it first");
}

/// What panics inside a critical section of another thread ends the test there, with the lock released.
#[test]
fn a_panic_inside_a_critical_section_of_another_thread_is_seen() {
    let mut seen = 0;
    for seed in 0..20 {
        let machine = Machine::seeded(seed).processors(2).preemption(80).start();
        let lock = HostOs::new(&machine).lock(()).expect("memory");
        let dpc = Dpc::try_new(&machine, "panics", |_| panic!("on purpose")).expect("memory");
        dpc.set_target(Some(1));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            lock.with(|()| {
                dpc.queue(Arguments::NONE);
            });
        }));
        seen += usize::from(outcome.is_err());
        assert!(no_locks_held());
        let _ = catch_unwind(AssertUnwindSafe(|| machine.run_until_idle()));
        assert_eq!(machine.take_failures().len(), 1);
        lock.with(|()| ());
    }
    assert!(seen > 0);
}

/// No call runs on a processor on which another one runs, or on which a thread holds a lock.
#[test]
fn preemption_respects_the_processor() {
    for seed in 0..200 {
        let machine = Machine::seeded(seed).processors(1).preemption(80).start();
        let inside = Arc::new(AtomicUsize::new(0));
        let dpcs: Vec<Dpc> = (0..3)
            .map(|_| {
                let (inside, event) = (inside.clone(), Event::new(&machine, EventKind::Notification));
                Dpc::try_new(&machine, "alone", move |_| {
                    assert_eq!(inside.fetch_add(1, SeqCst), 0);
                    event.set();
                    inside.fetch_sub(1, SeqCst);
                })
                .expect("memory")
            })
            .collect();
        for dpc in &dpcs {
            dpc.queue(Arguments::NONE);
        }
        machine.run_until_idle();
    }
}

#[test]
fn preemption_respects_a_thread_at_dispatch_level() {
    let mut others = 0;
    for seed in 0..100 {
        let machine = Machine::seeded(seed).processors(2).preemption(80).start();
        machine.bind_current_thread(1);
        let log = Log::default();
        let dpcs = [0, 1].map(|target| {
            let dpc = super::logging(&machine, &log);
            dpc.set_target(Some(target));
            dpc
        });
        let before = raise(Irql::DISPATCH_LEVEL);
        for (number, dpc) in dpcs.iter().enumerate() {
            dpc.queue(Arguments::numbers(number, 0));
        }
        let ran = log.taken();
        assert!(!ran.contains(&1), "the thread holds off what is queued on its processor");
        others += ran.len();
        lower(before);
        machine.run_until_idle();
        assert_eq!(ran.len() + log.taken().len(), 2);
    }
    assert!(others > 0, "other processors go on");
}

/// Somebody outside, who sends something for the time 30 when first asked, and nothing after that.
struct Sender {
    asked: Mutex<Vec<u64>>,
    timer: Timer,
}

impl Outside for Sender {
    fn wait(&self, next: u64) -> u64 {
        let mut asked = self.asked.lock().expect("nobody panics");
        asked.push(next);
        if asked.len() == 1 {
            self.timer.set_at(30);
            return 40;
        }
        next.saturating_add(5)
    }
}

#[test]
fn a_machine_asks_before_its_time_goes_beyond_what_others_allow() {
    let machine = Machine::seeded(1).start();
    let came = Arc::new(AtomicU64::new(0));
    let (seen, own) = (came.clone(), (*machine).clone());
    let timer = Timer::try_new(&machine, "from outside", move |_| seen.store(own.now(), SeqCst)).expect("memory");
    let sender = Arc::new(Sender { asked: Mutex::default(), timer });
    machine.join(sender.clone());
    machine.run_for(100);
    assert_eq!((came.load(SeqCst), machine.now()), (30, 100), "what came was there in time");
    assert_eq!(*sender.asked.lock().expect("nobody panics"), [100, 100]);
    // Up to 105 nothing comes.
    machine.run_for(5);
    assert_eq!(sender.asked.lock().expect("nobody panics").len(), 2);
    assert!(!machine.wait_for_outside(), "nothing is left to do, and nothing comes");
    assert_eq!(sender.asked.lock().expect("nobody panics").last(), Some(&u64::MAX));
    machine.part();
    machine.run_for(1000);
    assert_eq!(
        (machine.now(), sender.asked.lock().expect("nobody panics").len()),
        (1105, 3),
        "nobody is asked any more"
    );
}

#[test]
fn what_is_queued_waits_for_what_may_come_at_its_time() {
    let machine = Machine::seeded(1).processors(1).start();
    let log = Log::default();
    let (first, second) = (log.clone(), log.clone());
    let dpc = Dpc::try_new(&machine, "own", move |_| first.add(1)).expect("memory");
    let timer = Timer::try_new(&machine, "from outside", move |_| second.add(2)).expect("memory");
    let sender = Arc::new(Sender { asked: Mutex::default(), timer });
    machine.join(sender.clone());
    dpc.queue(Arguments::NONE);
    machine.run_until_idle();
    // It was asked at the time of the call, which it did not put off.
    assert_eq!((*sender.asked.lock().expect("nobody panics")).first(), Some(&0));
    assert_eq!(log.taken(), [1]);
    machine.run_for(50);
    assert_eq!(log.taken(), [2]);
    machine.part();
}

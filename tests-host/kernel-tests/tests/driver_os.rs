//! The provider's operating system on the kernel, `driver_common::os`, on the simulated kernel: what the engine may rely on when a
//! timer or a DPC is set, cancelled or dropped just as it is due.

#![cfg(unix)]

extern crate wdk_bindings as wdk_sys;

use std::{
    collections::HashSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use driver_common::os::{Kernel as KernelOs, KernelDpc, KernelEvent, KernelTimer};
use engine::os::{Affinity, Dpc, Event, Os, Routine, Timer};
use interpose::{InterposeOs, Phase};
use kernel::at_dispatch_level;
use simulated_kernel::{Kernel, irql};
use wdk_sys::{
    LARGE_INTEGER,
    ntddk::{KeDelayExecutionThread, KeFlushQueuedDpcs, KeQueryInterruptTimePrecise},
};

/// Runs `work` as code of the provider driver, which is loaded for it.
fn in_the_driver(kernel: &Kernel, work: impl FnOnce()) {
    let driver = kernel.load("softndk", softndk::driver_entry).expect("the provider loads");
    driver.run(work);
    // Looks for memory, timers and DPCs that are left.
    driver.unload();
}

/// Kernels on which threads really run beside each other, and seeded ones on which they are interrupted at every call.
fn kernels() -> impl Iterator<Item = Kernel> {
    let seeded = (1..13).map(|seed| Kernel::seeded(seed).preemption(40));
    (0..2).map(|_| Kernel::threads()).chain(seeded).map(simulated_kernel::Builder::start)
}

fn sleep(microseconds: i64) {
    let mut interval = LARGE_INTEGER { QuadPart: -microseconds * 10 };
    // SAFETY: at PASSIVE_LEVEL, and the number lives until the call returns.
    let _ = unsafe { KeDelayExecutionThread(0, 0, &raw mut interval) };
}

fn flush() {
    // SAFETY: at PASSIVE_LEVEL.
    unsafe { KeFlushQueuedDpcs() };
}

/// Waits until the bell has rung so often, and as long again for a ring that should not come.
fn settle(bell: &fallible::Arc<Bell>, rings: u32) {
    // A machine may be slow. If the ring does not come, the caller sees it.
    for _ in 0..10_000 {
        if bell.rings() >= rings {
            break;
        }
        sleep(1_000);
    }
    sleep(3_000);
    flush();
    flush();
}

#[derive(Default)]
struct Bell {
    rings: AtomicU32,
    /// When it rang last.
    last: AtomicU64,
}

impl Bell {
    fn rings(&self) -> u32 {
        self.rings.load(SeqCst)
    }
}

struct Ring;

impl Routine for Ring {
    type Target = Bell;

    fn run(bell: &fallible::Arc<Bell>) {
        assert_eq!(irql(), 2, "a DPC");
        bell.last.store(KernelOs.now(), SeqCst);
        bell.rings.fetch_add(1, SeqCst);
    }
}

/// A small generator, so that a failure is found again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[test]
fn a_timer_runs_once_for_each_time_that_it_is_set_and_not_cancelled() {
    for (number, kernel) in (1_u64..).zip(kernels()) {
        in_the_driver(&kernel, || {
            let mut random = Random(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let bell = fallible::Arc::try_new(Bell::default()).expect("memory");
            let timer = KernelTimer::<Ring>::try_new().expect("memory");
            for _ in 0..60 {
                let before = bell.rings();
                // Half of the due times have come when the next call is made, or are just coming.
                let delay = random.below(4);
                timer.set(delay * delay * 160, &bell);
                if random.below(2) == 0 {
                    sleep(random.below(400).cast_signed());
                }
                if random.below(3) == 0 {
                    settle(&bell, before + 1);
                    assert_eq!(bell.rings(), before + 1, "it was set once");
                    assert!(!timer.cancel(), "it has run");
                    continue;
                }
                let cancelled = timer.cancel();
                let at_once = bell.rings();
                settle(&bell, if cancelled { before } else { before + 1 });
                if cancelled {
                    assert_eq!((at_once, bell.rings()), (before, before), "it was cancelled");
                } else {
                    assert_eq!(bell.rings(), before + 1, "it was too late to cancel it");
                }
            }
            drop(timer);
            flush();
            assert_eq!(fallible::Arc::references_now(&bell), 1);
        });
    }
}

#[test]
fn a_timer_that_is_set_again_and_again_forgets_all_but_the_last_due_time() {
    for kernel in kernels() {
        in_the_driver(&kernel, || {
            let bell = fallible::Arc::try_new(Bell::default()).expect("memory");
            let timer = KernelTimer::<Ring>::try_new().expect("memory");
            for _ in 0..40 {
                for _ in 0..12 {
                    timer.set(0, &bell);
                }
                let before = bell.rings();
                let due = KernelOs.now() + 2_000;
                timer.set(2_000, &bell);
                // The clock counts whole microseconds.
                for _ in 0..10_000 {
                    if bell.last.load(SeqCst) + 1 >= due {
                        break;
                    }
                    sleep(1_000);
                }
                assert!(bell.last.load(SeqCst) + 1 >= due, "nothing came when the timer was due");
                settle(&bell, before + 1);
                // However many calls were just beginning, the last one is not lost, and no more than one comes beside it.
                let rings = bell.rings() - before;
                assert!((1..=2).contains(&rings), "{rings} runs");
                assert!(!timer.cancel(), "nothing is left to be cancelled");
            }
            drop(timer);
            assert_eq!(fallible::Arc::references_now(&bell), 1);
        });
    }
}

#[test]
fn a_timer_that_is_dropped_does_not_run_any_more() {
    for kernel in kernels() {
        in_the_driver(&kernel, || {
            for delay in [0, 0, 0, 1, 1, 50, 50, 400] {
                let bell = fallible::Arc::try_new(Bell::default()).expect("memory");
                let timer = KernelTimer::<Ring>::try_new().expect("memory");
                timer.set(delay, &bell);
                drop(timer);
                // A call that had begun may still be running.
                flush();
                let rings = bell.rings();
                settle(&bell, rings);
                assert_eq!(bell.rings(), rings);
                assert_eq!(fallible::Arc::references_now(&bell), 1);
            }
        });
    }
}

/// Owns the DPC whose target it is, as every object of the engine does.
struct Owner {
    call: OnceLock<KernelDpc<Work>>,
    ran: Arc<AtomicU32>,
}

struct Work;

impl Routine for Work {
    type Target = Owner;

    fn run(owner: &fallible::Arc<Owner>) {
        owner.ran.fetch_add(1, SeqCst);
    }
}

#[test]
fn the_last_reference_to_the_owner_of_a_call_may_be_that_of_the_call() {
    for kernel in kernels() {
        let ran = Arc::new(AtomicU32::new(0));
        in_the_driver(&kernel, || {
            for round in 0..32 {
                let owner = Owner { call: OnceLock::new(), ran: ran.clone() };
                let owner = fallible::Arc::try_new(owner).expect("memory");
                let call = KernelDpc::try_new(round % KernelOs.processors()).expect("a processor");
                assert!(owner.call.set(call).is_ok());
                let call = owner.call.get().expect("it was set");
                assert!(call.queue(&owner), "it was not queued before");
                drop(owner);
                if round % 4 == 0 {
                    flush();
                }
            }
            flush();
        });
        assert_eq!(ran.load(SeqCst), 32, "one run for each");
        assert_eq!(Arc::strong_count(&ran), 1, "every owner has gone");
    }
}

/// A call that queues its partner, which may be itself, until there is nothing left to do: an engine that never runs dry, or an
/// engine and the callback whose posts it carries out.
struct Restless {
    calls: OnceLock<[KernelDpc<Turn>; 2]>,
    left: AtomicU32,
    running: AtomicU32,
    ran: AtomicU32,
}

struct Turn;

impl Routine for Turn {
    type Target = Restless;

    fn run(all: &fallible::Arc<Restless>) {
        assert_eq!((irql(), all.running.fetch_add(1, SeqCst)), (2, 0), "at DISPATCH_LEVEL, one at a time");
        let turn = all.ran.fetch_add(1, SeqCst);
        let left = all.left.fetch_sub(1, SeqCst) - 1;
        all.running.fetch_sub(1, SeqCst);
        if left > 0 {
            let calls = all.calls.get().expect("they were set");
            assert!(calls[turn as usize & 1].queue(all), "it was not queued");
        }
    }
}

/// Has two calls on one processor take so many turns.
fn be_restless(turns: u32) -> fallible::Arc<Restless> {
    let all = Restless {
        calls: OnceLock::new(),
        left: AtomicU32::new(turns),
        running: AtomicU32::new(0),
        ran: AtomicU32::new(0),
    };
    let all = fallible::Arc::try_new(all).expect("memory");
    let calls = [(); 2].map(|()| KernelDpc::try_new(0).expect("a processor"));
    assert!(all.calls.set(calls).is_ok());
    assert!(all.calls.get().expect("it was set")[1].queue(&all));
    all
}

/// Kernels whose watchdog barks after 5,000 calls in a row, and so before these turns are over.
const TURNS: u32 = 12_000;

fn watched_kernels() -> impl Iterator<Item = Kernel> {
    let seeded = (1..5).map(|seed| Kernel::seeded(seed).preemption(2));
    let builders = [Kernel::threads(), Kernel::threads().processors(1)].into_iter().chain(seeded);
    builders.map(|builder| builder.dispatch_limit(Duration::from_millis(500)).start())
}

#[test]
fn calls_that_queue_each_other_without_end_give_their_processor_back() {
    for kernel in watched_kernels() {
        in_the_driver(&kernel, || {
            let all = be_restless(TURNS);
            for _ in 0..20_000 {
                if all.ran.load(SeqCst) == TURNS {
                    break;
                }
                sleep(1_000);
            }
            assert_eq!(all.ran.load(SeqCst), TURNS, "every turn was taken");
            flush();
        });
        assert!(kernel.dpcs_run() >= u64::from(TURNS), "each was queued as a DPC");
    }
}

#[test]
fn calls_that_wait_for_a_thread_run_before_the_driver_is_unloaded() {
    /// More than a processor runs before calls wait.
    const MANY: u32 = 3_000;
    for kernel in watched_kernels() {
        let ran = Arc::new(AtomicU32::new(0));
        in_the_driver(&kernel, || {
            for _ in 0..MANY {
                let owner = Owner { call: OnceLock::new(), ran: ran.clone() };
                let owner = fallible::Arc::try_new(owner).expect("memory");
                assert!(owner.call.set(KernelDpc::try_new(0).expect("a processor")).is_ok());
                assert!(owner.call.get().expect("it was set").queue(&owner), "it was not queued before");
            }
        });
        assert_eq!(ran.load(SeqCst), MANY, "one run for each");
        assert_eq!(Arc::strong_count(&ran), 1, "every owner has gone");
    }
}

fn interrupt_time() -> u64 {
    let mut counter = 0;
    // SAFETY: the place lives until the call returns.
    unsafe { KeQueryInterruptTimePrecise(&raw mut counter) }
}

#[test]
fn the_clock_counts_microseconds() {
    in_the_driver(&Kernel::threads().start(), || {
        let before = interrupt_time() / 10;
        let now = KernelOs.now();
        assert!((before..=interrupt_time() / 10).contains(&now), "{before} {now}");
    });
}

#[test]
fn the_timer_resolution_is_that_of_the_clock_or_the_granularity_if_that_is_coarser() {
    in_the_driver(&Kernel::threads().start(), || {
        assert_eq!(KernelOs.timer_resolution(), 1_000, "what the driver asks the clock for");
        KernelOs::set_granularity(5_000);
        assert_eq!(KernelOs.timer_resolution(), 5_000);
        KernelOs::set_granularity(1);
        assert_eq!(KernelOs.timer_resolution(), 1_000);
    });
}

#[test]
fn random_numbers_differ() {
    in_the_driver(&Kernel::threads().start(), || {
        let numbers: HashSet<u32> = (0..1_000).map(|_| KernelOs.random()).collect();
        assert!(numbers.len() > 990, "{} of 1000", numbers.len());
    });
}

/// Where a DPC has run.
struct DpcRun {
    call: OnceLock<KernelDpc<Look>>,
    seen: AtomicU32,
}

struct Look;

impl Routine for Look {
    type Target = DpcRun;

    fn run(place: &fallible::Arc<DpcRun>) {
        place.seen.store(KernelOs.current_processor(), SeqCst);
    }
}

#[test]
fn a_dpc_runs_on_its_processor() {
    in_the_driver(&Kernel::threads().processors(3).start(), || {
        for processor in 0..3 {
            let place = DpcRun { call: OnceLock::new(), seen: AtomicU32::new(u32::MAX) };
            let place = fallible::Arc::try_new(place).expect("memory");
            assert!(place.call.set(KernelDpc::try_new(processor).expect("a processor")).is_ok());
            assert!(place.call.get().expect("it was set").queue(&place), "it was not queued before");
            flush();
            assert_eq!(place.seen.load(SeqCst), processor);
        }
    });
}

/// An event that is set by a timer.
struct Alarm {
    event: KernelEvent,
    rang: AtomicU32,
}

struct Wake;

impl Routine for Wake {
    type Target = Alarm;

    fn run(alarm: &fallible::Arc<Alarm>) {
        alarm.rang.store(1, SeqCst);
        alarm.event.set();
    }
}

#[test]
fn who_waits_for_an_event_goes_on_when_it_is_set() {
    for kernel in kernels() {
        in_the_driver(&kernel, || {
            let alarm = Alarm { event: KernelOs.event().expect("memory"), rang: AtomicU32::new(0) };
            let alarm = fallible::Arc::try_new(alarm).expect("memory");
            let timer = KernelTimer::<Wake>::try_new().expect("memory");
            timer.set(2_000, &alarm);
            alarm.event.wait();
            assert_eq!(alarm.rang.load(SeqCst), 1, "not before");
            alarm.event.wait();
            drop(timer);
            flush();
        });
    }
}

#[test]
fn processors_of_a_set_take_turns_and_others_are_not_there() {
    in_the_driver(&Kernel::threads().processors(3).start(), || {
        let set = |mask| Affinity { group: 0, mask };
        for mask in [0b101, 0b111, 0b110] {
            let chosen: Vec<_> = (0..6).map(|_| KernelOs.processor_for(set(mask)).expect("one of them")).collect();
            assert!(chosen.iter().all(|chosen| mask >> chosen & 1 == 1), "{chosen:?}");
            let (count, mut first) = (mask.count_ones() as usize, chosen[..mask.count_ones() as usize].to_vec());
            first.sort_unstable();
            first.dedup();
            assert_eq!(first.len(), count, "each in its turn: {chosen:?}");
        }
        assert_eq!(KernelOs.processor_for(set(0)), None);
        assert_eq!(KernelOs.processor_for(set(0b1000)), None);
        assert_eq!(KernelOs.processor_for(Affinity { group: 1, mask: 1 }), None);
        assert_eq!(KernelOs.processor_for(set(0b1010)), Some(1), "the only one that is there");
    });
}

#[test]
fn a_hook_knows_where_and_when_it_runs() {
    in_the_driver(&Kernel::threads().processors(3).start(), || {
        let before = interrupt_time();
        let here = KernelOs.place();
        assert!((before..=interrupt_time()).contains(&here.time), "{before} {}", here.time);
        assert_eq!((here.irql, InterposeOs::irql(&KernelOs)), (0, 0));
        assert_eq!(at_dispatch_level(|| (KernelOs.place().irql, InterposeOs::irql(&KernelOs))), (2, 2));
        assert_ne!(here.thread, 0);
        assert_eq!(KernelOs.place().thread, here.thread);
        let thread = kernel::Thread::try_spawn(move || assert_ne!(KernelOs.place().thread, here.thread));
        drop(thread.expect("a thread"));
        for processor in 0..3 {
            let bound = kernel::Bound::to(processor).expect("a processor");
            assert_eq!(KernelOs.place().processor, processor);
            drop(bound);
        }

        let stamps = [Phase::Call, Phase::Return].map(|phase| KernelOs.stamp(phase));
        assert!(stamps[0].time < stamps[1].time && stamps[0].thread == here.thread);

        let mut frames = [0; 8];
        let count = KernelOs.stack(&mut frames);
        assert!((2..=8).contains(&count) && frames[..count].iter().all(|&frame| frame != 0), "{frames:x?}");
        assert_eq!(KernelOs.stack(&mut frames[..1]), 1);
    });
}

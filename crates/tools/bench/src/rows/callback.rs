//! From a completion to the callback for it.

use std::{
    hint,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
    time::{Duration, Instant},
};

use engine::{
    cq::{
        Cq, CqClient, CqConsumer, CqParameters,
        notify::{ArmType, CqFailure},
    },
    os::Os,
};
use host::{
    HostOs,
    machine::{Irql, Machine, lower, raise},
};
use ndkpi::NtStatus;

use super::entry::completion;
use crate::{
    Context,
    kind::{CalledOs, Lock},
    measure::{alone, each},
    row::{Goal, Row, Unit},
    settle,
};

/// Entries of the completion queue.
const DEPTH: u32 = 64;
/// After so long without work a thread that parks when it has none sleeps.
const ASLEEP: Duration = Duration::from_micros(6);

/// The rows of this file.
pub fn rows(context: &mut Context<'_>) {
    context.row("callback round trip", round_trip);
}

/// Counts callbacks.
#[derive(Clone, Default)]
struct Calls(Arc<AtomicU64>);

impl CqClient for Calls {
    fn notify(&self, _: NtStatus) {
        self.0.fetch_add(1, Release);
    }

    fn failed(&self, failure: CqFailure) {
        panic!("a completion queue has failed: {failure:?}");
    }
}

fn queue<O: Os>(os: &O) -> (fallible::Arc<Cq<O>>, CqConsumer<O>, Calls) {
    let calls = Calls::default();
    let parameters = CqParameters { depth: DEPTH, max_depth: DEPTH, processor: 0 };
    let (cq, consumer) = Cq::try_new(os, parameters, calls.clone()).expect("memory");
    (cq, consumer, calls)
}

/// Where the callback runs on another thread, which sleeps until then, nearly all of the time is the operating system's: it is
/// beside two threads that hand a number to and fro in the same way. Where it interrupts the thread that queues it, as in a
/// kernel, it is what the code takes.
fn round_trip(context: &Context<'_>) -> Vec<Row> {
    let count = context.effort.scale(1 << 10);
    // The processor and the other thread of the peer are on the second core.
    context.cores.pin_second();
    let machine = Machine::threads().processors(1).start();
    let other = Sleeper::start();
    context.cores.pin_first();
    let os = HostOs::unwatched(&machine);
    let called = CalledOs::new(&os);
    let samples = context.interleave(vec![
        Box::new(|| with_threads(&os, count)),
        Box::new(|| with_threads(&called, count)),
        Box::new(|| other.hand_over(count)),
        Box::new(|| interrupting(&os, &os, count)),
        Box::new(|| interrupting(&os, &called, count)),
    ]);
    drop(other);
    settle(&os);
    machine.shutdown();
    let [inlined, called, plain, inlined_here, called_here] = &samples[..] else { unreachable!("five subjects") };
    let name =
        |lock: Lock, thread| format!("callback round trip: arm, completion, callback {thread}, poll; {}", lock.words());
    let (there, here) = ("on a thread that sleeps", "on the same thread, as in a kernel");
    let peer = "a number there and back, to a thread that sleeps";
    let unit = Unit::Nanoseconds;
    vec![
        Row::in_rounds(&name(Lock::Inlined, there), peer, unit, Goal::AtMost(1.2), inlined, plain),
        Row::in_rounds(&name(Lock::Called, there), peer, unit, Goal::Reported, called, plain),
        Row::plain(&name(Lock::Inlined, here), unit, inlined_here),
        Row::plain(&name(Lock::Called, here), unit, called_here),
    ]
}

fn with_threads<O: Os>(os: &O, count: usize) -> f64 {
    let (cq, mut consumer, calls) = queue(os);
    let time = asleep_before_each(count, |number| {
        consumer.arm(ArmType::Any);
        Cq::push(&cq, completion(number));
        while calls.0.load(Acquire) == number as u64 {
            thread::yield_now();
        }
        consumer.poll(1, |_| {});
    });
    cq.close();
    time
}

/// The time that `once` takes when the thread that it wakes has gone to sleep. Whether it has done so by itself since the last
/// time is luck, and a thread that has not costs an eighth.
fn asleep_before_each(count: usize, mut once: impl FnMut(usize)) -> f64 {
    let mut time = Duration::ZERO;
    for number in 0..count {
        let awake = Instant::now();
        while awake.elapsed() < ASLEEP {
            hint::spin_loop();
        }
        let started = Instant::now();
        once(number);
        time += started.elapsed();
    }
    each(time, count)
}

/// The NIC puts completions in at `DISPATCH_LEVEL`; the callback runs when the level drops.
fn interrupting<O: Os>(host: &HostOs, os: &O, count: usize) -> f64 {
    let (cq, mut consumer, calls) = queue(os);
    let on = host.machine().run_on(0);
    let time = alone(count, || {
        for number in 0..count {
            consumer.arm(ArmType::Any);
            let before = raise(Irql::DISPATCH_LEVEL);
            Cq::push(&cq, completion(number));
            lower(before);
            consumer.poll(1, |_| {});
        }
    });
    assert_eq!(calls.0.load(Acquire), count as u64, "a callback for each");
    drop(on);
    cq.close();
    time
}

/// A thread that sleeps until it is given a number, and gives it back.
struct Sleeper {
    numbers: Arc<Numbers>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Numbers {
    given: AtomicU64,
    back: AtomicU64,
    ends: AtomicBool,
}

impl Sleeper {
    fn start() -> Self {
        let numbers = Arc::<Numbers>::default();
        let of_thread = numbers.clone();
        let run = move || {
            while !of_thread.ends.load(Acquire) {
                let given = of_thread.given.load(Acquire);
                if of_thread.back.load(Relaxed) == given {
                    thread::park();
                } else {
                    of_thread.back.store(given, Release);
                }
            }
        };
        Self { numbers, thread: Some(thread::spawn(run)) }
    }

    fn hand_over(&self, count: usize) -> f64 {
        let thread = self.thread.as_ref().expect("it ends when the value is dropped").thread();
        asleep_before_each(count, |_| {
            let number = self.numbers.given.load(Relaxed) + 1;
            self.numbers.given.store(number, Release);
            thread.unpark();
            while self.numbers.back.load(Acquire) != number {
                thread::yield_now();
            }
        })
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.numbers.ends.store(true, Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does not panic.
            let _ = thread.join();
        }
    }
}

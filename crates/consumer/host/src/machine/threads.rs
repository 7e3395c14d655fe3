//! The scheduler of threads: one for each processor, and one for the timers.

use std::{
    any::Any,
    hint,
    panic::{AssertUnwindSafe, catch_unwind},
    thread::{self, Builder, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    core::MachineRef,
    dpc::run_entry,
    failure::{Failure, message_of},
    irql::{Irql, raise},
    queue::{Next, Processor},
    thread::{self as current, Entered},
    timer_queue::{Expired, NextTimer},
};

/// Waiting threads look this often whether a processor has failed meanwhile.
pub const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Starts the threads of a machine.
pub fn start(machine: &MachineRef) -> Vec<JoinHandle<()>> {
    let spawn = |name: String, work: Box<dyn FnOnce() + Send>| {
        Builder::new().name(name).spawn(work).expect("the operating system gives a thread")
    };
    let mut threads = Vec::new();
    for index in 0..machine.processors() {
        let of_thread = machine.clone();
        let thread = spawn(format!("processor {index}"), Box::new(move || processor_loop(&of_thread, index)));
        machine.core.processors[index as usize].set_thread(thread.thread().clone());
        threads.push(thread);
    }
    let of_thread = machine.clone();
    threads.push(spawn("timers".to_owned(), Box::new(move || timer_loop(&of_thread))));
    threads
}

/// Waits until the threads of a machine that stops have ended. `false` if one does not end within `limit`.
pub fn join(threads: &mut Vec<JoinHandle<()>>, limit: Duration) -> bool {
    let started = Instant::now();
    for thread in threads.drain(..) {
        while !thread.is_finished() {
            match started.elapsed() {
                waited if waited > limit => return false,
                // They are about to end, unless a routine keeps one.
                waited if waited < Duration::from_millis(1) => thread::yield_now(),
                _ => thread::sleep(Duration::from_millis(1)),
            }
        }
        // Routines that panic are caught and written down, so the threads themselves do not.
        if thread.join().is_err() {
            eprintln!("machine: a thread of the machine panicked");
        }
    }
    true
}

fn processor_loop(machine: &MachineRef, index: u32) {
    let processor = &machine.core.processors[index as usize];
    // Between two calls there is nothing that could see the level: a processor thread is at DISPATCH_LEVEL always.
    let _ = raise(Irql::DISPATCH_LEVEL);
    machine.bind_current_thread(index);
    let mut spin = Spin::new(machine.settings().spin);
    loop {
        // The call that is taken and its predecessor's end are one: both under the lock of the queue.
        processor.take();
        let mut next = processor.next(false);
        while let Next::Run(entry) = next {
            let name = entry.dpc.name;
            report(machine, index, name, catch_unwind(AssertUnwindSafe(|| run_entry(machine, entry, index))));
            next = processor.next(false);
        }
        processor.give();
        match next {
            Next::Run(_) => {}
            Next::Sleep => {
                if !spin.found(processor) {
                    processor.sleep();
                }
            }
            Next::Stop => return,
        }
    }
}

fn timer_loop(machine: &MachineRef) {
    loop {
        match machine.core.timers.next(|| machine.now(), |time| machine.in_real_time(time)) {
            NextTimer::Expire(expired) => {
                let (index, name) = (expired.processor, expired.timer.name);
                report(machine, index, name, catch_unwind(AssertUnwindSafe(|| expire(machine, &expired))));
            }
            NextTimer::Tick => machine.core.processors.iter().for_each(Processor::begin),
            NextTimer::Stop => return,
        }
    }
}

/// Lets a timer expire on the current thread, as the processor that has set it.
pub fn expire(machine: &MachineRef, expired: &Expired) {
    current::with(|state| {
        let _entered = Entered::new(state, machine.number(), expired.processor);
        expired.timer.expire(expired.arguments);
    });
}

/// Writes a panic down, if there was one.
pub fn report(machine: &MachineRef, processor: u32, routine: &'static str, outcome: Result<(), Box<dyn Any + Send>>) {
    if let Err(panic) = outcome {
        machine.core.failures.record(Failure { processor, routine, message: message_of(&*panic) });
    }
}

/// How long an idle processor looks for work before it sleeps: shorter and shorter as long as it looks in vain.
struct Spin {
    longest: Duration,
    now: Duration,
}

impl Spin {
    const fn new(longest: Duration) -> Self {
        Self { longest, now: longest }
    }

    /// Returns true if work came while the thread looked for some.
    fn found(&mut self, processor: &Processor) -> bool {
        if self.longest.is_zero() {
            return false;
        }
        let started = Instant::now();
        loop {
            for _ in 0..32 {
                if processor.pending() {
                    self.now = self.longest;
                    return true;
                }
                hint::spin_loop();
            }
            if started.elapsed() >= self.now {
                self.now = (self.now / 2).max(self.longest / 16);
                return false;
            }
            thread::yield_now();
        }
    }
}

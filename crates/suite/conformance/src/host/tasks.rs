//! Tasks beside each other: on threads, or one step at a time in an order that a seed determines.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use crate::{
    platform::{Step, Task},
    random::Random,
};
use ndkpi::NtStatus;

use super::platform::HostPlatform;

/// Steps without work after which a task waits instead of asking again.
const EAGER: u32 = 64;

/// Runs every task on a thread of its own, which stands on a processor of its own as far as there are enough.
pub fn on_threads(platform: &HostPlatform, tasks: &mut [&mut dyn Task]) -> Result<(), NtStatus> {
    let machine = platform.machine();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (index, task) in tasks.iter_mut().enumerate() {
            let work = move || {
                let processor = u32::try_from(index).unwrap_or(0) % machine.processors();
                machine.bind_current_thread(processor);
                let mut waited = 0;
                loop {
                    match task.step() {
                        Step::Worked => waited = 0,
                        Step::Waits if waited < EAGER => {
                            waited += 1;
                            std::thread::yield_now();
                        }
                        Step::Waits => std::thread::sleep(Duration::from_micros(20)),
                        Step::Done => break,
                    }
                }
            };
            let thread = std::thread::Builder::new().name(format!("task {index}")).spawn_scoped(scope, work);
            threads.push(thread.map_err(|_| NtStatus::INSUFFICIENT_RESOURCES));
        }
        for thread in threads {
            if let Err(panic) = thread?.join() {
                std::panic::resume_unwind(panic);
            }
        }
        Ok(())
    })
}

/// Runs one step of one task at a time, and lets the machine go on in between.
pub fn one_by_one(platform: &HostPlatform, tasks: &mut [&mut dyn Task]) {
    let machine = platform.machine();
    let seed = platform.task_seed.fetch_add(1, Relaxed);
    let mut random = Random::new(seed, "tasks");
    let mut running: Vec<&mut dyn Task> = tasks.iter_mut().map(|task| &mut **task).collect();
    let mut waits = 0;
    while !running.is_empty() {
        let count = u32::try_from(running.len()).unwrap_or(1);
        let index = random.below(count) as usize;
        match running[index].step() {
            Step::Worked => waits = 0,
            Step::Waits => waits += 1,
            Step::Done => drop(running.swap_remove(index)),
        }
        if waits > 2 * count {
            machine.run_for(u64::from(waits));
        } else if random.chance(30) {
            machine.run_until_idle();
        }
    }
}

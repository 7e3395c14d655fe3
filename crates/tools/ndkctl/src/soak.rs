//! `ndkctl soak`: random traffic for a long time, and nothing left at its end.

use std::{
    fs,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use bench::allocated::in_use;
use conformance::host::{HostPlatform, Scheduler};
use conformance::{
    Platform, Stop,
    client::{Options, Session},
    soak::{self, Counts},
};
use host::say;
use ndkpi::NDK_VERSION;
use serde::Serialize;

use crate::{
    End,
    args::Soak,
    output::{align_right, bytes, duration, print_json, print_table, progress, table},
    record::Latest,
};

/// Connections that a worker makes in a round.
const EPISODES: u32 = 25;
/// Rounds after which the program has the memory that it needs.
const WARM: u64 = 5;
/// More bytes allocated than this, after the first rounds, are a leak: between two rounds there is nothing but the program itself.
const ALLOCATED: u64 = 64 << 10;
/// More memory than this, after the first rounds, is one too: what is not allocated, such as mapped memory. The allocator keeps some
/// of what was freed, and threads that come and go keep it in different places.
const RESIDENT: u64 = 16 << 20;

/// The result of a run.
#[derive(Serialize)]
struct Shown {
    rounds: u64,
    seed: u64,
    seconds: f64,
    counts: serde_json::Map<String, serde_json::Value>,
    /// Bytes allocated after the first rounds, and at the end; none if there were fewer rounds.
    allocated_before: Option<u64>,
    allocated_after: Option<u64>,
    /// Bytes of the program in memory, then and at the end; none where the system does not say either.
    memory_before: Option<u64>,
    memory_after: Option<u64>,
    failure: Option<String>,
}

/// The bytes of this program, between two rounds.
#[derive(Clone, Copy)]
struct Memory {
    allocated: u64,
    /// None if the system does not say.
    resident: Option<u64>,
}

impl Memory {
    fn now() -> Self {
        Self { allocated: in_use() as u64, resident: resident() }
    }

    /// What has grown by more than it may since `before`, if anything has.
    fn grown(self, before: Self) -> Option<String> {
        let grown = |what, before, now, most| {
            (now > before + most).then(|| format!("{what} grew from {} to {}", bytes(before), bytes(now)))
        };
        let resident = before.resident.zip(self.resident);
        grown("what is allocated", before.allocated, self.allocated, ALLOCATED)
            .or_else(|| resident.and_then(|(before, now)| grown("the program in memory", before, now, RESIDENT)))
    }
}

/// The bytes of this program that are in memory, if the system says so.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

/// One round, on a machine of its own: nothing is left when it has shut down.
fn round(
    args: &Soak,
    seed: u64,
    counts: &Counts,
    latest: &Latest,
    interrupted: &Arc<AtomicBool>,
) -> Result<(), String> {
    let mut setup = args.machine.setup(seed);
    if args.deterministic {
        setup.scheduler = Scheduler::Seeded { seed, preemption: 10 };
    }
    let host = HostPlatform::start_with_cancel(setup, interrupted).map_err(|status| format!("no machine: {status}"))?;
    let host = Arc::new(host);
    let recorded = args.record.is_wanted().then(|| args.record.platform(&host, latest, None)).transpose()?;
    let platform: &dyn Platform = recorded.as_deref().map_or(&*host, |recorded| recorded);
    let options = Options { name: "soak", version: NDK_VERSION::V2_0, seed, hostile: true };
    let verdict = Session::with(platform, &options, |session| soak::round(session, counts, args.workers, EPISODES));
    let panic = host.take_panic();
    drop(recorded);
    let left =
        Arc::into_inner(host).map_or_else(|| Err("somebody still uses the machine".to_owned()), HostPlatform::finish);
    match verdict {
        Err(Stop::Failed(seen)) => Err(seen.to_string()),
        Err(stop) if !interrupted.load(Relaxed) => Err(stop.text().to_owned()),
        _ => panic.map_or(left, Err),
    }
}

/// Runs the command.
pub fn run(args: &Soak, interrupted: &Arc<AtomicBool>) -> Result<End, String> {
    let (started, counts, latest) = (Instant::now(), Counts::default(), Latest::default());
    let wanted = args.rounds.map_or(u64::MAX, u64::from);
    let until = Duration::from_secs(60 * u64::from(args.minutes));
    let bar = if args.json { indicatif::ProgressBar::hidden() } else { progress(0, "{pos} rounds, {elapsed}") };
    let (mut rounds, mut failure, mut before) = (0, None, None);
    while rounds < wanted && (args.rounds.is_some() || started.elapsed() < until) && !interrupted.load(Relaxed) {
        let seed = args.seed.wrapping_add(rounds);
        if let Err(seen) = round(args, seed, &counts, &latest, interrupted) {
            failure = Some(format!("round {rounds}: {seen}; that round again: --rounds 1 --seed {seed}"));
            break;
        }
        rounds += 1;
        bar.set_position(rounds);
        if rounds == WARM {
            before = Some(Memory::now());
        }
    }
    bar.finish_and_clear();
    if let Some(file) = latest.file() {
        args.record.write(&file)?;
    }
    let after = before.map(|_| Memory::now());
    if failure.is_none() {
        failure = before.zip(after).and_then(|(before, after)| after.grown(before));
    }
    let shown = Shown {
        rounds,
        seed: args.seed,
        seconds: started.elapsed().as_secs_f64(),
        counts: counts.each().map(|(name, count)| (name.to_owned(), count.into())).collect(),
        allocated_before: before.map(|memory| memory.allocated),
        allocated_after: after.map(|memory| memory.allocated),
        memory_before: before.and_then(|memory| memory.resident),
        memory_after: after.and_then(|memory| memory.resident),
        failure,
    };
    report(args, &shown)?;
    Ok(match shown.failure {
        Some(_) => End::Bad,
        None if interrupted.load(Relaxed) => End::Interrupted,
        None => End::Good,
    })
}

fn report(args: &Soak, shown: &Shown) -> Result<(), String> {
    if args.json {
        return print_json(shown);
    }
    let mut list = table(&["what", "how many"]);
    for (name, count) in &shown.counts {
        list.add_row([name.clone(), count.to_string()]);
    }
    align_right(&mut list, 1);
    print_table(&list);
    let time = duration(Duration::from_secs_f64(shown.seconds));
    say!("{} rounds of {} workers in {time}, seeds from {}", shown.rounds, args.workers, shown.seed);
    let line = |what: &str, before: Option<u64>, after: Option<u64>, why: &str| match before.zip(after) {
        Some((before, after)) => say!("{what}: {} after {WARM} rounds, {} now", bytes(before), bytes(after)),
        None => say!("{what}: not looked at: {why}"),
    };
    line("allocated", shown.allocated_before, shown.allocated_after, "too few rounds");
    line("in memory", shown.memory_before, shown.memory_after, "too few rounds, or not on Linux");
    match &shown.failure {
        Some(failure) => say!("FAILED: {failure}"),
        None => say!("Nothing is left open, every byte was right."),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{ALLOCATED, Memory, RESIDENT};

    #[test]
    fn a_leak_is_what_stays_allocated_or_in_memory() {
        let before = Memory { allocated: 5000, resident: Some(16 << 20) };
        let after = |allocated, resident| Memory { allocated, resident }.grown(before);
        assert_eq!(after(5000 + ALLOCATED, Some((16 << 20) + RESIDENT)), None);
        assert_eq!(after(100, None), None, "less, and the system does not say");
        let seen = after(5001 + ALLOCATED, Some(1 << 20)).expect("a leak");
        assert_eq!(seen, "what is allocated grew from 5000 bytes to 70537 bytes");
        let seen = after(5000, Some((16 << 20) + RESIDENT + 1)).expect("a leak of another kind");
        assert!(seen.starts_with("the program in memory grew from 16 MiB"), "{seen}");
    }
}

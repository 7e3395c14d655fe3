use conformance::{cases, runner::Run};
use conformance_host::{Harness, Scheduler, Setup};
use provider::CompletionMode;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let filter = args.get(1).cloned().unwrap_or_default();
    let mode = args.get(2).cloned().unwrap_or("inline".into());
    let sched = args.get(3).cloned().unwrap_or("threads".into());
    let version = args.get(4).cloned().unwrap_or("2".into());
    let completion = match mode.as_str() {
        "inline" => CompletionMode::Inline,
        "pending" => CompletionMode::Pending,
        "early" => CompletionMode::Early,
        _ => CompletionMode::Mixed,
    };
    let scheduler = match sched.as_str() {
        "threads" => Scheduler::Threads,
        "seeded" => Scheduler::Seeded { seed: 1, preemption: 0 },
        _ => Scheduler::Seeded { seed: 1, preemption: 20 },
    };
    let harness = Harness::new(Setup { completion, scheduler, ..Setup::default() }).verbose(std::env::var("V").is_ok());
    let mut failed = 0;
    let mut n = 0;
    let t = std::time::Instant::now();
    for case in cases::all().filter(|c| conformance::selects(&filter, c)) {
        let how = Run { version: ndkpi::NDK_VERSION::new(version.parse().unwrap(), 0), seed: 7, hostile: true };
        let f = harness.run(case, how);
        n += 1;
        if f.outcome.is_failure() {
            failed += 1;
        }
        if std::env::var("Q").is_err() || f.outcome.is_failure() {
            println!("{:45} {:14} {:>8.1} ms  {}", case.name, case.section, f.took.as_secs_f64() * 1e3, f.outcome);
        }
    }
    println!("{n} cases, {failed} failed, {:?}", t.elapsed());
}

//! Carrying a run out, and what is said of it.

use std::{
    fs::File,
    io::BufWriter,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use host::{note, say};
use runner::{
    Faults, Results, Script,
    places::places,
    report::Outcome,
    worker::{Job, Workers, supervise},
};

use super::{
    Run, named,
    observed::{self, Folder},
    script::script,
    symbols::Symbols,
    workers::{self, Starter},
};
use crate::{End, output::progress};

/// Seeds that one worker carries out at most: it takes a second to start one.
const BATCH: usize = 100;

/// Runs the images.
pub fn execute(args: &Run, interrupted: &AtomicBool) -> Result<End, String> {
    let mut script = script(args)?;
    let is_one = script.machines.is_empty();
    if !is_one && args.threads.is_some() {
        return Err("--threads is for one machine: several have a seed, and real time they do not have".to_owned());
    }
    if !is_one && args.faults != Faults::None {
        return Err("--faults is for one machine: write a script of each".to_owned());
    }
    if let Some(processors) = args.threads {
        script.kernel.threads = true;
        script.kernel.processors = processors;
    }
    observed::ask(args, &mut script)?;
    let symbols = Symbols::read(&script, &args.pdb)?;
    let starter = Starter::find()?;
    let (mut results, recordings) = carry_out(args, &script, &starter, interrupted)?;
    for outcome in &mut results.outcomes {
        add_places(outcome, &script, &symbols);
    }
    if let Some(recordings) = &recordings {
        recordings.rename(&mut results);
    }
    if let Some(path) = &args.junit {
        write_junit(&results, path)?;
    }
    if args.json {
        results.write_json(std::io::stdout().lock()).map_err(|error| error.to_string())?;
    } else {
        say!("{results}");
    }
    let is_interrupted = interrupted.load(Relaxed);
    if is_interrupted {
        note!("interrupted: {} of {} seeds have ended", results.seeds(), args.seeds.count());
    }
    // Behind the results, which are there whatever becomes of this. The run that would be recorded may not have ended.
    if let Some(recordings) = recordings.filter(|_| !is_interrupted || results.findings().next().is_some()) {
        recordings.write(args, &script, &results)?;
    }
    if is_interrupted {
        return Ok(End::Interrupted);
    }
    Ok(if results.exit_code() == 0 { End::Good } else { End::Bad })
}

fn carry_out(
    args: &Run,
    script: &Script,
    starter: &Starter,
    interrupted: &AtomicBool,
) -> Result<(Results, Option<Folder>), String> {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or_else(processors, usize::from);
    let plan =
        Workers { jobs, batch: BATCH, limit: Duration::from_secs(args.limit), shown: args.trace, stop: interrupted };
    let mut worker_script = script.clone();
    for image in worker_script.all_images_mut() {
        image.file = workers::path(&image.file);
    }
    let mut job = Job::new(worker_script, args.faults);
    let folder = Folder::of(args, &mut job)?;
    let bar = progress(args.seeds.count(), "{bar:40} {pos} of {len} seeds");
    let done = |outcome: &Outcome| {
        if outcome.fault.is_none_or(|fault| fault == 1) {
            bar.inc(1);
        }
    };
    let began = Instant::now();
    let outcomes = supervise(&job, args.seeds.iter(), &plan, || starter.command(args.trace), done);
    bar.finish_and_clear();
    let name = script.all_images().last().map_or_else(|| "run".to_owned(), |image| image.name.clone());
    Ok((Results { name, outcomes: outcomes?, took: began.elapsed() }, folder))
}

/// Finds the places in images that a finding names.
fn add_places(outcome: &mut Outcome, script: &Script, symbols: &Symbols) {
    for finding in &mut outcome.findings {
        let images = &script.on(finding.machine.as_deref()).images;
        let shown: Vec<_> = images.iter().map(runner::script::Image::shown).collect();
        let text = format!("{}\n{}", finding.words, finding.output);
        finding.places = places(&text, shown.iter().map(String::as_str));
        finding.places.iter_mut().for_each(|place| symbols.add_to(place));
        finding.words = named::name(&finding.words, &finding.places);
    }
}

fn write_junit(results: &Results, path: &Path) -> Result<(), String> {
    let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
    results.write_junit(BufWriter::new(file)).map_err(|error| format!("{}: {error}", path.display()))
}

//! Carrying a run out, and what is said of it.

use std::{
    fs::File,
    io::BufWriter,
    path::Path,
    time::{Duration, Instant},
};

use host::say;
use interpose::adviser;
use runner::{
    Results, Script,
    places::places,
    report::{Finding, Outcome},
    worker::{Job, Workers, supervise},
};

use super::{
    Run,
    script::script,
    symbols::Symbols,
    workers::{self, Starter},
};
use crate::{End, output::progress};

/// Seeds that one worker carries out at most: it takes a second to start one.
const BATCH: usize = 100;

/// Runs the images.
pub fn execute(args: &Run) -> Result<End, String> {
    let mut script = script(args)?;
    if let Some(processors) = args.threads {
        script.kernel.threads = true;
        script.kernel.processors = processors;
    }
    let symbols = Symbols::read(&script, &args.pdb)?;
    let starter = Starter::find()?;
    let mut results = carry_out(args, &script, &starter)?;
    for outcome in &mut results.outcomes {
        add_places(outcome, &script, &symbols);
    }
    if let Some(path) = &args.junit {
        write_junit(&results, path)?;
    }
    if args.json {
        results.write_json(std::io::stdout().lock()).map_err(|error| error.to_string())?;
    } else {
        say!("{results}");
    }
    Ok(if results.exit_code() == 0 { End::Good } else { End::Bad })
}

fn carry_out(args: &Run, script: &Script, starter: &Starter) -> Result<Results, String> {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or_else(processors, usize::from);
    let plan = Workers { jobs, batch: BATCH, limit: Duration::from_secs(args.limit), shown: args.trace };
    let mut worker_script = script.clone();
    for image in &mut worker_script.images {
        image.file = workers::path(&image.file);
    }
    let job = Job::new(worker_script, args.faults);
    let bar = progress(args.seeds.count(), "{bar:40} {pos} of {len} seeds");
    let done = |outcome: &Outcome| {
        if outcome.fault.is_none_or(|fault| fault == 1) {
            bar.inc(1);
        }
    };
    let began = Instant::now();
    let outcomes = supervise(&job, args.seeds.iter(), &plan, || starter.command(args.trace), done);
    bar.finish_and_clear();
    let name = script.images.last().map_or_else(|| "run".to_owned(), |image| image.name.clone());
    Ok(Results { name, outcomes: outcomes?, took: began.elapsed() })
}

/// Says what the number of a finding of the adviser stands for.
fn explain(finding: &mut Finding) {
    let number = finding.rule.strip_prefix("SN").and_then(|number| number.parse().ok());
    if let Some(page) = number.and_then(adviser::Finding::from_number).map(adviser::Finding::page) {
        finding.words = format!("{} ({}): {}", page.title, page.section, finding.words);
    }
}

/// Finds the places in images that a finding names.
fn add_places(outcome: &mut Outcome, script: &Script, symbols: &Symbols) {
    let Some(finding) = &mut outcome.finding else { return };
    explain(finding);
    let shown: Vec<_> = script.images.iter().map(runner::script::Image::shown).collect();
    let text = format!("{}\n{}", finding.words, finding.output);
    finding.places = places(&text, shown.iter().map(String::as_str));
    finding.places.iter_mut().for_each(|place| symbols.add_to(place));
}

fn write_junit(results: &Results, path: &Path) -> Result<(), String> {
    let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
    results.write_junit(BufWriter::new(file)).map_err(|error| format!("{}: {error}", path.display()))
}

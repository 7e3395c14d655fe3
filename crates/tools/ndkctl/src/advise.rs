//! `ndkctl selftest --advise`: the suite under the adviser.

use std::sync::Arc;

use conformance::host::{Interposed, Layer};
use host::{HostOs, note, say};
use interpose::adviser::{Adviser, Finding, Mode, Report, Settings, Sink, Totals};
use recorder::{Findings, Recorder, Ring};

use crate::output::{align_right, print_table, table};

/// How long a callback takes on a host says nothing: its processors are threads.
const SETTINGS: Settings = Settings { mode: Mode::Log, advice: true, longest_callback: 0 };

/// Prints what is found, if that is wanted, and notes it in the recording, if there is one.
pub struct Printer {
    verbose: bool,
    recorded: Option<Findings<HostOs>>,
}

impl Sink for Printer {
    fn report(&self, report: &Report<'_>) {
        if let Some(recorded) = &self.recorded {
            recorded.record(report);
        }
        if self.verbose {
            note!("{report}");
            for (who, frames) in report.stacks() {
                note!("  {who} {}", host::names(frames).join(", "));
            }
        }
    }
}

/// What is found in a run.
#[derive(Clone)]
pub struct Advice {
    verbose: bool,
    totals: fallible::Arc<Totals>,
    sink: fallible::Arc<Printer>,
}

impl Advice {
    /// Prints findings as they are made if `verbose`.
    pub fn new(verbose: bool) -> Result<Self, String> {
        let totals = fallible::Arc::try_new(Totals::default()).map_err(|error| error.to_string())?;
        let sink = fallible::Arc::try_new(Printer { verbose, recorded: None }).map_err(|error| error.to_string())?;
        Ok(Self { verbose, totals, sink })
    }

    /// The adviser of an adapter.
    pub fn hooks(&self) -> impl Fn(&HostOs) -> Adviser<HostOs, Printer> + Clone + Send + Sync + use<> {
        let (totals, sink) = (self.totals.clone(), self.sink.clone());
        move |os| Adviser::new(os.clone(), SETTINGS, sink.clone(), totals.clone())
    }

    /// The adviser of an adapter behind a recorder, in whose ring its findings are.
    pub fn hooks_recorded(
        &self,
        ring: &fallible::Arc<Ring>,
    ) -> impl Fn(&HostOs) -> (Recorder<HostOs>, Adviser<HostOs, Printer>) + Clone + Send + Sync + use<> {
        let (this, ring) = (self.clone(), ring.clone());
        move |os| {
            let recorded = Some(Findings::new(os.clone(), ring.clone(), recorder::Adviser::Behind));
            let sink = fallible::Arc::try_new(Printer { verbose: this.verbose, recorded });
            // Without memory the findings are counted and printed all the same.
            let sink = sink.unwrap_or_else(|_| this.sink.clone());
            let adviser = Adviser::new(os.clone(), SETTINGS, sink, this.totals.clone());
            (Recorder::new(os.clone(), ring.clone()), adviser)
        }
    }

    /// The layer between suite and provider.
    pub fn layer(&self) -> Layer {
        let hooks = self.hooks();
        Arc::new(move |platform| Box::new(Interposed::new(platform, Box::new(hooks.clone()))))
    }

    /// How often each finding was made, without those that were not.
    pub fn made(&self) -> impl Iterator<Item = (Finding, u32)> {
        self.totals.made()
    }
}

/// Shows how often each finding was made.
pub fn summarize(made: &[(Finding, u32)]) {
    let mut found = table(&["finding", "times", "section", "what it is"]);
    for (finding, count) in made {
        let page = finding.page();
        found.add_row([&finding.to_string(), &count.to_string(), page.section, page.title]);
    }
    align_right(&mut found, 1);
    say!();
    say!("The adviser's findings; the suite breaks rules on purpose. ndkctl explain FINDING has more.");
    print_table(&found);
}

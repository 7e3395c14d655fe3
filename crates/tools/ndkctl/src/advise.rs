//! `ndkctl selftest --advise`: the suite under the adviser.

use std::sync::Arc;

use conformance::host::{Interposed, Layer};
use host::{HostOs, note, say};
use interpose::adviser::{Adviser, Finding, Mode, Report, Settings, Sink, Totals};

use crate::output::{align_right, print_table, table};

/// Prints what is found, if that is wanted.
pub struct Printer {
    verbose: bool,
}

impl Sink for Printer {
    fn report(&self, report: &Report<'_>) {
        if self.verbose {
            note!("{report}");
            for (who, frames) in report.stacks() {
                note!("  {who} {}", host::names(frames).join(", "));
            }
        }
    }
}

/// What is found in a run.
pub struct Advice {
    totals: fallible::Arc<Totals>,
    sink: fallible::Arc<Printer>,
}

impl Advice {
    /// Prints findings as they are made if `verbose`.
    pub fn new(verbose: bool) -> Result<Self, String> {
        let totals = fallible::Arc::try_new(Totals::default()).map_err(|error| error.to_string())?;
        let sink = fallible::Arc::try_new(Printer { verbose }).map_err(|error| error.to_string())?;
        Ok(Self { totals, sink })
    }

    /// The adviser of an adapter.
    pub fn hooks(&self) -> impl Fn(&HostOs) -> Adviser<HostOs, Printer> + Clone + Send + Sync + use<> {
        let (totals, sink) = (self.totals.clone(), self.sink.clone());
        // How long a callback takes on a host says nothing: its processors are threads.
        let settings = Settings { mode: Mode::Log, advice: true, longest_callback: 0 };
        move |os| Adviser::new(os.clone(), settings, sink.clone(), totals.clone())
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

    /// Shows how often each finding was made.
    pub fn summarize(&self) {
        let mut found = table(&["finding", "times", "section", "what it is"]);
        for (finding, count) in self.totals.made() {
            let page = finding.page();
            found.add_row([&finding.to_string(), &count.to_string(), page.section, page.title]);
        }
        align_right(&mut found, 1);
        say!();
        say!("The adviser's findings; the suite breaks rules on purpose. ndkctl explain FINDING has more.");
        print_table(&found);
    }
}

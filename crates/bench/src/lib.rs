//! Measurements of SoftNDK, each beside the best of its kind.
//!
//! Every row is a ratio of two things that were measured in turn, in one run ([`measure`]); what it should be stands beside
//! it ([`row`]). [`run`] is the command `bench`.

pub mod measure;
pub mod ndk;
pub mod report;
pub mod row;
mod rows;

use host::HostOs;
use measure::{Cores, Effort, Samples, Subject, interleave};
use row::Row;

/// What the parts share.
pub struct Context<'a> {
    /// How much is measured.
    pub effort: Effort,
    /// Where it is measured.
    pub cores: Cores,
    /// The machine it is measured on, without the checks of its locks.
    pub os: &'a HostOs,
    filter: Option<String>,
    rows: Vec<Row>,
}

impl Context<'_> {
    /// Lets each subject have its turn in every round.
    fn interleave(&self, mut subjects: Vec<Subject<'_>>) -> Vec<Samples> {
        interleave(self.effort, &mut subjects)
    }

    /// Adds rows, if their common name is wanted.
    fn row(&mut self, name: &str, measure: impl FnOnce(&Self) -> Vec<Row>) {
        if self.filter.as_ref().is_some_and(|filter| !name.to_lowercase().contains(&filter.to_lowercase())) {
            return;
        }
        eprintln!("measuring: {name}");
        let rows = measure(self);
        self.rows.extend(rows);
    }
}

/// What is to be measured.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only to see that everything runs.
    pub quick: bool,
    /// Rows whose names contain this.
    pub filter: Option<String>,
}

/// Measures.
#[must_use]
pub fn measure(options: &Options) -> Vec<Row> {
    let machine = host::machine::Machine::threads().start();
    let os = HostOs::unwatched(&machine);
    let mut context = Context {
        effort: if options.quick { Effort::QUICK } else { Effort::FULL },
        cores: Cores::find(),
        os: &os,
        filter: options.filter.clone(),
        rows: Vec::new(),
    };
    rows::cq::rows(&mut context);
    rows::message::rows(&mut context);
    context.rows
}

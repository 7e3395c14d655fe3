//! Measurements of SoftNDK, each beside the best of its kind.
//!
//! Every row is a ratio of two things that were measured in turn, in one run ([`measure()`]); what it should be stands beside
//! it ([`row`]). [`command::run`] is the command `bench`.

// Its output can be closed: `host::say!`, not `println!`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod allocated;
pub mod command;
mod compare;
pub mod counted;
pub mod distance;
mod id;
pub mod kind;
pub mod machine;
pub mod measure;
pub mod ndk;
pub mod peers;
pub mod plot;
pub mod report;
pub mod row;
mod rows;

use std::{
    cell::RefCell,
    sync::{Mutex, PoisonError},
};

use host::{HostOs, note};
use measure::{Cores, Effort, Samples, Subject, interleave};
use peers::{ABSENT, Peer};
use plot::Plot;
use row::{Goal, Row, Unit};

/// Rows that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What the machine can do at best.
    Machine,
    /// Completion queues.
    Cq,
    /// Messages between two cores.
    Message,
    /// Reads and writes, and frames on the cable.
    Transfer,
    /// Packets between two adapters.
    Wire,
    /// Costs that do not depend on how many there are.
    Scale,
    /// Memory of idle objects.
    Memory,
    /// The conformance suite.
    Suite,
}

impl Part {
    /// All parts, in the order of the report.
    pub const ALL: [Self; 8] =
        [Self::Machine, Self::Cq, Self::Message, Self::Transfer, Self::Wire, Self::Scale, Self::Memory, Self::Suite];

    fn measure(self, context: &mut Context<'_>) {
        match self {
            Self::Machine => {
                rows::machine::rows(context);
                rows::lock::rows(context);
            }
            Self::Cq => rows::cq::rows(context),
            Self::Message => rows::message::rows(context),
            Self::Transfer => {
                rows::transfer::rows(context);
                rows::frames::rows(context);
            }
            Self::Wire => rows::wire::rows(context),
            Self::Scale => rows::scale::rows(context),
            Self::Memory => rows::memory::rows(context),
            Self::Suite => rows::suite::rows(context),
        }
    }
}

/// What the parts share.
pub struct Context<'a> {
    /// How much is measured.
    pub effort: Effort,
    /// Where it is measured.
    pub cores: Cores,
    /// The machine it is measured on, without the checks of its locks.
    pub os: &'a HostOs,
    filter: Option<String>,
    alone: bool,
    rows: Vec<Row>,
    plots: Mutex<Vec<Plot>>,
}

/// The figures of another program, or why there are none.
struct Beside {
    peer: Peer,
    samples: Result<Samples, String>,
}

impl Beside {
    /// A row of ours beside the program.
    fn row(&self, row: &str, unit: Unit, goal: Goal, ours: &Samples) -> Row {
        match &self.samples {
            Ok(theirs) => Row::measured(row, self.peer.name(), unit, goal, ours, theirs),
            Err(why) => Row::without_peer(row, self.peer.name(), unit, goal, ours, why),
        }
    }
}

impl Context<'_> {
    /// Returns true if the figures are of no use.
    fn is_quick(&self) -> bool {
        self.effort == Effort::QUICK
    }

    /// Lets the machine finish what was closed.
    fn settle(&self) {
        settle(self.os);
    }

    /// Adds a plot.
    fn plot(&self, plot: Plot) {
        self.plots.lock().unwrap_or_else(PoisonError::into_inner).push(plot);
    }

    /// Lets each subject have its turn in every round.
    fn interleave(&self, mut subjects: Vec<Subject<'_>>) -> Vec<Samples> {
        interleave(self.effort, &mut subjects)
    }

    /// [`Context::interleave`] for subjects on two cores: what was measured while these were at one distance.
    fn interleave_on_two(&self, mut subjects: Vec<Subject<'_>>) -> distance::Measured {
        distance::interleave(self.effort, &self.cores, &mut subjects)
    }

    /// Gives subjects and other programs their turns, on two cores: fewer than others have, because programs take their time to start.
    fn beside(
        &self,
        subjects: Vec<Subject<'_>>,
        peers: &[Peer],
        size: u32,
        messages: usize,
    ) -> (distance::Measured, Vec<Beside>) {
        let ours = subjects.len();
        let failures: Vec<_> = peers.iter().map(|peer: &Peer| RefCell::new(self.why_without(*peer))).collect();
        let mut subjects: Vec<Subject<'_>> = subjects;
        for (peer, failure) in peers.iter().zip(&failures) {
            subjects.push(Box::new(move || {
                if failure.borrow().is_some() {
                    return f64::INFINITY;
                }
                peer.run(&self.cores, size, messages).unwrap_or_else(|error| {
                    *failure.borrow_mut() = Some(error);
                    f64::INFINITY
                })
            }));
        }
        let effort = Effort { rounds: self.effort.rounds.min(11), repeats: 1, ..self.effort };
        let mut measured = distance::interleave(effort, &self.cores, &mut subjects);
        drop(subjects);
        let theirs = measured.samples.split_off(ours);
        let theirs =
            theirs.into_iter().zip(failures).map(|(samples, failure)| failure.into_inner().map_or(Ok(samples), Err));
        let theirs = peers.iter().zip(theirs).map(|(peer, samples)| Beside { peer: *peer, samples });
        (measured, theirs.collect())
    }

    /// Why a program is not measured, if it is not.
    fn why_without(&self, peer: Peer) -> Option<String> {
        if self.alone {
            Some("not asked for".to_owned())
        } else if peer.is_installed() {
            None
        } else {
            Some(ABSENT.to_owned())
        }
    }

    /// Adds rows, if their common name is wanted.
    fn row(&mut self, name: &str, measure: impl FnOnce(&Self) -> Vec<Row>) {
        if self.filter.as_ref().is_some_and(|filter| !name.to_lowercase().contains(&filter.to_lowercase())) {
            return;
        }
        note!("measuring: {name}");
        let rows = measure(self);
        self.rows.extend(rows);
    }
}

/// Waits until nothing is queued and nothing runs. One call may queue the next, and while it runs nothing is queued: so the
/// end is a flush during which nothing has run.
fn settle(os: &HostOs) {
    loop {
        let before = os.machine().statistics();
        os.machine().flush();
        if os.machine().leaks().is_none() && os.machine().statistics() == before {
            return;
        }
    }
}

/// What is to be measured.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only to see that everything runs.
    pub quick: bool,
    /// Rows whose names contain this.
    pub filter: Option<String>,
    /// Without the programs of others.
    pub alone: bool,
    /// Only these rows.
    pub part: Option<Part>,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The figures.
    pub rows: Vec<Row>,
    /// What is better seen than read.
    pub plots: Vec<Plot>,
}

/// Measures.
#[must_use]
pub fn measure(options: &Options) -> Measured {
    let machine = host::machine::Machine::threads().start();
    let os = HostOs::unwatched(&machine);
    let mut context = Context {
        effort: if options.quick { Effort::QUICK } else { Effort::FULL },
        cores: Cores::find(),
        os: &os,
        filter: options.filter.clone(),
        alone: options.alone,
        rows: Vec::new(),
        plots: Mutex::default(),
    };
    for part in Part::ALL {
        if options.part.is_none_or(|only| only == part) {
            part.measure(&mut context);
        }
    }
    let plots = context.plots.into_inner().unwrap_or_else(PoisonError::into_inner);
    let rows = context.rows;
    settle(&os);
    machine.shutdown();
    Measured { rows, plots }
}

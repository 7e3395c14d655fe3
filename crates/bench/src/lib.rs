//! Measurements of SoftNDK, each beside the best of its kind.
//!
//! Every row is a ratio of two things that were measured in turn, in one run ([`measure`]); what it should be stands beside
//! it ([`row`]). [`run`] is the command `bench`.

pub mod measure;
pub mod ndk;
pub mod peers;
pub mod report;
pub mod row;
mod rows;

use std::cell::RefCell;

use host::HostOs;
use measure::{Cores, Effort, Samples, Subject, interleave};
use peers::{ABSENT, Peer};
use row::{Goal, Row, Unit};

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

    /// Gives subjects and other programs their turns: fewer than others have, because programs take their time to start.
    fn beside(
        &self,
        subjects: Vec<Subject<'_>>,
        peers: &[Peer],
        size: u32,
        messages: usize,
    ) -> (Vec<Samples>, Vec<(Peer, Result<Samples, String>)>) {
        let ours = subjects.len();
        let failures: Vec<_> = peers
            .iter()
            .map(|peer: &Peer| RefCell::new((!peer.is_installed()).then(|| ABSENT.to_owned())))
            .collect();
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
        let mut samples = interleave(effort, &mut subjects);
        drop(subjects);
        let theirs = samples.split_off(ours);
        let theirs = theirs.into_iter().zip(failures).map(|(samples, failure)| match failure.into_inner() {
            None => Ok(samples),
            Some(failure) => Err(failure),
        });
        let theirs = peers.iter().copied().zip(theirs).collect();
        (samples, theirs)
    }

    /// A row of ours beside another program, if there are figures of it.
    fn compare(
        &self,
        row: &str,
        unit: Unit,
        goal: Goal,
        ours: &Samples,
        peer: Peer,
        theirs: &Result<Samples, String>,
    ) -> Row {
        match theirs {
            Ok(theirs) => Row::measured(row, peer.name(), unit, goal, ours, theirs),
            Err(why) => Row::without_peer(row, peer.name(), unit, goal, ours, why),
        }
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

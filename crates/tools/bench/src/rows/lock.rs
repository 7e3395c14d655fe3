//! Two kinds of spin lock, as such: a queued one, as the kernel's in-stack queued lock is, beside plain ones.
//!
//! The locks are those of others, in user mode. The figures are about the algorithms; what Windows' routines cost, only Windows
//! can tell (`ndkctl driver run performance`).

use std::hint::black_box;

use crossbeam_utils::CachePadded;
use mcslock::raw::{MutexNode, spins::Mutex as McsLock};
use spin::{
    mutex::{SpinMutex, TicketMutex},
    relax::Spin,
};

use crate::{
    Context,
    measure::{Samples, Subject, alone, each},
    row::{Goal, Row, Unit},
};

const QUEUED: &str = "lock: queued";
const SPIN: &str = "spin, test and set";
const TICKET: &str = "spin, ticket";

/// The rows of this part.
pub fn rows(context: &mut Context<'_>) {
    context.row("lock: queued, nobody else", |context| uncontended(context));
    context.row("lock: queued, two cores", |context| contended(context));
}

/// What is behind each lock, in a cache line with it. A short critical section, as those of the engine are.
#[derive(Default)]
struct Counted {
    pairs: u64,
    again: [u64; 2],
    last: u32,
    changes: u64,
}

impl Counted {
    /// One more pair of so many; `false` if there are no more.
    const fn count(&mut self, side: u32, all: u64) -> bool {
        if self.pairs == all {
            return false;
        }
        self.pairs += 1;
        self.again[0] += 1;
        self.again[1] += 1;
        if self.last != side {
            self.changes += 1;
            self.last = side;
        }
        true
    }
}

trait Lock: Sync {
    fn new() -> Self;
    fn count(&self, side: u32, all: u64) -> bool;
    fn value(self) -> Counted;
}

impl Lock for CachePadded<McsLock<Counted>> {
    fn new() -> Self {
        Self::new(McsLock::new(Counted::default()))
    }

    #[inline]
    fn count(&self, side: u32, all: u64) -> bool {
        // A new node each time: where the kernel's queued lock is used, the handle is made on the stack too.
        self.lock_with_then(&mut MutexNode::new(), |counted| counted.count(side, all))
    }

    fn value(self) -> Counted {
        self.into_inner().into_inner()
    }
}

impl Lock for CachePadded<SpinMutex<Counted, Spin>> {
    fn new() -> Self {
        Self::new(SpinMutex::new(Counted::default()))
    }

    #[inline]
    fn count(&self, side: u32, all: u64) -> bool {
        self.lock().count(side, all)
    }

    fn value(self) -> Counted {
        self.into_inner().into_inner()
    }
}

impl Lock for CachePadded<TicketMutex<Counted, Spin>> {
    fn new() -> Self {
        Self::new(TicketMutex::new(Counted::default()))
    }

    #[inline]
    fn count(&self, side: u32, all: u64) -> bool {
        self.lock().count(side, all)
    }

    fn value(self) -> Counted {
        self.into_inner().into_inner()
    }
}

type Queued = CachePadded<McsLock<Counted>>;
type Plain = CachePadded<SpinMutex<Counted, Spin>>;
type Ticket = CachePadded<TicketMutex<Counted, Spin>>;

/// [`Row::measured`] or [`Row::in_rounds`].
type Compare = fn(&str, &str, Unit, Goal, &Samples, &Samples) -> Row;

/// Rows of the first samples beside each of the others.
fn beside(compare: Compare, name: &str, [queued, plain, ticket]: [&Samples; 3]) -> Vec<Row> {
    let row = |against, theirs| compare(name, against, Unit::Nanoseconds, Goal::Reported, queued, theirs);
    vec![row(SPIN, plain), row(TICKET, ticket)]
}

fn uncontended(context: &Context<'_>) -> Vec<Row> {
    fn run<'a, L: Lock>(count: usize) -> Subject<'a> {
        Box::new(move || {
            let lock = L::new();
            alone(count, || while black_box(&lock).count(0, count as u64) {})
        })
    }
    let count = context.effort.scale(1 << 20);
    context.cores.pin_first();
    let samples = context.interleave(vec![run::<Queued>(count), run::<Plain>(count), run::<Ticket>(count)]);
    beside(
        Row::in_rounds,
        &format!("{QUEUED}, nobody else: acquire and release"),
        [&samples[0], &samples[1], &samples[2]],
    )
}

/// Both cores want the lock all the time. What a pair takes, and how long it takes until the other core has had the lock.
fn contended(context: &Context<'_>) -> Vec<Row> {
    let pairs = format!("{QUEUED}, two cores want it: acquire and release");
    let changes = format!("{QUEUED}, two cores want it: until the other one has it");
    if !context.cores.are_two() {
        return [pairs, changes]
            .map(|name| Row::skipped(&name, SPIN, Unit::Nanoseconds, Goal::Reported, "one core"))
            .into();
    }
    let all = context.effort.scale(1 << 16);
    let measured = context.interleave_on_two(vec![
        Box::new(|| both::<Queued>(context, all).0),
        Box::new(|| both::<Plain>(context, all).0),
        Box::new(|| both::<Ticket>(context, all).0),
        Box::new(|| both::<Queued>(context, all).1),
        Box::new(|| both::<Plain>(context, all).1),
        Box::new(|| both::<Ticket>(context, all).1),
    ]);
    let [queued, plain, ticket, queued_held, plain_held, ticket_held] = &measured.samples[..] else {
        unreachable!("six subjects")
    };
    let mut rows = beside(Row::measured, &pairs, [queued, plain, ticket]);
    rows.extend(beside(Row::measured, &changes, [queued_held, plain_held, ticket_held]));
    rows
}

/// Runs until both together have had the lock so often, so that nobody is ever alone with it. Nanoseconds for each pair, and for
/// each time that the lock went over to the other core.
fn both<L: Lock>(context: &Context<'_>, all: usize) -> (f64, f64) {
    let lock = L::new();
    let side = |number| {
        let mut pairs = 0_u64;
        while black_box(&lock).count(number, all as u64) {
            pairs += 1;
        }
        pairs
    };
    let mut here = 0;
    let (time, there) = context.cores.both(|| here = side(1), || side(2));
    let Counted { pairs, again, changes, .. } = lock.value();
    assert_eq!((pairs, again), (here + there, [here + there; 2]), "the lock excludes");
    (each(time, all), each(time, usize::try_from(changes).unwrap_or(usize::MAX)))
}

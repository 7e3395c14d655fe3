//! Random histories of one completion queue.

use engine::cq::{
    Cqe,
    notify::{
        ArmType::{self, Any, Errors, Solicited},
        CqFailure,
    },
};
use proptest::{collection::vec, prelude::*, sample::select};
use testing::cq_fixture::{failed, plain, solicited};

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Op {
    /// Completions come, in one batch.
    Push(Vec<Cqe>),
    /// Completions come, one after the other.
    PushEach(Vec<Cqe>),
    /// The consumer takes up to that many.
    Poll(usize),
    /// The consumer arms.
    Arm(ArmType),
    /// The consumer changes the depth.
    Resize(u32),
    /// The consumer sets interval and count.
    Moderate(u32, u32),
    /// The adapter breaks.
    Fail(CqFailure),
    /// The machine does what it can without waiting.
    Run,
    /// Time passes.
    Pass(u64),
}

/// A history and the machine on which it takes place.
#[derive(Clone, Debug)]
pub struct History {
    pub seed: u64,
    /// Running number of the first completion.
    pub first: u64,
    pub depth: u32,
    /// What the machine's timer can tell from nothing.
    pub resolution: u32,
    pub ops: Vec<Op>,
    /// What is done in the first callback, in the second and so on.
    pub callbacks: Vec<Vec<Op>>,
    /// The machine runs to the end before the queue is closed.
    pub settles: bool,
}

fn completion() -> impl Strategy<Value = Cqe> {
    (0..1_000_usize, 0..10_u8).prop_map(|(context, kind)| match kind {
        0 => failed(context),
        1 | 2 => solicited(context),
        _ => plain(context),
    })
}

fn push() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => vec(completion(), 1..5).prop_map(Op::Push),
        2 => vec(completion(), 1..9).prop_map(Op::PushEach),
    ]
}

fn poll() -> impl Strategy<Value = Op> {
    select(vec![0, 1, 2, 3, 5, usize::MAX]).prop_map(Op::Poll)
}

fn arm() -> impl Strategy<Value = Op> {
    select(vec![Any, Any, Solicited, Errors]).prop_map(Op::Arm)
}

fn depth() -> impl Strategy<Value = u32> {
    prop_oneof![1..20_u32, select(vec![8_u32, 16, 64, 0])]
}

fn moderate() -> impl Strategy<Value = Op> {
    let interval = select(vec![0, 1, 5, 20, 20, 100, 1_000, u32::MAX]);
    let count = select(vec![0, 1, 2, 3, 5, 8, 20, u32::MAX]);
    (interval, count).prop_map(|(interval, count)| Op::Moderate(interval, count))
}

/// What may happen in a callback.
fn inside() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => push(),
        4 => poll(),
        5 => arm(),
        1 => depth().prop_map(Op::Resize),
        1 => moderate(),
    ]
}

/// What may happen outside of one.
fn outside() -> impl Strategy<Value = Op> {
    prop_oneof![
        60 => push(),
        60 => poll(),
        50 => arm(),
        10 => depth().prop_map(Op::Resize),
        15 => moderate(),
        1 => select(vec![CqFailure::Overrun, CqFailure::Fatal]).prop_map(Op::Fail),
        50 => Just(Op::Run),
        30 => (0..150_u64).prop_map(Op::Pass),
    ]
}

/// A random history.
pub fn history() -> impl Strategy<Value = History> {
    let numbers = (any::<u64>(), select(vec![0, u64::MAX, u64::MAX - 5, i64::MAX as u64 - 3]));
    let sizes = (prop_oneof![1..8_u32, 20..40_u32], select(vec![1, 1, 10]));
    let work = (vec(outside(), 1..60), vec(vec(inside(), 0..4), 0..12));
    (numbers, sizes, work, any::<bool>()).prop_map(|((seed, first), (depth, resolution), (ops, callbacks), settles)| {
        History { seed, first, depth, resolution, ops, callbacks, settles }
    })
}

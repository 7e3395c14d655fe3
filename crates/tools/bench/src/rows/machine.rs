//! What this machine can do at best: the physical reasons for figures that no code can improve.

use std::{
    hint::black_box,
    sync::atomic::Ordering::{Acquire, Relaxed, Release},
};

use crate::{
    Context,
    distance::{self, Line},
    measure::{Samples, alone},
    row::{Goal, Row, Unit},
};

/// The rows of this part.
pub fn rows(context: &mut Context<'_>) {
    context.row("machine: a cache line to another core and back", |context| vec![line(context)]);
    context.row("machine: an atomic exchange and a store", |context| vec![exchange(context)]);
}

fn line(context: &Context<'_>) -> Row {
    let name = "machine: a cache line to another core and back";
    if !context.cores.are_two() {
        return Row::skipped(name, "", Unit::Nanoseconds, Goal::Reported, "one core");
    }
    let count = context.effort.scale(1 << 14) as u64;
    let measured = context.interleave_on_two(vec![Box::new(|| distance::line(&context.cores, count))]);
    Row::plain(name, Unit::Nanoseconds, &measured.samples[0])
}

/// What a lock costs that nobody else wants.
fn exchange(context: &Context<'_>) -> Row {
    let count = context.effort.scale(1 << 20);
    context.cores.pin_first();
    let samples: Vec<Samples> = context.interleave(vec![Box::new(|| {
        let word = Line::default();
        alone(count, || {
            for _ in 0..count {
                let before = black_box(&word).compare_exchange(0, 1, Acquire, Relaxed);
                black_box(before.is_ok());
                word.store(0, Release);
            }
        })
    })]);
    Row::plain("machine: an atomic exchange and a store", Unit::Nanoseconds, &samples[0])
}

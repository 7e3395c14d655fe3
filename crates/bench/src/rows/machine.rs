//! What this machine can do at best: the physical reasons for figures that no code can improve.

use std::{
    hint::{black_box, spin_loop},
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use crate::{
    Context,
    measure::{Samples, alone, each},
    row::{Row, Unit},
};

/// The rows of this part.
pub fn rows(context: &mut Context<'_>) {
    context.row("machine: a cache line to another core and back", |context| vec![line(context)]);
    context.row("machine: an atomic exchange and a store", |context| vec![exchange(context)]);
}

#[repr(align(128))]
struct Line(AtomicU64);

fn line(context: &Context<'_>) -> Row {
    let name = "machine: a cache line to another core and back";
    if !context.cores.are_two() {
        return Row::skipped(name, "", Unit::Nanoseconds, crate::row::Goal::Reported, "one core");
    }
    let count = context.effort.scale(1 << 14) as u64;
    let samples = context.interleave(vec![Box::new(|| {
        let line = Line(AtomicU64::new(0));
        let wait = |for_value| {
            while line.0.load(Acquire) != for_value {
                spin_loop();
            }
        };
        let here = || {
            for number in 0..count {
                line.0.store(2 * number + 1, Release);
                wait(2 * number + 2);
            }
        };
        let there = || {
            for number in 0..count {
                wait(2 * number + 1);
                line.0.store(2 * number + 2, Release);
            }
        };
        let (time, ()) = context.cores.both(here, there);
        each(time, usize::try_from(count).unwrap_or(usize::MAX))
    })]);
    Row::plain(name, Unit::Nanoseconds, &samples[0])
}

/// What a lock costs that nobody else wants.
fn exchange(context: &Context<'_>) -> Row {
    let count = context.effort.scale(1 << 20);
    context.cores.pin_first();
    let samples: Vec<Samples> = context.interleave(vec![Box::new(|| {
        let word = Line(AtomicU64::new(0));
        alone(count, || {
            for _ in 0..count {
                let before = black_box(&word).0.compare_exchange(0, 1, Acquire, Relaxed);
                black_box(before.is_ok());
                word.0.store(0, Release);
            }
        })
    })]);
    Row::plain("machine: an atomic exchange and a store", Unit::Nanoseconds, &samples[0])
}

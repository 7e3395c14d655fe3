//! The least that moves between two cores when one sends a message to the other.
//!
//! - *The receive.* The receiver says with each `NdkReceive` where a message goes; the sender's side needs it before it can
//!   place the bytes. So a line that the receiver has written is read by the sender. Here the sender looks at the next one while
//!   it waits for something else.
//! - *The bytes.* They are in the receiver's buffer when the receive completes, at the place that the receive names. So a line
//!   that the receiver has read before is written by the sender, and read again by the receiver.
//! - *The completion.* It says which receive is meant and how many bytes have come, and is published: here in the same line.
//!   So a line that the receiver looks at is written by the sender.
//!
//! That is the least as long as the sender's side carries the message out, which is what the direct engine is, and what hardware
//! does. Where the receiver's poll copies the bytes, as in UCX, one line carries everything. The poll of a completion queue is not
//! a place for it: bytes have to be placed while nobody polls, because the consumer may close the queue pair and free its memory
//! with completions still queued, and because a message that does not fit into its receive fails at the sender.

use std::{
    hint::{black_box, spin_loop},
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    time::Instant,
};

use crate::measure::{Cores, Samples, each};

/// Receives that are posted ahead.
const RECEIVES: usize = 256;
/// Round trips between two looks at the clock.
const GROUP: usize = 8;

/// A quarter of a line: a number that says which message it is for, and what there is to say about it.
#[derive(Default)]
#[repr(align(16))]
struct Word {
    number: AtomicU64,
    what: AtomicU64,
}

/// How words lie in lines.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
enum Layout {
    /// Each in a line of its own: two sides that take turns never want the same one.
    Apart = 4,
    /// Four in a line: a stream of them needs fewer lines.
    Packed = 1,
}

/// [`RECEIVES`] words.
struct Words {
    words: Vec<Word>,
    layout: Layout,
}

impl Words {
    fn new(layout: Layout) -> Self {
        Self { words: (0..RECEIVES * layout as usize).map(|_| Word::default()).collect(), layout }
    }

    #[inline]
    fn of(&self, number: usize) -> &Word {
        &self.words[number % RECEIVES * self.layout as usize]
    }

    fn publish(&self, number: usize, what: u64) {
        let word = self.of(number);
        word.what.store(what, Relaxed);
        word.number.store(number as u64 + 1, Release);
    }

    #[inline]
    fn wait(&self, number: usize) -> u64 {
        let word = self.of(number);
        while word.number.load(Acquire) != number as u64 + 1 {
            spin_loop();
        }
        word.what.load(Relaxed)
    }
}

/// What one direction needs.
struct Way {
    receives: Words,
    completions: Words,
    /// Each message goes to a line of its own, as in the rows that are bounded.
    bytes: Words,
}

impl Way {
    fn new(layout: Layout) -> Self {
        let way =
            Self { receives: Words::new(layout), completions: Words::new(layout), bytes: Words::new(Layout::Apart) };
        (0..RECEIVES).for_each(|number| way.post(number));
        way
    }

    /// Posts the receive for message `number`: where its bytes go.
    #[inline]
    fn post(&self, number: usize) {
        self.receives.publish(number, (number % RECEIVES) as u64);
    }

    #[inline]
    fn send(&self, number: usize) {
        let place = self.receives.wait(number);
        #[expect(clippy::cast_possible_truncation, reason = "a place of the ring")]
        self.bytes.of(place as usize).what.store(number as u64, Relaxed);
        self.completions.publish(number, place);
        black_box(self.receives.of(number + 1).number.load(Relaxed));
    }

    #[inline]
    fn receive(&self, number: usize) {
        let place = self.completions.wait(number);
        #[expect(clippy::cast_possible_truncation, reason = "a place of the ring")]
        let bytes = self.bytes.of(place as usize).what.load(Relaxed);
        assert_eq!(bytes, number as u64, "another message");
    }
}

/// Half a round trip, as the median of groups of them.
pub fn ping_pong(cores: &Cores, count: usize) -> f64 {
    let (there, back) = (Way::new(Layout::Apart), Way::new(Layout::Apart));
    let mut groups = Vec::with_capacity(count / GROUP);
    let here = || {
        let mut began = Instant::now();
        for number in 0..count {
            if number > 0 && number.is_multiple_of(GROUP) {
                let now = Instant::now();
                groups.push(each(now - began, 2 * GROUP));
                began = now;
            }
            there.send(number);
            if number > 0 {
                back.post(number - 1 + RECEIVES);
            }
            back.receive(number);
        }
    };
    let other = || {
        for number in 0..count {
            there.receive(number);
            back.send(number);
            there.post(number + RECEIVES);
        }
    };
    cores.both(here, other);
    Samples::new(groups).median()
}

/// Messages in one direction: nanoseconds for each.
pub fn stream(cores: &Cores, count: usize) -> f64 {
    let way = Way::new(Layout::Packed);
    let send = || (0..count).for_each(|number| way.send(number));
    let receive = || {
        for number in 0..count {
            way.receive(number);
            way.post(number + RECEIVES);
        }
    };
    let (time, ()) = cores.both(send, receive);
    each(time, count)
}

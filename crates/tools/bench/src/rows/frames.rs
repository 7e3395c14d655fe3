//! Frames from one end of the cable to the other, beside memcpy of the same bytes.
//!
//! It is what the miniport `softndknic` does with a batch, but for NDIS: buffers of the receiver's pool are reserved under the lock
//! of the [`Link`], the bytes copied, the frames queued, taken at the other end and given back. There are no net buffer lists and
//! no MDLs to walk, and both ends run on one thread.

use std::{cell::RefCell, hint::black_box};

use cable::{
    Counters, Impairment, Kind, Link, Reserved,
    frame::{HEADER_BYTES, MacAddress},
    link::BATCH,
};
use engine::os::{Os, SpinLock};

use crate::{
    Context,
    kind::{CalledOs, Lock},
    measure::{Subject, alone},
    row::{Goal, Row, Unit},
};

/// Bytes of a frame, link header included.
const FRAME: usize = 1500;
/// Bytes of a receive buffer: a frame of the usual MTU.
const BUFFER: usize = HEADER_BYTES + 1500;
/// Receive buffers: as many as the miniport has.
const BUFFERS: u16 = 512;
/// Batches of a run.
const BATCHES: usize = 1 << 11;

/// The rows of this part.
pub fn rows(context: &mut Context<'_>) {
    context.row("frames of 1500 bytes from one end to the other, batch 32", batches);
}

fn batches(context: &Context<'_>) -> Vec<Row> {
    let count = context.effort.scale(BATCHES);
    context.cores.pin_first();
    let frames = frames();
    // All copy the same bytes to the same places: which lines share a place in the caches is the same for all.
    let pool = RefCell::new(pool());
    let samples = context.interleave(vec![
        carried(context.os, count, &frames, &pool),
        carried(&CalledOs::new(context.os), count, &frames, &pool),
        copied(count, &frames, &pool),
    ]);
    let [inlined, called, memcpy] = &samples[..] else { unreachable!("three subjects") };
    let row = |lock: Lock, ours| {
        let name = format!("frames of {FRAME} bytes from one end to the other, batch {BATCH}, cable, {}", lock.words());
        Row::in_rounds(&name, "memcpy, same core", Unit::Gibibytes(FRAME), Goal::AtLeast(0.3), ours, memcpy)
    };
    vec![row(Lock::Inlined, inlined), row(Lock::Called, called)]
}

/// The frames of a batch, one after the other, to a station and each with its number in it.
fn frames() -> Vec<u8> {
    let mut frames = vec![2; FRAME * BATCH];
    for (number, frame) in (0..).zip(frames.chunks_exact_mut(FRAME)) {
        frame[HEADER_BYTES..].fill(number);
    }
    frames
}

/// The bytes of the receive buffers.
fn pool() -> Vec<u8> {
    vec![1; BUFFER * usize::from(BUFFERS)]
}

/// Nanoseconds for a frame that is carried.
fn carried<'a, O: Os>(os: &O, count: usize, frames: &'a [u8], pool: &'a RefCell<Vec<u8>>) -> Subject<'a> {
    let mut cable = Cable::new(os);
    Box::new(move || {
        let pool = &mut pool.borrow_mut()[..];
        alone(count * BATCH, || {
            for _ in 0..count {
                // The length is nothing that the compiler knows, as in a net buffer.
                cable.send(frames, black_box(FRAME), pool);
                let arrived = cable.deliver(pool, |frame| {
                    black_box(frame);
                });
                assert_eq!(arrived, BATCH, "frames arrive at once");
            }
        })
    })
}

/// Nanoseconds for a frame that is copied, to the buffers which the cable uses: those that come back are the next to be filled.
fn copied<'a>(count: usize, frames: &'a [u8], pool: &'a RefCell<Vec<u8>>) -> Subject<'a> {
    Box::new(move || {
        let pool = &mut pool.borrow_mut()[BUFFER * (usize::from(BUFFERS) - BATCH)..];
        alone(count * BATCH, || {
            for _ in 0..count {
                let length = black_box(FRAME);
                for (frame, buffer) in frames.chunks_exact(length).zip(pool.chunks_exact_mut(BUFFER)) {
                    buffer[..length].copy_from_slice(frame);
                    black_box(&buffer[..length]);
                }
            }
        })
    })
}

/// One direction of the cable, and what the miniport keeps beside it.
struct Cable<O: Os> {
    os: O,
    link: O::Lock<Link>,
    /// The bytes of the frame in each buffer.
    lengths: Vec<usize>,
    sent: Counters,
    received: Counters,
}

/// Where a buffer's bytes are.
fn start(buffer: u16) -> usize {
    usize::from(buffer) * BUFFER
}

impl<O: Os> Cable<O> {
    fn new(os: &O) -> Self {
        let link = Link::try_new(BUFFERS, Impairment::default()).expect("memory");
        Self {
            os: os.clone(),
            link: os.lock(link).expect("memory"),
            lengths: vec![0; BUFFERS.into()],
            sent: Counters::default(),
            received: Counters::default(),
        }
    }

    /// Sends a batch of frames of `length` bytes: the miniport's `Receiver::take`.
    fn send(&mut self, frames: &[u8], length: usize, pool: &mut [u8]) {
        let mut reserved = [Reserved::Full; BATCH];
        self.link.with(|link| reserved.fill_with(|| link.reserve()));
        let mut kinds = [(0_u64, 0_u64); 3];
        for (frame, place) in frames.chunks_exact(length).zip(&reserved) {
            let Reserved::Buffer(buffer) = *place else { panic!("no buffer is free: {place:?}") };
            let target = &mut pool[start(buffer)..][..length];
            target.copy_from_slice(frame);
            let destination: &MacAddress = target.first_chunk().expect("a frame has a header");
            let counted = &mut kinds[Kind::of(destination) as usize];
            *counted = (counted.0 + 1, counted.1 + length as u64);
        }
        let now = self.os.now();
        self.link.with(|link| {
            for place in &reserved {
                let Reserved::Buffer(buffer) = *place else { continue };
                self.lengths[usize::from(buffer)] = length;
                link.send(buffer, length, now);
            }
        });
        for (kind, (frames, bytes)) in [Kind::Directed, Kind::Multicast, Kind::Broadcast].into_iter().zip(kinds) {
            if frames > 0 {
                self.sent.add(kind, frames, bytes);
                self.received.add(kind, frames, bytes);
            }
        }
    }

    /// Gives the frames that have arrived to `protocol`, and their buffers back: the miniport's `Receiver::deliver` and
    /// `take_back`. How many frames.
    fn deliver(&self, pool: &[u8], mut protocol: impl FnMut(&[u8])) -> usize {
        assert!(self.link.with(|link| link.delivery.begin()), "one thread delivers");
        let mut frames = 0;
        loop {
            let mut buffers = [0; BATCH];
            let now = self.os.now();
            let count = self.link.with(|link| link.arrived(now, &mut buffers));
            if count == 0 {
                break;
            }
            for &buffer in &buffers[..count] {
                protocol(&pool[start(buffer)..][..self.lengths[usize::from(buffer)]]);
            }
            let waits = self.link.with(|link| link.give_back(buffers[..count].iter().copied()));
            assert!(!waits, "there are buffers for all");
            frames += count;
        }
        assert_eq!(self.link.with(|link| link.next_due()), None, "nothing is late");
        assert!(!self.link.with(|link| link.delivery.end()), "one thread delivers");
        frames
    }
}

#[cfg(test)]
mod tests {
    use cable::{Kind, counters::Count, link::BATCH};
    use engine::os::Os;
    use host::{HostOs, machine::Machine};

    use super::{Cable, FRAME, frames, pool};
    use crate::{allocated::allocations, kind::CalledOs};

    /// Carries so many batches. How many allocations that takes.
    fn carry<O: Os>(os: &O, batches: usize) -> u64 {
        let (mut cable, frames, mut pool) = (Cable::new(os), frames(), pool());
        let made = allocations(|| {
            for _ in 0..batches {
                cable.send(&frames, FRAME, &mut pool);
                let mut sent = frames.chunks_exact(FRAME);
                let arrived = cable.deliver(&pool, |frame| assert!(sent.next() == Some(frame), "in order, unchanged"));
                assert_eq!(arrived, BATCH);
                pool.fill(0);
            }
        });
        let all = (batches * BATCH) as u64;
        let count = Count { frames: all, bytes: all * FRAME as u64 };
        assert_eq!((cable.sent.of(Kind::Directed), cable.received.sum()), (count, count));
        made
    }

    #[test]
    fn every_frame_arrives_and_nothing_is_allocated_for_it() {
        let machine = Machine::threads().processors(1).start();
        let os = HostOs::unwatched(&machine);
        // More frames than there are buffers: each is used again.
        assert_eq!(carry(&os, 64), 0);
        assert_eq!(carry(&CalledOs::new(&os), 64), 0);
        machine.shutdown();
    }
}

//! Copies between lists of segments.

use super::segment::{Run, Segment};
use crate::os::{Memory, Os};

/// A place in a list of segments.
struct Cursor<'a, O: Os> {
    segments: &'a [Segment<O>],
    /// Where in the first of `segments`.
    offset: usize,
    /// Bytes that lie there and are copied next.
    run: Option<Run<'a, O>>,
}

impl<'a, O: Os> Cursor<'a, O> {
    const fn at(mut segments: &'a [Segment<O>], mut offset: usize) -> Self {
        while let Some((first, rest)) = segments.split_first()
            && offset >= first.len()
        {
            offset -= first.len();
            segments = rest;
        }
        Self { segments, offset, run: None }
    }

    /// The next bytes, `most` at most; `None` at the end of the list.
    fn run(&mut self, most: usize) -> Option<&mut Run<'a, O>> {
        if self.run.as_ref().is_none_or(|run| run.length == 0) {
            let (first, rest) = loop {
                let (first, rest) = self.segments.split_first()?;
                if self.offset < first.len() {
                    break (first, rest);
                }
                self.offset = 0;
                self.segments = rest;
            };
            let run = first.run(self.offset, most.min(first.len() - self.offset));
            self.offset += run.length;
            if self.offset == first.len() {
                self.offset = 0;
                self.segments = rest;
            }
            self.run = Some(run);
        }
        self.run.as_mut()
    }
}

/// Copies `length` bytes from one list of segments to another.
///
/// Each list counts as one row of bytes, of which the first `to_offset` and `from_offset` are left out: a long transfer goes
/// on where the last call stopped.
///
/// Costs a step for each segment and, in segments of scattered pages, for each run of pages; it allocates nothing and takes no
/// lock but, for the latter, that of a look-up. If the lists overlap in memory, bytes may be copied before or after they are
/// overwritten, as with hardware. What a list does not have is not copied: to ask for it is a fault of the engine.
pub fn transfer<O: Os>(to: &[Segment<O>], to_offset: usize, from: &[Segment<O>], from_offset: usize, length: usize) {
    // Most lists have one segment, and most segments one range.
    if let ([target], [source]) = (to, from)
        && let (Some((to, to_start)), Some((from, from_start))) = (target.range(), source.range())
        && target.has(to_offset, length)
        && source.has(from_offset, length)
    {
        return to.copy_from(to_start + to_offset, from, from_start + from_offset, length);
    }
    transfer_between_lists(to, to_offset, from, from_offset, length);
}

/// The smallest piece that lands by itself: a cache line.
const LEAST_PIECE: usize = 64;
/// The largest one: the payload of a packet.
const MOST_PIECE: usize = 4096;

/// [`transfer`] for a sink in which bytes may land in any order (`NDKPI 2.6`): in pieces, the last one first or soon. `order` decides
/// which order it is.
pub fn transfer_in_disorder<O: Os>(
    to: &[Segment<O>],
    to_offset: usize,
    from: &[Segment<O>],
    from_offset: usize,
    length: usize,
    order: u64,
) {
    let piece = (length / 16).next_multiple_of(LEAST_PIECE).clamp(LEAST_PIECE, MOST_PIECE);
    let count = length.div_ceil(piece);
    // An odd step goes through all numbers below a power of two before one comes again.
    let round = count.next_power_of_two();
    let step = usize::try_from(order >> 32).unwrap_or(0) | 1;
    // The last piece comes first, or second.
    let mut place = count.saturating_sub(1).wrapping_sub(if order & 1 == 0 { 0 } else { step });
    for _ in 0..round {
        place &= round - 1;
        if place < count {
            let at = place * piece;
            let now = piece.min(length - at);
            transfer(to, to_offset + at, from, from_offset + at, now);
        }
        place = place.wrapping_add(step);
    }
}

fn transfer_between_lists<O: Os>(
    to: &[Segment<O>],
    to_offset: usize,
    from: &[Segment<O>],
    from_offset: usize,
    length: usize,
) {
    let (mut to, mut from) = (Cursor::at(to, to_offset), Cursor::at(from, from_offset));
    let mut left = length;
    while left > 0 {
        let (Some(target), Some(source)) = (to.run(left), from.run(left)) else {
            debug_assert!(false, "a transfer beyond its segments");
            return;
        };
        let now = target.length.min(source.length);
        // Unmapped bytes are neither read nor written.
        if let (Some((target, to)), Some((source, from))) = (target.memory(), source.memory()) {
            target.copy_from(to, source, from, now);
        }
        target.skip(now);
        source.skip(now);
        left -= now;
    }
}

/// Writes bytes to a list of segments, from the byte `offset` of the list on, as [`transfer`] does.
pub fn write<O: Os>(to: &[Segment<O>], offset: usize, bytes: &[u8]) {
    let (mut to, mut rest) = (Cursor::at(to, offset), bytes);
    while let (false, Some(target)) = (rest.is_empty(), to.run(rest.len())) {
        let (now, later) = rest.split_at(target.length.min(rest.len()));
        if let Some((memory, at)) = target.memory() {
            memory.write(at, now);
        }
        target.skip(now.len());
        rest = later;
    }
}

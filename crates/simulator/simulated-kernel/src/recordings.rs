//! What drivers have recorded of their consumers (`docs/recorder.md`), found as in the dump of a machine: by looking through the pool.
//!
//! A broken rule ends the process, and nobody can ask the driver any more. So the slots are taken out of its memory: when the rule is
//! broken, and before the driver gives the memory back.

use std::{
    fs::File,
    io::{self, Write},
    ops::Range,
    path::{Path, PathBuf},
    ptr,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use recorder::{Ring, format::SLOT_BYTES, from_memory};

use crate::{
    kernel::Kernel,
    pool, running,
    state::{Part, Watch, lock},
};

/// The slots of a ring, as they lay in memory, without those at the end that nobody has written.
#[derive(Default)]
struct Slots {
    used: Vec<[u8; SLOT_BYTES]>,
    /// How many there are with the others.
    all: usize,
}

#[derive(Default)]
struct Kept {
    /// Where they go; nothing is kept without it.
    file: Option<PathBuf>,
    /// Those of memory that is not there any more.
    gone: Option<Slots>,
}

/// The recordings of the drivers of this kernel.
#[derive(Default)]
pub struct Recordings(Mutex<Kept>);

impl Part for Recordings {
    fn watch(&self) -> Option<&dyn Watch> {
        Some(self)
    }
}

impl Watch for Recordings {
    fn memory_is_to_go(&self, range: &Range<usize>) {
        if place_of_ring(range).is_none() {
            return;
        }
        let mut kept = lock(&self.0);
        if kept.file.is_some()
            && let Some(found) = ring_in(range)
        {
            kept.gone = longer(kept.gone.take(), Some(found));
        }
    }
}

impl Recordings {
    /// Writes the longest recording to the file that was named for it, if one was and there is one. Waits for nobody: a rule may be broken
    /// anywhere.
    ///
    /// # Errors
    ///
    /// What the file says.
    pub fn write(&self) -> io::Result<()> {
        let _nobody = running::Nobody::new();
        let Ok(mut kept) = self.0.try_lock() else { return Ok(()) };
        let kept = &mut *kept;
        let Some(file) = &kept.file else { return Ok(()) };
        let here = pool::large_blocks(*Ring::SIZES.start() * SLOT_BYTES);
        let longest = here.iter().fold(kept.gone.take(), |longest, range| longer(longest, ring_in(range)));
        let Some(Slots { used, all }) = longest else { return Ok(()) };
        let mut file = File::create(file)?;
        file.write_all(used.as_flattened())?;
        // What nobody has written is zero, and takes no room in the file.
        file.set_len((all * SLOT_BYTES) as u64)
    }
}

fn longer(one: Option<Slots>, other: Option<Slots>) -> Option<Slots> {
    [one, other].into_iter().flatten().max_by_key(|slots| slots.used.len())
}

/// How many slots a ring has that fills a block of so many bytes, and how far from the beginning of the block it lies: its slots are aligned
/// to their size, for which the drivers' heap (`kernel::Aligned`) takes that much more, and leaves at least a part of it in front.
fn place_of_ring(block: &Range<usize>) -> Option<(usize, usize)> {
    let slots = block.len() / SLOT_BYTES;
    let is_size = |slots: usize| slots.is_power_of_two() && Ring::SIZES.contains(&slots);
    let skipped = block.start % SLOT_BYTES;
    if is_size(slots) {
        (skipped == 0).then_some((slots, 0))
    } else {
        let slots = slots.checked_sub(1)?;
        is_size(slots).then_some((slots, SLOT_BYTES - skipped))
    }
}

/// The slots of the ring in a block, if it has one.
fn ring_in(block: &Range<usize>) -> Option<Slots> {
    let (all, skipped) = place_of_ring(block)?;
    let first = block.start + skipped;
    let mut used: Vec<_> = (0..all).map(|index| slot(first + index * SLOT_BYTES)).collect();
    let end = used.iter().rposition(|slot| *slot != [0; SLOT_BYTES])? + 1;
    used.truncate(end);
    let is_ring = used.iter().enumerate().any(|(index, slot)| from_memory(index, all, slot).is_some());
    is_ring.then_some(Slots { used, all })
}

/// The bytes of a slot.
fn slot(address: usize) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    for (index, word) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
        let place = ptr::with_exposed_provenance_mut::<u64>(address + index * size_of::<u64>());
        // SAFETY: the callers have a block of the pool with the slot in it, which is in use or about to be given back, and is aligned to the
        // slot. Whoever still writes there writes whole words, as a recorder does.
        *word = unsafe { AtomicU64::from_ptr(place) }.load(Relaxed).to_ne_bytes();
    }
    bytes
}

impl Kernel {
    /// From now on, what a driver has recorded of its consumers goes to this file if a rule is broken: the slots, as they lay in memory
    /// (`recorder::from_memory`). Of several recordings it is the longest.
    pub fn keep_recording(&self, file: &Path) {
        *lock(&self.state.part::<Recordings>().0) = Kept { file: Some(file.to_owned()), gone: None };
    }

    /// Writes it there now; nothing is written if nothing was recorded.
    ///
    /// # Errors
    ///
    /// What the file says.
    pub fn write_recording(&self) -> io::Result<()> {
        self.state.part::<Recordings>().write()
    }
}

#[cfg(test)]
mod tests {
    use super::place_of_ring;

    #[test]
    fn a_ring_fills_its_block_but_for_its_alignment() {
        for (start, bytes, place) in [
            (0, 255 * 64, None),
            (64, 256 * 64, Some((256, 0))),
            (16, 256 * 64, None),
            (0, 257 * 64, Some((256, 64))),
            (16, 257 * 64, Some((256, 48))),
            (0, 258 * 64, None),
            (4096, 64 + (64 << 18), Some((1 << 18, 64))),
            (0, 0, None),
        ] {
            assert_eq!(place_of_ring(&(start..start + bytes)), place, "{bytes} bytes at {start}");
        }
    }
}

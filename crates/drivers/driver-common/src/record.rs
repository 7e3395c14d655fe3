//! The recorder in front of an adapter (`docs/recorder.md`): off, unless the registry or a program says otherwise.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use control::provider_device::{Recording, RecordingFrom, RecordingPart, RecordingState, SLOT_BYTES};
use engine::os::{Os, SpinLock};
use fallible::Arc;
use ndkpi::{NDK_ADAPTER, NtStatus};
use recorder::{Keep, Recorder, Ring};

use crate::os::{Kernel, KernelLock};

const _: () = assert!(SLOT_BYTES == recorder::format::SLOT_BYTES);

/// Where the slots of the latest recording lie, and how many bytes they are.
///
/// For who has only a dump of the memory (`docs/recorder.md`): nobody else reads it.
#[used]
static LATEST: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// The latest recording.
#[derive(Clone, Default)]
struct Latest {
    ring: Option<Arc<Ring>>,
    /// How many there were before it, and itself.
    generation: u32,
}

/// The recordings of a driver, of which it keeps the latest.
pub struct Recordings {
    latest: KernelLock<Latest>,
}

impl Recordings {
    /// A recording of so many slots goes on, or none for 0. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(slots: u32) -> Result<Arc<Self>, NtStatus> {
        let this = Arc::try_new(Self { latest: Kernel.lock(Latest::default())? })?;
        if slots != 0 {
            this.begin(slots, Keep::First)?;
        }
        Ok(this)
    }

    /// Begins a recording, or ends the one that goes on. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if a value is out of its range, `STATUS_INSUFFICIENT_RESOURCES`; then nothing has changed.
    pub fn set(&self, wanted: &Recording) -> Result<(), NtStatus> {
        if !wanted.is_valid() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if wanted.slots != 0 {
            return self.begin(wanted.slots, if wanted.keep == 1 { Keep::Last } else { Keep::First });
        }
        if let Some(ring) = self.latest().ring {
            ring.stop();
        }
        Ok(())
    }

    fn begin(&self, slots: u32, keep: Keep) -> Result<(), NtStatus> {
        let ring = Ring::try_new(slots as usize, keep, Kernel.processors())?;
        let (address, bytes) = ring.memory();
        LATEST[0].store(address, Relaxed);
        LATEST[1].store(bytes, Relaxed);
        let before = self.latest.with(|latest| {
            latest.generation = latest.generation.wrapping_add(1);
            latest.ring.replace(ring)
        });
        // Freed without the lock, by who has it last: adapters that are open keep theirs.
        if let Some(before) = before {
            before.stop();
        }
        Ok(())
    }

    fn latest(&self) -> Latest {
        self.latest.with(|latest| latest.clone())
    }

    /// What is known of the latest one.
    #[must_use]
    pub fn state(&self) -> RecordingState {
        let Latest { ring, generation } = self.latest();
        let processors = Kernel.processors();
        let Some(ring) = ring else { return RecordingState { processors, ..RecordingState::default() } };
        let range = ring.range();
        RecordingState {
            slots: u32::try_from(ring.len()).unwrap_or(u32::MAX),
            is_on: ring.is_on().into(),
            generation,
            processors,
            first: range.start,
            end: range.end,
            lost: ring.beyond(),
        }
    }

    /// Stores the slots that are asked for in `room`: a [`RecordingPart`], and as many as fit. Returns how many bytes that are. No more
    /// places of the ring are looked at than there is room for.
    ///
    /// # Errors
    ///
    /// `STATUS_BUFFER_TOO_SMALL` without room for one, `STATUS_INVALID_PARAMETER` if that recording is gone.
    pub fn read(&self, from: &RecordingFrom, room: &mut [u8]) -> Result<usize, NtStatus> {
        let Latest { ring, generation } = self.latest();
        let ring = ring.filter(|_| from.generation == generation && from.reserved == 0);
        let ring = ring.ok_or(NtStatus::INVALID_PARAMETER)?;
        let (head, slots) = room.split_first_chunk_mut().ok_or(NtStatus::BUFFER_TOO_SMALL)?;
        let most = slots.len() / SLOT_BYTES;
        if most == 0 {
            return Err(NtStatus::BUFFER_TOO_SMALL);
        }
        let range = ring.range();
        let first = from.ordinal.max(range.start);
        let next = first.saturating_add(most as u64).min(range.end).max(first);
        let mut places = slots.chunks_exact_mut(SLOT_BYTES);
        let mut length = RecordingPart::BYTES;
        for slot in (first..next).filter_map(|ordinal| ring.read(ordinal)) {
            // There is one for each of them.
            let Some(place) = places.next() else { break };
            place.copy_from_slice(&slot);
            length += SLOT_BYTES;
        }
        *head = RecordingPart { next, end: range.end }.to_bytes();
        Ok(length)
    }

    /// The ring of the recording that goes on, if one does. `PASSIVE_LEVEL`.
    #[must_use]
    pub fn running(&self) -> Option<Arc<Ring>> {
        self.latest().ring.filter(|ring| ring.is_on())
    }
}

/// Puts the recorder in front of an adapter that was just opened. `PASSIVE_LEVEL`.
///
/// # Errors
///
/// `STATUS_INSUFFICIENT_RESOURCES`: then the adapter is as it was.
///
/// # Safety
///
/// `adapter` is open, and nobody else has it.
pub unsafe fn wrap(adapter: *mut NDK_ADAPTER, ring: Arc<Ring>) -> Result<*mut NDK_ADAPTER, NtStatus> {
    // SAFETY: `adapter` is open and nobody else's (`# Safety`), which is what `wrap` asks for.
    unsafe { interpose::wrap(adapter, Recorder::new(Kernel, ring)) }
}

//! A cable between two adapters of one machine, which may lose, double, disorder and spoil frames.

use std::{
    boxed::Box,
    mem,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    vec::Vec,
};

use engine::wire::{Cable, Wire};
use host::HostOs;
use recorder::Tap;

/// The type of frames that ask who has an address.
const ARP: [u8; 2] = [0x08, 0x06];

/// What a cable does to frames: each a chance in a thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Impairments {
    /// Frames that are lost.
    pub loss: u16,
    /// Frames that come twice.
    pub duplicates: u16,
    /// Frames that come after the next one.
    pub disorder: u16,
    /// Frames of which one bit is another. Those of ARP are spared: only Ethernet's check sequence protects them, which no frame here has.
    pub corruption: u16,
}

impl Impairments {
    /// Each kind, so often.
    #[must_use]
    pub const fn all(per_mille: u16) -> Self {
        Self { loss: per_mille, duplicates: per_mille, disorder: per_mille, corruption: per_mille }
    }
}

/// Where the frames of an end go: a wire, once it is there and as long as it is.
type Far = Arc<Mutex<Option<fallible::Arc<Wire<HostOs>>>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cable of two ends.
#[derive(Clone, Default)]
pub struct Line {
    ends: [Far; 2],
    /// The last frame that each end has sent.
    last: [Arc<Mutex<Vec<u8>>>; 2],
    /// What records the frames at both ends, once there is something.
    taps: Taps,
}

/// A tap for each end.
type Taps = Arc<OnceLock<[Tap<HostOs>; 2]>>;

impl Line {
    /// The end of the wire `number`, which is 0 or 1. The seed decides what happens to which frame.
    #[must_use]
    pub fn end(&self, number: usize, impairments: Impairments, seed: u64) -> Box<dyn Cable> {
        let fate = Fate { impairments, random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, late: Vec::new() };
        let (far, last) = (self.ends[1 - number % 2].clone(), self.last[number % 2].clone());
        Box::new(End { far, last, fate: Mutex::new(fate), number: number % 2, taps: self.taps.clone() })
    }

    /// The last frame that the wire `number` has sent: what an attacker on the cable has seen.
    #[must_use]
    pub fn last(&self, number: usize) -> Vec<u8> {
        lock(&self.last[number % 2]).clone()
    }

    /// Records frames from now on, at both ends: one that is lost between them has left only. The first taps stay.
    pub fn record(&self, taps: [Tap<HostOs>; 2]) {
        let _ = self.taps.set(taps);
    }

    /// Plugs a wire in: frames of the other end come to it.
    pub fn plug(&self, number: usize, wire: fallible::Arc<Wire<HostOs>>) {
        *lock(&self.ends[number % 2]) = Some(wire);
    }

    /// Pulls both ends out.
    pub fn pull(&self) {
        for far in &self.ends {
            drop(lock(far).take());
        }
    }
}

struct End {
    far: Far,
    last: Arc<Mutex<Vec<u8>>>,
    fate: Mutex<Fate>,
    number: usize,
    taps: Taps,
}

impl End {
    /// Brings a frame to the other wire.
    fn arrive(&self, far: &fallible::Arc<Wire<HostOs>>, frame: &[u8]) {
        if let Some(taps) = self.taps.get() {
            taps[1 - self.number].received(frame);
        }
        Wire::receive(far, frame);
    }
}

struct Fate {
    impairments: Impairments,
    random: u64,
    /// A frame that comes after the next one.
    late: Vec<u8>,
}

impl Fate {
    /// A number that looks like chance (`xorshift64*`).
    const fn draw(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    fn strikes(&mut self, per_mille: u16) -> bool {
        per_mille > 0 && self.draw() % 1000 < per_mille.into()
    }

    /// What arrives when this frame is sent.
    fn arriving(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let Impairments { loss, duplicates, disorder, corruption } = self.impairments;
        let late = mem::take(&mut self.late);
        let mut arriving = Vec::new();
        if !self.strikes(loss) {
            let mut frame = frame.to_vec();
            if frame.get(12..14) != Some(&ARP) && self.strikes(corruption) {
                let bit = usize::try_from(self.draw()).unwrap_or(0) % (frame.len() * 8).max(1);
                frame[bit / 8] ^= 1 << (bit % 8);
            }
            if self.strikes(duplicates) {
                arriving.push(frame.clone());
            }
            if late.is_empty() && self.strikes(disorder) {
                self.late = frame;
            } else {
                arriving.push(frame);
            }
        }
        if !late.is_empty() {
            arriving.push(late);
        }
        arriving
    }
}

impl Cable for End {
    fn send(&self, frame: &[u8]) {
        frame.clone_into(&mut lock(&self.last));
        if let Some(taps) = self.taps.get() {
            taps[self.number].sent(frame);
        }
        // No lock of the host is held while the other wire works.
        let Some(far) = lock(&self.far).clone() else { return };
        let is_clean = lock(&self.fate).impairments == Impairments::default();
        if is_clean {
            return self.arrive(&far, frame);
        }
        let arriving = lock(&self.fate).arriving(frame);
        for frame in arriving {
            self.arrive(&far, &frame);
        }
    }

    fn carries(&self, number: u32) {
        if let Some(taps) = self.taps.get() {
            taps[self.number].carries(number);
        }
    }
}

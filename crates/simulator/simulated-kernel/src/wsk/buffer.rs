//! Memory that clients pass: the bytes that a `WSK_BUF` describes.

use ndis::WSK_BUF;
use wdk_bindings::MDL;

use crate::{pins::Pin, pool, report::bug_check, rule::Rule, state::State, wdm::mdl};

/// Ends the test unless the pointer is to memory that is there.
pub fn present(address: usize, what: &str) {
    if address == 0 {
        bug_check(Rule::BadArgument, format_args!("{what} is a null pointer"));
    }
    pool::check_live(address, format_args!("{what} at {address:#x} is in"));
}

/// The bytes of a `WSK_BUF`, piece by piece.
pub struct Buffer {
    source: WSK_BUF,
    /// Where each piece begins, and how long it is.
    pieces: Vec<(usize, usize)>,
    mdls: Vec<*mut MDL>,
}

// SAFETY: addresses, of memory that stays until the request is complete: that is watched.
unsafe impl Send for Buffer {}

impl Buffer {
    /// What a client has passed to a function.
    pub fn of(state: &State, place: *const WSK_BUF, routine: &str) -> Self {
        present(place.addr(), "the WSK_BUF");
        // SAFETY: the client's structure, which lives until the call returns.
        let source = unsafe { place.read() };
        Self::walk(state, source, routine)
    }

    fn walk(state: &State, source: WSK_BUF, routine: &str) -> Self {
        let (mut pieces, mut mdls) = (Vec::new(), Vec::new());
        let (mut mdl, mut offset, mut left): (*mut MDL, _, _) =
            (source.Mdl.cast(), source.Offset as usize, source.Length);
        while left > 0 {
            if mdl.is_null() {
                bug_check(
                    Rule::WskBuffer,
                    format_args!("a WSK_BUF of {routine} is longer than its MDLs by {left} bytes"),
                );
            }
            let Some(start) = mdl::memory_of(state, mdl) else {
                bug_check(
                    Rule::WskBuffer,
                    format_args!("the MDL at {mdl:p} of {routine} is neither locked nor non-paged"),
                );
            };
            // SAFETY: a known MDL of the chain.
            let MDL { ByteCount: count, Next: next, .. } = unsafe { mdl.read() };
            let count = count as usize;
            if offset >= count && mdls.is_empty() {
                let words = format_args!(
                    "the offset {offset} of a WSK_BUF of {routine} is beyond its first MDL of {count} bytes"
                );
                bug_check(Rule::WskBuffer, words);
            }
            let here = left.min(count - offset);
            pool::check_live(start + offset, format_args!("the bytes of a WSK_BUF of {routine} are in"));
            if here > 0 {
                pieces.push((start + offset, here));
            }
            mdls.push(mdl);
            (left, offset, mdl) = (left - here, 0, next);
        }
        Self { source, pieces, mdls }
    }

    /// How many bytes.
    pub const fn length(&self) -> usize {
        self.source.Length
    }

    /// The bytes.
    pub fn read(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.length());
        for &(start, length) in &self.pieces {
            let start: *const u8 = std::ptr::with_exposed_provenance(start);
            // SAFETY: memory of the client's, which stays until the request is complete: that is watched.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, length) });
        }
        bytes
    }

    /// Writes as many as there is room for. How many.
    pub fn write(&self, bytes: &[u8]) -> usize {
        let mut done = 0;
        for &(start, length) in &self.pieces {
            let part = &bytes[done..bytes.len().min(done + length)];
            let start: *mut u8 = std::ptr::with_exposed_provenance_mut(start);
            // SAFETY: memory of the client's, which stays until the request is complete: that is watched.
            unsafe { start.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            done += part.len();
        }
        done
    }

    /// Ends the test if the MDLs are not what they were.
    pub fn check_unchanged(&self, state: &State, routine: &str) {
        let now = Self::walk(state, self.source, routine);
        if now.pieces != self.pieces || now.mdls != self.mdls {
            let words = format_args!("the MDLs of a WSK_BUF of {routine} were changed before the IRP is complete");
            bug_check(Rule::WskMemoryInUse, words);
        }
    }

    /// Ends the test if the MDLs or their bytes are not what they were.
    pub fn check_same(&self, state: &State, before: &[u8], routine: &str) {
        self.check_unchanged(state, routine);
        if self.read() != before {
            let words = "were changed before the IRP is complete";
            bug_check(Rule::WskMemoryInUse, format_args!("the bytes of {routine} {words}"));
        }
    }

    /// What must stay until the request is complete.
    pub fn pin(&self, pin: &mut Pin) {
        for &mdl in &self.mdls {
            pin.memory.push((mdl.addr()..mdl.addr() + size_of::<MDL>(), "an MDL"));
            pin.mdls.push(mdl.addr());
        }
        pin.memory.extend(self.pieces.iter().map(|&(start, length)| (start..start + length, "a buffer")));
    }
}

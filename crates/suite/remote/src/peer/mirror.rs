//! Buffers of cases, and their doubles on the other machine.
//!
//! A case that reads a buffer with a double reads the double. No case registers a buffer at both machines at a time: what the adapter
//! here writes to such a buffer would be lost.

use alloc::boxed::Box;
use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Release},
};

use conformance::platform::{CaseMemory, PinnedMemory, Shape};
use fallible::{Arc, try_slice};
use ndkpi::{MDL, NDK_SGE, NtStatus};

use super::link::{Link, Token};
use crate::{
    lock::Lock,
    wire::{ANSWER_TAIL, CALL_TAIL, Call, Function},
};

/// A buffer, and its double if it has one.
pub struct Mirror {
    mdl: *mut MDL,
    here: *mut u8,
    length: usize,
    shape: Shape,
    tie: Lock<()>,
    tied: AtomicBool,
    there: AtomicU64,
    handle: AtomicU64,
}

// SAFETY: the description is only compared, and the bytes are only copied, while the buffer lives.
unsafe impl Send for Mirror {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mirror {}

impl Mirror {
    /// The handle of the double.
    pub fn handle(&self) -> u64 {
        self.handle.load(Acquire)
    }

    fn is_tied(&self) -> bool {
        self.tied.load(Acquire)
    }

    /// What turns an address here into one there.
    pub fn distance(&self) -> u64 {
        self.there.load(Acquire).wrapping_sub(self.here.addr() as u64)
    }

    /// Copies bytes to the double.
    fn push(&self, link: &Link, offset: usize, length: usize, zeros_too: bool) -> Result<(), NtStatus> {
        let mut bytes = try_slice(CALL_TAIL.min(length), |_| 0_u8)?;
        let mut done = 0;
        while done < length {
            let part = bytes.len().min(length - done);
            let piece = &mut bytes[..part];
            let from = self.here.wrapping_add(offset + done);
            // SAFETY: the case has written these bytes of the buffer, so they are in it; the piece is not.
            unsafe { core::ptr::copy_nonoverlapping(from, piece.as_mut_ptr(), part) };
            if zeros_too || piece.iter().any(|byte| *byte != 0) {
                let mut call = Call::try_new(Function::Put, self.handle())?.word(0, (offset + done) as u64);
                let _ = call.append(piece);
                link.send(&mut call)?;
            }
            done += part;
        }
        Ok(())
    }

    /// Copies bytes from the double.
    fn pull(&self, link: &Link, offset: usize, length: usize) -> Result<(), NtStatus> {
        let mut done = 0;
        while done < length {
            let part = ANSWER_TAIL.min(length - done);
            let call = Call::try_new(Function::Get, self.handle())?.word(0, (offset + done) as u64);
            let answer = link.send(&mut call.word(1, part as u64))?;
            if answer.tail().len() != part {
                return Err(NtStatus::INTERNAL_ERROR);
            }
            let to = self.here.wrapping_add(offset + done);
            // SAFETY: the case is about to read these bytes of the buffer, so they are in it; the answer is not.
            unsafe { core::ptr::copy_nonoverlapping(answer.tail().as_ptr(), to, part) };
            done += part;
        }
        Ok(())
    }
}

impl Link {
    /// The buffer of a description.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if there is none.
    pub fn mirror(&self, mdl: *mut MDL) -> Result<Arc<Mirror>, NtStatus> {
        let ends = self.may_wait()?;
        let mirrors = self.mirrors.lock(ends.platform());
        mirrors.iter().find(|mirror| mirror.mdl == mdl).cloned().ok_or(NtStatus::INVALID_PARAMETER)
    }

    /// Makes a double of a buffer, unless it has one.
    ///
    /// # Errors
    ///
    /// The other machine has no memory, or cannot be called.
    pub fn tie(&self, mirror: &Mirror) -> Result<(), NtStatus> {
        let ends = self.may_wait()?;
        let _tie = mirror.tie.lock(ends.platform());
        if mirror.is_tied() {
            return Ok(());
        }
        let (shape, piece) = match mirror.shape {
            Shape::Whole => (0_u64, 0),
            Shape::Chained(piece) => (1, piece),
            Shape::Gap => (2, 0),
        };
        let call = Call::try_new(Function::Allocate, 0)?.word(0, shape).word(1, piece as u64);
        let answer = self.send(&mut call.word(2, mirror.length as u64))?;
        answer.status().ok()?;
        mirror.handle.store(answer.word(0), Release);
        mirror.there.store(answer.word(1), Release);
        // The double begins with zeros.
        mirror.push(self, 0, mirror.length, false)?;
        mirror.tied.store(true, Release);
        Ok(())
    }

    /// Notes a token, and what turns an address here into one there.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn note_token(&self, token: u32, region: u64, distance: u64) -> Result<(), NtStatus> {
        let ends = self.may_wait()?;
        let mut tokens = self.tokens.lock(ends.platform());
        if let Some(known) = tokens.iter_mut().find(|known| known.value == token) {
            *known = Token { value: token, region, distance };
            return Ok(());
        }
        tokens.try_reserve(1).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        tokens.push(Token { value: token, region, distance });
        Ok(())
    }

    /// The address of an element, as the other machine knows it.
    ///
    /// # Errors
    ///
    /// The caller may not wait.
    pub fn translated(&self, element: &NDK_SGE) -> Result<u64, NtStatus> {
        let address = element.logical_address().to_bits();
        let ends = self.may_wait()?;
        let tokens = self.tokens.lock(ends.platform());
        if let Some(known) = tokens.iter().find(|known| known.value == element.MemoryRegionToken) {
            return Ok(address.wrapping_add(known.distance));
        }
        drop(tokens);
        let mirrors = self.mirrors.lock(ends.platform());
        let has = |mirror: &Arc<Mirror>| {
            let offset = address.wrapping_sub(mirror.here.addr() as u64);
            mirror.is_tied() && offset < mirror.length as u64
        };
        Ok(mirrors.iter().find(|mirror| has(mirror)).map_or(address, |mirror| address.wrapping_add(mirror.distance())))
    }
}

/// The memory of a case.
pub struct Mirrored {
    memory: Box<dyn PinnedMemory>,
    mirror: Arc<Mirror>,
    link: Arc<Link>,
}

impl Mirrored {
    /// Memory that can be doubled.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(link: &Arc<Link>, memory: Box<dyn PinnedMemory>, shape: Shape) -> Result<Self, NtStatus> {
        let mirror = Mirror {
            mdl: memory.mdl(),
            here: memory.address(),
            length: memory.length(),
            shape,
            tie: Lock::new(()),
            tied: AtomicBool::new(false),
            there: AtomicU64::new(0),
            handle: AtomicU64::new(0),
        };
        let mirror = Arc::try_new(mirror)?;
        let ends = link.ends().ok_or(NtStatus::DEVICE_NOT_READY)?;
        let mut mirrors = link.mirrors.lock(ends.platform());
        mirrors.try_reserve(1).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        mirrors.push(mirror.clone());
        Ok(Self { memory, mirror, link: link.clone() })
    }
}

// SAFETY: everything is as with the memory inside.
unsafe impl PinnedMemory for Mirrored {
    fn mdl(&self) -> *mut MDL {
        self.memory.mdl()
    }

    fn address(&self) -> *mut u8 {
        self.memory.address()
    }

    fn length(&self) -> usize {
        self.memory.length()
    }
}

impl CaseMemory for Mirrored {
    fn written(&self, offset: usize, length: usize) {
        if self.mirror.is_tied() {
            // What has failed is noted as the reason why the case says nothing.
            let _ = self.mirror.push(&self.link, offset, length, true);
        }
    }

    fn to_be_read(&self, offset: usize, length: usize) {
        if self.mirror.is_tied() {
            // As in `written`.
            let _ = self.mirror.pull(&self.link, offset, length);
        }
    }

    fn peer_address(&self) -> u64 {
        if self.mirror.is_tied() { self.mirror.there.load(Acquire) } else { self.memory.address().addr() as u64 }
    }
}

impl Drop for Mirrored {
    fn drop(&mut self) {
        let Some(ends) = self.link.ends() else { return };
        self.link.mirrors.lock(ends.platform()).retain(|mirror| !Arc::ptr_eq(mirror, &self.mirror));
        // The agent frees what it is not told of when the next one greets it.
        if self.mirror.is_tied()
            && self.link.dead().is_none()
            && ends.channel().may_wait()
            && let Ok(mut call) = Call::try_new(Function::Free, self.mirror.handle())
        {
            let _ = self.link.send(&mut call);
        }
    }
}

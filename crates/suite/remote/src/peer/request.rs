//! Requests that pend.

use core::ffi::c_void;

use ndkpi::{NDK_FN_REQUEST_COMPLETION, NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING, NtStatus};
use zerocopy::{FromBytes, little_endian::U64};

use super::link::{Known, Link};
use crate::wire::{Answer, Call, Function, word_as_pointer};

/// A request whose completion has to come.
#[derive(Clone, Copy)]
pub struct Pending {
    completion: NDK_FN_REQUEST_COMPLETION,
    context: *mut c_void,
    lam: Option<LamPlaces>,
}

/// Where a mapping is stored.
#[derive(Clone, Copy)]
pub struct LamPlaces {
    /// The mapping.
    pub mapping: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    /// The size of its place, and the size it needs.
    pub size: *mut u32,
    /// The offset of its first byte.
    pub offset: *mut u32,
    /// Its handle, once the call was answered.
    pub handle: u64,
}

/// Makes a request whose other arguments are in the call.
pub fn request(
    link: &Link,
    call: Call,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
    lam: Option<LamPlaces>,
) -> Result<NtStatus, NtStatus> {
    let completion = completion.ok_or(NtStatus::INVALID_PARAMETER)?;
    let ends = link.may_wait()?;
    let pending = Pending { completion, context, lam };
    let cookie = link.known.lock(ends.platform()).insert(Known::Request(pending))?;
    let answer = link.send(&mut call.cookie(cookie));
    if let Ok(answer) = &answer
        && answer.status() == NtStatus::PENDING
    {
        return Ok(NtStatus::PENDING);
    }
    let mine = link.known.lock(ends.platform()).remove(cookie);
    let answer = match answer {
        Ok(answer) => answer,
        // The channel died while the call was made, and the pump has completed the request for that.
        Err(_) if mine.is_none() => return Ok(NtStatus::PENDING),
        Err(status) => return Err(status),
    };
    if let Some(lam) = lam {
        return Ok(built(link, lam, &answer));
    }
    Ok(answer.status())
}

/// What goes on after a request for a mapping that did not pend.
fn built(link: &Link, lam: LamPlaces, answer: &Answer) -> NtStatus {
    let status = answer.status();
    if status == NtStatus::BUFFER_TOO_SMALL {
        // SAFETY: the place is the caller's, valid until the request has ended.
        unsafe { lam.size.write(answer.word(1) as u32) };
    }
    if status != NtStatus::SUCCESS {
        return status;
    }
    store(link, LamPlaces { handle: answer.word(0), ..lam }).err().unwrap_or(status)
}

/// Fetches a mapping that is built.
fn store(link: &Link, lam: LamPlaces) -> Result<(), NtStatus> {
    // SAFETY: the place is the caller's, valid until the request has ended.
    let room = unsafe { lam.size.read() } as usize;
    let mut from = 0;
    loop {
        let answer = link.send(&mut Call::try_new(Function::LamPages, lam.handle)?.word(0, from as u64))?;
        let (count, size) = (answer.word(2) as u32, answer.word(0) as u32);
        if NDK_LOGICAL_ADDRESS_MAPPING::size_for(count) > room {
            return Err(NtStatus::INTERNAL_ERROR);
        }
        // SAFETY: the places are the caller's (`NDK_FN_BUILD_LAM`), valid until the request has ended.
        unsafe {
            (*lam.mapping).AdapterContext = word_as_pointer(lam.handle);
            (*lam.mapping).AdapterPageCount = count;
            lam.offset.write(answer.word(1) as u32);
            lam.size.write(size);
        }
        let Ok(pages) = <[U64]>::ref_from_bytes(answer.tail()) else {
            return Err(NtStatus::INTERNAL_ERROR);
        };
        for page in pages.iter().take((count as usize).saturating_sub(from)) {
            // SAFETY: the mapping has room for `count` pages, which was checked.
            unsafe {
                let first = NDK_LOGICAL_ADDRESS_MAPPING::pages(lam.mapping);
                first.add(from).write(NDK_LOGICAL_ADDRESS::from_bits(page.get()));
            }
            from += 1;
        }
        if from >= count as usize || pages.is_empty() {
            return Ok(());
        }
    }
}

impl Pending {
    /// Makes the completion. `handle` is that of a mapping, if it was asked for.
    ///
    /// # Safety
    ///
    /// The request has ended with this status, and its completion was not made yet.
    pub unsafe fn complete(self, link: &Link, status: NtStatus, handle: u64) {
        let status = match self.lam {
            Some(lam) if status == NtStatus::SUCCESS => {
                store(link, LamPlaces { handle, ..lam }).err().unwrap_or(status)
            }
            Some(lam) if status == NtStatus::BUFFER_TOO_SMALL => {
                let pages = Call::try_new(Function::LamPages, handle).and_then(|mut call| link.send(&mut call));
                if let Ok(answer) = pages {
                    // SAFETY: the place is the caller's, valid until the completion.
                    unsafe { lam.size.write(answer.word(0) as u32) };
                }
                status
            }
            _ => status,
        };
        // SAFETY: the consumer gave the callback and its context for this request, which ends once (`# Safety`).
        unsafe { (self.completion)(self.context, status) };
    }
}

//! Lists of frames, as NDIS has them: chains that are walked, cut and put together, and the bytes of a frame.

use core::{ffi::c_void, ptr};

use cable::Tag;
use driver_common::os::system_address;
use ndis::{Ieee8021QNetBufferListInfo, NDIS_STATUS, NET_BUFFER, NET_BUFFER_LIST};
use wdk_sys::MDL;

/// A chain of net buffer lists that belong to whoever has this.
///
/// # Invariants
///
/// From `first` on the lists are linked by `Next`; `last` is the last one if `first` is not null. `count` is their number.
pub struct Chain {
    first: *mut NET_BUFFER_LIST,
    last: *mut NET_BUFFER_LIST,
    count: u32,
}

// SAFETY: lists may be handled on any thread by whom they belong to.
unsafe impl Send for Chain {}

impl Chain {
    /// No lists.
    pub const EMPTY: Self = Self { first: ptr::null_mut(), last: ptr::null_mut(), count: 0 };

    /// The lists from `first` on.
    ///
    /// # Safety
    ///
    /// They belong to the caller, and do from now on to this.
    #[must_use]
    pub unsafe fn of(first: *mut NET_BUFFER_LIST) -> Self {
        let mut chain = Self::EMPTY;
        let mut next = first;
        while !next.is_null() {
            let list = next;
            // SAFETY: a list of the chain (the caller's promise).
            next = unsafe { (*list).Next };
            // SAFETY: as above, and it is in no other chain.
            unsafe { chain.push(list) };
        }
        chain
    }

    /// How many lists there are.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The first list; null if there is none.
    #[must_use]
    pub const fn first(&self) -> *mut NET_BUFFER_LIST {
        self.first
    }

    /// Puts a list at the end.
    ///
    /// # Safety
    ///
    /// The list belongs to the caller, and does from now on to this.
    pub unsafe fn push(&mut self, list: *mut NET_BUFFER_LIST) {
        // SAFETY: the caller's promise.
        unsafe { (*list).Next = ptr::null_mut() };
        if self.first.is_null() {
            self.first = list;
        } else {
            // SAFETY: there is a first list, so there is a last one (invariant).
            unsafe { (*self.last).Next = list };
        }
        self.last = list;
        self.count += 1;
    }

    /// Takes the first list.
    pub fn pop(&mut self) -> Option<*mut NET_BUFFER_LIST> {
        let list = self.first;
        if list.is_null() {
            return None;
        }
        // SAFETY: a list of this chain (invariant).
        self.first = unsafe { (*list).Next };
        // SAFETY: as above.
        unsafe { (*list).Next = ptr::null_mut() };
        self.count -= 1;
        Some(list)
    }

    /// Puts the lists of `other` at the end.
    pub fn append(&mut self, other: Self) {
        if other.first.is_null() {
            return;
        }
        if self.first.is_null() {
            *self = other;
            return;
        }
        // SAFETY: there is a first list, so there is a last one (invariant).
        unsafe { (*self.last).Next = other.first };
        self.last = other.last;
        self.count += other.count;
    }

    /// Says of every list how its send has ended.
    pub fn set_status(&mut self, status: NDIS_STATUS) {
        let mut next = self.first;
        while !next.is_null() {
            // SAFETY: a list of this chain (invariant).
            unsafe { (*next).Status = status };
            // SAFETY: as above.
            next = unsafe { (*next).Next };
        }
    }

    /// Takes all lists.
    #[must_use]
    pub const fn take(&mut self) -> Self {
        core::mem::replace(self, Self::EMPTY)
    }
}

/// A frame on its way out, and the tag that it gets.
#[derive(Clone, Copy)]
pub struct Outgoing {
    /// The frame.
    pub frame: *mut NET_BUFFER,
    /// The tag, if the sender has put one beside the frame.
    pub tag: Option<Tag>,
}

impl Outgoing {
    /// No frame.
    pub const NONE: Self = Self { frame: ptr::null_mut(), tag: None };
}

/// What a list says that the tags of its frames are (`NDIS_NET_BUFFER_LIST_8021Q_INFO`).
///
/// # Safety
///
/// `list` is a list that the caller has.
#[must_use]
pub unsafe fn tag_of(list: *const NET_BUFFER_LIST) -> Tag {
    // SAFETY: the caller's promise.
    let info = unsafe { (*list).NetBufferListInfo[Ieee8021QNetBufferListInfo] }.addr();
    #[expect(clippy::cast_possible_truncation, reason = "the sixteen bits that mean something")]
    let info = info as u16;
    Tag::new(info & 7, info & 8 != 0, info >> 4)
}

/// The same, of a tag.
#[must_use]
pub fn info_of(tag: Tag) -> *mut c_void {
    let info = usize::from(tag.priority()) | usize::from(tag.is_not_canonical()) << 3 | usize::from(tag.vlan()) << 4;
    ptr::without_provenance_mut(info)
}

/// The bytes of a frame.
///
/// # Safety
///
/// `buffer` is a net buffer that the caller has.
#[must_use]
pub unsafe fn length(buffer: *const NET_BUFFER) -> usize {
    // SAFETY: the caller's promise.
    let length = unsafe { (*buffer).DataLength };
    // SAFETY: every value of the union's numbers is one; drivers read and write the 32 bits.
    (unsafe { length.DataLength }) as usize
}

/// Copies a frame to `place`, which has room for as many bytes as it has ([`length`]). False if its chain of MDLs is too short, or
/// there is no room to map it. `IRQL <= DISPATCH_LEVEL`.
///
/// # Safety
///
/// `buffer` is a net buffer that the caller has, whose bytes nobody changes, and `place` has that room.
#[must_use]
pub unsafe fn copy(buffer: *const NET_BUFFER, place: *mut u8) -> bool {
    // SAFETY: the caller's promise.
    let mut left = unsafe { length(buffer) };
    // SAFETY: the caller's promise.
    let mut mdl: *mut MDL = unsafe { (*buffer).CurrentMdl }.cast();
    // SAFETY: the caller's promise.
    let mut offset = (unsafe { (*buffer).CurrentMdlOffset }) as usize;
    let mut place = place;
    while left > 0 {
        if mdl.is_null() {
            return false;
        }
        // SAFETY: an MDL of the frame's chain.
        let bytes = (unsafe { (*mdl).ByteCount }) as usize;
        let count = bytes.saturating_sub(offset).min(left);
        if count > 0 {
            // SAFETY: an MDL of a frame that is sent, whose pages are locked.
            let Some(from) = (unsafe { system_address(mdl) }) else { return false };
            let from = from.wrapping_add(offset);
            // SAFETY: the MDL maps as many bytes, and the place has room for the whole frame (the caller's promise).
            unsafe { ptr::copy_nonoverlapping(from, place, count) };
            place = place.wrapping_add(count);
        }
        left -= count;
        offset = offset.saturating_sub(bytes);
        // SAFETY: an MDL of the frame's chain.
        mdl = unsafe { (*mdl).Next };
    }
    true
}

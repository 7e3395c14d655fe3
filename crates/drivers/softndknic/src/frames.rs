//! Lists of frames, as NDIS has them: chains that are walked, cut and put together, and the bytes of a frame.

use core::{ffi::c_void, ptr};

use cable::{Class, Tag};
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
            // SAFETY: a list of the chain (`# Safety`).
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
        // SAFETY: the list is the caller's until this call, then the chain's (`# Safety`): nobody else reads it.
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
        // SAFETY: it has left the chain, and nobody but the caller has it.
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
            // SAFETY: a list of this chain (invariant), whose end has a null `Next`.
            next = unsafe { (*next).Next };
        }
    }

    /// Takes all lists.
    #[must_use]
    pub const fn take(&mut self) -> Self {
        core::mem::replace(self, Self::EMPTY)
    }
}

/// A frame on its way: where its bytes are, and what is said beside them.
#[derive(Clone, Copy)]
pub struct Frame {
    /// The MDL in which it begins.
    mdl: *mut MDL,
    /// Bytes of that MDL before it.
    offset: usize,
    /// Its bytes.
    length: usize,
    /// The tag, if the sender has put one beside the frame.
    pub tag: Option<Tag>,
    /// Whose it is.
    pub class: Class,
}

impl Frame {
    /// No frame.
    pub const NONE: Self = Self { mdl: ptr::null_mut(), offset: 0, length: 0, tag: None, class: Class::Other };

    /// The frame in a net buffer.
    ///
    /// # Safety
    ///
    /// `buffer` is a net buffer that the caller has, as long as the result is used.
    #[must_use]
    pub unsafe fn of(buffer: *const NET_BUFFER, tag: Option<Tag>) -> Self {
        // SAFETY: a net buffer that the caller has (`# Safety`).
        let buffer = unsafe { &*buffer };
        // SAFETY: every value of the union's numbers is one; drivers read and write the 32 bits.
        let length = (unsafe { buffer.DataLength.DataLength }) as usize;
        let (mdl, offset) = (buffer.CurrentMdl.cast(), buffer.CurrentMdlOffset as usize);
        Self { mdl, offset, length, tag, class: Class::Other }
    }

    /// `length` bytes behind `offset` bytes of a chain of MDLs.
    #[must_use]
    pub const fn in_chain(mdl: *mut MDL, offset: usize, length: usize) -> Self {
        Self { mdl, offset, length, tag: None, class: Class::Other }
    }

    /// The same frame, as one of this class.
    #[must_use]
    pub const fn of_class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// How long it is, without what is said beside it.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// The same frame without its first bytes.
    #[must_use]
    pub const fn behind(&self, bytes: usize) -> Self {
        Self { offset: self.offset + bytes, length: self.length.saturating_sub(bytes), ..*self }
    }

    /// Its first bytes, as many as there is room for. How many; `None` if its chain of MDLs is too short even for these, or there is no room
    /// to map it. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Safety
    ///
    /// The frame's chain is the caller's, its pages are locked or not paged, and nobody changes its bytes until this returns.
    #[must_use]
    pub unsafe fn head(&self, room: &mut [u8]) -> Option<usize> {
        let head = Self { length: self.length.min(room.len()), ..*self };
        // SAFETY: the chain is as `copy` asks for (`# Safety`); the room has at least as many bytes as the head, and is borrowed.
        unsafe { head.copy(room.as_mut_ptr()) }.then_some(head.length)
    }

    /// Where its bytes are, if all of them are in its first MDL, and are mapped: so long as the chain is the caller's. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Safety
    ///
    /// The frame's chain is the caller's, and its pages are locked or not paged.
    #[must_use]
    pub unsafe fn in_one_piece(&self) -> Option<*const u8> {
        // SAFETY: null, or the first MDL of the caller's chain (`# Safety`).
        let bytes = unsafe { self.mdl.as_ref() }?.ByteCount as usize;
        // SAFETY: an MDL whose pages are locked or not paged (`# Safety`).
        let mapped = (self.offset + self.length <= bytes).then(|| unsafe { system_address(self.mdl) }).flatten();
        mapped.map(|start| start.wrapping_add(self.offset).cast_const())
    }

    /// Copies it to `place`, which has room for it. False if its chain of MDLs is too short, or there is no room to map it.
    /// `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Safety
    ///
    /// The frame's chain is the caller's, its pages are locked or not paged, and nobody changes its bytes; `place` has that room.
    #[must_use]
    pub unsafe fn copy(&self, place: *mut u8) -> bool {
        let Self { mut mdl, mut offset, length: mut left, .. } = *self;
        let mut place = place;
        while left > 0 {
            if mdl.is_null() {
                return false;
            }
            // SAFETY: an MDL of the frame's chain.
            let bytes = (unsafe { (*mdl).ByteCount }) as usize;
            let count = bytes.saturating_sub(offset).min(left);
            if count > 0 {
                // SAFETY: an MDL of the frame's chain, whose pages are locked.
                let Some(from) = (unsafe { system_address(mdl) }) else { return false };
                let from = from.wrapping_add(offset);
                // SAFETY: the MDL maps as many bytes, and the place has room for the whole frame (`# Safety`).
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
}

/// What a list says that the tags of its frames are (`NDIS_NET_BUFFER_LIST_8021Q_INFO`).
///
/// # Safety
///
/// `list` is a list that the caller has.
#[must_use]
pub unsafe fn tag_of(list: *const NET_BUFFER_LIST) -> Tag {
    // SAFETY: the caller has the list (`# Safety`), and the array in it has room for every kind of information.
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

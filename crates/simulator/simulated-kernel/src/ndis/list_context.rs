//! Contexts of net buffer lists: memory that drivers on the way of a list have for what they want to know when it comes back.
//!
//! A list has a chain of blocks. Of the first one the bytes from `Offset` on are in use; a driver takes some more in front of them, and gives
//! up as many. Where there is no room a new block goes in front of the others, and is freed when none of its bytes is in use any more.

use std::{ptr, sync::Mutex};

use litemap::LiteMap;
use ndis::{NDIS_STATUS, NET_BUFFER_LIST};
use ndkpi::status::{NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS};

use super::structure::ndis_routine;
use crate::{
    context, pool,
    report::bug_check,
    rule::Rule,
    state::{Part, State},
};

/// `NET_BUFFER_LIST_CONTEXT`, which the bytes follow.
#[repr(C, align(16))]
pub struct ListContext {
    next: *mut Self,
    size: u16,
    offset: u16,
}

/// `FIELD_OFFSET(NET_BUFFER_LIST_CONTEXT, ContextData)`.
pub const HEADER: usize = 16;
const _: () = assert!(size_of::<ListContext>() == HEADER);

/// What the sizes of contexts are multiples of, by the newer reference. The older one has `MEMORY_ALLOCATION_ALIGNMENT`, which is more.
const ALIGNMENT: u16 = 8;

/// The blocks that drivers have added, by their addresses: of which list, and with which tag.
#[derive(Default)]
pub struct Contexts(LiteMap<usize, (usize, u32)>);

impl Part for Mutex<Contexts> {}

impl State {
    /// A list is freed: no block that a driver has added may be left.
    pub fn check_no_context(&self, list: usize) {
        if self.locked::<Contexts>().0.values().any(|&(of, _)| of == list) {
            let words = "with a context that NdisFreeNetBufferListContext has not given up";
            bug_check(Rule::PoolLeak, format_args!("a net buffer list is freed {words}"));
        }
    }
}

/// Writes a block of so many bytes, of which the last `used` ones are in use.
///
/// # Safety
///
/// `place` is memory for it that nobody else uses.
pub unsafe fn write(place: *mut ListContext, next: *mut ListContext, size: u16, used: u16) {
    // SAFETY: memory for it that nobody else uses (`# Safety`).
    unsafe { place.write(ListContext { next, size, offset: size - used }) };
}

/// The place in a driver's list that leads to its contexts.
fn place_in(state: &State, list: *mut NET_BUFFER_LIST) -> *mut *mut ListContext {
    if list.is_null() {
        bug_check(Rule::BadArgument, format_args!("a context of a net buffer list that is a null pointer"));
    }
    pool::check_live(list.addr(), format_args!("a net buffer list is in"));
    state.check_list(list);
    // SAFETY: the driver has the list.
    unsafe { &raw mut (*list).Context }.cast()
}

#[unsafe(no_mangle)]
extern "system" fn NdisAllocateNetBufferListContext(
    list: *mut NET_BUFFER_LIST,
    size: u16,
    back_fill: u16,
    tag: u32,
) -> NDIS_STATUS {
    ndis_routine!("NdisAllocateNetBufferListContext", DISPATCH_LEVEL, |state| {
        let room = size.checked_add(back_fill);
        let Some(room) = room.filter(|_| size.is_multiple_of(ALIGNMENT) && back_fill.is_multiple_of(ALIGNMENT)) else {
            bug_check(Rule::BadArgument, format_args!("a context of {size} and {back_fill} bytes"));
        };
        if tag == 0 {
            bug_check(Rule::PoolTag, format_args!("a context of {size} bytes without a tag"));
        }
        let place = place_in(state, list);
        // SAFETY: the driver's list.
        let first = unsafe { place.read() };
        // SAFETY: null, or the first block of a list that the driver has.
        if let Some(block) = unsafe { first.as_mut() }
            && block.offset >= size
        {
            block.offset -= size;
            return NDIS_STATUS_SUCCESS;
        }
        let bytes = HEADER + usize::from(room);
        let added = if state.strikes() { None } else { pool::allocate(context::caller(), bytes, tag, false) };
        let Some(added) = added else { return NDIS_STATUS_RESOURCES };
        let block: *mut ListContext = ptr::with_exposed_provenance_mut(added);
        // SAFETY: a new block with room for it.
        unsafe { write(block, first, room, size) };
        // SAFETY: the driver's list.
        unsafe { place.write(block) };
        state.locked::<Contexts>().0.insert(added, (list.addr(), tag));
        NDIS_STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisFreeNetBufferListContext(list: *mut NET_BUFFER_LIST, size: u16) {
    ndis_routine!("NdisFreeNetBufferListContext", DISPATCH_LEVEL, |state| {
        let place = place_in(state, list);
        // SAFETY: the driver's list.
        let first = unsafe { place.read() };
        // SAFETY: null, or the first block of a list that the driver has.
        let Some(block) = (unsafe { first.as_mut() }) else {
            bug_check(Rule::BadArgument, format_args!("a list has no context, of which {size} bytes are given up"));
        };
        let used = block.size - block.offset;
        if size > used {
            let words = format_args!("{size} bytes of a context are given up, of which {used} are in use");
            bug_check(Rule::BadArgument, words);
        }
        block.offset += size;
        if block.offset < block.size {
            return;
        }
        let added = state.locked::<Contexts>().0.remove(&first.addr());
        if let Some((_, tag)) = added {
            // SAFETY: the driver's list.
            unsafe { place.write(block.next) };
            pool::free(first.expose_provenance(), Some(tag));
        }
    });
}

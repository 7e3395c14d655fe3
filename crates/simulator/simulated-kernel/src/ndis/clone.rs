//! Clones of net buffer lists: lists of their own with the bytes of others.

use std::{ptr, sync::Mutex};

use litemap::LiteMap;
use ndis::{NET_BUFFER, NET_BUFFER_LIST};
use ndkpi::NDIS_HANDLE;
use wdk_bindings::MDL;

use super::{
    frame, net_buffer,
    pool::{self as lists, Bytes},
    structure::ndis_routine,
};
use crate::{
    context,
    report::bug_check,
    rule::Rule,
    state::{Part, State},
    wdm::mdl,
};

/// The tag of net buffers that come out of no pool of the driver's.
const TAG: u32 = u32::from_ne_bytes(*b"NDcl");

/// `NDIS_CLONE_FLAGS_USE_ORIGINAL_MDLS`.
const USE_ORIGINAL_MDLS: u32 = 2;

/// What was made for a clone.
struct Clone {
    flags: u32,
    buffers: Vec<Buffer>,
}

/// A net buffer of a clone.
struct Buffer {
    place: usize,
    /// Its pool is one of the driver's.
    is_of_pool: bool,
    /// The MDLs of its own.
    mdls: Vec<usize>,
}

/// The clones, by their addresses.
#[derive(Default)]
pub struct Clones(LiteMap<usize, Clone>);

impl Part for Mutex<Clones> {}

/// A chain of new MDLs for the bytes of a net buffer. `None` if there is no memory.
fn describe(state: &State, buffer: &NET_BUFFER, mdls: &mut Vec<usize>) -> Option<*mut MDL> {
    let mut first: *mut MDL = ptr::null_mut();
    for (start, length) in frame::pieces(buffer).into_iter().rev() {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let mdl = mdl::allocate(state, context::caller(), start.cast(), length)?;
        // The bytes may lie anywhere that another one's MDL describes.
        mdl::fill(mdl);
        // SAFETY: a new MDL, which nobody else knows yet.
        unsafe { (*mdl).Next = first };
        mdls.push(mdl.expose_provenance());
        first = mdl;
    }
    Some(first)
}

/// A net buffer with the bytes of another one. `None` if there is no memory.
fn copy(
    state: &State,
    pool: NDIS_HANDLE,
    original: &NET_BUFFER,
    flags: u32,
    made: &mut Clone,
) -> Option<*mut NET_BUFFER> {
    let mut mdls = Vec::new();
    let length = frame::length_of(original);
    let bytes = if flags & USE_ORIGINAL_MDLS != 0 {
        Some(Bytes { chain: original.MdlChain, offset: original.DataOffset, length })
    } else {
        describe(state, original, &mut mdls).map(|chain| Bytes { chain: chain.cast(), offset: 0, length })
    };
    let is_of_pool = !pool.is_null();
    let new = bytes.and_then(|bytes| {
        if is_of_pool { net_buffer::make(state, pool.addr(), bytes) } else { lists::loose_buffer(state, TAG, bytes) }
    });
    let Some(new) = new else {
        free_mdls(state, &mdls);
        return None;
    };
    made.buffers.push(Buffer { place: new.expose_provenance(), is_of_pool, mdls });
    Some(new)
}

fn free_mdls(state: &State, mdls: &[usize]) {
    for &mdl in mdls {
        mdl::free(state, ptr::with_exposed_provenance_mut(mdl));
    }
}

fn free_buffers(state: &State, clone: &Clone) {
    for buffer in &clone.buffers {
        free_mdls(state, &buffer.mdls);
        if buffer.is_of_pool {
            net_buffer::free(state, ptr::with_exposed_provenance_mut(buffer.place));
        } else {
            crate::pool::free(buffer.place, Some(TAG));
        }
    }
}

/// The net buffers of a list.
fn buffers_of(list: *mut NET_BUFFER_LIST) -> Vec<NET_BUFFER> {
    // SAFETY: the driver has the list.
    let mut next = unsafe { (*list).FirstNetBuffer };
    let mut buffers = Vec::new();
    // SAFETY: null, or a net buffer of the list.
    while let Some(&buffer) = unsafe { next.as_ref() } {
        buffers.push(buffer);
        next = buffer.Next;
    }
    buffers
}

/// Who made the list that is cloned, and how it is referred to, the driver says in the clone itself: NDIS leaves `ParentNetBufferList` empty.
#[unsafe(no_mangle)]
extern "system" fn NdisAllocateCloneNetBufferList(
    original: *mut NET_BUFFER_LIST,
    list_pool: NDIS_HANDLE,
    buffer_pool: NDIS_HANDLE,
    flags: u32,
) -> *mut NET_BUFFER_LIST {
    ndis_routine!("NdisAllocateCloneNetBufferList", DISPATCH_LEVEL, |state| {
        if original.is_null() || flags & !USE_ORIGINAL_MDLS != 0 {
            bug_check(Rule::BadArgument, format_args!("a clone of the list {original:p} with the flags {flags:#x}"));
        }
        state.check_list(original);
        let pool = if list_pool.is_null() { lists::of_ndis(state) } else { list_pool.addr() };
        let Some(list) = lists::new_list(state, pool, (0, 0), None) else { return ptr::null_mut() };
        let mut clone = Clone { flags, buffers: Vec::new() };
        // SAFETY: a new list, which nobody else knows yet.
        let mut place = unsafe { &raw mut (*list).FirstNetBuffer };
        for buffer in buffers_of(original) {
            let Some(new) = copy(state, buffer_pool, &buffer, flags, &mut clone) else {
                free_buffers(state, &clone);
                lists::free_list(state, list);
                return ptr::null_mut();
            };
            // SAFETY: the new list's field, or that of its last net buffer.
            unsafe { place.write(new) };
            // SAFETY: a new net buffer.
            place = unsafe { &raw mut (*new).Next };
        }
        lists::mark_clone(state, list);
        state.locked::<Clones>().0.insert(list.addr(), clone);
        list
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisFreeCloneNetBufferList(list: *mut NET_BUFFER_LIST, flags: u32) {
    ndis_routine!("NdisFreeCloneNetBufferList", DISPATCH_LEVEL, |state| {
        let Some(clone) = state.locked::<Clones>().0.remove(&list.addr()) else {
            bug_check(Rule::NblNotOwned, format_args!("{list:p} is no clone of a net buffer list, or was one"));
        };
        if flags != clone.flags {
            let words =
                format_args!("a clone that was made with the flags {:#x} is freed with {flags:#x}", clone.flags);
            bug_check(Rule::BadArgument, words);
        }
        // While others have it, its net buffers are theirs to read.
        lists::check_home(state, list);
        free_buffers(state, &clone);
        lists::free_list(state, list);
    });
}

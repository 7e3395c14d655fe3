//! Where the bytes of a net buffer begin: a retreat goes back into the space before them, an advance gives it up again.

use std::{collections::BTreeMap, iter, ops::Range, ptr, sync::Mutex};

use ndis::{NDIS_STATUS, NDIS_STATUS_FAILURE, NET_BUFFER, NET_BUFFER_LIST};
use ndkpi::status::{NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS};
use wdk_bindings::{BOOLEAN, MDL};

use super::{frame, structure::ndis_routine};
use crate::{
    context::{self, DriverId},
    pool,
    report::bug_check,
    rule::Rule,
    state::{Part, State, Watch, lock},
    wdm::mdl,
};

/// `NET_BUFFER_ALLOCATE_MDL` and `NET_BUFFER_FREE_MDL`: how a driver makes an MDL with memory, and frees both.
type AllocateMdl = unsafe extern "system" fn(size: *mut u32) -> *mut MDL;
type FreeMdl = unsafe extern "system" fn(mdl: *mut MDL);

/// The tag of memory that drivers get by a retreat without a way of their own.
const TAG: u32 = u32::from_ne_bytes(*b"NDrt");

/// Who has made an MDL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Maker {
    Ndis,
    /// `NetAllocateMdl` of a driver.
    Driver,
}

/// What retreats have added and not given up.
#[derive(Default)]
pub struct DataStarts {
    /// The MDLs in front of chains, by their addresses.
    added: BTreeMap<usize, Maker>,
    /// The bytes that a driver has claimed of the net buffer at an address.
    claimed: BTreeMap<(usize, DriverId), u32>,
}

impl Part for Mutex<DataStarts> {
    fn watch(&self) -> Option<&dyn Watch> {
        Some(self)
    }
}

impl Watch for Mutex<DataStarts> {
    fn memory_is_gone(&self, _: &State, freed: &Range<usize>) {
        let mut starts = lock(self);
        starts.added.retain(|mdl, _| !freed.contains(mdl));
        starts.claimed.retain(|(buffer, _), _| !freed.contains(buffer));
    }
}

/// Reads a driver's net buffer.
fn read(buffer: *mut NET_BUFFER) -> NET_BUFFER {
    if buffer.is_null() {
        bug_check(Rule::BadArgument, format_args!("a net buffer that is a null pointer"));
    }
    pool::check_live(buffer.addr(), format_args!("a net buffer is in"));
    // SAFETY: the driver's net buffer, or that of a list that it has.
    unsafe { buffer.read() }
}

/// The net buffers of a driver's list.
fn buffers_of(state: &State, list: *mut NET_BUFFER_LIST) -> Vec<*mut NET_BUFFER> {
    if list.is_null() {
        bug_check(Rule::BadArgument, format_args!("a net buffer list that is a null pointer"));
    }
    pool::check_live(list.addr(), format_args!("a net buffer list is in"));
    state.check_list(list);
    let some = |buffer: *mut NET_BUFFER| (!buffer.is_null()).then_some(buffer);
    // SAFETY: the driver's list.
    let first = some(unsafe { (*list).FirstNetBuffer });
    iter::successors(first, |&buffer| some(read(buffer).Next)).collect()
}

/// Has the bytes of a net buffer begin so far into its chain.
fn place(buffer: *mut NET_BUFFER, chain: *mut MDL, offset: u32, length: u32) {
    let (current, inside) = frame::walk(chain, offset as usize);
    // SAFETY: the driver's net buffer, which `read` has looked at.
    let buffer = unsafe { &mut *buffer };
    buffer.MdlChain = chain.cast();
    (buffer.CurrentMdl, buffer.CurrentMdlOffset) = (current.cast(), u32::try_from(inside).unwrap_or(0));
    (buffer.DataOffset, buffer.DataLength.DataLength) = (offset, length);
}

/// An MDL with so many bytes. `None` if there is no memory.
fn make(state: &State, size: u32) -> Option<*mut MDL> {
    let owner = context::caller();
    let memory = if state.strikes() { None } else { pool::allocate(owner, size as usize, TAG, false) }?;
    let Some(mdl) = mdl::allocate(state, owner, ptr::with_exposed_provenance_mut(memory), size) else {
        pool::free(memory, Some(TAG));
        return None;
    };
    mdl::build(state, mdl);
    Some(mdl)
}

/// An MDL with so many bytes, or more, which the driver makes. `None` if it has no memory.
fn have_made(state: &State, size: u32, allocate: AllocateMdl) -> Option<*mut MDL> {
    let mut wanted = size;
    // SAFETY: the driver's own function, and a place that lives until it returns.
    let mdl = context::call(context::caller(), "NetAllocateMdl", || unsafe { allocate(&raw mut wanted) });
    if mdl.is_null() {
        return None;
    }
    if mdl::memory_of(state, mdl).is_none() {
        bug_check(Rule::BadMdl, format_args!("NetAllocateMdl returns an MDL that describes no memory yet"));
    }
    let count = count_of(mdl);
    if count < size {
        bug_check(Rule::BadMdl, format_args!("NetAllocateMdl returns {count} bytes, and {size} are needed"));
    }
    Some(mdl)
}

/// The bytes of an MDL of a chain.
fn count_of(mdl: *mut MDL) -> u32 {
    // SAFETY: an MDL of a chain, or one that is to be, which whoever has the net buffer does not change meanwhile.
    unsafe { (*mdl).ByteCount }
}

/// Makes so many more bytes of a net buffer used, with memory for them and `back_fill` bytes in front if there is no room.
fn retreat(
    state: &State,
    buffer: *mut NET_BUFFER,
    (delta, back_fill): (u32, u32),
    allocate: Option<AllocateMdl>,
) -> Result<(), NDIS_STATUS> {
    let here = read(buffer);
    let length = frame::length_of(&here) + delta as usize;
    let length = u32::try_from(length).map_err(|_| NDIS_STATUS_FAILURE)?;
    let mut chain: *mut MDL = here.MdlChain.cast();
    let mut offset = here.DataOffset;
    if offset < delta {
        let size = delta.checked_add(back_fill).ok_or(NDIS_STATUS_FAILURE)?;
        let maker = if allocate.is_some() { Maker::Driver } else { Maker::Ndis };
        let mdl = allocate.map_or_else(|| make(state, size), |allocate| have_made(state, size, allocate));
        let mdl = mdl.ok_or(NDIS_STATUS_RESOURCES)?;
        // SAFETY: a new MDL, which is in no chain yet.
        unsafe { (*mdl).Next = chain };
        (chain, offset) = (mdl, offset.saturating_add(count_of(mdl)));
        state.locked::<DataStarts>().added.insert(mdl.addr(), maker);
    }
    place(buffer, chain, offset - delta, length);
    *state.locked::<DataStarts>().claimed.entry((buffer.addr(), context::caller())).or_default() += delta;
    Ok(())
}

/// Gives up so many bytes of a net buffer. Only what a retreat has claimed may go with its MDL; receivers skip headers without.
fn advance(state: &State, buffer: *mut NET_BUFFER, delta: u32, frees: bool, free: Option<FreeMdl>) {
    let here = read(buffer);
    let length = u32::try_from(frame::length_of(&here)).unwrap_or(u32::MAX);
    if delta > length {
        bug_check(Rule::BadArgument, format_args!("an advance by {delta} bytes in a net buffer of {length}"));
    }
    release(state, buffer, delta, frees);
    let mut chain: *mut MDL = here.MdlChain.cast();
    let mut offset = here.DataOffset.saturating_add(delta);
    let mut unused = Vec::new();
    while frees && let Some(maker) = added_and_unused(state, chain, offset) {
        offset -= count_of(chain);
        unused.push((chain, maker));
        // SAFETY: an MDL of the chain.
        chain = unsafe { (*chain).Next };
    }
    place(buffer, chain, offset, length - delta);
    for (mdl, maker) in unused {
        // SAFETY: the MDL is in the chain no more.
        unsafe { (*mdl).Next = ptr::null_mut() };
        give_up(state, mdl, maker, free);
    }
}

/// Notes that a driver gives up bytes of a net buffer.
fn release(state: &State, buffer: *mut NET_BUFFER, delta: u32, frees: bool) {
    let mut starts = state.locked::<DataStarts>();
    let entry = starts.claimed.entry((buffer.addr(), context::caller())).or_default();
    let claimed = *entry;
    *entry = claimed.saturating_sub(delta);
    drop(starts);
    if frees && delta > claimed {
        let words = "frees what a retreat has claimed";
        bug_check(Rule::BadArgument, format_args!("an advance by {delta} bytes {words}, and that is {claimed} bytes"));
    }
}

/// Who has made the first MDL of a chain, if a retreat has added it and the bytes begin behind it.
fn added_and_unused(state: &State, chain: *mut MDL, offset: u32) -> Option<Maker> {
    let maker = state.locked::<DataStarts>().added.get(&chain.addr()).copied()?;
    (offset >= count_of(chain)).then_some(maker)
}

/// Frees an MDL that a retreat had added, the way it was made.
fn give_up(state: &State, mdl: *mut MDL, maker: Maker, free: Option<FreeMdl>) {
    state.locked::<DataStarts>().added.remove(&mdl.addr());
    if maker == Maker::Ndis {
        let memory = mdl::memory_of(state, mdl);
        mdl::free(state, mdl);
        if let Some(memory) = memory {
            pool::free(memory, Some(TAG));
        }
        return;
    }
    let Some(free) = free else {
        bug_check(Rule::BadMdl, format_args!("an MDL of NetAllocateMdl is to be freed without NetFreeMdl"));
    };
    // SAFETY: the driver's own function, and an MDL that its other one has made.
    context::call(context::caller(), "NetFreeMdl", || unsafe { free(mdl) });
}

/// What a routine says of how it went.
fn status_of(outcome: Result<(), NDIS_STATUS>) -> NDIS_STATUS {
    outcome.err().unwrap_or(NDIS_STATUS_SUCCESS)
}

#[unsafe(no_mangle)]
extern "system" fn NdisRetreatNetBufferDataStart(
    buffer: *mut NET_BUFFER,
    delta: u32,
    back_fill: u32,
    allocate: Option<AllocateMdl>,
) -> NDIS_STATUS {
    ndis_routine!("NdisRetreatNetBufferDataStart", DISPATCH_LEVEL, |state| {
        status_of(retreat(state, buffer, (delta, back_fill), allocate))
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisAdvanceNetBufferDataStart(
    buffer: *mut NET_BUFFER,
    delta: u32,
    frees: BOOLEAN,
    free: Option<FreeMdl>,
) {
    ndis_routine!("NdisAdvanceNetBufferDataStart", DISPATCH_LEVEL, |state| {
        advance(state, buffer, delta, frees != 0, free);
    });
}

/// Each net buffer of the list, or none.
#[unsafe(no_mangle)]
extern "system" fn NdisRetreatNetBufferListDataStart(
    list: *mut NET_BUFFER_LIST,
    delta: u32,
    back_fill: u32,
    allocate: Option<AllocateMdl>,
    free: Option<FreeMdl>,
) -> NDIS_STATUS {
    ndis_routine!("NdisRetreatNetBufferListDataStart", DISPATCH_LEVEL, |state| {
        let buffers = buffers_of(state, list);
        for (index, &buffer) in buffers.iter().enumerate() {
            if let Err(status) = retreat(state, buffer, (delta, back_fill), allocate) {
                for &done in &buffers[..index] {
                    advance(state, done, delta, true, free);
                }
                return status;
            }
        }
        NDIS_STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisAdvanceNetBufferListDataStart(
    list: *mut NET_BUFFER_LIST,
    delta: u32,
    frees: BOOLEAN,
    free: Option<FreeMdl>,
) {
    ndis_routine!("NdisAdvanceNetBufferListDataStart", DISPATCH_LEVEL, |state| {
        for buffer in buffers_of(state, list) {
            advance(state, buffer, delta, frees != 0, free);
        }
    });
}

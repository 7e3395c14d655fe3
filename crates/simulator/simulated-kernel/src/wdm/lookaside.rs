//! Lookaside lists. None keeps anything: each allocation is one of the pool, so that the pool's checks see it.
//!
//! `ExAllocateFromNPagedLookasideList` and the like are inline: they take from the list in the structure, which stays empty, or call the
//! structure's functions.

use wdk_bindings::{
    ALLOCATE_FUNCTION, LOOKASIDE_LIST_EX, NTSTATUS, PALLOCATE_FUNCTION, PALLOCATE_FUNCTION_EX, PFREE_FUNCTION,
    PFREE_FUNCTION_EX, PLOOKASIDE_LIST_EX, PNPAGED_LOOKASIDE_LIST, POOL_TYPE, PVOID, SIZE_T,
    STATUS_INVALID_PARAMETER_4, STATUS_INVALID_PARAMETER_5, STATUS_SUCCESS, ULONG, USHORT,
};

use super::memory::{self, ExAllocatePoolWithTag, ExFreePool};
use crate::{
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::State,
    tracked::{Kind, Object},
};

/// What a list allocates with, as it is declared here.
type Allocate = Option<extern "C-unwind" fn(POOL_TYPE, SIZE_T, ULONG) -> PVOID>;

/// The kinds of pool of the two older kinds of list.
const NON_PAGED: POOL_TYPE = 0;
const PAGED: POOL_TYPE = 1;

/// Fills in a list, whose older kinds begin with the same fields. The functions are put in by the caller.
fn initialise(state: &State, place: PLOOKASIDE_LIST_EX, kind: POOL_TYPE, size: SIZE_T, tag: ULONG) {
    memory::check_tag(tag, format_args!("a lookaside list"));
    let mut list = LOOKASIDE_LIST_EX::default();
    list.L.Type = kind;
    list.L.Tag = tag;
    list.L.Size = ULONG::try_from(size).unwrap_or(ULONG::MAX);
    // SAFETY: the same routine. It may raise an exception in the driver, which calls it itself, and no code of this crate does.
    let allocate = unsafe { std::mem::transmute::<Allocate, ALLOCATE_FUNCTION>(Some(ExAllocatePoolWithTag)) };
    list.L.__bindgen_anon_4.Allocate = allocate;
    list.L.__bindgen_anon_5.Free = Some(ExFreePool);
    // Written after a look whether there is one already.
    state.track(place.expose_provenance(), context::caller(), Object::plain(Kind::Lookaside));
    // SAFETY: the driver's memory for a list, which nobody else knows yet.
    let here = unsafe { &mut *place };
    list.L.ListEntry = here.L.ListEntry;
    *here = list;
}

/// How many entries a list keeps is the system's to say.
fn check_depth(depth: USHORT) {
    if depth != 0 {
        bug_check(Rule::BadArgument, format_args!("a lookaside list that is to be {depth} entries deep"));
    }
}

fn older(
    state: &State,
    place: PLOOKASIDE_LIST_EX,
    (allocate, free): (PALLOCATE_FUNCTION, PFREE_FUNCTION),
    kind: POOL_TYPE,
    (size, tag): (SIZE_T, ULONG),
) {
    initialise(state, place, kind, size, tag);
    // SAFETY: the list that was just filled in.
    let list = unsafe { &mut (*place).L };
    if allocate.is_some() {
        list.__bindgen_anon_4.Allocate = allocate;
    }
    if free.is_some() {
        list.__bindgen_anon_5.Free = free;
    }
}

/// The list at that place must be one. Its memory may be freed when it has been deleted.
fn delete(state: &State, place: PLOOKASIDE_LIST_EX) {
    check(state, place);
    state.untrack_and_remember(place.addr(), Kind::Lookaside, ", and deleted since");
}

fn check(state: &State, place: PLOOKASIDE_LIST_EX) {
    state.find(place.expose_provenance(), Kind::Lookaside);
}

#[unsafe(no_mangle)]
extern "C" fn ExInitializeNPagedLookasideList(
    place: PNPAGED_LOOKASIDE_LIST,
    allocate: PALLOCATE_FUNCTION,
    free: PFREE_FUNCTION,
    flags: ULONG,
    size: SIZE_T,
    tag: ULONG,
    depth: USHORT,
) {
    routine!("ExInitializeNPagedLookasideList", |state| {
        check_depth(depth);
        let kind = NON_PAGED | POOL_TYPE::try_from(flags).unwrap_or(NON_PAGED);
        older(state, place.cast(), (allocate, free), kind, (size, tag));
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExDeleteNPagedLookasideList(place: PNPAGED_LOOKASIDE_LIST) {
    routine!("ExDeleteNPagedLookasideList", |state| delete(state, place.cast()));
}

#[unsafe(no_mangle)]
extern "C" fn ExInitializePagedLookasideList(
    place: wdk_bindings::PPAGED_LOOKASIDE_LIST,
    allocate: PALLOCATE_FUNCTION,
    free: PFREE_FUNCTION,
    _flags: ULONG,
    size: SIZE_T,
    tag: ULONG,
    depth: USHORT,
) {
    routine!("ExInitializePagedLookasideList", |state| {
        check_depth(depth);
        older(state, place.cast(), (allocate, free), PAGED, (size, tag));
    });
}

#[unsafe(no_mangle)]
extern "C" fn ExDeletePagedLookasideList(place: wdk_bindings::PPAGED_LOOKASIDE_LIST) {
    routine!("ExDeletePagedLookasideList", |state| delete(state, place.cast()));
}

#[unsafe(no_mangle)]
extern "C" fn ExInitializeLookasideListEx(
    place: PLOOKASIDE_LIST_EX,
    allocate: PALLOCATE_FUNCTION_EX,
    free: PFREE_FUNCTION_EX,
    kind: POOL_TYPE,
    flags: ULONG,
    size: SIZE_T,
    tag: ULONG,
    depth: USHORT,
) -> NTSTATUS {
    routine!("ExInitializeLookasideListEx", |state| {
        /// Both say what happens when there is no memory, so only one can be.
        const RAISE_AND_DO_NOT: ULONG = 3;
        check_depth(depth);
        if memory::kind(kind).is_none() {
            return STATUS_INVALID_PARAMETER_4;
        }
        if flags >= RAISE_AND_DO_NOT {
            return STATUS_INVALID_PARAMETER_5;
        }
        initialise(state, place, kind, size, tag);
        // SAFETY: the list that was just filled in.
        let list = unsafe { &mut (*place).L };
        if allocate.is_some() {
            list.__bindgen_anon_4.AllocateEx = allocate;
        }
        if free.is_some() {
            list.__bindgen_anon_5.FreeEx = free;
        }
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn ExDeleteLookasideListEx(place: PLOOKASIDE_LIST_EX) {
    routine!("ExDeleteLookasideListEx", |state| delete(state, place));
}

#[unsafe(no_mangle)]
extern "C" fn ExFlushLookasideListEx(place: PLOOKASIDE_LIST_EX) {
    routine!("ExFlushLookasideListEx", |state| check(state, place));
}

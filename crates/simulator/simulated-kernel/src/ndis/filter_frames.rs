//! Lists that filters pass on, pass back, or send and indicate themselves.

use std::{ffi::c_void, sync::Arc};

use host::machine::{self, Irql};
use ndis::{
    NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL, NDIS_RECEIVE_FLAGS_RESOURCES, NDIS_RETURN_FLAGS_DISPATCH_LEVEL,
    NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL, NDIS_SEND_FLAGS_DISPATCH_LEVEL, NDIS_STATUS_PAUSED, NET_BUFFER_LIST,
};
use ndkpi::{NDIS_HANDLE, status::NDIS_STATUS_PENDING};

use super::{
    frame,
    module::{Module, ModulePhase},
    pool::{Holder, ListOwner, Pools},
    receive::{check_indicated, takes_tags},
    structure::{check_no_lock, ndis_routine},
};
use crate::{report::bug_check, rule::Rule, state::State};

/// `NDIS_SEND_FLAGS_CHECK_FOR_LOOPBACK`: no protocol hears here what another one sends.
const CHECK_FOR_LOOPBACK: u32 = 2;

/// A call says that it is at `DISPATCH_LEVEL`: it must be.
fn check_level(flags: u32, flag: u32, what: &str) {
    if flags & flag != 0 && machine::current_irql() != Irql::DISPATCH_LEVEL {
        bug_check(Rule::BadArgument, format_args!("{what} says DISPATCH_LEVEL, and is not at it"));
    }
}

/// The lists of a call, of which there is one at least.
fn lists_of(state: &State, first: *mut NET_BUFFER_LIST, rule: Rule, what: &str) -> Vec<*mut NET_BUFFER_LIST> {
    let lists = frame::lists_of(state, first, rule);
    if lists.is_empty() {
        bug_check(Rule::BadArgument, format_args!("{what} without lists"));
    }
    lists
}

/// A module that is paused, or not restarted, sends and indicates nothing.
fn check_phase(module: &Module, rule: Rule, what: &str) {
    let phase = module.phase();
    if ![ModulePhase::Running, ModulePhase::Restarting, ModulePhase::Pausing].contains(&phase) {
        bug_check(rule, format_args!("{} {what}, and is {phase:?}", module.in_words()));
    }
}

/// Whether a module begins with a list, of its own; otherwise it passes on one that it has, and that goes this way.
fn begins(state: &State, module: &Module, list: *mut NET_BUFFER_LIST, down: bool) -> bool {
    let mut pools = state.locked::<Pools>();
    let entry = pools.list(list.addr());
    let goes = if down { entry.goes_down() } else { entry.goes_up() || entry.lent };
    if entry.holder == Holder::Module(module.handle) && goes {
        return false;
    }
    let place = entry.place.clone();
    let is_own = pools.is_own(list.addr(), module.filter.owner);
    drop(pools);
    if !is_own {
        let words = if down { "sends" } else { "indicates" };
        bug_check(Rule::NblNotOwned, format_args!("{} {words} a list that others have: {place:?}", module.in_words()));
    }
    // SAFETY: the driver's list, which it has.
    if unsafe { (*list).SourceHandle }.addr() != module.handle {
        bug_check(Rule::BadHandle, format_args!("a list of a filter whose SourceHandle is not the module's"));
    }
    true
}

/// A filter without the handler to which its own lists come back can have none of them on their way.
fn check_comes_back(is_there: bool, name: &str) {
    if !is_there {
        bug_check(Rule::NdisHandler, format_args!("a filter without {name} sends or indicates a list of its own"));
    }
}

#[unsafe(no_mangle)]
extern "system" fn NdisFSendNetBufferLists(handle: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, port: u32, flags: u32) {
    ndis_routine!("NdisFSendNetBufferLists", DISPATCH_LEVEL, |state| {
        let module = state.module(handle);
        if port != 0 || flags & !(NDIS_SEND_FLAGS_DISPATCH_LEVEL | CHECK_FOR_LOOPBACK) != 0 {
            bug_check(Rule::NotSimulated, format_args!("a send by port {port} with the flags {flags:#x}"));
        }
        check_level(flags, NDIS_SEND_FLAGS_DISPATCH_LEVEL, "a send");
        let lists = lists_of(state, first, Rule::NblNotOwned, "a send");
        check_phase(&module, Rule::SentWhilePaused, "sends");
        let own: Vec<_> = lists.iter().copied().filter(|&list| begins(state, &module, list, true)).collect();
        if !own.is_empty() {
            check_comes_back(module.frames().send.is_some(), "FilterSendNetBufferLists");
            check_comes_back(module.frames().sent.is_some(), "FilterSendNetBufferListsComplete");
        }
        let pauses = module.phase() == ModulePhase::Pausing;
        for &list in &own {
            state.locked::<Pools>().list(list.addr()).place = ListOwner::SentOf { module: module.handle };
            // SAFETY: the list is NDIS's now.
            unsafe { (*list).Status = if pauses { NDIS_STATUS_PAUSED } else { NDIS_STATUS_PENDING } };
        }
        let refused: &[_] = if pauses { &own } else { &[] };
        let passed: Vec<_> = lists.iter().copied().filter(|list| !refused.contains(list)).collect();
        if !passed.is_empty() {
            state.send_down(&module.adapter, Some(&module), &passed);
        }
        // Who begins to send may not have heard of the pause.
        if !refused.is_empty() {
            let below = state.next_below(&module.adapter, Some(&module), |_| true);
            state.complete_up(&module.adapter, below.as_deref(), refused);
        }
        state.dispatcher.signal();
        state.preempt();
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisFSendNetBufferListsComplete(handle: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, flags: u32) {
    ndis_routine!("NdisFSendNetBufferListsComplete", DISPATCH_LEVEL, |state| {
        let module = state.module(handle);
        check_no_lock("NdisFSendNetBufferListsComplete");
        check_level(flags, NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL, "a completion");
        let lists = lists_of(state, first, Rule::NblCompletedTwice, "a completion");
        for &list in &lists {
            state.completed_by(&module.adapter, Some(module.handle), list);
        }
        state.complete_up(&module.adapter, Some(&module), &lists);
        state.dispatcher.signal();
        state.preempt();
    });
}

/// Gives lists to those above a module that have all begun with it, or all come from below.
fn indicate(state: &Arc<State>, module: &Module, lists: &[*mut NET_BUFFER_LIST], own: bool, lends: bool) {
    let tagged = takes_tags(&module.adapter);
    for &list in lists {
        if own {
            check_indicated(list, module.handle, tagged);
        }
        let mut pools = state.locked::<Pools>();
        let entry = pools.list(list.addr());
        if entry.lent && !lends {
            drop(pools);
            let words = "indicates a list that was lent to it, and not with NDIS_RECEIVE_FLAGS_RESOURCES";
            bug_check(Rule::NblNotOwned, format_args!("{} {words}", module.in_words()));
        }
        if own && !lends {
            entry.place = ListOwner::IndicatedOf { module: module.handle };
        }
    }
    state.receive_up(&module.adapter, Some(module), lists, lends);
}

#[unsafe(no_mangle)]
extern "system" fn NdisFIndicateReceiveNetBufferLists(
    handle: NDIS_HANDLE,
    first: *mut NET_BUFFER_LIST,
    port: u32,
    count: u32,
    flags: u32,
) {
    ndis_routine!("NdisFIndicateReceiveNetBufferLists", DISPATCH_LEVEL, |state| {
        let module = state.module(handle);
        check_no_lock("NdisFIndicateReceiveNetBufferLists");
        let known = NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL | NDIS_RECEIVE_FLAGS_RESOURCES;
        if port != 0 || flags & !known != 0 {
            bug_check(Rule::NotSimulated, format_args!("an indication of port {port} with the flags {flags:#x}"));
        }
        check_level(flags, NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL, "an indication");
        let lists = lists_of(state, first, Rule::NblNotOwned, "an indication");
        if lists.len() != count as usize {
            bug_check(Rule::BadArgument, format_args!("an indication of {count} lists has {} of them", lists.len()));
        }
        check_phase(&module, Rule::ReceivedWhilePaused, "indicates");
        let lends = flags & NDIS_RECEIVE_FLAGS_RESOURCES != 0;
        let is_own: Vec<bool> = lists.iter().map(|&list| begins(state, &module, list, false)).collect();
        if is_own.contains(&true) {
            check_comes_back(module.frames().receive.is_some(), "FilterReceiveNetBufferLists");
            check_comes_back(module.frames().returned.is_some(), "FilterReturnNetBufferLists");
        }
        let mut start = 0;
        for same in is_own.chunk_by(|one, other| one == other) {
            indicate(state, &module, &lists[start..start + same.len()], same[0], lends);
            start += same.len();
        }
        if lends {
            // The chain is the filter's again, as it was.
            frame::link(&lists);
        }
        state.dispatcher.signal();
        state.preempt();
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisFReturnNetBufferLists(handle: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, flags: u32) {
    ndis_routine!("NdisFReturnNetBufferLists", DISPATCH_LEVEL, |state| {
        let module = state.module(handle);
        check_level(flags, NDIS_RETURN_FLAGS_DISPATCH_LEVEL, "a return");
        let lists = lists_of(state, first, Rule::NblNotOwned, "a return");
        for &list in &lists {
            let shape = frame::shape_of(list);
            let mut pools = state.locked::<Pools>();
            let entry = pools.list(list.addr());
            let has_it = entry.holder == Holder::Module(module.handle) && entry.goes_up() && !entry.lent;
            let is_same = entry.take(module.handle).is_none_or(|before| before == shape);
            drop(pools);
            if !has_it {
                let words = "returns a list that it does not have: it was lent, is its own, or has been returned";
                bug_check(Rule::NblNotOwned, format_args!("{} {words}", module.in_words()));
            }
            if !is_same {
                bug_check(Rule::NblNotOwned, format_args!("{} returns a list changed", module.in_words()));
            }
        }
        state.return_down(&module.adapter, Some(&module), &lists);
        state.dispatcher.signal();
        state.preempt();
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisFCancelSendNetBufferLists(handle: NDIS_HANDLE, cancel: *mut c_void) {
    ndis_routine!("NdisFCancelSendNetBufferLists", DISPATCH_LEVEL, |state| {
        let module = state.module(handle);
        state.cancel_down(&module.adapter, Some(&module), cancel.addr());
    });
}

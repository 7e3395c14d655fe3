//! Receiving: lists of the miniport, to the protocols and back.

use std::sync::Arc;

use host::machine::{self, Irql};
use ndis::{
    Ieee8021QNetBufferListInfo, NDIS_MAC_OPTION_8021P_PRIORITY, NDIS_MAC_OPTION_8021Q_VLAN,
    NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL, NDIS_RECEIVE_FLAGS_RESOURCES, NDIS_RETURN_FLAGS_DISPATCH_LEVEL, NET_BUFFER_LIST,
};
use ndkpi::NDIS_HANDLE;

use super::{
    adapter::{Adapter, Phase, owed},
    frame,
    pool::ListOwner,
    structure::{check_no_lock, ndis_routine},
};
use crate::{
    ndis::pool::Pools,
    report::bug_check,
    rule::Rule,
    state::{State, lock},
};

impl State {
    /// Gives lists back to the miniport.
    pub fn give_back(self: &Arc<Self>, adapter: &Arc<Adapter>, lists: &[usize], dispatch: bool) {
        let Some(&first) = lists.first() else { return };
        let pointers: Vec<*mut NET_BUFFER_LIST> =
            lists.iter().map(|&list| std::ptr::with_exposed_provenance_mut(list)).collect();
        for (index, &list) in pointers.iter().enumerate() {
            let next = pointers.get(index + 1).copied().unwrap_or(std::ptr::null_mut());
            // SAFETY: the protocols have the list.
            unsafe { (*list).Next = next };
            frame::soil(list);
            self.locked::<Pools>().list(list.addr()).place = ListOwner::Home;
        }
        let handler = owed(adapter.handlers.ReturnNetBufferListsHandler, "ReturnNetBufferListsHandler");
        let is_at = machine::current_irql() == Irql::DISPATCH_LEVEL;
        let before = (dispatch && !is_at).then(|| machine::raise(Irql::DISPATCH_LEVEL));
        let flags = if dispatch || is_at { NDIS_RETURN_FLAGS_DISPATCH_LEVEL } else { 0 };
        // Before the call: the miniport may complete a pause in it.
        lock(&adapter.changing).indicated -= lists.len();
        adapter.call("MiniportReturnNetBufferLists", |context| {
            // SAFETY: the driver's own handler and context, and its own lists.
            unsafe { handler(context, std::ptr::with_exposed_provenance_mut(first), flags) };
        });
        if let Some(before) = before {
            machine::lower(before);
        }
    }

    /// Gives back what the protocols keep, the oldest first, at most so many.
    pub fn give_back_kept(self: &Arc<Self>, adapter: &Arc<Adapter>, most: usize) -> usize {
        let lists: Vec<usize> = {
            let mut changing = lock(&adapter.changing);
            let count = changing.kept.len().min(most);
            changing.kept.drain(..count).collect()
        };
        self.give_back(adapter, &lists, lists.len().is_multiple_of(2));
        lists.len()
    }

    fn indicated(self: &Arc<Self>, adapter: &Arc<Adapter>, lists: &[*mut NET_BUFFER_LIST], resources: bool) {
        let place = ListOwner::Indicated { adapter: adapter.handle };
        let (mut frames, mut tags) = (Vec::new(), Vec::new());
        let options = lock(&adapter.changing).attributes.general.as_ref().map_or(0, |general| general.mac_options);
        let takes_tags = options & (NDIS_MAC_OPTION_8021P_PRIORITY | NDIS_MAC_OPTION_8021Q_VLAN) != 0;
        for &list in lists {
            // SAFETY: the driver's list, which the protocols have now.
            let header = unsafe { list.read() };
            if header.SourceHandle.addr() != adapter.handle {
                bug_check(Rule::BadHandle, format_args!("a list is indicated whose SourceHandle is not the adapter's"));
            }
            frame::check_clean(&header);
            let tag = header.NetBufferListInfo[Ieee8021QNetBufferListInfo].addr();
            if tag != 0 && !takes_tags || tag > 0xFFFF {
                bug_check(Rule::BadArgument, format_args!("a list is indicated with the value {tag:#x} of 802.1Q"));
            }
            tags.push(tag);
            let buffers = frame::buffers_of(list);
            if buffers.len() != 1 {
                bug_check(Rule::BadArgument, format_args!("a list is indicated with {} net buffers", buffers.len()));
            }
            frames.extend(buffers.iter().map(frame::bytes_of));
            let mut pools = self.locked::<Pools>();
            let entry = pools.list(list.addr());
            if entry.place != ListOwner::Home {
                bug_check(Rule::NblNotOwned, format_args!("a list is indicated that others have: {:?}", entry.place));
            }
            if !resources {
                entry.place = place.clone();
            }
        }
        let takers = self.takers_of(adapter, &frames);
        let keeps = {
            let mut changing = lock(&adapter.changing);
            changing.received.extend(frames);
            changing.tags.extend(tags);
            if !resources {
                changing.indicated += lists.len();
            }
            changing.keeps
        };
        // Protocols that are bound have what they keep; the rest is with those of the test.
        let held = self.deliver(lists, &takers, resources || keeps);
        if resources {
            return;
        }
        let left: Vec<usize> =
            lists.iter().map(|list| list.expose_provenance()).filter(|list| !held.contains(list)).collect();
        if keeps {
            lock(&adapter.changing).kept.extend(left);
        } else {
            // As protocols do that copy at once: the miniport is called in its own call.
            self.give_back(adapter, &left, false);
        }
    }
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisMIndicateReceiveNetBufferLists(
    handle: NDIS_HANDLE,
    first: *mut NET_BUFFER_LIST,
    port: u32,
    count: u32,
    flags: u32,
) {
    ndis_routine!("NdisMIndicateReceiveNetBufferLists", DISPATCH_LEVEL, |state| {
        let adapter = state.adapter(handle);
        check_no_lock("NdisMIndicateReceiveNetBufferLists");
        let known = NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL | NDIS_RECEIVE_FLAGS_RESOURCES;
        if port != 0 || flags & !known != 0 {
            bug_check(Rule::NotSimulated, format_args!("an indication of port {port} with the flags {flags:#x}"));
        }
        if flags & NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL != 0 && machine::current_irql() != Irql::DISPATCH_LEVEL {
            bug_check(Rule::BadArgument, format_args!("an indication says DISPATCH_LEVEL, and is not at it"));
        }
        let may = {
            let mut changing = lock(&adapter.changing);
            if changing.sleeps && changing.phase == Phase::Running {
                bug_check(Rule::ReceivedInLowPower, format_args!("a frame is indicated by a miniport that sleeps"));
            }
            changing.indicating += 1;
            match changing.phase {
                Phase::Running | Phase::Restarting => true,
                // A pause that is being told: who indicates may not have heard of it.
                Phase::Pausing => !changing.pause_returned,
                Phase::Initialising | Phase::Paused | Phase::Halted => false,
            }
        };
        if !may {
            bug_check(Rule::ReceivedWhilePaused, format_args!("a frame is indicated by a miniport that is paused"));
        }
        let lists = frame::lists_of(state, first, Rule::NblNotOwned);
        if lists.len() != count as usize || lists.is_empty() {
            bug_check(Rule::BadArgument, format_args!("an indication of {count} lists has {} of them", lists.len()));
        }
        state.indicated(&adapter, &lists, flags & NDIS_RECEIVE_FLAGS_RESOURCES != 0);
        state.dispatcher.signal();
        state.preempt();
        lock(&adapter.changing).indicating -= 1;
    });
}

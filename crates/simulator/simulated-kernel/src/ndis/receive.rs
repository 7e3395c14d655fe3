//! Receiving: lists of the miniport, to the protocols and back.

use std::sync::Arc;

use host::machine::{self, Irql};
use ndis::{
    Ieee8021QNetBufferListInfo, NDIS_MAC_OPTION_8021P_PRIORITY, NDIS_MAC_OPTION_8021Q_VLAN,
    NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL, NDIS_RECEIVE_FLAGS_RESOURCES, NET_BUFFER_LIST,
};
use ndkpi::NDIS_HANDLE;

use super::{
    adapter::{Adapter, Phase},
    frame,
    pool::{Holder, ListOwner, Pools},
    structure::{check_no_lock, ndis_routine},
};
use crate::{
    report::bug_check,
    rule::Rule,
    state::{State, lock},
};

/// A miniport or a module indicates a list of its own: `from` is its handle. Whether it says so, and the list is as it must be.
pub fn check_indicated(list: *mut NET_BUFFER_LIST, from: usize, takes_tags: bool) {
    // SAFETY: the driver's list, which those above have now.
    let header = unsafe { list.read() };
    if header.SourceHandle.addr() != from {
        bug_check(Rule::BadHandle, format_args!("a list is indicated whose SourceHandle is not the driver's"));
    }
    frame::check_clean(&header);
    let tag = header.NetBufferListInfo[Ieee8021QNetBufferListInfo].addr();
    if tag != 0 && !takes_tags || tag > 0xFFFF {
        bug_check(Rule::BadArgument, format_args!("a list is indicated with the value {tag:#x} of 802.1Q"));
    }
    let buffers = frame::buffers_of(list);
    if buffers.len() != 1 {
        bug_check(Rule::BadArgument, format_args!("a list is indicated with {} net buffers", buffers.len()));
    }
}

/// Whether the lists of an adapter may have values of 802.1Q.
pub fn takes_tags(adapter: &Adapter) -> bool {
    let options = lock(&adapter.changing).attributes.general.as_ref().map_or(0, |general| general.mac_options);
    options & (NDIS_MAC_OPTION_8021P_PRIORITY | NDIS_MAC_OPTION_8021Q_VLAN) != 0
}

impl State {
    /// The protocols give lists back.
    pub fn give_back(self: &Arc<Self>, adapter: &Arc<Adapter>, lists: &[usize], dispatch: bool) {
        if lists.is_empty() {
            return;
        }
        let pointers: Vec<*mut NET_BUFFER_LIST> =
            lists.iter().map(|&list| std::ptr::with_exposed_provenance_mut(list)).collect();
        for &list in &pointers {
            frame::soil(list);
        }
        let is_at = machine::current_irql() == Irql::DISPATCH_LEVEL;
        let before = (dispatch && !is_at).then(|| machine::raise(Irql::DISPATCH_LEVEL));
        self.return_down(adapter, None, &pointers);
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
        let tagged = takes_tags(adapter);
        for &list in lists {
            check_indicated(list, adapter.handle, tagged);
            let mut pools = self.locked::<Pools>();
            let entry = pools.list(list.addr());
            if entry.place != ListOwner::Home {
                bug_check(Rule::NblNotOwned, format_args!("a list is indicated that others have: {:?}", entry.place));
            }
            if !resources {
                entry.place = ListOwner::Indicated { adapter: adapter.handle };
            }
        }
        if !resources {
            lock(&adapter.changing).indicated += lists.len();
        }
        self.receive_up(adapter, None, lists, resources);
    }

    /// Lists have come up to the protocols.
    pub fn receive_at_top(self: &Arc<Self>, adapter: &Arc<Adapter>, lists: &[*mut NET_BUFFER_LIST], lends: bool) {
        let frames: Vec<_> =
            lists.iter().flat_map(|&list| frame::buffers_of(list)).map(|one| frame::bytes_of(&one)).collect();
        let tag = |&list: &*mut NET_BUFFER_LIST| {
            // SAFETY: a list that has come up, which its driver does not change now.
            unsafe { (*list).NetBufferListInfo[Ieee8021QNetBufferListInfo] }.addr()
        };
        let takers = self.takers_of(adapter, &frames);
        let keeps = {
            let mut changing = lock(&adapter.changing);
            // While modules are paused, nobody above them keeps anything.
            if !changing.quiet {
                changing.received.extend(frames);
                changing.tags.extend(lists.iter().map(tag));
            }
            changing.keeps && !changing.quiet
        };
        if !lends {
            let mut pools = self.locked::<Pools>();
            for list in lists {
                pools.list(list.addr()).holder = Holder::End;
            }
        }
        // Protocols that are bound have what they keep; the rest is with those of the test.
        let held = self.deliver(lists, &takers, lends || keeps);
        if lends {
            return;
        }
        let left: Vec<usize> =
            lists.iter().map(|list| list.expose_provenance()).filter(|list| !held.contains(list)).collect();
        if keeps {
            lock(&adapter.changing).kept.extend(left);
        } else {
            // As protocols do that copy at once: those below are called in their own call.
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

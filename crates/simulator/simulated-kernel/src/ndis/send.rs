//! Sending: lists of the protocols, to those below and back.

use std::sync::{Arc, Mutex};

use host::machine::{self, Irql};
use litemap::LiteMap;
use ndis::{NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL, NDIS_STATUS, NET_BUFFER_LIST};
use ndkpi::{NDIS_HANDLE, status::NDIS_STATUS_SUCCESS};

use super::{
    adapter::{Adapter, Phase},
    frame::{self, Layout, Oob},
    pool::{Holder, ListOwner, Pools},
    structure::{check_no_lock, ndis_routine},
};
use crate::{
    report::bug_check,
    rule::Rule,
    state::{Part, State, lock},
    waiting,
};

/// The only outcome beside success that is no error: a miniport that is reset, or has lost its device, takes no frames.
const NDIS_STATUS_NOT_ACCEPTED: NDIS_STATUS = NDIS_STATUS::from_bits(0x0001_0003);

/// One call of the miniport's send handler.
pub struct Send {
    adapter: usize,
    /// What became of each list; `None` while the miniport has it.
    outcomes: Mutex<Vec<Option<NDIS_STATUS>>>,
    /// The lists in the order of the call.
    lists: Vec<usize>,
    /// The miniport was paused before.
    paused: bool,
    /// It slept.
    asleep: bool,
}

/// Frames that were given to a miniport.
#[must_use]
pub struct Sent {
    state: Arc<State>,
    send: Arc<Send>,
}

/// All sends that are not over.
#[derive(Default)]
pub struct Sends(LiteMap<usize, Arc<Send>>);

impl Part for Mutex<Sends> {}

impl State {
    /// Gives lists to the miniport, each of several frames.
    pub fn send(self: &Arc<Self>, adapter: &Arc<Adapter>, lists: &[Vec<&[u8]>], oob: Oob, dispatch: bool) -> Sent {
        let (number, paused, asleep) = {
            let changing = lock(&adapter.changing);
            let paused = match changing.phase {
                Phase::Running => false,
                Phase::Pausing => changing.pause_returned,
                Phase::Paused | Phase::Restarting => true,
                Phase::Initialising | Phase::Halted => unreachable!("a test has an adapter that lives"),
            };
            (usize::try_from(self.next()).unwrap_or(0), paused, changing.sleeps)
        };
        // No two frames lie in memory in the same way.
        let made: Vec<*mut NET_BUFFER_LIST> = lists
            .iter()
            .enumerate()
            .map(|(index, frames)| {
                let mixed = number.wrapping_add(index).wrapping_mul(7);
                frame::make(self, frames, Layout { before: mixed % 5 * 9, pieces: mixed % 3 + 1 }, oob)
            })
            .collect();
        let send = Arc::new(Send {
            adapter: adapter.handle,
            outcomes: Mutex::new(vec![None; made.len()]),
            lists: made.iter().map(|list| list.addr()).collect(),
            paused,
            asleep,
        });
        self.locked::<Sends>().0.insert(number, send.clone());
        {
            let mut pools = self.locked::<Pools>();
            for &list in &made {
                pools.send(list.addr(), adapter.handle, number);
            }
        }
        let before = dispatch.then(|| machine::raise(Irql::DISPATCH_LEVEL));
        if !made.is_empty() {
            self.send_down(adapter, None, &made);
        }
        if let Some(before) = before {
            machine::lower(before);
        }
        Sent { state: self.clone(), send }
    }

    /// Lists come back from the miniport, or from a module above it, which has completed them.
    pub fn completed_by(&self, adapter: &Adapter, module: Option<usize>, list: *mut NET_BUFFER_LIST) {
        let (goes_down, has_it, shape, place) = {
            let mut pools = self.locked::<Pools>();
            let entry = pools.list(list.addr());
            let has_it = entry.holder == module.map_or(Holder::End, Holder::Module);
            (entry.goes_down(), has_it, entry.take(module.unwrap_or(adapter.handle)), entry.place.clone())
        };
        let at = match place {
            ListOwner::Sent { adapter, .. } | ListOwner::SentBy { adapter, .. } => adapter,
            _ => adapter.handle,
        };
        if at != adapter.handle {
            bug_check(Rule::NblNotOwned, format_args!("a send is completed by another adapter"));
        }
        if !goes_down || !has_it {
            bug_check(
                Rule::NblCompletedTwice,
                format_args!("a send is completed of a list that was not sent, or that others have: {place:?}"),
            );
        }
        check_sent(list, shape);
        if module.is_none() {
            lock(&adapter.changing).sent -= 1;
        }
    }

    /// A list has come back to who has sent it: the test's protocols or one that is bound.
    pub fn is_sent(&self, adapter: &Adapter, list: *mut NET_BUFFER_LIST) {
        // SAFETY: the list has come back.
        let status = unsafe { (*list).Status };
        let mut pools = self.locked::<Pools>();
        let entry = pools.list(list.addr());
        let number = match entry.place {
            ListOwner::Sent { send, .. } => send,
            ListOwner::SentBy { binding, .. } => {
                entry.is_home();
                drop(pools);
                let binding = self.binding(binding);
                // The list is the protocol's again before it hears of that. What became of it is the protocol's to look at.
                lock(&binding.changing).sent -= 1;
                binding.give_sent(list);
                return;
            }
            ref other => unreachable!("a module gets its own lists back: {other:?}"),
        };
        pools.forget(list.addr());
        drop(pools);
        frame::free(self, list);
        let Some(send) = self.locked::<Sends>().0.get(&number).cloned() else { return };
        if send.paused && status == NDIS_STATUS_SUCCESS {
            bug_check(Rule::SentWhilePaused, format_args!("a frame is sent by a miniport that is paused"));
        }
        if send.asleep && status == NDIS_STATUS_SUCCESS {
            bug_check(Rule::SentInLowPower, format_args!("a frame is sent by a miniport that sleeps"));
        }
        let over = {
            let mut outcomes = lock(&send.outcomes);
            if let Some(index) = send.lists.iter().position(|&one| one == list.addr()) {
                outcomes[index] = Some(status);
            }
            outcomes.iter().all(Option::is_some)
        };
        if over {
            self.locked::<Sends>().0.remove(&number);
        }
        debug_assert_eq!(send.adapter, adapter.handle, "a send is of one adapter");
    }
}

/// Looks at a list that a miniport or a module has completed.
fn check_sent(list: *mut NET_BUFFER_LIST, shape: Option<u64>) {
    // SAFETY: the list was the driver's, and whoever has sent it frees it later.
    let status = unsafe { (*list).Status };
    // A list comes as pending: so who forgets to say what became of it is found out.
    if status.is_success() && ![NDIS_STATUS_SUCCESS, NDIS_STATUS_NOT_ACCEPTED].contains(&status) {
        bug_check(Rule::BadArgument, format_args!("a send is completed with the status {status}"));
    }
    // A module that hears of a completion and not of a send was given nothing.
    if shape.is_some_and(|shape| shape != frame::shape_of(list)) {
        bug_check(Rule::NblNotOwned, format_args!("a sent list comes back changed"));
    }
}

impl State {
    /// Whether everything is back that the test's protocols have sent by an adapter.
    pub fn has_no_sends(&self, adapter: &Adapter) -> bool {
        self.locked::<Sends>().0.values().all(|send| send.adapter != adapter.handle)
    }
}

impl Sent {
    /// Returns true if every list has come back.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        lock(&self.send.outcomes).iter().all(Option::is_some)
    }

    /// Waits until every list has come back, and says what became of each. A list that does not come back in time is a broken
    /// rule.
    #[must_use]
    pub fn wait(self) -> Vec<NDIS_STATUS> {
        let state = &self.state;
        let end = state.machine.now().saturating_add(state.request_limit());
        if !waiting::until(state, Some(end), "a send", || self.is_complete()) {
            let left = lock(&self.send.outcomes).iter().filter(|outcome| outcome.is_none()).count();
            bug_check(Rule::NblNeverCompleted, format_args!("{left} sent lists are not completed"));
        }
        lock(&self.send.outcomes).iter().copied().flatten().collect()
    }
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisMSendNetBufferListsComplete(handle: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, flags: u32) {
    ndis_routine!("NdisMSendNetBufferListsComplete", DISPATCH_LEVEL, |state| {
        let adapter = state.adapter(handle);
        check_no_lock("NdisMSendNetBufferListsComplete");
        if flags & NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL != 0 && machine::current_irql() != Irql::DISPATCH_LEVEL {
            bug_check(Rule::BadArgument, format_args!("a completion says DISPATCH_LEVEL, and is not at it"));
        }
        let lists = frame::lists_of(state, first, Rule::NblCompletedTwice);
        if lists.is_empty() {
            bug_check(Rule::BadArgument, format_args!("a completion without lists"));
        }
        for &list in &lists {
            state.completed_by(&adapter, None, list);
        }
        state.complete_up(&adapter, None, &lists);
        state.dispatcher.signal();
        state.preempt();
    });
}

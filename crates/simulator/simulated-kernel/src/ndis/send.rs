//! Sending: lists of the protocols, to the miniport and back.

use std::sync::{Arc, Mutex};

use host::machine::{self, Irql};
use litemap::LiteMap;
use ndis::{NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL, NDIS_SEND_FLAGS_DISPATCH_LEVEL, NDIS_STATUS, NET_BUFFER_LIST};
use ndkpi::{NDIS_HANDLE, status::NDIS_STATUS_SUCCESS};

use super::{
    adapter::{Adapter, Phase, owed},
    frame::{self, Layout, Oob},
    pool::ListOwner,
    structure::{check_no_lock, ndis_routine},
};
use crate::{
    ndis::{pool::Pools, structure::pointer},
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
        for pair in made.windows(2) {
            // SAFETY: two of the lists that were just made.
            unsafe { (*pair[0]).Next = pair[1] };
        }
        self.locked::<Sends>().0.insert(number, send.clone());
        {
            let mut pools = self.locked::<Pools>();
            for &list in &made {
                pools.send(list.addr(), adapter.handle, number, frame::shape_of(list));
            }
        }
        lock(&adapter.changing).sent += made.len();
        let first = made.first().copied().unwrap_or(std::ptr::null_mut());
        let handler = owed(adapter.handlers.SendNetBufferListsHandler, "SendNetBufferListsHandler");
        let before = dispatch.then(|| machine::raise(Irql::DISPATCH_LEVEL));
        let flags = if dispatch { NDIS_SEND_FLAGS_DISPATCH_LEVEL } else { 0 };
        adapter.call("MiniportSendNetBufferLists", |context| {
            // SAFETY: the driver's own handler and context, and lists that live until they are completed.
            unsafe { handler(context, first, 0, flags) };
        });
        if let Some(before) = before {
            machine::lower(before);
        }
        Sent { state: self.clone(), send }
    }

    /// Has the miniport cancel the sends with that identifier.
    pub fn cancel_send(adapter: &Adapter, cancel: usize) {
        let handler = owed(adapter.handlers.CancelSendHandler, "CancelSendHandler");
        let before = machine::raise(Irql::DISPATCH_LEVEL);
        adapter.call("MiniportCancelSend", |context| {
            // SAFETY: the driver's own handler and context.
            unsafe { handler(context, pointer(cancel)) };
        });
        machine::lower(before);
    }

    /// A list has come back from the miniport.
    fn sent(&self, adapter: &Adapter, list: *mut NET_BUFFER_LIST) {
        let (number, shape) = {
            let mut pools = self.locked::<Pools>();
            let entry = pools.list(list.addr());
            let (place, shape) = (entry.place.clone(), entry.shape);
            if let ListOwner::SentBy { adapter: at, binding } = place {
                drop(pools);
                self.sent_by(adapter, (at, binding), list, shape);
                return;
            }
            let ListOwner::Sent { adapter: at, send } = place else {
                bug_check(Rule::NblCompletedTwice, format_args!("a send is completed of a list that was not sent"));
            };
            if at != adapter.handle {
                bug_check(Rule::NblNotOwned, format_args!("a send is completed by another adapter"));
            }
            pools.forget(list.addr());
            (send, shape)
        };
        let status = check_sent(list, shape);
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
        lock(&adapter.changing).sent -= 1;
        debug_assert_eq!(send.adapter, adapter.handle, "a send is of one adapter");
    }
}

/// Looks at a list that has come back from a miniport. What became of it.
fn check_sent(list: *mut NET_BUFFER_LIST, shape: Option<u64>) -> NDIS_STATUS {
    // SAFETY: the list was the miniport's, and whoever has sent it frees it later.
    let status = unsafe { (*list).Status };
    // A list comes as pending: so who forgets to say what became of it is found out.
    if status.is_success() && ![NDIS_STATUS_SUCCESS, NDIS_STATUS_NOT_ACCEPTED].contains(&status) {
        bug_check(Rule::BadArgument, format_args!("a send is completed with the status {status}"));
    }
    if shape != Some(frame::shape_of(list)) {
        bug_check(Rule::NblNotOwned, format_args!("a sent list comes back changed"));
    }
    status
}

impl State {
    /// A list of a protocol has come back from the miniport.
    fn sent_by(
        &self,
        adapter: &Adapter,
        (at, binding): (usize, usize),
        list: *mut NET_BUFFER_LIST,
        shape: Option<u64>,
    ) {
        if at != adapter.handle {
            bug_check(Rule::NblNotOwned, format_args!("a send is completed by another adapter"));
        }
        // What became of it is the protocol's to look at.
        let _ = check_sent(list, shape);
        let binding = self.binding(binding);
        self.locked::<Pools>().list(list.addr()).place = ListOwner::Home;
        lock(&adapter.changing).sent -= 1;
        // The list is the protocol's again before it hears of that.
        lock(&binding.changing).sent -= 1;
        binding.give_sent(list);
    }

    /// Gives lists of a protocol to the miniport below, which completes each.
    pub fn send_for(adapter: &Adapter, first: *mut NET_BUFFER_LIST, count: usize, dispatch: bool) {
        lock(&adapter.changing).sent += count;
        let handler = owed(adapter.handlers.SendNetBufferListsHandler, "SendNetBufferListsHandler");
        let flags = if dispatch { NDIS_SEND_FLAGS_DISPATCH_LEVEL } else { 0 };
        adapter.call("MiniportSendNetBufferLists", |context| {
            // SAFETY: the driver's own handler and context, and lists that live until they are completed.
            unsafe { handler(context, first, 0, flags) };
        });
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
        for list in lists {
            state.sent(&adapter, list);
        }
        state.dispatcher.signal();
        state.preempt();
    });
}

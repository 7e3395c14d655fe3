//! How lists pass between a miniport and the protocols above it, through the modules of filters that are there.
//!
//! Whoever has no handler for what comes is passed by. A list goes to one after the other, and each passes it on or back.

use std::sync::Arc;

use host::machine::{self, Irql};
use ndis::{
    NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL, NDIS_RECEIVE_FLAGS_RESOURCES, NDIS_RETURN_FLAGS_DISPATCH_LEVEL,
    NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL, NDIS_SEND_FLAGS_DISPATCH_LEVEL, NDIS_STATUS_PAUSED, NET_BUFFER_LIST,
};

use super::{
    adapter::{Adapter, owed},
    frame::{self, link},
    module::Module,
    pool::{Holder, ListOwner, Pools},
    structure::pointer,
};
use crate::{
    report::bug_check,
    rule::Rule,
    state::{State, lock},
};

type Lists<'lists> = &'lists [*mut NET_BUFFER_LIST];

/// The flag if the current IRQL is `DISPATCH_LEVEL`.
fn level(flag: u32) -> u32 {
    if machine::current_irql() == Irql::DISPATCH_LEVEL { flag } else { 0 }
}

/// Lists one after the other that go to the same place go there together.
fn together(
    lists: Lists<'_>,
    to: impl Fn(*mut NET_BUFFER_LIST) -> Option<Arc<Module>>,
) -> Vec<(Option<Arc<Module>>, Lists<'_>)> {
    let places: Vec<_> = lists.iter().map(|&list| to(list)).collect();
    let handle = |place: &Option<Arc<Module>>| place.as_ref().map(|module| module.handle);
    let mut start = 0;
    places
        .chunk_by(|one, other| handle(one) == handle(other))
        .map(|same| {
            let some = &lists[start..start + same.len()];
            start += same.len();
            (same[0].clone(), some)
        })
        .collect()
}

impl State {
    /// Notes that a module or a miniport has lists now, and what they look like.
    fn give(&self, to: usize, holder: Holder, lists: Lists<'_>) {
        for &list in lists {
            let shape = frame::shape_of(list);
            let mut pools = self.locked::<Pools>();
            let entry = pools.list(list.addr());
            entry.holder = holder;
            entry.give(to, shape);
        }
    }

    /// Gives lists to whoever is next below a module, or below the protocols.
    pub fn send_down(self: &Arc<Self>, adapter: &Arc<Adapter>, from: Option<&Module>, lists: Lists<'_>) {
        link(lists);
        let (first, flags) = (lists[0], level(NDIS_SEND_FLAGS_DISPATCH_LEVEL));
        let Some(module) = self.next_below(adapter, from, |module| module.frames().send.is_some()) else {
            self.give(adapter.handle, Holder::End, lists);
            lock(&adapter.changing).sent += lists.len();
            let handler = owed(adapter.handlers.SendNetBufferListsHandler, "SendNetBufferListsHandler");
            adapter.call("MiniportSendNetBufferLists", |context| {
                // SAFETY: the driver's own handler and context, and lists that live until they are completed.
                unsafe { handler(context, first, 0, flags) };
            });
            return;
        };
        let Some(_inside) = module.enter(self, false) else {
            for &list in lists {
                // SAFETY: the list is NDIS's, between whom it comes from and whom it does not go to.
                unsafe { (*list).Status = NDIS_STATUS_PAUSED };
            }
            self.complete_up(adapter, Some(&module), lists);
            return;
        };
        self.give(module.handle, Holder::Module(module.handle), lists);
        let handler = owed(module.frames().send, "SendNetBufferListsHandler");
        module.call("FilterSendNetBufferLists", |context| {
            // SAFETY: the driver's own handler and context, and lists that live until they are completed.
            unsafe { handler(context, first, 0, flags) };
        });
    }

    /// Tells whoever is next above a module, or above the miniport, that lists are sent or were not.
    pub fn complete_up(self: &Arc<Self>, adapter: &Arc<Adapter>, from: Option<&Module>, lists: Lists<'_>) {
        let next = |list: *mut NET_BUFFER_LIST| {
            let place = self.locked::<Pools>().list(list.addr()).place.clone();
            let last = if let ListOwner::SentOf { module } = place { module } else { usize::MAX };
            self.next_above(adapter, from, |module| module.frames().sent.is_some() && module.handle <= last)
        };
        for (to, some) in together(lists, next) {
            let Some(module) = to else {
                for &list in some {
                    self.is_sent(adapter, list);
                }
                continue;
            };
            self.give_back_to(&module, some);
            let _inside = module.enter(self, true);
            link(some);
            let handler = owed(module.frames().sent, "SendNetBufferListsCompleteHandler");
            let flags = level(NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL);
            module.call("FilterSendNetBufferListsComplete", |context| {
                // SAFETY: the driver's own handler and context, and lists that it has.
                unsafe { handler(context, some[0], flags) };
            });
        }
    }

    /// Notes that a module has lists again, its own at home.
    fn give_back_to(&self, module: &Module, lists: Lists<'_>) {
        let mut pools = self.locked::<Pools>();
        let module = module.handle;
        let own = [ListOwner::SentOf { module }, ListOwner::IndicatedOf { module }];
        for &list in lists {
            let entry = pools.list(list.addr());
            if own.contains(&entry.place) {
                entry.is_home();
            } else {
                entry.holder = Holder::Module(module);
            }
        }
    }

    /// Has whoever is next below a module, or below the protocols, cancel sends, down to the miniport.
    pub fn cancel_down(self: &Arc<Self>, adapter: &Adapter, from: Option<&Module>, cancel: usize) {
        let before = machine::raise(Irql::DISPATCH_LEVEL);
        if let Some(module) = self.next_below(adapter, from, |module| module.frames().cancel.is_some()) {
            let handler = owed(module.frames().cancel, "CancelSendNetBufferListsHandler");
            module.call("FilterCancelSendNetBufferLists", |context| {
                // SAFETY: the driver's own handler and context.
                unsafe { handler(context, pointer(cancel)) };
            });
        } else {
            let handler = owed(adapter.handlers.CancelSendHandler, "CancelSendHandler");
            adapter.call("MiniportCancelSend", |context| {
                // SAFETY: the driver's own handler and context.
                unsafe { handler(context, pointer(cancel)) };
            });
        }
        machine::lower(before);
    }

    /// Gives received lists to whoever is next above a module, or above the miniport; until the call returns if they are lent.
    pub fn receive_up(self: &Arc<Self>, adapter: &Arc<Adapter>, from: Option<&Module>, lists: Lists<'_>, lends: bool) {
        let Some(module) = self.next_above(adapter, from, |module| module.frames().receive.is_some()) else {
            self.receive_at_top(adapter, lists, lends);
            return;
        };
        let Some(_inside) = module.enter(self, false) else {
            // Nobody hears of what a paused module would have to pass on.
            if !lends {
                self.return_down(adapter, Some(&module), lists);
            }
            return;
        };
        link(lists);
        let before: Vec<(Holder, bool)> = {
            let mut pools = self.locked::<Pools>();
            let lend = |list: &*mut NET_BUFFER_LIST| {
                let entry = pools.list(list.addr());
                (entry.holder, std::mem::replace(&mut entry.lent, lends))
            };
            lists.iter().map(lend).collect()
        };
        self.give(module.handle, Holder::Module(module.handle), lists);
        let handler = owed(module.frames().receive, "ReceiveNetBufferListsHandler");
        let flags = level(NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL) | if lends { NDIS_RECEIVE_FLAGS_RESOURCES } else { 0 };
        let count = u32::try_from(lists.len()).unwrap_or(u32::MAX);
        module.call("FilterReceiveNetBufferLists", |context| {
            // SAFETY: the driver's own handler and context, and lists that live as long as the flags say.
            unsafe { handler(context, lists[0], 0, count, flags) };
        });
        if !lends {
            return;
        }
        for (&list, (holder, lent)) in lists.iter().zip(before) {
            let shape = frame::shape_of(list);
            let mut pools = self.locked::<Pools>();
            let entry = pools.list(list.addr());
            let is_same = entry.take(module.handle) == Some(shape);
            (entry.holder, entry.lent) = (holder, lent);
            drop(pools);
            if !is_same {
                let words = "a list that was lent with NDIS_RECEIVE_FLAGS_RESOURCES comes back changed";
                bug_check(Rule::NblNotOwned, format_args!("{}: {words}", module.in_words()));
            }
        }
        // In the order in which they were lent.
        link(lists);
    }

    /// Gives received lists back to whoever is next below a module, or below the protocols.
    pub fn return_down(self: &Arc<Self>, adapter: &Arc<Adapter>, from: Option<&Module>, lists: Lists<'_>) {
        let next = |list: *mut NET_BUFFER_LIST| {
            let place = self.locked::<Pools>().list(list.addr()).place.clone();
            let last = if let ListOwner::IndicatedOf { module } = place { module } else { 0 };
            self.next_below(adapter, from, |module| module.frames().returned.is_some() && module.handle >= last)
        };
        for (to, some) in together(lists, next) {
            let flags = level(NDIS_RETURN_FLAGS_DISPATCH_LEVEL);
            let Some(module) = to else {
                for &list in some {
                    self.locked::<Pools>().list(list.addr()).is_home();
                }
                link(some);
                // Before the call: the miniport may complete a pause in it.
                lock(&adapter.changing).indicated -= some.len();
                let handler = owed(adapter.handlers.ReturnNetBufferListsHandler, "ReturnNetBufferListsHandler");
                adapter.call("MiniportReturnNetBufferLists", |context| {
                    // SAFETY: the driver's own handler and context, and its own lists.
                    unsafe { handler(context, some[0], flags) };
                });
                continue;
            };
            self.give_back_to(&module, some);
            let _inside = module.enter(self, true);
            link(some);
            let handler = owed(module.frames().returned, "ReturnNetBufferListsHandler");
            module.call("FilterReturnNetBufferLists", |context| {
                // SAFETY: the driver's own handler and context, and lists that it has, or that are its own.
                unsafe { handler(context, some[0], flags) };
            });
        }
    }
}

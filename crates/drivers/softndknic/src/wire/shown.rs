//! What a wire shows of itself: to programs by the control device, and by an event when its connections have troubles.

use core::sync::atomic::Ordering::Relaxed;

use control::provider_device::{WIRE_PEERS, Wire as Shown};
use driver_common::{
    socket,
    trace::{self, Troubles},
};
use engine::{
    os::{Routine, SpinLock, Timer},
    wire::Counters,
};
use fallible::Arc;

use super::Tunnel;
use crate::adapter::Adapter;

const _: () = assert!(WIRE_PEERS == cable::peers::MAX_PEERS);

/// Microseconds after a wire has sent something until it is looked if there were troubles.
const LATER: u64 = 1_000_000;

/// What of the counters is trouble.
const fn troubles(counters: &Counters) -> Troubles {
    Troubles {
        naks_sent: counters.naks_sent,
        naks_received: counters.naks_received,
        rnr_naks_received: counters.rnr_naks_received,
        retries: counters.goes_back,
        timeouts: counters.timeouts,
        cm_retries: counters.cm_retries,
    }
}

/// What has been added.
const fn since(before: Troubles, now: Troubles) -> Troubles {
    Troubles {
        naks_sent: now.naks_sent.wrapping_sub(before.naks_sent),
        naks_received: now.naks_received.wrapping_sub(before.naks_received),
        rnr_naks_received: now.rnr_naks_received.wrapping_sub(before.rnr_naks_received),
        retries: now.retries.wrapping_sub(before.retries),
        timeouts: now.timeouts.wrapping_sub(before.timeouts),
        cm_retries: now.cm_retries.wrapping_sub(before.cm_retries),
    }
}

impl Tunnel {
    /// Its keywords and its counters, for programs. `IRQL <= DISPATCH_LEVEL`.
    #[inline(never)]
    #[must_use]
    pub fn shown(&self, adapter: &Adapter) -> Shown {
        let counted = adapter.provider().wire().map(|wire| wire.counters()).unwrap_or_default();
        let mut shown = Shown {
            adapter: adapter.number().into(),
            is_up: self.current.is_open().into(),
            vni: self.ends.vni,
            local: socket::bytes(self.ends.local),
            frames_received: counted.frames_received,
            frames_sent: counted.frames_sent,
            lost: self.lost(),
            malformed: counted.malformed + counted.not_for_us,
            wrong_icrc: counted.wrong_icrc,
            not_taken: counted.unknown_queue_pair
                + counted.wrong_state
                + counted.unknown_source
                + counted.wrong_p_key
                + counted.wrong_q_key,
            duplicates: counted.duplicates,
            out_of_order: counted.psn_ahead,
            naks_sent: counted.naks_sent,
            naks_received: counted.naks_received,
            rnr_naks_received: counted.rnr_naks_received,
            retries: counted.goes_back,
            timeouts: counted.timeouts,
            cm_retries: counted.cm_retries,
            refused: counted.refused_for_room,
            ..Shown::default()
        };
        for (place, address) in shown.peers.iter_mut().zip(self.ends.peers.addresses()) {
            *place = socket::bytes(address);
            shown.peer_count += 1;
        }
        shown
    }

    /// Has somebody look for troubles in a while, unless somebody does. Whatever goes wrong on a wire is followed by something that is
    /// sent: so nothing is looked at while nothing is. `IRQL <= DISPATCH_LEVEL`.
    pub(super) fn watch(&self) {
        if self.is_watched.load(Relaxed) || self.is_watched.swap(true, Relaxed) {
            return;
        }
        // Under the lock: behind the end of the wire it is not set any more. Before its beginning there is no adapter either.
        let is_set =
            self.adapter.with(|adapter| adapter.as_ref().map(|adapter| self.watch.set(LATER, adapter)).is_some());
        if !is_set {
            self.is_watched.store(false, Relaxed);
        }
    }
}

/// The timer after which it is looked for troubles.
pub struct Watch;

impl Routine for Watch {
    type Target = Adapter;

    fn run(adapter: &Arc<Adapter>) {
        let Some(tunnel) = adapter.tunnel() else { return };
        tunnel.is_watched.store(false, Relaxed);
        let Some(wire) = adapter.provider().wire() else { return };
        let now = troubles(&wire.counters());
        let before = tunnel.told.with(|told| core::mem::replace(told, now));
        if now != before {
            trace::wire_troubles(adapter.number(), &since(before, now));
        }
    }
}

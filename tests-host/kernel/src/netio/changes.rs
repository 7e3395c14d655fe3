//! Who wants to hear of changes of addresses.
//!
//! At which level the callbacks run is not documented: here at `PASSIVE_LEVEL` and at `DISPATCH_LEVEL` by turns, on the
//! thread that makes the change.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use host::machine::{self, Irql};
use ndis::{
    AF_UNSPEC, MIB_NOTIFICATION_TYPE, MIB_UNICASTIPADDRESS_ROW, NET_IFINDEX, NL_DAD_STATE,
    PUNICAST_IPADDRESS_CHANGE_CALLBACK,
};
use ndkpi::{AF_INET, AF_INET6, NtStatus};
use wdk_bindings::PVOID;

use super::helper;
use crate::{
    context::{self, DriverId},
    kernel::{State, lock},
    report::bug_check,
    rule::Rule,
    waiting,
};

/// A registration.
struct Listener {
    owner: DriverId,
    family: u16,
    callback: PUNICAST_IPADDRESS_CHANGE_CALLBACK,
    context: usize,
    /// Callbacks that were begun.
    begun: AtomicU32,
    /// Callbacks that run.
    running: AtomicU32,
    gone: AtomicBool,
}

/// All registrations, by handle.
#[derive(Default)]
pub struct Listeners {
    all: BTreeMap<usize, Arc<Listener>>,
}

impl Listeners {
    /// Returns true if a driver is registered.
    pub fn left_by(&self, owner: DriverId) -> bool {
        self.all.values().any(|listener| listener.owner == owner)
    }
}

impl Listener {
    fn tell(&self, state: &State, row: *mut MIB_UNICASTIPADDRESS_ROW, kind: MIB_NOTIFICATION_TYPE) {
        self.running.fetch_add(1, SeqCst);
        if !self.gone.load(SeqCst) {
            let raised = self.begun.fetch_add(1, Relaxed) % 2 == 1;
            let before = raised.then(|| machine::raise(Irql::DISPATCH_LEVEL));
            context::call(self.owner, "a callback for changes of addresses", || {
                let context = std::ptr::with_exposed_provenance_mut(self.context);
                // SAFETY: the driver's own routine and context, and null or a row that lives until the call returns.
                unsafe { (self.callback)(context, row, kind) };
            });
            if let Some(before) = before {
                machine::lower(before);
            }
        }
        self.running.fetch_sub(1, SeqCst);
        state.dispatcher.signal();
    }
}

impl State {
    /// Tells everybody of a change of an address.
    pub fn tell_of_address(&self, index: NET_IFINDEX, address: IpAddr, kind: MIB_NOTIFICATION_TYPE) {
        let family = if address.is_ipv4() { AF_INET } else { AF_INET6 };
        let (all, luid) = {
            let net = lock(&self.net);
            let all: Vec<_> = net.listeners.all.values().cloned().collect();
            (all, net.luid(index))
        };
        for listener in all.iter().filter(|listener| listener.family == AF_UNSPEC || listener.family == family) {
            // Only these three fields are documented to be filled in.
            let mut row = MIB_UNICASTIPADDRESS_ROW {
                Address: SocketAddr::new(address, 0).into(),
                InterfaceLuid: luid,
                InterfaceIndex: index,
                PrefixOrigin: -1,
                SuffixOrigin: -1,
                ValidLifetime: 0xCCCC_CCCC,
                PreferredLifetime: 0xCCCC_CCCC,
                OnLinkPrefixLength: 0xCC,
                SkipAsSource: 0xCC,
                DadState: NL_DAD_STATE(0xCC),
                ScopeId: 0xCCCC_CCCC,
                CreationTimeStamp: -1,
            };
            listener.tell(self, &raw mut row, kind);
        }
    }
}

#[unsafe(no_mangle)]
extern "system" fn NotifyUnicastIpAddressChange(
    family: u16,
    callback: Option<PUNICAST_IPADDRESS_CHANGE_CALLBACK>,
    caller: PVOID,
    initial: u8,
    handle: *mut PVOID,
) -> NtStatus {
    helper!("NotifyUnicastIpAddressChange", |state| {
        let Some(callback) = callback.filter(|_| !handle.is_null()) else { return NtStatus::INVALID_PARAMETER };
        if ![AF_UNSPEC, AF_INET, AF_INET6].contains(&family) {
            return NtStatus::INVALID_PARAMETER;
        }
        if state.strikes() {
            return NtStatus::NO_MEMORY;
        }
        let listener = Arc::new(Listener {
            owner: context::caller(),
            family,
            callback,
            context: caller.expose_provenance(),
            begun: AtomicU32::new(0),
            running: AtomicU32::new(0),
            gone: AtomicBool::new(false),
        });
        let number = usize::try_from(state.next()).unwrap_or(0) * 64;
        lock(&state.net).listeners.all.insert(number, listener.clone());
        // The first may run before the driver has its handle.
        if initial != 0 {
            listener.tell(state, std::ptr::null_mut(), MIB_NOTIFICATION_TYPE::INITIAL);
        }
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { handle.write(std::ptr::without_provenance_mut(number)) };
        NtStatus::SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "system" fn CancelMibChangeNotify2(handle: PVOID) -> NtStatus {
    helper!("CancelMibChangeNotify2", |state| {
        let Some(listener) = lock(&state.net).listeners.all.remove(&handle.addr()) else {
            bug_check(Rule::BadHandle, format_args!("{handle:p} is no registration for changes of addresses"));
        };
        listener.gone.store(true, SeqCst);
        let idle = || listener.running.load(SeqCst) == 0;
        waiting::until(state, None, "CancelMibChangeNotify2, for callbacks that run", idle);
        NtStatus::SUCCESS
    })
}

//! Who wants to hear of changes of addresses, interfaces and routes.
//!
//! At which level the callbacks run is not documented: here at `PASSIVE_LEVEL` and at `DISPATCH_LEVEL` by turns, on the
//! thread that makes the change.

use std::{
    ffi::c_void,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use host::machine::{self, Irql};
use litemap::LiteMap;
use ndis::{
    AF_UNSPEC, MIB_IPFORWARD_ROW2, MIB_NOTIFICATION_TYPE, MIB_UNICASTIPADDRESS_ROW, NET_IFINDEX, NET_LUID,
    NL_DAD_STATE, PUNICAST_IPADDRESS_CHANGE_CALLBACK,
};
use ndkpi::{AF_INET, AF_INET6, NtStatus};
use wdk_bindings::PVOID;

use super::{
    ip_interface::InterfaceRow,
    routes,
    stack::{Net, Route, helper},
};
use crate::{
    argument::Argument,
    context::{self, DriverId},
    report::bug_check,
    rule::Rule,
    state::{Part, State},
    waiting,
};

/// `PIPINTERFACE_CHANGE_CALLBACK` and `PIPFORWARD_CHANGE_CALLBACK`.
type InterfaceCallback = unsafe extern "system" fn(PVOID, *mut InterfaceRow, MIB_NOTIFICATION_TYPE);
type RouteCallback = unsafe extern "system" fn(PVOID, *mut MIB_IPFORWARD_ROW2, MIB_NOTIFICATION_TYPE);

/// What a registration is for.
#[derive(Clone, Copy)]
enum Callback {
    Address(PUNICAST_IPADDRESS_CHANGE_CALLBACK),
    Interface(InterfaceCallback),
    Route(RouteCallback),
}

/// What changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Address,
    Interface,
    Route,
}

impl Callback {
    const fn subject(self) -> Subject {
        match self {
            Self::Address(_) => Subject::Address,
            Self::Interface(_) => Subject::Interface,
            Self::Route(_) => Subject::Route,
        }
    }
}

const fn family_of(address: IpAddr) -> u16 {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

/// A registration.
struct Listener {
    owner: DriverId,
    family: u16,
    callback: Callback,
    context: Argument,
    /// Callbacks that were begun.
    begun: AtomicU32,
    /// Callbacks that run.
    running: AtomicU32,
    gone: AtomicBool,
}

/// All registrations, by handle.
#[derive(Default)]
pub struct Listeners {
    all: LiteMap<usize, Arc<Listener>>,
}

impl Part for Mutex<Listeners> {}

impl Listeners {
    /// Returns true if a driver is registered.
    pub fn left_by(&self, owner: DriverId) -> bool {
        self.all.values().any(|listener| listener.owner == owner)
    }
}

impl Listener {
    /// Returns true if it is for changes of that kind in that family.
    fn is_for(&self, subject: Subject, family: u16) -> bool {
        self.callback.subject() == subject && [AF_UNSPEC, family].contains(&self.family)
    }

    /// Tells of a row of the kind that the registration is for; null at the beginning.
    fn tell(&self, state: &State, row: *mut c_void, kind: MIB_NOTIFICATION_TYPE) {
        self.running.fetch_add(1, SeqCst);
        if !self.gone.load(SeqCst) {
            let raised = self.begun.fetch_add(1, Relaxed) % 2 == 1;
            let before = raised.then(|| machine::raise(Irql::DISPATCH_LEVEL));
            let context = self.context.pointer("a callback for changes of the network");
            context::call(self.owner, "a callback for changes of the network", || {
                match self.callback {
                    // SAFETY: the driver's own routine and context, and null or a row that lives until the call returns.
                    Callback::Address(callback) => unsafe { callback(context, row.cast(), kind) },
                    // SAFETY: the driver's own routine and context; null or a row that lives until the call returns.
                    Callback::Interface(callback) => unsafe { callback(context, row.cast(), kind) },
                    // SAFETY: the driver's own routine and context; null or a row that lives until the call returns.
                    Callback::Route(callback) => unsafe { callback(context, row.cast(), kind) },
                }
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
        let family = family_of(address);
        let (all, luid) = {
            let all: Vec<_> = self.locked::<Listeners>().all.values().cloned().collect();
            (all, self.locked::<Net>().luid(index))
        };
        for listener in all.iter().filter(|listener| listener.is_for(Subject::Address, family)) {
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
            listener.tell(self, (&raw mut row).cast(), kind);
        }
    }

    /// Tells everybody of a change of an interface, once for each family of addresses that it has.
    pub fn tell_of_interface(&self, index: NET_IFINDEX, luid: NET_LUID, kind: MIB_NOTIFICATION_TYPE) {
        let all: Vec<_> = self.locked::<Listeners>().all.values().cloned().collect();
        for family in [AF_INET, AF_INET6] {
            for listener in all.iter().filter(|listener| listener.is_for(Subject::Interface, family)) {
                // Only these three fields are documented to be filled in.
                let mut row = InterfaceRow::of(family, luid, index, 0xCC);
                listener.tell(self, (&raw mut row).cast(), kind);
            }
        }
    }

    /// Tells everybody of a route that comes or goes.
    pub fn tell_of_route(&self, route: &Route, kind: MIB_NOTIFICATION_TYPE) {
        let row = routes::row(&self.locked::<Net>(), route);
        let all: Vec<_> = self.locked::<Listeners>().all.values().cloned().collect();
        for listener in all.iter().filter(|listener| listener.is_for(Subject::Route, family_of(route.prefix))) {
            // Of the others it is not documented what is in them.
            let mut row = MIB_IPFORWARD_ROW2 { ValidLifetime: 0xCCCC_CCCC, Metric: 0xCCCC_CCCC, Protocol: -1, ..row };
            listener.tell(self, (&raw mut row).cast(), kind);
        }
    }

    fn listen(
        &self,
        (family, callback): (u16, Option<Callback>),
        context: PVOID,
        initial: bool,
        handle: *mut PVOID,
    ) -> NtStatus {
        let Some(callback) = callback.filter(|_| !handle.is_null()) else { return NtStatus::INVALID_PARAMETER };
        if ![AF_UNSPEC, AF_INET, AF_INET6].contains(&family) {
            return NtStatus::INVALID_PARAMETER;
        }
        if self.strikes() {
            return NtStatus::NO_MEMORY;
        }
        let listener = Arc::new(Listener {
            owner: context::caller(),
            family,
            callback,
            context: Argument::of(context),
            begun: AtomicU32::new(0),
            running: AtomicU32::new(0),
            gone: AtomicBool::new(false),
        });
        let number = usize::try_from(self.next()).unwrap_or(0) * 64;
        self.locked::<Listeners>().all.insert(number, listener.clone());
        // The first may run before the driver has its handle.
        if initial {
            listener.tell(self, std::ptr::null_mut(), MIB_NOTIFICATION_TYPE::INITIAL);
        }
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { handle.write(std::ptr::without_provenance_mut(number)) };
        NtStatus::SUCCESS
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
        state.listen((family, callback.map(Callback::Address)), caller, initial != 0, handle)
    })
}

#[unsafe(no_mangle)]
extern "system" fn NotifyIpInterfaceChange(
    family: u16,
    callback: Option<InterfaceCallback>,
    caller: PVOID,
    initial: u8,
    handle: *mut PVOID,
) -> NtStatus {
    helper!("NotifyIpInterfaceChange", |state| {
        state.listen((family, callback.map(Callback::Interface)), caller, initial != 0, handle)
    })
}

#[unsafe(no_mangle)]
extern "system" fn NotifyRouteChange2(
    family: u16,
    callback: Option<RouteCallback>,
    caller: PVOID,
    initial: u8,
    handle: *mut PVOID,
) -> NtStatus {
    helper!("NotifyRouteChange2", |state| {
        state.listen((family, callback.map(Callback::Route)), caller, initial != 0, handle)
    })
}

#[unsafe(no_mangle)]
extern "system" fn CancelMibChangeNotify2(handle: PVOID) -> NtStatus {
    helper!("CancelMibChangeNotify2", |state| {
        let Some(listener) = state.locked::<Listeners>().all.remove(&handle.addr()) else {
            bug_check(Rule::BadHandle, format_args!("{handle:p} is no registration for changes of the network"));
        };
        listener.gone.store(true, SeqCst);
        let idle = || listener.running.load(SeqCst) == 0;
        waiting::until(state, None, "CancelMibChangeNotify2, for callbacks that run", idle);
        NtStatus::SUCCESS
    })
}

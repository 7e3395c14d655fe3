//! Registration and capture.

use std::sync::Arc;

use host::machine::Irql;
use litemap::LiteMap;
use ndis::{
    IRP, WSK_CLIENT_NPI, WSK_INFINITE_WAIT, WSK_NO_WAIT, WSK_PROVIDER_DISPATCH, WSK_PROVIDER_NPI, WSK_REGISTRATION,
    WSK_SET_STATIC_EVENT_CALLBACKS, WSK_VERSION_1_0,
};
use ndkpi::{NtStatus, WSK_CLIENT, WSK_PROVIDER_NDK_DISPATCH, WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH};
use wdk_bindings::{DRIVER_OBJECT, IRP_MJ_MAXIMUM_FUNCTION, PVOID};

use super::{
    buffer::present,
    clients::{Client, Clients, captured, is_deregistered, with},
    clockwork::{self, Clockwork},
    control, names, ndk, socket,
    sockets::Sockets,
};
use crate::{
    context::{self, NOBODY},
    report::bug_check,
    routine::{Limit, carry_out},
    rule::Rule,
    state::State,
    tracked::{Kind, Object},
    waiting::{self, Wait},
    wdm::clock,
};

static FUNCTIONS: WSK_PROVIDER_DISPATCH = WSK_PROVIDER_DISPATCH {
    Version: WSK_VERSION_1_0,
    Reserved: 0,
    WskSocket: Some(socket::socket),
    WskSocketConnect: Some(socket::socket_connect),
    WskControlClient: Some(control_client),
    WskGetAddressInfo: Some(names::get_address_info),
    WskFreeAddressInfo: Some(names::free_address_info),
    WskGetNameInfo: Some(names::get_name_info),
};

#[unsafe(no_mangle)]
extern "system" fn WskRegister(npi: *const WSK_CLIENT_NPI, registration: *mut WSK_REGISTRATION) -> NtStatus {
    carry_out("WskRegister", &Limit::at(Irql::PASSIVE_LEVEL), |state| {
        present(npi.addr(), "the client");
        present(registration.addr(), "the registration");
        // SAFETY: the driver's structure, which lives until the call returns.
        let npi = unsafe { npi.read() };
        present(npi.Dispatch.addr(), "the client's dispatch table");
        // SAFETY: the driver's structure, which lives until the client is deregistered.
        let dispatch = unsafe { npi.Dispatch.read() };
        if dispatch.Reserved != 0 {
            bug_check(Rule::BadArgument, format_args!("a reserved field of WSK_CLIENT_DISPATCH is not zero"));
        }
        if dispatch.Version != WSK_VERSION_1_0 {
            return NtStatus::NOINTERFACE;
        }
        if state.strikes() {
            return NtStatus::INSUFFICIENT_RESOURCES;
        }
        if state.locked::<Clients>().registered(registration.addr()).is_some() {
            bug_check(Rule::BadArgument, format_args!("{registration:p} is registered already"));
        }
        let number = usize::try_from(state.next()).unwrap_or(0) * 64;
        let of_system: &'static mut DRIVER_OBJECT = Box::leak(Box::new(DRIVER_OBJECT::default()));
        let client = Client {
            owner: context::caller(),
            registration: registration.addr(),
            is_leaving: false,
            captured: 0,
            adapters: LiteMap::new(),
            device: state.create_physical_device(of_system, [None; IRP_MJ_MAXIMUM_FUNCTION as usize + 1]),
            static_events: 0,
        };
        let clockwork = Clockwork::try_new(&state.machine).map(Arc::new);
        let mut clients = state.locked::<Clients>();
        clockwork::begin(state, clockwork.ok());
        clients.add(number, client);
        // SAFETY: the driver's memory, which is Winsock Kernel's until the client is deregistered.
        unsafe { (*registration).ReservedRegistrationState = number as u64 };
        drop(clients);
        state.track(registration.expose_provenance(), NOBODY, Object::plain(Kind::Registration));
        NtStatus::SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "system" fn WskDeregister(registration: *mut WSK_REGISTRATION) {
    carry_out("WskDeregister", &Limit::at(Irql::PASSIVE_LEVEL), |state| {
        let number = with(state, registration, |number, client| {
            client.is_leaving = true;
            number
        });
        // Captures that wait are over.
        state.dispatcher.signal();
        // Another thread may release what it has captured, and close its sockets.
        let wait = Wait {
            rule: Some(Rule::WskNotReleased),
            ..Wait::from("WskDeregister, for what is captured and not released")
        };
        waiting::until(state, None, wait, || {
            state.locked::<Clients>().registered.get(&number).is_none_or(|client| client.captured == 0)
        });
        let wait =
            Wait { rule: Some(Rule::WskSocketsOpen), ..Wait::from("WskDeregister, for sockets that are not closed") };
        waiting::until(state, None, wait, || {
            state.locked::<Sockets>().0.values().all(|socket| socket.client != number)
        });
        let (gone, clockwork) = {
            let mut clients = state.locked::<Clients>();
            let gone = clients.remove(number);
            (gone, clockwork::end(state))
        };
        drop(clockwork);
        if let Some(gone) = gone {
            state.delete_physical_device(&gone.device);
        }
        state.untrack_and_remember(registration.addr(), Kind::Registration, ", and deregistered since");
    });
}

#[unsafe(no_mangle)]
extern "system" fn WskCaptureProviderNPI(
    registration: *mut WSK_REGISTRATION,
    timeout: u32,
    npi: *mut WSK_PROVIDER_NPI,
) -> NtStatus {
    let limit = if timeout == WSK_NO_WAIT { Irql::DISPATCH_LEVEL } else { Irql::PASSIVE_LEVEL };
    carry_out("WskCaptureProviderNPI", &Limit::at(limit), |state| {
        present(npi.addr(), "the place for the provider");
        if is_deregistered(state, registration) {
            return NtStatus::DEVICE_NOT_READY;
        }
        let _ = with(state, registration, |number, _| number);
        let end = match timeout {
            WSK_NO_WAIT => Some(0),
            WSK_INFINITE_WAIT => None,
            milliseconds => Some(clock::known(state).saturating_add(u64::from(milliseconds) * 1_000)),
        };
        let mut is_leaving = false;
        let there = waiting::until(state, end, "WskCaptureProviderNPI", || {
            is_leaving = is_deregistered(state, registration);
            is_leaving || !state.locked::<Clients>().absent
        });
        if !there || is_leaving || state.strikes() {
            return NtStatus::DEVICE_NOT_READY;
        }
        let client = with(state, registration, |number, client| {
            client.captured += 1;
            number
        });
        let captured =
            WSK_PROVIDER_NPI { Client: std::ptr::without_provenance_mut(client), Dispatch: &raw const FUNCTIONS };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { npi.write(captured) };
        NtStatus::SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "system" fn WskReleaseProviderNPI(registration: *mut WSK_REGISTRATION) {
    carry_out("WskReleaseProviderNPI", &Limit::at(Irql::DISPATCH_LEVEL), |state| {
        let (left, open) = with(state, registration, |_, client| {
            let left = client.captured.checked_sub(1);
            client.captured = left.unwrap_or(0);
            (left, client.adapters.len())
        });
        match left {
            None => bug_check(
                Rule::ReferenceUnderflow,
                format_args!("the provider of Winsock Kernel is released without being captured"),
            ),
            Some(0) if open > 0 => bug_check(
                Rule::WskAdaptersOpen,
                format_args!("the provider of Winsock Kernel is released while {open} NDK adapters are open"),
            ),
            Some(_) => {}
        }
        state.dispatcher.signal();
    });
}

unsafe extern "system" fn control_client(
    client: *mut WSK_CLIENT,
    code: u32,
    input_size: usize,
    input: PVOID,
    output_size: usize,
    output: PVOID,
    returned: *mut usize,
    irp: *mut IRP,
) -> NtStatus {
    carry_out("WskControlClient", &Limit::at(Irql::DISPATCH_LEVEL), |state| {
        captured(state, client, "WskControlClient");
        if code == WSK_SET_STATIC_EVENT_CALLBACKS {
            return set_static_events(state, client, control::events_of(input_size, input, "static events"), irp);
        }
        if code != WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH {
            bug_check(Rule::NotSimulated, format_args!("the control code {code:#x} of Winsock Kernel"));
        }
        if !irp.is_null() {
            bug_check(Rule::NotSimulated, format_args!("WskControlClient with an IRP"));
        }
        if output_size != size_of::<WSK_PROVIDER_NDK_DISPATCH>() || output.is_null() {
            return NtStatus::INVALID_PARAMETER;
        }
        // SAFETY: the driver's place of that size, which lives until the call returns.
        unsafe { output.cast::<WSK_PROVIDER_NDK_DISPATCH>().write_unaligned(ndk::FUNCTIONS) };
        if !returned.is_null() {
            // SAFETY: the driver's place, which lives until the call returns.
            unsafe { returned.write(output_size) };
        }
        NtStatus::SUCCESS
    })
}

/// Has events enabled on every socket that the client will make.
fn set_static_events(state: &State, client: *mut WSK_CLIENT, mask: u32, irp: *mut IRP) -> NtStatus {
    if !irp.is_null() {
        bug_check(Rule::WskIrp, format_args!("WSK_SET_STATIC_EVENT_CALLBACKS with an IRP"));
    }
    let has_sockets = state.locked::<Sockets>().0.values().any(|socket| socket.client == client.addr());
    if has_sockets {
        bug_check(Rule::WskSocketState, format_args!("WSK_SET_STATIC_EVENT_CALLBACKS of a client that has sockets"));
    }
    if let Some(client) = state.locked::<Clients>().registered.get_mut(&client.addr()) {
        client.static_events |= mask;
    }
    NtStatus::SUCCESS
}

//! Adapters, opened by the index of their interface.

use std::sync::Arc;

use host::machine::Irql;
use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus, WSK_CLIENT, WSK_PROVIDER_NDK_DISPATCH};

use super::clients::{Clients, captured};
use crate::{
    report::bug_check,
    routine::{Limit, carry_out},
    rule::Rule,
};

/// What `WskControlClient` copies out.
pub const FUNCTIONS: WSK_PROVIDER_NDK_DISPATCH =
    WSK_PROVIDER_NDK_DISPATCH { WskOpenNdkAdapter: Some(open), WskCloseNdkAdapter: Some(close) };

unsafe extern "system" fn open(
    client: *mut WSK_CLIENT,
    version: NDK_VERSION,
    index: u32,
    adapter: *mut *mut NDK_ADAPTER,
) -> NtStatus {
    carry_out("WskOpenNdkAdapter", &Limit::at(Irql::PASSIVE_LEVEL), |state| {
        captured(state, client, "WskOpenNdkAdapter");
        if adapter.is_null() {
            bug_check(Rule::BadArgument, format_args!("WskOpenNdkAdapter without a place for the adapter"));
        }
        let provider = match state.ndk_of(index) {
            Ok(provider) => provider,
            Err(status) => return status,
        };
        let opened = match provider.open(version) {
            Ok(opened) => opened,
            Err(status) => return status,
        };
        let mut clients = state.locked::<Clients>();
        if let Some(client) = clients.registered.get_mut(&client.addr()) {
            client.adapters.insert(opened.addr(), provider);
        }
        drop(clients);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { adapter.write(opened) };
        NtStatus::SUCCESS
    })
}

unsafe extern "system" fn close(client: *mut WSK_CLIENT, adapter: *mut NDK_ADAPTER) {
    carry_out("WskCloseNdkAdapter", &Limit::at(Irql::PASSIVE_LEVEL), |state| {
        captured(state, client, "WskCloseNdkAdapter");
        let of = |clients: &Clients| {
            clients
                .registered
                .get(&client.addr())
                .and_then(|client| client.adapters.get(&adapter.addr()).map(Arc::clone))
        };
        let Some(provider) = of(&state.locked::<Clients>()) else {
            bug_check(Rule::BadHandle, format_args!("{adapter:p} is no adapter that the client has open"));
        };
        // SAFETY: the provider opened this adapter, and the client does not use it any more.
        unsafe { provider.close(adapter) };
        let mut clients = state.locked::<Clients>();
        let gone =
            clients.registered.get_mut(&client.addr()).and_then(|client| client.adapters.remove(&adapter.addr()));
        drop(clients);
        drop(gone);
    });
}

//! Winsock Kernel, as far as a consumer of NDK needs it: clients that register, capture the provider, and open adapters.

#![allow(non_snake_case, reason = "names of the C headers")]

mod absent;
mod client;
mod ndk;

use std::{collections::BTreeMap, sync::Arc};

use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus};

use crate::{
    context::DriverId,
    kernel::{State, lock},
    report::bug_check,
    rule::Rule,
};

/// What answers the opening of NDK adapters on an interface: a miniport's handlers, or what a test has instead.
pub trait NdkProvider: Send + Sync {
    /// Opens an adapter. At `PASSIVE_LEVEL`; the status passes through to the client.
    ///
    /// # Errors
    ///
    /// What the provider says.
    fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus>;

    /// Closes it. At `PASSIVE_LEVEL`; waits until everything that was made of it is closed.
    ///
    /// # Safety
    ///
    /// `adapter` came from [`NdkProvider::open`] of this provider, and is not used after the call.
    unsafe fn close(&self, adapter: *mut NDK_ADAPTER);
}

/// What Winsock Kernel keeps.
#[derive(Default)]
pub struct Wsk {
    /// Not there yet, so that captures have to wait.
    absent: bool,
    /// By the number that stands for the client.
    clients: BTreeMap<usize, Client>,
}

/// A client that is registered.
struct Client {
    owner: DriverId,
    /// The address of its registration.
    registration: usize,
    /// How often it has captured the provider and not released it.
    captured: u32,
    /// What it has open.
    adapters: BTreeMap<usize, Arc<dyn NdkProvider>>,
}

impl Wsk {
    /// Sets if captures succeed at once.
    pub const fn set_ready(&mut self, ready: bool) {
        self.absent = !ready;
    }

    /// How many adapters are open.
    pub fn open_adapters(&self) -> usize {
        self.clients.values().map(|client| client.adapters.len()).sum()
    }

    /// The client with this registration.
    fn registered(&mut self, registration: usize) -> Option<(usize, &mut Client)> {
        let mut all = self.clients.iter_mut().map(|(&number, client)| (number, client));
        all.find(|(_, client)| client.registration == registration)
    }
}

impl State {
    /// A driver is unloaded: its clients must have deregistered.
    pub fn check_wsk(&self, owner: DriverId, name: &str) {
        let wsk = lock(&self.wsk);
        let Some(client) = wsk.clients.values().find(|client| client.owner == owner) else { return };
        let what = if client.captured > 0 { "the provider of Winsock Kernel captured" } else { "a client registered" };
        bug_check(Rule::ReferenceLeak, format_args!("driver {name} left {what}"));
    }
}

//! Clients that are registered, and what they have.

use std::sync::{Arc, Mutex};

use host::machine;
use litemap::LiteMap;
use ndis::WSK_REGISTRATION;
use ndkpi::WSK_CLIENT;

use super::buffer::present;
use crate::{
    context::{self, DriverId},
    ndk_provider::NdkProvider,
    netio::network::Network,
    report::bug_check,
    rule::Rule,
    state::{Part, State},
    tracked::Kind,
    wdm::io::device::Device,
};

/// The clients.
#[derive(Default)]
pub struct Clients {
    /// Winsock Kernel is not there yet, so that captures have to wait.
    pub absent: bool,
    /// By the number that stands for the client.
    pub registered: LiteMap<usize, Client>,
    /// Those that are not registered any more, by the addresses of their registrations.
    deregistered: LiteMap<usize, usize>,
}

impl Part for Mutex<Clients> {}

/// A client that is registered.
pub struct Client {
    pub owner: DriverId,
    /// The address of its registration.
    pub registration: usize,
    /// Its deregistration has begun: it captures no more.
    pub is_leaving: bool,
    /// How often it has captured the provider and not released it.
    pub captured: u32,
    /// What it has open.
    pub adapters: LiteMap<usize, Arc<dyn NdkProvider>>,
    /// Takes the IRPs of its requests.
    pub device: Arc<Device>,
    /// The events that are enabled on every socket.
    pub static_events: u32,
}

impl Clients {
    /// The client with this registration.
    pub fn registered(&mut self, registration: usize) -> Option<(usize, &mut Client)> {
        let mut all = self.registered.iter_mut().map(|(&number, client)| (number, client));
        all.find(|(_, client)| client.registration == registration)
    }

    /// A client is there.
    pub fn add(&mut self, number: usize, client: Client) {
        self.deregistered.remove(&client.registration);
        self.registered.insert(number, client);
    }

    /// A client has deregistered.
    pub fn remove(&mut self, number: usize) -> Option<Client> {
        let gone = self.registered.remove(&number)?;
        self.deregistered.insert(gone.registration, number);
        Some(gone)
    }
}

impl Network {
    /// Winsock Kernel is not there yet, or has come.
    pub fn set_wsk_ready(&self, ready: bool) {
        let _inside = context::Inside::new("the network stack");
        self.state().locked::<Clients>().absent = !ready;
        self.state().dispatcher.signal();
    }

    /// How many NDK adapters are open through Winsock Kernel.
    #[must_use]
    pub fn open_ndk_adapters(&self) -> usize {
        self.state().locked::<Clients>().registered.values().map(|client| client.adapters.len()).sum()
    }
}

impl State {
    /// A driver is unloaded: its clients must have deregistered.
    pub fn check_wsk(&self, owner: DriverId, name: &str) {
        self.check_names(owner, name);
        let clients = self.locked::<Clients>();
        let Some(client) = clients.registered.values().find(|client| client.owner == owner) else { return };
        let what = if client.captured > 0 { "the provider of Winsock Kernel captured" } else { "a client registered" };
        bug_check(Rule::ReferenceLeak, format_args!("driver {name} left {what}"));
    }
}

/// Returns true if the deregistration of a client has begun, or is over and its registration neither freed nor overwritten since: then a
/// capture fails, and is no mistake.
pub fn is_deregistered(state: &State, registration: *mut WSK_REGISTRATION) -> bool {
    present(registration.addr(), "the registration");
    let mut clients = state.locked::<Clients>();
    if let Some((_, client)) = clients.registered(registration.addr()) {
        return client.is_leaving;
    }
    let Some(&number) = clients.deregistered.get(&registration.addr()) else { return false };
    drop(clients);
    // SAFETY: the driver says that there is one. Free memory of the pool can be read, and has other bytes.
    let kept = unsafe { (*registration).ReservedRegistrationState };
    kept == number as u64
}

/// Does something with the client of a registration.
pub fn with<R>(state: &State, registration: *mut WSK_REGISTRATION, work: impl FnOnce(usize, &mut Client) -> R) -> R {
    present(registration.addr(), "the registration");
    if state.is_tracked(registration.addr(), Kind::Registration) {
        drop(state.find(registration.addr(), Kind::Registration));
    } else {
        state.check_moved(registration.addr(), Kind::Registration);
    }
    let mut clients = state.locked::<Clients>();
    let Some((number, client)) = clients.registered(registration.addr()) else {
        bug_check(Rule::BadHandle, format_args!("{registration:p} is no registration with Winsock Kernel"));
    };
    work(number, client)
}

/// Ends the test unless the client has the provider captured.
pub fn captured(state: &State, client: *mut WSK_CLIENT, routine: &str) {
    let has = state.locked::<Clients>().registered.get(&client.addr()).is_some_and(|client| client.captured > 0);
    if !has {
        bug_check(
            Rule::BadHandle,
            format_args!("{routine} at {}, without the provider of Winsock Kernel captured", machine::current_irql()),
        );
    }
}

//! Winsock Kernel: clients that register and capture the provider, the adapters that they open, and their datagram sockets.

#![allow(non_snake_case, reason = "names of the C headers")]

mod absent;
mod buffer;
mod client;
mod clockwork;
mod control;
mod indication;
mod medium;
mod ndk;
mod pins;
mod receive;
mod request;
mod send;
mod socket;

use std::{collections::BTreeMap, sync::Arc};

use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus};

use self::{
    client::{captured, present},
    clockwork::Clockwork,
    medium::Carrier,
    socket::Socket,
};
pub use self::{medium::Medium, pins::Pins};
use crate::{
    context::DriverId,
    kernel::{State, lock},
    report::bug_check,
    rule::Rule,
    wdm::Device,
};
pub use network::Impairment;

/// The longest datagram, in bytes: of UDP over IPv4.
const LONGEST: usize = 65_507;

// What `ndkpi` has no names for.
const EVENT_PENDING: NtStatus = NtStatus::from_bits(0x4000_0013);
const FILE_FORCED_CLOSED: NtStatus = NtStatus::from_bits(0xC000_00B6);
const CANCELLED: NtStatus = NtStatus::from_bits(0xC000_0120);
const INVALID_DEVICE_STATE: NtStatus = NtStatus::from_bits(0xC000_0184);
const INVALID_BUFFER_SIZE: NtStatus = NtStatus::from_bits(0xC000_0206);
const INVALID_ADDRESS_COMPONENT: NtStatus = NtStatus::from_bits(0xC000_0207);
const ADDRESS_ALREADY_EXISTS: NtStatus = NtStatus::from_bits(0xC000_020A);
const DATA_NOT_ACCEPTED: NtStatus = NtStatus::from_bits(0xC000_021B);

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
    /// By the address of the structure.
    sockets: BTreeMap<usize, Socket>,
    /// How many requests of a socket are not complete.
    pended: BTreeMap<usize, u32>,
    carrier: Carrier,
    /// There while there are clients.
    clockwork: Option<Arc<Clockwork>>,
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
    /// Takes the IRPs of its requests.
    device: Arc<Device>,
    /// The event of datagrams is enabled on every socket.
    has_static_event: bool,
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

//! The second finder: adapters of any vendor, by their network interface, through Winsock Kernel.

mod choice;
mod list;
mod table;
mod watch;
mod wsk;

use alloc::vec::Vec;
use core::net::IpAddr;

pub use control::network::machine;
use control::network::{Begun, Problem};
use fallible::Arc;
use ndis::{NET_IFINDEX, NET_LUID};
use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus};

pub use self::{list::describe, watch::Watch, wsk::Client};
use crate::{adapter::Adapter, run::Run};

/// Versions to ask for, the best first. A provider answers with its highest minor version.
const VERSIONS: [NDK_VERSION; 4] = [NDK_VERSION::V2_1, NDK_VERSION::V2_0, NDK_VERSION::V1_2, NDK_VERSION::V1_1];

/// As many addresses of an interface are looked at.
pub const ADDRESSES: usize = 8;

/// An interface that somebody has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    luid: NET_LUID,
    index: NET_IFINDEX,
    /// Its addresses that are preferred and can be connected to; the one that it was chosen by in front.
    addresses: [Option<IpAddr>; ADDRESSES],
}

/// Why there is no run.
pub enum Refused {
    /// A status for who has asked.
    Status(NtStatus),
    /// A problem of the interfaces.
    Problem(Begun),
}

impl From<NtStatus> for Refused {
    fn from(status: NtStatus) -> Self {
        Self::Status(status)
    }
}

/// A problem of the first interface.
#[must_use]
pub const fn problem(problem: Problem, status: NtStatus, index: NET_IFINDEX) -> Refused {
    Refused::Problem(Begun { problem: problem as u32, peer: 0, status: status.to_bits(), index })
}

impl Refused {
    /// The same, of the second interface or of the other machine.
    #[must_use]
    pub const fn of_peer(mut self) -> Self {
        if let Self::Problem(begun) = &mut self {
            begun.peer = 1;
        }
        self
    }
}

/// A network interface whose NDK adapter can be opened, as long as the client lives.
pub struct Port {
    client: Arc<Client>,
    chosen: Chosen,
}

impl Port {
    /// The adapter's addresses, as many as there are places.
    #[must_use]
    pub const fn addresses(&self) -> &[Option<IpAddr>; ADDRESSES] {
        &self.chosen.addresses
    }

    /// Opens the adapter.
    ///
    /// # Errors
    ///
    /// What Winsock Kernel or the provider answers.
    pub fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        self.client.open(version, self.chosen.index)
    }

    /// Closes the adapter. Waits until everything that was made of it is closed.
    ///
    /// # Safety
    ///
    /// `adapter` came from [`Port::open`] of this port and is not used after this call.
    pub unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        // SAFETY: `adapter` came from `open`, which this client served, and is not used after this call (`# Safety`).
        unsafe { self.client.close(adapter) };
    }
}

/// What a run on interfaces needs. The order of the fields is that in which they have to go.
pub struct Ports {
    /// One or two.
    pub adapters: Vec<Adapter>,
    /// The version that both can be opened with.
    pub version: NDK_VERSION,
    /// Ends the run when an address goes.
    pub watch: Watch,
    /// The index of the first interface.
    pub index: NET_IFINDEX,
}

/// Chooses the interfaces, and looks whether their adapters open, with this major version or with any for 0.
///
/// # Errors
///
/// What is wrong with which of them.
pub fn choose(run: &Arc<Run>, interface: &str, peer: &str, major: u32) -> Result<Ports, Refused> {
    let client = Client::try_new().map_err(|status| problem(Problem::NoWinsock, status, 0))?;
    let pick = || -> Result<[Option<Chosen>; 2], Refused> {
        let one = choice::find(interface)?;
        if peer.is_empty() {
            return Ok([Some(one), None]);
        }
        let two = choice::find(peer).map_err(Refused::of_peer)?;
        let (one, two) = choice::connect(one, two)?;
        Ok([Some(one), Some(two)])
    };
    let chosen = pick()?;
    let watch = Watch::start(run, &chosen)?;
    // An address that went before it was watched.
    if pick()? != chosen {
        return Err(NtStatus::DEVICE_BUSY.into());
    }
    let (mut adapters, mut index) = (Vec::new(), 0);
    adapters.try_reserve_exact(2).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
    let mut version = VERSIONS[0];
    for (number, chosen) in chosen.into_iter().flatten().enumerate() {
        let port = Port { client: client.clone(), chosen };
        let opened = best_version(&client, chosen.index, major);
        let refused = |status| problem(Problem::NoNdk, status, chosen.index);
        let opened = opened.map_err(refused).map_err(|refused| if number > 0 { refused.of_peer() } else { refused })?;
        if number == 0 {
            (version, index) = (opened, chosen.index);
        } else {
            // The lower of both, with which both open unless their majors differ.
            version = version.min(opened);
        }
        adapters.push(Adapter::Port(port));
    }
    Ok(Ports { adapters, version, watch, index })
}

/// The best version with which the adapter opens, of this major version or of any for 0.
///
/// # Errors
///
/// It opens with none: what was said to the first.
fn best_version(client: &Client, index: NET_IFINDEX, major: u32) -> Result<NDK_VERSION, NtStatus> {
    let mut first = None;
    for version in VERSIONS.into_iter().filter(|version| major == 0 || u32::from(version.Major) == major) {
        match client.open(version, index) {
            Ok(adapter) => {
                // SAFETY: it was just opened, and nobody else knows it.
                unsafe { client.close(adapter) };
                return Ok(version);
            }
            Err(status) => {
                first.get_or_insert(status);
            }
        }
    }
    Err(first.unwrap_or(NtStatus::NOT_SUPPORTED))
}

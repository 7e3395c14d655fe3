//! What adapters tell programs of themselves, as the control codes of `control::provider_device` have it.

use alloc::vec::Vec;

use control::provider_device::{INFO_TEST_BUILD, Info};
use engine::connection::Owner;
use fallible::Arc;
use ndkpi::{NDIS_NDK_CONNECTION_ENTRY, NtStatus};

use crate::{consumers::Consumers, faults, os::Kernel, socket};

/// The adapter of a driver.
pub type Device = Arc<provider::Device<Kernel>>;

/// The answer to `QUERY_INFO`.
pub fn info<'a>(adapters: impl Iterator<Item = &'a Consumers> + Clone) -> Info {
    const fn part(text: &str) -> u32 {
        match u32::from_str_radix(text, 10) {
            Ok(number) => number,
            Err(_) => panic!("cargo's versions are numbers"),
        }
    }
    const VERSION: u32 = part(env!("CARGO_PKG_VERSION_MAJOR")) << 20
        | part(env!("CARGO_PKG_VERSION_MINOR")) << 10
        | part(env!("CARGO_PKG_VERSION_PATCH"));
    let highest = ndkpi::NDK_VERSION::V2_1;
    Info {
        interface_version: u32::from(control::SOFTNDK_INTERFACE_VERSION),
        driver_version: VERSION,
        ndk_version: u32::from(highest.Major) << 16 | u32::from(highest.Minor),
        flags: if faults::AVAILABLE { INFO_TEST_BUILD } else { 0 },
        adapters: adapters.clone().map(|adapter| u32::from(adapter.is_ready())).sum(),
        open_adapters: adapters.map(Consumers::open_count).sum(),
        processors: engine::os::Os::processors(&Kernel),
        reserved: 0,
    }
}

/// The answer to `QUERY_COUNTERS`: `NDIS_NDK_PERFORMANCE_COUNTERS`, thirty numbers, the sum over the adapters.
pub fn counters<'a>(adapters: impl Iterator<Item = &'a Device>) -> [u8; 240] {
    let mut sum = [0_u64; 30];
    for adapter in adapters {
        let one = adapter.counters();
        let known = [
            (0, one.Connect),
            (1, one.Accept),
            (2, one.ConnectFailure),
            (3, one.ConnectionError),
            (4, one.ActiveConnection),
            (25, one.CQError),
            (26, one.RDMAInOctets),
            (27, one.RDMAOutOctets),
            (28, one.RDMAInFrames),
            (29, one.RDMAOutFrames),
        ];
        for (index, count) in known {
            sum[index] += count;
        }
    }
    let mut bytes = [0; 240];
    for (place, number) in bytes.chunks_exact_mut(8).zip(sum) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// `UserModeOwner` and `OwnerPid` of an entry.
#[must_use]
pub const fn owner(owner: Owner) -> (u8, [u8; 4]) {
    match owner.process {
        Some(process) => (1, process.to_le_bytes()),
        None => (0, [0; 4]),
    }
}

/// The answer to `QUERY_CONNECTIONS`: `NDIS_NDK_CONNECTIONS` of the adapters together.
///
/// # Errors
///
/// `STATUS_INSUFFICIENT_RESOURCES`.
pub fn connections<'a>(adapters: impl Iterator<Item = &'a Device>) -> Result<Vec<u8>, NtStatus> {
    const HEADER: usize = 16;
    const ENTRY: usize = size_of::<NDIS_NDK_CONNECTION_ENTRY>();
    let mut bytes = Vec::new();
    let no_memory = |_| NtStatus::INSUFFICIENT_RESOURCES;
    bytes.try_reserve(HEADER).map_err(no_memory)?;
    bytes.resize(HEADER, 0);
    for adapter in adapters {
        adapter.port().connections(|connection| {
            bytes.try_reserve(ENTRY).map_err(no_memory)?;
            bytes.extend_from_slice(&socket::bytes(connection.local));
            bytes.extend_from_slice(&socket::bytes(connection.remote));
            let (user_mode, process) = owner(connection.owner);
            bytes.extend_from_slice(&[user_mode, 0, 0, 0]);
            bytes.extend_from_slice(&process);
            Ok::<_, NtStatus>(())
        })?;
    }
    let count = (bytes.len() - HEADER) / ENTRY;
    let size = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    bytes[0] = ndkpi::NDIS_OBJECT_TYPE_DEFAULT;
    bytes[1] = ndkpi::NDIS_NDK_CONNECTIONS_REVISION_1;
    bytes[2..4].copy_from_slice(&size.to_le_bytes());
    bytes[8..12].copy_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    Ok(bytes)
}

//! What adapters tell programs of themselves, as the control codes of `control::provider_device` have it.

use alloc::vec::Vec;

use control::provider_device::{INFO_TEST_BUILD, Info, Wire, Wires};
use engine::connection::Owner;
use fallible::Arc;
use ndkpi::{NDIS_NDK_CONNECTION_ENTRY, NDIS_NDK_CONNECTIONS_REVISION_1, NDIS_OBJECT_TYPE_DEFAULT, NtStatus};
use zerocopy::{
    Immutable, IntoBytes,
    little_endian::{U16, U32, U64},
};

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
    zerocopy::transmute!(sum.map(U64::new))
}

/// The answer to `QUERY_WIRES`. Each wire is made when its turn comes: several would be much for a kernel's stack.
///
/// # Errors
///
/// `STATUS_INSUFFICIENT_RESOURCES`.
pub fn wires(wires: impl Iterator<Item = impl FnOnce() -> Wire>) -> Result<Vec<u8>, NtStatus> {
    let mut bytes = Vec::new();
    let mut put = |part: &[u8]| {
        bytes.try_reserve(part.len()).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        bytes.extend_from_slice(part);
        Ok::<_, NtStatus>(())
    };
    put(&[0; Wires::BYTES])?;
    let mut count = 0;
    for wire in wires {
        put(wire().as_bytes())?;
        count += 1;
    }
    let head = Wires { count, bytes: u32::try_from(Wire::BYTES).unwrap_or(u32::MAX) };
    bytes[..Wires::BYTES].copy_from_slice(&head.to_bytes());
    Ok(bytes)
}

/// `UserModeOwner` and `OwnerPid` of an entry.
#[must_use]
pub const fn owner(owner: Owner) -> (u8, [u8; 4]) {
    match owner.process {
        Some(process) => (1, process.to_le_bytes()),
        None => (0, [0; 4]),
    }
}

/// `NDIS_NDK_CONNECTIONS` in front of its entries.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Head {
    kind: u8,
    revision: u8,
    size: U16,
    flags: U32,
    count: U32,
    /// `NDConnectionsMappedtoTCPConnections`.
    are_mapped: u8,
    reserved: [u8; 3],
}

/// `NDIS_NDK_CONNECTION_ENTRY`, without bytes that nobody has written.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Entry {
    local: [u8; socket::BYTES],
    remote: [u8; socket::BYTES],
    user_mode: u8,
    reserved: [u8; 3],
    process: [u8; 4],
}

const _: () = assert!(size_of::<Entry>() == size_of::<NDIS_NDK_CONNECTION_ENTRY>());

/// The answer to `QUERY_CONNECTIONS`: `NDIS_NDK_CONNECTIONS` of the adapters together.
///
/// # Errors
///
/// `STATUS_INSUFFICIENT_RESOURCES`.
pub fn connections<'a>(adapters: impl Iterator<Item = &'a Device>) -> Result<Vec<u8>, NtStatus> {
    let mut bytes = Vec::new();
    let no_memory = |_| NtStatus::INSUFFICIENT_RESOURCES;
    bytes.try_reserve(size_of::<Head>()).map_err(no_memory)?;
    bytes.resize(size_of::<Head>(), 0);
    for adapter in adapters {
        adapter.port().connections(|connection| {
            bytes.try_reserve(size_of::<Entry>()).map_err(no_memory)?;
            let [local, remote] = [connection.local, connection.remote].map(socket::bytes);
            let (user_mode, process) = owner(connection.owner);
            bytes.extend_from_slice(Entry { local, remote, user_mode, reserved: [0; 3], process }.as_bytes());
            Ok::<_, NtStatus>(())
        })?;
    }
    let count = (bytes.len() - size_of::<Head>()) / size_of::<Entry>();
    let head = Head {
        kind: NDIS_OBJECT_TYPE_DEFAULT,
        revision: NDIS_NDK_CONNECTIONS_REVISION_1,
        size: u16::try_from(bytes.len()).unwrap_or(u16::MAX).into(),
        flags: 0.into(),
        count: u32::try_from(count).unwrap_or(u32::MAX).into(),
        are_mapped: 0,
        reserved: [0; 3],
    };
    bytes[..size_of::<Head>()].copy_from_slice(head.as_bytes());
    Ok(bytes)
}

//! The OIDs of NDK (`NDIS-NDK 6`).

use alloc::vec::Vec;

use driver_common::report;
use engine::connection::EndpointKind;
use ndis::NDIS_STATUS;
use ndkpi::{NDIS_NDK_LOCAL_ENDPOINT_ENTRY, NDIS_NDK_LOCAL_ENDPOINTS, NDIS_NDK_STATISTICS_INFO, NtStatus};

use super::answer::Answer;
use crate::adapter::Adapter;

/// `OID_NDK_STATISTICS`. `IRQL <= DISPATCH_LEVEL`.
pub fn statistics(adapter: &Adapter) -> NDIS_NDK_STATISTICS_INFO {
    NDIS_NDK_STATISTICS_INFO {
        Header: NDIS_NDK_STATISTICS_INFO::HEADER,
        Flags: 0,
        CounterSet: adapter.provider().counters(),
    }
}

/// `OID_NDK_CONNECTIONS`. `PASSIVE_LEVEL`.
pub fn connections(adapter: &Adapter, answer: &mut Answer<'_>) -> NDIS_STATUS {
    match report::connections([adapter.provider()].into_iter()) {
        Ok(bytes) => answer.bytes(&bytes),
        Err(status) => status,
    }
}

/// `OID_NDK_LOCAL_ENDPOINTS`. `PASSIVE_LEVEL`.
pub fn endpoints(adapter: &Adapter, answer: &mut Answer<'_>) -> NDIS_STATUS {
    match list_endpoints(adapter) {
        Ok(bytes) => answer.bytes(&bytes),
        Err(status) => status,
    }
}

fn list_endpoints(adapter: &Adapter) -> Result<Vec<u8>, NtStatus> {
    const ENTRY: usize = size_of::<NDIS_NDK_LOCAL_ENDPOINT_ENTRY>();
    let no_memory = |_| NtStatus::INSUFFICIENT_RESOURCES;
    let head = NDIS_NDK_LOCAL_ENDPOINTS::size_for(0);
    let mut bytes = Vec::new();
    bytes.try_reserve(head).map_err(no_memory)?;
    bytes.resize(head, 0);
    adapter.provider().port().endpoints(|endpoint| {
        bytes.try_reserve(ENTRY).map_err(no_memory)?;
        bytes.extend_from_slice(&driver_common::socket::bytes(endpoint.local));
        let is_listener = u8::from(endpoint.kind == EndpointKind::Listener);
        let (user_mode, process) = report::owner(endpoint.owner);
        bytes.extend_from_slice(&[user_mode, is_listener, 0, 0]);
        bytes.extend_from_slice(&process);
        Ok::<_, NtStatus>(())
    })?;
    let count = u32::try_from((bytes.len() - head) / ENTRY).unwrap_or(u32::MAX);
    let header = NDIS_NDK_LOCAL_ENDPOINTS::header_for(count);
    (bytes[0], bytes[1]) = (header.Type, header.Revision);
    bytes[2..4].copy_from_slice(&header.Size.to_le_bytes());
    bytes[8..12].copy_from_slice(&count.to_le_bytes());
    Ok(bytes)
}

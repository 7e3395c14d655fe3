//! Statuses by their names.

use ntstatus::NtStatus;

/// `STATUS_INVALID_ADDRESS_COMPONENT`.
pub const INVALID_ADDRESS_COMPONENT: NtStatus = NtStatus::from_bits(0xC000_0207);

/// What sockets say besides, of which NDKPI knows nothing.
const OF_SOCKETS: [(NtStatus, &str); 3] = [
    (INVALID_ADDRESS_COMPONENT, "STATUS_INVALID_ADDRESS_COMPONENT"),
    (NtStatus::from_bits(0xC000_020D), "STATUS_CONNECTION_RESET"),
    (NtStatus::from_bits(0xC000_0237), "STATUS_GRACEFUL_DISCONNECT"),
];

/// The status of that name.
pub fn named(name: &str) -> Option<NtStatus> {
    let known = NtStatus::NAMED.iter().copied().find(|status| status.name() == Some(name));
    known.or_else(|| OF_SOCKETS.iter().find(|(_, known)| *known == name).map(|&(status, _)| status))
}

/// The name, if there is one, and the number.
pub fn words(status: NtStatus) -> String {
    let of_socket = OF_SOCKETS.iter().find(|(known, _)| *known == status).map(|&(_, name)| name);
    let bits = status.to_bits();
    status.name().or(of_socket).map_or_else(|| format!("{bits:#010x}"), |name| format!("{name} ({bits:#x})"))
}

//! Statuses for which `ndkpi` has no names.

use ndkpi::NtStatus;

pub const EVENT_PENDING: NtStatus = NtStatus::from_bits(0x4000_0013);
pub const FILE_FORCED_CLOSED: NtStatus = NtStatus::from_bits(0xC000_00B6);
pub const CANCELLED: NtStatus = NtStatus::from_bits(0xC000_0120);
pub const INVALID_DEVICE_STATE: NtStatus = NtStatus::from_bits(0xC000_0184);
pub const INVALID_BUFFER_SIZE: NtStatus = NtStatus::from_bits(0xC000_0206);
pub const INVALID_ADDRESS_COMPONENT: NtStatus = NtStatus::from_bits(0xC000_0207);
pub const ADDRESS_ALREADY_EXISTS: NtStatus = NtStatus::from_bits(0xC000_020A);
pub const DATA_NOT_ACCEPTED: NtStatus = NtStatus::from_bits(0xC000_021B);
pub const REQUEST_NOT_ACCEPTED: NtStatus = NtStatus::from_bits(0xC000_00D0);
pub const CONNECTION_RESET: NtStatus = NtStatus::from_bits(0xC000_020D);
pub const GRACEFUL_DISCONNECT: NtStatus = NtStatus::from_bits(0xC000_0237);
pub const NO_MATCH: NtStatus = NtStatus::from_bits(0xC000_0272);

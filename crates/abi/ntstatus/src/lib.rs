//! `NTSTATUS`, the status codes of Windows.
//!
//! Every call and every completion of NDKPI ends in an `NTSTATUS` (NDKPI 2.8), and NDIS uses the same 32 bits under the
//! name `NDIS_STATUS`. [`NtStatus`] is that number and nothing else: it has the size and alignment of the C type, so it
//! stands directly in the function types of `ndkpi`, and a value that has no name here is as good as any other.
//!
//! ```
//! use ntstatus::NtStatus;
//!
//! assert!(NtStatus::PENDING.is_success(), "NT_SUCCESS holds for STATUS_PENDING: ask `is_pending` first");
//! assert!(!NtStatus::BUFFER_OVERFLOW.is_success());
//! assert!(!NtStatus::BUFFER_OVERFLOW.is_error(), "it is a warning");
//! assert_eq!(NtStatus::CANCELLED.to_string(), "STATUS_CANCELLED");
//! assert_eq!(NtStatus::from_bits(0xC012_3456).to_string(), "0xC0123456");
//! ```
//!
//! It is a crate of its own because the engine needs the codes and nothing else of NDKPI.

#![no_std]

/// An `NTSTATUS`: the outcome of a call, of a request or of an event (NDKPI 0.3, NDKPI 2.8).
///
/// The two highest bits are the severity: success, information, warning, error. The order of two values is the order
/// of the signed numbers and has no further meaning.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
#[must_use]
pub struct NtStatus(pub i32);

impl NtStatus {
    /// `NT_SUCCESS`: success or information. [`Self::PENDING`] is one of these (NDKPI 0.3).
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 >= 0
    }

    /// `NT_WARNING`: neither a success nor an error. [`Self::BUFFER_OVERFLOW`] is one of these (NDKPI 0.3).
    #[must_use]
    pub const fn is_warning(self) -> bool {
        self.to_bits() >> 30 == 2
    }

    /// `NT_ERROR`.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.to_bits() >> 30 == 3
    }

    /// Returns true if the outcome is yet to come through a completion callback (NDKPI 5.0).
    #[must_use]
    pub const fn is_pending(self) -> bool {
        self.0 == Self::PENDING.0
    }

    /// The status as a result: `Ok` for everything that [`is_success`](Self::is_success) accepts.
    ///
    /// # Errors
    ///
    /// Returns the status itself if it is a warning or an error.
    pub const fn ok(self) -> Result<(), Self> {
        if self.is_success() { Ok(()) } else { Err(self) }
    }
}

/// Defines the named codes of a type of status, `struct STATUS(pub i32)`, and everything that follows from the bits alone. Names
/// and values come from one list, so that no code can be without its name.
#[doc(hidden)]
#[macro_export]
macro_rules! status_codes {
    ($type:ident: $($(#[$doc:meta])+ $name:ident = $bits:literal, $text:expr;)+) => {
        impl $type {
            /// The status with this bit pattern, the way the codes are written in documentation (`0xC000_0120`).
            pub const fn from_bits(bits: u32) -> Self {
                Self(bits.cast_signed())
            }

            /// The bit pattern of the status.
            #[must_use]
            pub const fn to_bits(self) -> u32 {
                self.0.cast_unsigned()
            }

            $($(#[$doc])+ pub const $name: Self = Self::from_bits($bits);)+

            /// Every status that has a name, in the order of their list.
            pub const NAMED: &'static [Self] = &[$(Self::$name),+];

            /// The name of the status in Microsoft's headers, if this crate knows it.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.to_bits() {
                    $($bits => Some($text),)+
                    _ => None,
                }
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => write!(f, "{:#010X}", self.to_bits()),
                }
            }
        }

        impl core::fmt::Debug for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}

status_codes! {
    NtStatus:
    /// The request is done, or a work request is posted (NDKPI 5.0).
    SUCCESS = 0x0000_0000, "STATUS_SUCCESS";
    /// A wait or request ran out of its time; a success code by [`NtStatus::is_success`].
    TIMEOUT = 0x0000_0102, "STATUS_TIMEOUT";
    /// The outcome comes through the completion callback (NDKPI 5.0); a success code by [`NtStatus::is_success`].
    PENDING = 0x0000_0103, "STATUS_PENDING";
    /// A completion queue overran, or data was longer than the place for it (NDKPI 7.1.10). A warning.
    BUFFER_OVERFLOW = 0x8000_0005, "STATUS_BUFFER_OVERFLOW";
    /// Something else depends on the object, for example windows on a memory region. A warning.
    DEVICE_BUSY = 0x8000_0011, "STATUS_DEVICE_BUSY";
    /// A work queue is full (NDKPI 5.7). A warning.
    NO_MORE_ENTRIES = 0x8000_001A, "STATUS_NO_MORE_ENTRIES";
    /// No better name for the failure.
    UNSUCCESSFUL = 0xC000_0001, "STATUS_UNSUCCESSFUL";
    /// A right is missing on a memory region, or memory was addressed that is not registered (NDKPI 5.7).
    ACCESS_VIOLATION = 0xC000_0005, "STATUS_ACCESS_VIOLATION";
    /// A handle does not name an object.
    INVALID_HANDLE = 0xC000_0008, "STATUS_INVALID_HANDLE";
    /// A parameter is out of range or against the rules of the call.
    INVALID_PARAMETER = 0xC000_000D, "STATUS_INVALID_PARAMETER";
    /// The request is malformed for the object, for example the invalidation of a window that is not bound.
    INVALID_DEVICE_REQUEST = 0xC000_0010, "STATUS_INVALID_DEVICE_REQUEST";
    /// Memory could not be had. NDKPI creations say [`NtStatus::INSUFFICIENT_RESOURCES`] for it.
    NO_MEMORY = 0xC000_0017, "STATUS_NO_MEMORY";
    /// The caller's buffer is too small; the needed size was stored (NDKPI 5.2, NDKPI 7.7.4).
    BUFFER_TOO_SMALL = 0xC000_0023, "STATUS_BUFFER_TOO_SMALL";
    /// Each parameter is fine, the combination is not (NDKPI 7.1.6).
    INVALID_PARAMETER_MIX = 0xC000_0030, "STATUS_INVALID_PARAMETER_MIX";
    /// Too many scatter/gather entries, or more data in them than can be sent (NDKPI 5.7).
    DATA_OVERRUN = 0xC000_003C, "STATUS_DATA_OVERRUN";
    /// The local address and port are in use (NDKPI 5.8).
    SHARING_VIOLATION = 0xC000_0043, "STATUS_SHARING_VIOLATION";
    /// Memory or something else the provider needs could not be had. The value of `NDIS_STATUS_RESOURCES`.
    INSUFFICIENT_RESOURCES = 0xC000_009A, "STATUS_INSUFFICIENT_RESOURCES";
    /// The device, or the Winsock kernel layer, is not ready to be used.
    DEVICE_NOT_READY = 0xC000_00A3, "STATUS_DEVICE_NOT_READY";
    /// The peer did not answer in time, or the connection is lost (NDKPI 5.8).
    IO_TIMEOUT = 0xC000_00B5, "STATUS_IO_TIMEOUT";
    /// The operation or extension does not exist here (NDKPI 5.1).
    NOT_SUPPORTED = 0xC000_00BB, "STATUS_NOT_SUPPORTED";
    /// A completion queue or shared receive queue failed for good (NDKPI 6).
    INTERNAL_ERROR = 0xC000_00E5, "STATUS_INTERNAL_ERROR";
    /// The first parameter is invalid.
    INVALID_PARAMETER_1 = 0xC000_00EF, "STATUS_INVALID_PARAMETER_1";
    /// The second parameter is invalid.
    INVALID_PARAMETER_2 = 0xC000_00F0, "STATUS_INVALID_PARAMETER_2";
    /// The third parameter is invalid.
    INVALID_PARAMETER_3 = 0xC000_00F1, "STATUS_INVALID_PARAMETER_3";
    /// The fourth parameter is invalid.
    INVALID_PARAMETER_4 = 0xC000_00F2, "STATUS_INVALID_PARAMETER_4";
    /// The fifth parameter is invalid.
    INVALID_PARAMETER_5 = 0xC000_00F3, "STATUS_INVALID_PARAMETER_5";
    /// The sixth parameter is invalid.
    INVALID_PARAMETER_6 = 0xC000_00F4, "STATUS_INVALID_PARAMETER_6";
    /// The seventh parameter is invalid.
    INVALID_PARAMETER_7 = 0xC000_00F5, "STATUS_INVALID_PARAMETER_7";
    /// The eighth parameter is invalid.
    INVALID_PARAMETER_8 = 0xC000_00F6, "STATUS_INVALID_PARAMETER_8";
    /// The ninth parameter is invalid.
    INVALID_PARAMETER_9 = 0xC000_00F7, "STATUS_INVALID_PARAMETER_9";
    /// The tenth parameter is invalid.
    INVALID_PARAMETER_10 = 0xC000_00F8, "STATUS_INVALID_PARAMETER_10";
    /// The work request was flushed or its connection had failed before (NDKPI 7.2).
    CANCELLED = 0xC000_0120, "STATUS_CANCELLED";
    /// The request is beyond the remote memory, or broke the remote side (NDKPI 5.7).
    REMOTE_RESOURCES = 0xC000_013D, "STATUS_REMOTE_RESOURCES";
    /// The address is not one of the adapter's (NDKPI 5.8).
    INVALID_ADDRESS = 0xC000_0141, "STATUS_INVALID_ADDRESS";
    /// The object is not in a state in which the call makes sense.
    INVALID_DEVICE_STATE = 0xC000_0184, "STATUS_INVALID_DEVICE_STATE";
    /// Private data is longer than the adapter allows.
    INVALID_BUFFER_SIZE = 0xC000_0206, "STATUS_INVALID_BUFFER_SIZE";
    /// Port 0 was given and no ephemeral port is free (NDKPI 5.8).
    TOO_MANY_ADDRESSES = 0xC000_0209, "STATUS_TOO_MANY_ADDRESSES";
    /// A connection between these two addresses and ports exists (NDKPI 5.8).
    ADDRESS_ALREADY_EXISTS = 0xC000_020A, "STATUS_ADDRESS_ALREADY_EXISTS";
    /// No listener, a paused listener, a full backlog, or the peer rejected the connection (NDKPI 5.8).
    CONNECTION_REFUSED = 0xC000_0236, "STATUS_CONNECTION_REFUSED";
    /// The connector or listener is bound already.
    ADDRESS_ALREADY_ASSOCIATED = 0xC000_0238, "STATUS_ADDRESS_ALREADY_ASSOCIATED";
    /// The queue pair or connector is not connected (NDKPI 5.7).
    CONNECTION_INVALID = 0xC000_023A, "STATUS_CONNECTION_INVALID";
    /// The queue pair is connected already.
    CONNECTION_ACTIVE = 0xC000_023B, "STATUS_CONNECTION_ACTIVE";
    /// The network of the remote address cannot be reached (NDKPI 5.8).
    NETWORK_UNREACHABLE = 0xC000_023C, "STATUS_NETWORK_UNREACHABLE";
    /// The host of the remote address cannot be reached (NDKPI 5.8).
    HOST_UNREACHABLE = 0xC000_023D, "STATUS_HOST_UNREACHABLE";
    /// The other side gave up while the connection was being made (NDKPI 5.8).
    CONNECTION_ABORTED = 0xC000_0241, "STATUS_CONNECTION_ABORTED";
    /// The adapter is gone.
    DEVICE_REMOVED = 0xC000_02B6, "STATUS_DEVICE_REMOVED";
    /// No interface of this version exists (capturing the Winsock kernel interface).
    NOINTERFACE = 0xC000_02B9, "STATUS_NOINTERFACE";
    /// The page count of a fast registration is not supported (NDKPI 5.5).
    IMPLEMENTATION_LIMIT = 0xC000_042B, "STATUS_IMPLEMENTATION_LIMIT";
    /// Opening an adapter: the version asked for is not offered (NDKPI 1).
    NDIS_BAD_VERSION = 0xC001_0004, "NDIS_STATUS_BAD_VERSION";
    /// Opening an adapter: NDK is not enabled on it.
    NDIS_ADAPTER_NOT_READY = 0xC001_0011, "NDIS_STATUS_ADAPTER_NOT_READY";
    /// An information request with a length that is not right.
    NDIS_INVALID_LENGTH = 0xC001_0014, "NDIS_STATUS_INVALID_LENGTH";
    /// An information request whose buffer is too short; the needed length was stored.
    NDIS_BUFFER_TOO_SHORT = 0xC001_0016, "NDIS_STATUS_BUFFER_TOO_SHORT";
    /// An information request for an OID that is not served.
    NDIS_INVALID_OID = 0xC001_0017, "NDIS_STATUS_INVALID_OID";
}

/// The name NDIS uses for an [`NtStatus`].
pub type NdisStatus = NtStatus;

/// [`NtStatus::SUCCESS`] under its NDIS name.
pub const NDIS_STATUS_SUCCESS: NtStatus = NtStatus::SUCCESS;
/// [`NtStatus::PENDING`] under its NDIS name.
pub const NDIS_STATUS_PENDING: NtStatus = NtStatus::PENDING;
/// [`NtStatus::INSUFFICIENT_RESOURCES`] under its NDIS name.
pub const NDIS_STATUS_RESOURCES: NtStatus = NtStatus::INSUFFICIENT_RESOURCES;
/// [`NtStatus::NOT_SUPPORTED`] under its NDIS name.
pub const NDIS_STATUS_NOT_SUPPORTED: NtStatus = NtStatus::NOT_SUPPORTED;
/// [`NtStatus::NDIS_BAD_VERSION`] under its full name.
pub const NDIS_STATUS_BAD_VERSION: NtStatus = NtStatus::NDIS_BAD_VERSION;
/// [`NtStatus::NDIS_ADAPTER_NOT_READY`] under its full name.
pub const NDIS_STATUS_ADAPTER_NOT_READY: NtStatus = NtStatus::NDIS_ADAPTER_NOT_READY;
/// [`NtStatus::NDIS_INVALID_LENGTH`] under its full name.
pub const NDIS_STATUS_INVALID_LENGTH: NtStatus = NtStatus::NDIS_INVALID_LENGTH;
/// [`NtStatus::NDIS_BUFFER_TOO_SHORT`] under its full name.
pub const NDIS_STATUS_BUFFER_TOO_SHORT: NtStatus = NtStatus::NDIS_BUFFER_TOO_SHORT;
/// [`NtStatus::NDIS_INVALID_OID`] under its full name.
pub const NDIS_STATUS_INVALID_OID: NtStatus = NtStatus::NDIS_INVALID_OID;

impl core::error::Error for NtStatus {}

impl From<Result<(), Self>> for NtStatus {
    /// The status to return from a function of the interface: success, or the error.
    fn from(result: Result<(), Self>) -> Self {
        match result {
            Ok(()) => Self::SUCCESS,
            Err(status) => status,
        }
    }
}

const _: () = assert!(size_of::<NtStatus>() == 4 && align_of::<NtStatus>() == 4);

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{format, string::ToString};

    use super::NtStatus;

    #[test]
    fn the_severity_is_in_the_two_highest_bits() {
        let severities = [(0x0000_0000, 0), (0x4000_0000, 0), (0x8000_0005, 1), (0xC000_0001, 2)];
        for (bits, severity) in severities {
            let status = NtStatus::from_bits(bits);
            assert_eq!(status.to_bits(), bits);
            assert_eq!(status.is_success(), severity == 0);
            assert_eq!(status.is_warning(), severity == 1);
            assert_eq!(status.is_error(), severity == 2);
            assert_eq!(status.ok(), if severity == 0 { Ok(()) } else { Err(status) });
        }
    }

    #[test]
    fn pending_is_pending_although_it_is_a_success() {
        assert!(NtStatus::PENDING.is_pending());
        assert!(NtStatus::PENDING.is_success());
        assert!(!NtStatus::SUCCESS.is_pending());
    }

    #[test]
    fn named_statuses_ascend_and_print_their_names() {
        assert!(NtStatus::NAMED.windows(2).all(|pair| pair[0].to_bits() < pair[1].to_bits()));
        for status in NtStatus::NAMED {
            let name = status.name().expect("a named status has a name");
            assert_eq!(status.to_string(), name);
            assert_eq!(format!("{status:?}"), name);
        }
    }

    #[test]
    fn a_status_without_a_name_prints_its_bits() {
        let status = NtStatus::from_bits(0xC012_3456);
        assert_eq!(status.name(), None);
        assert_eq!(status.to_string(), "0xC0123456");
    }

    #[test]
    fn a_result_turns_into_the_status_to_return() {
        assert_eq!(NtStatus::from(Ok(())), NtStatus::SUCCESS);
        assert_eq!(NtStatus::from(Err(NtStatus::CANCELLED)), NtStatus::CANCELLED);
    }
}

//! Results of calls and of requests.

use ndkpi::NtStatus;

/// A result: the number that a method returns.
///
/// The codes of NetworkDirect are typed as `HRESULT` and are, bit by bit, the `NTSTATUS` of the same meaning (`NDSPI 6`).
/// So `ND_PENDING` is a success by the sign, and warnings like `ND_BUFFER_OVERFLOW` are failures.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
#[must_use]
pub struct HRESULT(pub i32);

impl HRESULT {
    /// `SUCCEEDED`: the sign only.
    #[must_use]
    pub const fn succeeded(self) -> bool {
        self.0 >= 0
    }

    /// Returns true if the request's end is reported later.
    #[must_use]
    pub const fn is_pending(self) -> bool {
        self.0 == Self::ND_PENDING.0
    }

    /// The status with the same bits.
    pub const fn to_status(self) -> NtStatus {
        NtStatus(self.0)
    }

    /// The result with the same bits.
    pub const fn of(status: NtStatus) -> Self {
        Self(status.0)
    }
}

impl From<NtStatus> for HRESULT {
    fn from(status: NtStatus) -> Self {
        Self::of(status)
    }
}

impl From<Result<(), NtStatus>> for HRESULT {
    fn from(result: Result<(), NtStatus>) -> Self {
        match result {
            Ok(()) => Self::ND_SUCCESS,
            Err(status) => Self::of(status),
        }
    }
}

/// The codes under the names that are also their texts.
macro_rules! codes {
    ($($name:ident = $bits:literal;)+) => {
        ndkpi::status::status_codes! {
            HRESULT: $(#[doc = concat!("`", stringify!($name), "`.")] $name = $bits, stringify!($name);)+
        }
    };
}

codes! {
    ND_SUCCESS = 0x0000_0000;
    ND_TIMEOUT = 0x0000_0102;
    ND_PENDING = 0x0000_0103;
    ND_BUFFER_OVERFLOW = 0x8000_0005;
    ND_DEVICE_BUSY = 0x8000_0011;
    ND_NO_MORE_ENTRIES = 0x8000_001A;
    ND_UNSUCCESSFUL = 0xC000_0001;
    ND_ACCESS_VIOLATION = 0xC000_0005;
    ND_INVALID_HANDLE = 0xC000_0008;
    ND_INVALID_PARAMETER = 0xC000_000D;
    ND_INVALID_DEVICE_REQUEST = 0xC000_0010;
    ND_NO_MEMORY = 0xC000_0017;
    ND_INVALID_PARAMETER_MIX = 0xC000_0030;
    ND_DATA_OVERRUN = 0xC000_003C;
    ND_SHARING_VIOLATION = 0xC000_0043;
    ND_INSUFFICIENT_RESOURCES = 0xC000_009A;
    ND_DEVICE_NOT_READY = 0xC000_00A3;
    ND_IO_TIMEOUT = 0xC000_00B5;
    ND_NOT_SUPPORTED = 0xC000_00BB;
    ND_INTERNAL_ERROR = 0xC000_00E5;
    ND_INVALID_PARAMETER_1 = 0xC000_00EF;
    ND_INVALID_PARAMETER_2 = 0xC000_00F0;
    ND_INVALID_PARAMETER_3 = 0xC000_00F1;
    ND_INVALID_PARAMETER_4 = 0xC000_00F2;
    ND_INVALID_PARAMETER_5 = 0xC000_00F3;
    ND_INVALID_PARAMETER_6 = 0xC000_00F4;
    ND_INVALID_PARAMETER_7 = 0xC000_00F5;
    ND_INVALID_PARAMETER_8 = 0xC000_00F6;
    ND_INVALID_PARAMETER_9 = 0xC000_00F7;
    ND_INVALID_PARAMETER_10 = 0xC000_00F8;
    ND_CANCELED = 0xC000_0120;
    ND_REMOTE_ERROR = 0xC000_013D;
    ND_INVALID_ADDRESS = 0xC000_0141;
    ND_INVALID_DEVICE_STATE = 0xC000_0184;
    ND_INVALID_BUFFER_SIZE = 0xC000_0206;
    ND_TOO_MANY_ADDRESSES = 0xC000_0209;
    ND_ADDRESS_ALREADY_EXISTS = 0xC000_020A;
    ND_CONNECTION_REFUSED = 0xC000_0236;
    ND_CONNECTION_INVALID = 0xC000_023A;
    ND_CONNECTION_ACTIVE = 0xC000_023B;
    ND_NETWORK_UNREACHABLE = 0xC000_023C;
    ND_HOST_UNREACHABLE = 0xC000_023D;
    ND_CONNECTION_ABORTED = 0xC000_0241;
    ND_DEVICE_REMOVED = 0xC000_02B6;
    E_NOINTERFACE = 0x8000_4002;
    E_POINTER = 0x8000_4003;
    CLASS_E_NOAGGREGATION = 0x8004_0110;
    CLASS_E_CLASSNOTAVAILABLE = 0x8004_0111;
    S_FALSE = 0x0000_0001;
}

impl HRESULT {
    /// `ND_FAILURE`, which the pages of version 1 and of shared receive queues name and no public header defines. Here it
    /// is what version 2 of the interface uses for the same condition.
    pub const ND_FAILURE: Self = Self::ND_INTERNAL_ERROR;
    /// `S_OK`.
    pub const S_OK: Self = Self::ND_SUCCESS;
}

//! Completions: the kinds of work request and the two result structures (NDKPI 2.2, NDKPI 3.5, NDKPI 3.6).

use core::{ffi::c_void, ptr};

use crate::{NDK_VERSION, NtStatus};

open_enum! {
    /// The kind of work request that completed (NDKPI 2.2). The values are like bits and not sequential.
    NDK_OPERATION_TYPE {
        /// A receive, on the receiver's side.
        RECEIVE = 0x0001, "NdkOperationTypeReceive";
        /// A receive whose send also invalidated a token of the receiver. The sender's side completes as a send.
        RECEIVE_AND_INVALIDATE = 0x8001, "NdkOperationTypeReceiveAndInvalidate";
        /// A send, or a send-and-invalidate.
        SEND = 0x0002, "NdkOperationTypeSend";
        /// A fast registration.
        FAST_REGISTER = 0x0004, "NdkOperationTypeFastRegister";
        /// A bind of a memory window.
        BIND = 0x0008, "NdkOperationTypeBind";
        /// A local invalidation.
        INVALIDATE = 0x0010, "NdkOperationTypeInvalidate";
        /// A read of remote memory.
        READ = 0x0020, "NdkOperationTypeRead";
        /// A write to remote memory.
        WRITE = 0x0040, "NdkOperationTypeWrite";
    }
}

impl NDK_OPERATION_TYPE {
    /// Returns true if the request was a receive of either kind.
    #[must_use]
    pub const fn is_receive(self) -> bool {
        self.0 & Self::RECEIVE.0 != 0
    }
}

/// A completion (NDKPI 3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NDK_RESULT {
    /// The outcome of the request.
    pub Status: NtStatus,
    /// The bytes received. Undefined unless the request was a receive.
    pub BytesTransferred: u32,
    /// The value given when the queue pair was created.
    pub QPContext: *mut c_void,
    /// The value given when the request was posted.
    pub RequestContext: *mut c_void,
}

layout!(NDK_RESULT: size 0x18, align 8, {
    Status @ 0x00,
    BytesTransferred @ 0x04,
    QPContext @ 0x08,
    RequestContext @ 0x10,
});

impl NDK_RESULT {
    /// A structure of zeros, for arrays that are to be filled.
    pub const ZEROED: Self = Self {
        Status: NtStatus::SUCCESS,
        BytesTransferred: 0,
        QPContext: ptr::null_mut(),
        RequestContext: ptr::null_mut(),
    };
}

impl From<NDK_RESULT_EX> for NDK_RESULT {
    /// The same completion as `NdkGetCqResults` reports it (NDKPI 7.1.9).
    fn from(result: NDK_RESULT_EX) -> Self {
        Self {
            Status: result.Status,
            BytesTransferred: result.BytesTransferred,
            QPContext: result.QPContext,
            RequestContext: result.RequestContext,
        }
    }
}

/// A completion with its kind (NDKPI 3.6); from NDKPI 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NDK_RESULT_EX {
    /// The outcome of the request.
    pub Status: NtStatus,
    /// The bytes received. Undefined unless the request was a receive; see [`Self::bytes_received`].
    pub BytesTransferred: u32,
    /// The value given when the queue pair was created.
    pub QPContext: *mut c_void,
    /// The value given when the request was posted.
    pub RequestContext: *mut c_void,
    /// The kind of request.
    pub Type: NDK_OPERATION_TYPE,
    /// From NDKPI 2.1 the provider's own code for a failure, 0 for a success; before that unused bytes with any content.
    /// A provider of any version should write 0 or its code; a consumer asks [`Self::provider_error_code`].
    pub ProviderErrorCode: u32,
    /// Depends on the kind of request; see [`Self::invalidated_token`].
    pub TypeSpecificCompletionOutput: usize,
}

layout!(NDK_RESULT_EX: size 0x28, align 8, {
    Status @ 0x00,
    BytesTransferred @ 0x04,
    QPContext @ 0x08,
    RequestContext @ 0x10,
    Type @ 0x18,
    ProviderErrorCode @ 0x1C,
    TypeSpecificCompletionOutput @ 0x20,
});

impl NDK_RESULT_EX {
    /// A structure of zeros, for arrays that are to be filled.
    pub const ZEROED: Self = Self {
        Status: NtStatus::SUCCESS,
        BytesTransferred: 0,
        QPContext: ptr::null_mut(),
        RequestContext: ptr::null_mut(),
        Type: NDK_OPERATION_TYPE(0),
        ProviderErrorCode: 0,
        TypeSpecificCompletionOutput: 0,
    };

    /// The number of bytes received, if the request was a receive.
    #[must_use]
    pub const fn bytes_received(&self) -> Option<u32> {
        if self.Type.is_receive() { Some(self.BytesTransferred) } else { None }
    }

    /// The provider's own code for the outcome, if `version`, the one in force on the completion queue, has the field.
    #[must_use]
    pub fn provider_error_code(&self, version: NDK_VERSION) -> Option<u32> {
        (version >= NDK_VERSION::V2_1).then_some(self.ProviderErrorCode)
    }

    /// The token that the peer's send invalidated, if it was a send-and-invalidate.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the token is the low 32 bits")]
    pub const fn invalidated_token(&self) -> Option<u32> {
        match self.Type {
            NDK_OPERATION_TYPE::RECEIVE_AND_INVALIDATE => Some(self.TypeSpecificCompletionOutput as u32),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NDK_OPERATION_TYPE, NDK_RESULT, NDK_RESULT_EX};
    use crate::{NDK_VERSION, NtStatus};

    const RESULT: NDK_RESULT_EX = NDK_RESULT_EX {
        Status: NtStatus::CANCELLED,
        BytesTransferred: 5,
        ProviderErrorCode: 7,
        TypeSpecificCompletionOutput: 0xFFFF_FFFF_1234_5678,
        ..NDK_RESULT_EX::ZEROED
    };

    #[test]
    fn only_the_two_receives_are_receives() {
        for kind in NDK_OPERATION_TYPE::NAMED {
            let receive = [NDK_OPERATION_TYPE::RECEIVE, NDK_OPERATION_TYPE::RECEIVE_AND_INVALIDATE].contains(kind);
            assert_eq!(kind.is_receive(), receive);
            let result = NDK_RESULT_EX { Type: *kind, ..RESULT };
            assert_eq!(result.bytes_received(), receive.then_some(5));
        }
    }

    #[test]
    fn the_invalidated_token_is_the_low_half_of_the_output() {
        for kind in NDK_OPERATION_TYPE::NAMED {
            let invalidated = *kind == NDK_OPERATION_TYPE::RECEIVE_AND_INVALIDATE;
            let result = NDK_RESULT_EX { Type: *kind, ..RESULT };
            assert_eq!(result.invalidated_token(), invalidated.then_some(0x1234_5678));
        }
    }

    #[test]
    fn the_provider_error_code_is_read_from_version_2_1_on() {
        for version in [NDK_VERSION::V1_1, NDK_VERSION::V1_2, NDK_VERSION::V2_0] {
            assert_eq!(RESULT.provider_error_code(version), None);
        }
        for version in [NDK_VERSION::V2_1, NDK_VERSION::new(2, 2), NDK_VERSION::new(3, 0)] {
            assert_eq!(RESULT.provider_error_code(version), Some(7));
        }
    }

    #[test]
    fn the_plain_result_is_the_same_completion() {
        let plain = NDK_RESULT { Status: NtStatus::CANCELLED, BytesTransferred: 5, ..NDK_RESULT::ZEROED };
        assert_eq!(NDK_RESULT::from(RESULT), plain);
    }
}

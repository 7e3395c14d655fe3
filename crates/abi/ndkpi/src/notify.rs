//! What a completion queue is armed for: the `Type` of `NdkArmCq` (NDKPI 2.3).
//!
//! The order of the numbers is not the order of strength. An arm for any completion includes the solicited ones, which
//! include the errors, so the strength grows from 0 to 2 to 1 (NDKPI 7.1.4).

/// Errors of the completion queue itself.
pub const NDK_CQ_NOTIFY_ERRORS: u32 = 0;
/// Any completion.
pub const NDK_CQ_NOTIFY_ANY: u32 = 1;
/// Receives of a solicited send, and requests that fail.
pub const NDK_CQ_NOTIFY_SOLICITED: u32 = 2;

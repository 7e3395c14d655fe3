//! The statuses with which a provider may fail, by function.

use ndkpi::{NDK_OPERATION_TYPE, NtStatus};

use crate::Function;

const NO_MEMORY: &[NtStatus] = &[NtStatus::INSUFFICIENT_RESOURCES];

/// With which statuses a provider may refuse a call, the usual one first, and the section that allows it. `None` for what must not
/// fail for want of anything: closes, deregistrations, arms, polls, receives, disconnects.
pub const fn refusals(function: Function) -> Option<(&'static [NtStatus], &'static str)> {
    Some(match function {
        Function::CreateCq
        | Function::CreatePd
        | Function::CreateConnector
        | Function::CreateListener
        | Function::BuildLam => (NO_MEMORY, "NDKPI 5.2"),
        Function::CreateSharedEndpoint => (
            &[NtStatus::INSUFFICIENT_RESOURCES, NtStatus::SHARING_VIOLATION, NtStatus::TOO_MANY_ADDRESSES],
            "NDKPI 5.2",
        ),
        Function::CreateMr
        | Function::CreateMw
        | Function::CreateSrq
        | Function::CreateQp
        | Function::CreateQpWithSrq => (NO_MEMORY, "NDKPI 5.3"),
        Function::ResizeCq | Function::ControlCqInterruptModeration => (NO_MEMORY, "NDKPI 5.4"),
        Function::RegisterMr => (NO_MEMORY, "NDKPI 5.5"),
        Function::InitializeFastRegisterMr => (&[NtStatus::IMPLEMENTATION_LIMIT], "NDKPI 5.5"),
        Function::Send
        | Function::SendAndInvalidate
        | Function::Read
        | Function::Write
        | Function::Bind
        | Function::FastRegister
        | Function::Invalidate => (&[NtStatus::INSUFFICIENT_RESOURCES, NtStatus::CONNECTION_INVALID], "NDKPI 5.7"),
        Function::Connect | Function::ConnectWithSharedEndpoint => (
            &[
                NtStatus::INSUFFICIENT_RESOURCES,
                NtStatus::NETWORK_UNREACHABLE,
                NtStatus::HOST_UNREACHABLE,
                NtStatus::CONNECTION_REFUSED,
                NtStatus::IO_TIMEOUT,
            ],
            "NDKPI 5.8",
        ),
        Function::Listen => (
            &[NtStatus::INSUFFICIENT_RESOURCES, NtStatus::SHARING_VIOLATION, NtStatus::TOO_MANY_ADDRESSES],
            "NDKPI 5.9",
        ),
        _ => return None,
    })
}

/// With which statuses a completion may come that was not refused in the call: as [`refusals`], and those of the last steps of a
/// connection. `None` for functions without a completion, and for those whose completion must not fail.
pub const fn failures(function: Function) -> Option<(&'static [NtStatus], &'static str)> {
    match function {
        Function::CompleteConnect | Function::CompleteConnectEx | Function::Accept | Function::AcceptEx => {
            Some((&[NtStatus::IO_TIMEOUT, NtStatus::CONNECTION_ABORTED], "NDKPI 5.8"))
        }
        Function::Connect | Function::ConnectWithSharedEndpoint => Some((
            &[
                NtStatus::CONNECTION_REFUSED,
                NtStatus::IO_TIMEOUT,
                NtStatus::HOST_UNREACHABLE,
                NtStatus::NETWORK_UNREACHABLE,
                NtStatus::INSUFFICIENT_RESOURCES,
            ],
            "NDKPI 5.8",
        )),
        other => {
            if has_completion(other) {
                refusals(other)
            } else {
                None
            }
        }
    }
}

/// The status with which a provider may refuse a call, and the section that allows it.
#[must_use]
pub const fn legitimate(function: Function) -> Option<(NtStatus, &'static str)> {
    match refusals(function) {
        Some((statuses, section)) => Some((statuses[0], section)),
        None => None,
    }
}

/// Returns true for functions that may pend.
pub const fn has_completion(function: Function) -> bool {
    matches!(
        function,
        Function::Close
            | Function::CreateCq
            | Function::CreatePd
            | Function::CreateSharedEndpoint
            | Function::CreateConnector
            | Function::CreateListener
            | Function::BuildLam
            | Function::ResizeCq
            | Function::ModifySrq
            | Function::CreateMr
            | Function::CreateMw
            | Function::CreateSrq
            | Function::CreateQp
            | Function::CreateQpWithSrq
            | Function::RegisterMr
            | Function::DeregisterMr
            | Function::InitializeFastRegisterMr
            | Function::Connect
            | Function::ConnectWithSharedEndpoint
            | Function::CompleteConnect
            | Function::CompleteConnectEx
            | Function::Accept
            | Function::AcceptEx
            | Function::Disconnect
            | Function::Listen
    )
}

/// With which statuses a work request may complete, the usual one first: any with that of a flush, and one that moves bytes for its
/// peer as if the network had lost it (`NDKPI 7.2`). `kind` is `None` where the result does not say.
pub const fn results(kind: Option<NDK_OPERATION_TYPE>) -> &'static [NtStatus] {
    match kind {
        Some(NDK_OPERATION_TYPE::SEND | NDK_OPERATION_TYPE::READ | NDK_OPERATION_TYPE::WRITE) => {
            &[NtStatus::IO_TIMEOUT, NtStatus::CANCELLED]
        }
        _ => &[NtStatus::CANCELLED],
    }
}

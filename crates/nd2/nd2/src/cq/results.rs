//! Which status a result may have (`NDSPI 3`).

use engine::cq::{Cqe, Operation};
use ndkpi::NtStatus;

use crate::abi::{HRESULT, ND2_REQUEST_TYPE, ND2_RESULT};

/// The kind of request that an operation of the engine is. Fast registrations do not exist in user mode.
#[must_use]
pub const fn request_type(operation: Operation) -> ND2_REQUEST_TYPE {
    match operation {
        Operation::Receive | Operation::ReceiveAndInvalidate => ND2_REQUEST_TYPE::RECEIVE,
        Operation::Send => ND2_REQUEST_TYPE::SEND,
        Operation::Bind | Operation::FastRegister => ND2_REQUEST_TYPE::BIND,
        Operation::Invalidate => ND2_REQUEST_TYPE::INVALIDATE,
        Operation::Read => ND2_REQUEST_TYPE::READ,
        Operation::Write => ND2_REQUEST_TYPE::WRITE,
    }
}

/// The status that a request of this kind reports when the engine completed it with `status`: one that the table of valid
/// statuses has for it.
///
/// A bind may not report a violation of access: where the prose of the document says that it does, its table says that it
/// does not. It reports that the request was improper, which every request may.
pub const fn result_status(kind: ND2_REQUEST_TYPE, status: NtStatus) -> HRESULT {
    let moves_out = matches!(kind, ND2_REQUEST_TYPE::SEND | ND2_REQUEST_TYPE::READ | ND2_REQUEST_TYPE::WRITE);
    let receives = matches!(kind, ND2_REQUEST_TYPE::RECEIVE);
    let moves = moves_out || receives;
    match status {
        NtStatus::SUCCESS => HRESULT::ND_SUCCESS,
        // More bytes than can be sent, under either name.
        NtStatus::DATA_OVERRUN | NtStatus::BUFFER_OVERFLOW if moves_out => HRESULT::ND_DATA_OVERRUN,
        NtStatus::BUFFER_OVERFLOW if receives => HRESULT::ND_BUFFER_OVERFLOW,
        NtStatus::ACCESS_VIOLATION if moves => HRESULT::ND_ACCESS_VIOLATION,
        NtStatus::INVALID_DEVICE_REQUEST | NtStatus::ACCESS_VIOLATION => HRESULT::ND_INVALID_DEVICE_REQUEST,
        NtStatus::IO_TIMEOUT if moves => HRESULT::ND_IO_TIMEOUT,
        // The connection is gone: a request that moves no bytes was not the reason.
        NtStatus::CANCELLED | NtStatus::IO_TIMEOUT => HRESULT::ND_CANCELED,
        NtStatus::REMOTE_RESOURCES if moves => HRESULT::ND_REMOTE_ERROR,
        _ => HRESULT::ND_INTERNAL_ERROR,
    }
}

/// The client's result of a completion.
#[must_use]
pub const fn result(completion: &Cqe) -> ND2_RESULT {
    let kind = request_type(completion.outcome.operation());
    ND2_RESULT {
        Status: result_status(kind, completion.outcome.status()),
        BytesTransferred: completion.received.bytes(),
        QueuePairContext: core::ptr::with_exposed_provenance_mut(completion.qp_context),
        RequestContext: core::ptr::with_exposed_provenance_mut(completion.request_context),
        RequestType: kind,
    }
}

//! The table of valid statuses by request type (`ND2_RESULT`, remarks): no other pair can be produced.

use engine::cq::{Cqe, CqeOutcome, Received};
use nd2::{
    abi::{HRESULT, ND2_REQUEST_TYPE},
    cq::results::{request_type, result, result_status},
};
use ndkpi::NtStatus;
use testing::cq_fixture::OPERATIONS;

/// The rows of the table, with Send, Receive, Bind, Invalidate, Read, Write.
const TABLE: [(HRESULT, [bool; 6]); 9] = [
    (HRESULT::ND_SUCCESS, [true; 6]),
    (HRESULT::ND_DATA_OVERRUN, [true, false, false, false, true, true]),
    (HRESULT::ND_BUFFER_OVERFLOW, [false, true, false, false, false, false]),
    (HRESULT::ND_ACCESS_VIOLATION, [true, true, false, false, true, true]),
    (HRESULT::ND_CANCELED, [true; 6]),
    (HRESULT::ND_INVALID_DEVICE_REQUEST, [true; 6]),
    (HRESULT::ND_INTERNAL_ERROR, [true; 6]),
    (HRESULT::ND_IO_TIMEOUT, [true, true, false, false, true, true]),
    (HRESULT::ND_REMOTE_ERROR, [true, true, false, false, true, true]),
];

/// The columns of the table.
const COLUMNS: [ND2_REQUEST_TYPE; 6] = [
    ND2_REQUEST_TYPE::SEND,
    ND2_REQUEST_TYPE::RECEIVE,
    ND2_REQUEST_TYPE::BIND,
    ND2_REQUEST_TYPE::INVALIDATE,
    ND2_REQUEST_TYPE::READ,
    ND2_REQUEST_TYPE::WRITE,
];

pub fn is_valid(kind: ND2_REQUEST_TYPE, status: HRESULT) -> bool {
    let column = COLUMNS.iter().position(|column| *column == kind).expect("a column");
    TABLE.iter().any(|(row, cells)| *row == status && cells[column])
}

/// Every status with a name, and many without.
fn statuses() -> impl Iterator<Item = NtStatus> {
    let strange = (0..=u16::MAX).flat_map(|low| {
        [0, 0x4000_0000, 0x8000_0000, 0xC000_0000].map(|high: u32| NtStatus::from_bits(high | u32::from(low)))
    });
    NtStatus::NAMED.iter().copied().chain(strange)
}

#[test]
fn no_pair_outside_of_the_table_can_be_produced() {
    let mut pairs = 0_u32;
    for operation in OPERATIONS {
        for status in statuses() {
            let completion = Cqe {
                qp_context: 1,
                outcome: CqeOutcome::new(operation, status).soliciting(true),
                request_context: 2,
                received: Received::new(3, 4),
            };
            let result = result(&completion);
            assert!(is_valid(result.RequestType, result.Status), "{operation:?}, {status}: {result:?}");
            assert_eq!((result.RequestType, result.BytesTransferred), (request_type(operation), 3));
            assert_eq!((result.QueuePairContext.addr(), result.RequestContext.addr()), (1, 2));
            pairs += 1;
        }
    }
    assert!(pairs > 2_000_000, "{pairs}");
}

#[test]
fn success_and_only_success_is_reported_as_success() {
    for kind in ND2_REQUEST_TYPE::ALL {
        for status in statuses() {
            assert_eq!(
                result_status(kind, status) == HRESULT::ND_SUCCESS,
                status == NtStatus::SUCCESS,
                "{kind:?} {status}"
            );
        }
    }
}

#[test]
fn every_pair_of_the_table_can_be_produced() {
    for (row, cells) in TABLE {
        for (kind, valid) in COLUMNS.into_iter().zip(cells) {
            let produced = result_status(kind, row.to_status()) == row;
            assert_eq!(produced, valid, "{kind:?} {row}");
        }
    }
}

#[test]
fn where_the_document_contradicts_itself_the_table_holds() {
    // The prose says that a bind to invalid memory is an access violation, the table that no bind is.
    let bind = result_status(ND2_REQUEST_TYPE::BIND, NtStatus::ACCESS_VIOLATION);
    assert_eq!(bind, HRESULT::ND_INVALID_DEVICE_REQUEST);
}

#[test]
fn codes_have_the_bits_of_the_ntstatus_of_the_same_meaning() {
    let alike = [
        (HRESULT::ND_PENDING, NtStatus::PENDING),
        (HRESULT::ND_BUFFER_OVERFLOW, NtStatus::BUFFER_OVERFLOW),
        (HRESULT::ND_INTERNAL_ERROR, NtStatus::INTERNAL_ERROR),
        (HRESULT::ND_CANCELED, NtStatus::CANCELLED),
        (HRESULT::ND_DEVICE_REMOVED, NtStatus::DEVICE_REMOVED),
        (HRESULT::ND_REMOTE_ERROR, NtStatus::REMOTE_RESOURCES),
        (HRESULT::ND_INSUFFICIENT_RESOURCES, NtStatus::INSUFFICIENT_RESOURCES),
    ];
    for (result, status) in alike {
        assert_eq!(HRESULT::of(status), result);
        assert_eq!(result.to_status(), status);
    }
    assert!(HRESULT::ND_PENDING.succeeded() && HRESULT::ND_TIMEOUT.succeeded(), "by the sign");
    assert!(!HRESULT::ND_BUFFER_OVERFLOW.succeeded());
    assert_eq!(HRESULT::ND_FAILURE, HRESULT::ND_INTERNAL_ERROR, "the decision for the code that no header defines");
}

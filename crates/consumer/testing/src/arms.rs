//! How two arms merge (NDKPI 7.1.4), from one table for all tests.

use engine::cq::notify::ArmType::{self, Any, Errors, Solicited};

/// The table, cell by cell: the arm that stands, the arm that comes, and what the queue is armed for then.
pub const MERGES: [(ArmType, ArmType, ArmType); 9] = [
    (Any, Any, Any),
    (Any, Errors, Any),
    (Any, Solicited, Any),
    (Errors, Any, Any),
    (Errors, Errors, Errors),
    (Errors, Solicited, Solicited),
    (Solicited, Any, Any),
    (Solicited, Errors, Solicited),
    (Solicited, Solicited, Solicited),
];

/// What a queue is armed for after an arm. An unarmed queue takes the arm as it is.
///
/// # Panics
///
/// The table lacks a cell.
#[must_use]
pub fn merged(standing: Option<ArmType>, coming: ArmType) -> ArmType {
    let Some(standing) = standing else { return coming };
    let cell = MERGES.iter().find(|cell| (cell.0, cell.1) == (standing, coming));
    cell.expect("the table has every cell").2
}

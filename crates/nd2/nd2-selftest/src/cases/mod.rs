//! All cases, in the order of the documents.

mod affinity;
mod connections;
mod disconnections;
mod errors;
mod interface;
mod memory;
mod notify;
mod objects;
mod overlapped;
mod resize;
mod results;
mod shared;
mod steps;
mod version1;
mod version1_objects;

use crate::Case;

/// Every case.
#[must_use]
pub fn all() -> Vec<Case> {
    [
        interface::CASES,
        affinity::CASES,
        resize::CASES,
        notify::CASES,
        steps::CASES,
        errors::CASES,
        results::CASES,
        overlapped::CASES,
        version1::CASES,
        version1_objects::CASES,
        objects::CASES,
        memory::CASES,
        connections::CASES,
        disconnections::CASES,
        shared::CASES,
    ]
    .concat()
}

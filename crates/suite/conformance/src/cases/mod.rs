//! The cases, one file for each theme.

mod access;
mod arm;
mod bad_input;
mod bad_order;
mod close;
mod close_inside;
mod common;
mod connect;
mod cq;
mod disconnect;
mod endpoint;
mod fast;
mod fast_register;
mod flush;
mod invalidate;
mod logical;
mod moderation;
mod notify;
mod object;
mod overrun;
mod post;
mod protection;
mod qp;
mod rdma;
mod registration;
mod resize;
mod results;
mod since;
mod srq;
mod stress;
mod transfer;
mod version;
mod window;

use crate::case::Case;

pub(crate) use self::common::Fast;
pub use self::since::{SINCE_1_2, SINCE_2_1};

/// All themes, in the order of the report.
const THEMES: &[&[Case]] = &[
    version::CASES,
    object::CASES,
    cq::CASES,
    results::CASES,
    arm::CASES,
    notify::CASES,
    overrun::CASES,
    resize::CASES,
    moderation::CASES,
    qp::CASES,
    post::CASES,
    transfer::CASES,
    flush::CASES,
    access::CASES,
    fast::CASES,
    window::CASES,
    invalidate::CASES,
    logical::CASES,
    srq::CASES,
    registration::CASES,
    protection::CASES,
    fast_register::CASES,
    rdma::CASES,
    bad_input::CASES,
    bad_order::CASES,
    connect::CASES,
    disconnect::CASES,
    endpoint::CASES,
    close::CASES,
    close_inside::CASES,
    stress::CASES,
];

/// All cases, in the order of the report.
pub fn all() -> impl Iterator<Item = &'static Case> + Clone {
    THEMES.iter().copied().flatten()
}

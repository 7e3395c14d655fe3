//! The rules of queue pairs and of posting (NDKPI 7.2, 7.3), one test for each: the test's name is the rule.
//!
//! On the seeded machine of the host, with a NIC that works in DPCs and with one that works directly: what a
//! consumer can see is the same.

#![cfg(not(loom))]

mod batches;
mod cq_failure;
mod ending;
mod fairness;
mod flags;
mod flush;
mod flush_races;
mod invalidation;
mod posting;
mod shared;
mod single_requests;
mod transfer;
mod translation_cache;

mod hardware;
mod window_ends;

use testing::allocation::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

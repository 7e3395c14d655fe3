//! The rules of queue pairs and of posting (NDKPI 7.2, 7.3), one test for each: the test's name is the rule.
//!
//! On the seeded machine of the host, with a NIC that works in deferred calls and with one that works directly: what a
//! consumer can see is the same.

#[path = "qp_rules/batches.rs"]
mod batches;
#[path = "qp_rules/cq_failure.rs"]
mod cq_failure;
#[path = "qp_rules/ending.rs"]
mod ending;
#[path = "qp_rules/fairness.rs"]
mod fairness;
#[path = "qp_rules/flags.rs"]
mod flags;
#[path = "qp_rules/flush.rs"]
mod flush;
#[path = "qp_rules/flush_races.rs"]
mod flush_races;
#[path = "qp_rules/invalidation.rs"]
mod invalidation;
#[path = "qp_rules/posting.rs"]
mod posting;
#[path = "qp_rules/shared.rs"]
mod shared;
#[path = "qp_rules/single_requests.rs"]
mod single_requests;
#[path = "qp_rules/transfer.rs"]
mod transfer;
#[path = "qp_rules/translation_cache.rs"]
mod translation_cache;

#[path = "qp_rules/hardware.rs"]
mod hardware;
#[path = "qp_rules/window_ends.rs"]
mod window_ends;

use tests_host::allocation::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

//! The rules of completion queues (NDKPI 7.1), one test for each: the test's name is the rule.
//!
//! On the seeded machine of the host: callbacks run when a test lets the machine run, and not before.

#[path = "cq_rules/arm.rs"]
mod arm;
#[path = "cq_rules/callback.rs"]
mod callback;
#[path = "cq_rules/close.rs"]
mod close;
#[path = "cq_rules/failure.rs"]
mod failure;
#[path = "cq_rules/moderation.rs"]
mod moderation;
#[path = "cq_rules/moderation_corners.rs"]
mod moderation_corners;
#[path = "cq_rules/queue.rs"]
mod queue;
#[path = "cq_rules/resize.rs"]
mod resize;
#[path = "cq_rules/ring.rs"]
mod ring;

use tests_host::allocation::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

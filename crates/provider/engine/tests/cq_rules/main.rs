//! The rules of completion queues (NDKPI 7.1), one test for each: the test's name is the rule.
//!
//! On the seeded machine of the host: callbacks run when a test lets the machine run, and not before.

#![cfg(not(loom))]

mod arm;
mod callback;
mod close;
mod failure;
mod moderation;
mod moderation_corners;
mod queue;
mod resize;
mod ring;

use testing::allocation::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

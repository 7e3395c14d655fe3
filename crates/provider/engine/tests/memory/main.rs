//! Registered memory (`NDKPI 7.4` to `7.6`): who may use which bytes, and until when. One test for each rule.

#![cfg(not(loom))]

mod bytes;
mod concurrency;
mod fast_register;
mod logical;
mod pairs;
mod random;
mod regions;
mod resources;
mod reuse;
mod tokens;
mod transfer;
mod windows;
mod world;

use testing::allocation::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

//! Registered memory (`NDKPI 7.4` to `7.6`): who may use which bytes, and until when. One test for each rule.

#[path = "memory/bytes.rs"]
mod bytes;
#[path = "memory/concurrency.rs"]
mod concurrency;
#[path = "memory/fast_register.rs"]
mod fast_register;
#[path = "memory/logical.rs"]
mod logical;
#[path = "memory/pairs.rs"]
mod pairs;
#[path = "memory/random.rs"]
mod random;
#[path = "memory/regions.rs"]
mod regions;
#[path = "memory/resources.rs"]
mod resources;
#[path = "memory/reuse.rs"]
mod reuse;
#[path = "memory/tokens.rs"]
mod tokens;
#[path = "memory/transfer.rs"]
mod transfer;
#[path = "memory/windows.rs"]
mod windows;
#[path = "memory/world.rs"]
mod world;

use tests_host::allocation::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

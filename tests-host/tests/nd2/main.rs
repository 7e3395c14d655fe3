//! The user-mode NetworkDirect interface (NDSPI): the cases of its self-test, the decision whose turn it is against an oracle,
//! the table of valid statuses, the binary interface, settings, and memory that runs out.

mod abi;
mod addresses;
mod allocation;
mod back_end;
mod cases;
mod delays;
mod faults;
mod random;
mod settings;
mod statuses;
mod waiters;

use testing::allocation::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

//! The user-mode NetworkDirect interface (NDSPI): the cases of its self-test, the decision whose turn it is against an oracle,
//! the table of valid statuses, the binary interface, settings, and memory that runs out.

#[path = "nd2/abi.rs"]
mod abi;
#[path = "nd2/addresses.rs"]
mod addresses;
#[path = "nd2/allocation.rs"]
mod allocation;
#[path = "nd2/back_end.rs"]
mod back_end;
#[path = "nd2/cases.rs"]
mod cases;
#[path = "nd2/delays.rs"]
mod delays;
#[path = "nd2/faults.rs"]
mod faults;
#[path = "nd2/random.rs"]
mod random;
#[path = "nd2/settings.rs"]
mod settings;
#[path = "nd2/statuses.rs"]
mod statuses;
#[path = "nd2/waiters.rs"]
mod waiters;

use tests_host::allocation::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

//! The adviser: each finding is made of a consumer that breaks the rule, and of none that comes close to it.

#[path = "adviser/committed.rs"]
mod committed;
#[path = "adviser/committed_connections.rs"]
mod committed_connections;
#[path = "adviser/committed_life.rs"]
mod committed_life;
#[path = "adviser/committed_memory.rs"]
mod committed_memory;
#[path = "adviser/committed_posts.rs"]
mod committed_posts;
#[path = "adviser/committed_queues.rs"]
mod committed_queues;
#[path = "adviser/consumer.rs"]
mod consumer;
#[path = "adviser/fault_kinds.rs"]
mod fault_kinds;
#[path = "adviser/fault_plans.rs"]
mod fault_plans;
#[path = "adviser/faults.rs"]
mod faults;
#[path = "adviser/modes.rs"]
mod modes;
#[path = "adviser/rows.rs"]
mod rows;
#[path = "adviser/soak.rs"]
mod soak;
#[path = "adviser/suite.rs"]
mod suite;

//! The adviser: each finding is made of a consumer that breaks the rule, and of none that comes close to it.

mod committed;
mod committed_connections;
mod committed_life;
mod committed_memory;
mod committed_posts;
mod committed_queues;
mod consumer;
mod fault_kinds;
mod fault_plans;
mod faults;
mod modes;
mod rows;
mod soak;
mod steps;
mod suite;

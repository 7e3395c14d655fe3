//! The adviser: each finding is made of a consumer that breaks the rule, and of none that comes close to it.

#[path = "adviser/committed.rs"]
mod committed;
#[path = "adviser/consumer.rs"]
mod consumer;
#[path = "adviser/faults.rs"]
mod faults;
#[path = "adviser/suite.rs"]
mod suite;

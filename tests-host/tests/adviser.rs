//! The adviser: each finding is made of a consumer that breaks the rule, and of none that comes close to it.

#[path = "adviser/committed.rs"]
mod committed;
#[path = "adviser/consumer.rs"]
mod consumer;
#[path = "adviser/fault_kinds.rs"]
mod fault_kinds;
#[path = "adviser/fault_plans.rs"]
mod fault_plans;
#[path = "adviser/faults.rs"]
mod faults;
#[path = "adviser/suite.rs"]
mod suite;

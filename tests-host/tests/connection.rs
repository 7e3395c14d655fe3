//! Connections keep the rules of NDKPI 7.7 and 7.8: one test for each, named after the rule.

#[path = "connection/abandoning.rs"]
mod abandoning;
#[path = "connection/accounting.rs"]
mod accounting;
#[path = "connection/concurrency.rs"]
mod concurrency;
#[path = "connection/data.rs"]
mod data;
#[path = "connection/ending.rs"]
mod ending;
#[path = "connection/endpoints.rs"]
mod endpoints;
#[path = "connection/establishing.rs"]
mod establishing;
#[path = "connection/failures.rs"]
mod failures;
#[path = "connection/lifetime.rs"]
mod lifetime;
#[path = "connection/listening.rs"]
mod listening;
#[path = "connection/random.rs"]
mod random;
#[path = "connection/removal.rs"]
mod removal;
#[path = "connection/rest.rs"]
mod rest;
#[path = "connection/world.rs"]
mod world;

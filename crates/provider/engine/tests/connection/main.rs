//! Connections keep the rules of NDKPI 7.7 and 7.8: one test for each, named after the rule.

#![cfg(not(loom))]

mod abandoning;
mod accounting;
mod concurrency;
mod data;
mod ending;
mod endpoints;
mod establishing;
mod failures;
mod lifetime;
mod listening;
mod random;
mod removal;
mod rest;
mod world;

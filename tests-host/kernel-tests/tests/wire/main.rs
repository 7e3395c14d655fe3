//! The wire of `softndknic`: adapters that reach each other, and other programs, by datagrams only.

#![cfg(unix)]

mod data;
mod faults;
mod forged;
mod frames;
mod host;
mod lifecycle;
mod machines;
mod settings;
mod shown;
mod suite;

use rigs::{machine, sides, transport, world};

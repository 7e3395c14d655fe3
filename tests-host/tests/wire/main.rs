//! The wire of `softndknic`: adapters that reach each other, and other programs, by datagrams only.

#![cfg(unix)]

mod data;
mod faults;
mod frames;
mod host;
mod lifecycle;
mod settings;
mod sides;
mod suite;

use rigs::{machine, transport, world};

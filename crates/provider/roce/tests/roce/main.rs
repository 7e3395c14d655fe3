//! What RoCEv2 says of packets, queue pairs and connections, each rule with a test named after it.

#![allow(clippy::cast_possible_truncation, reason = "lengths and patterns of tests are small")]

mod any_bytes;
mod common;
mod connections;
mod golden;
mod network;
mod rejections;
mod requester;
mod responder;
mod stack;

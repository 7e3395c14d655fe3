//! The cable between the two ends of a pair of virtual NICs, or between one and a wire to other machines, as pure logic: what happens to
//! a frame, and when. It knows nothing of NDIS and copies no bytes; the miniport `softndknic` does both.
//!
//! | Module | Contents |
//! |---|---|
//! | [`link`] | one direction: the receiver's pool of buffers, the frames under way, loss, delay, jitter and rate |
//! | [`gate`] | what is inside of an adapter, so that a pause knows when it is complete |
//! | [`turn`] | one at a time, and once more if somebody asked meanwhile |
//! | [`frame`] | the kinds of frames by their destination |
//! | [`tag`] | priority and virtual LAN of a frame |
//! | [`counters`] | frames and bytes by kind |
//! | [`peers`] | the other ends of a wire, as its keyword names them |
//! | [`class`] | whose a frame is that comes in by a wire |
//!
//! Nothing allocates but [`Link::try_new`]. Everything is for any IRQL up to `DISPATCH_LEVEL`, under a lock of the caller's.

#![no_std]

extern crate alloc;

pub mod class;
pub mod counters;
pub mod frame;
pub mod gate;
mod impairment;
pub mod link;
pub mod peers;
pub mod tag;
pub mod turn;

pub use crate::{
    class::Class,
    counters::Counters,
    frame::{Kind, MacAddress},
    gate::Gate,
    impairment::Impairment,
    link::{Link, Reserved},
    peers::{Peer, Peers},
    tag::{Tag, Tagging},
    turn::Turn,
};

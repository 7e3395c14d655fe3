//! The least that any implementation has to do, measured: the rows `machine: ...` beside the peers of the rows they bound.
//!
//! Each does what the interface forces, with nothing around it: no object is looked up, nothing is checked, counted or decided,
//! nobody can be told anything. If a goal is not reached so, it is not reached by more. The bound of the four producers is beside them
//! ([`producers`](super::producers)).

pub mod copy;
pub mod message;
pub mod queue;

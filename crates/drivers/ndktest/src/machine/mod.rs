//! The second adapter of a run on another machine (`docs/windows-vm.md`).
//!
//! A run of the suite on this machine drives both ends of its connections. One of them may be an adapter of another machine, where an
//! agent, which is a run as well, makes the calls ([`remote`]). The two talk by UDP: a lane is a socket on either side, on which one
//! call is made at a time, sent again until its answer has come, and carried out once. A session has [`LANES`](lane::LANES) of them,
//! at as many ports in a row.
//!
//! | Module | Contents |
//! |---|---|
//! | [`frame`] | what a datagram begins with |
//! | [`lane`] | a socket |
//! | [`far`] | the machine that calls |
//! | [`agent`] | the machine that is called |

pub mod agent;
pub mod far;
pub mod frame;
pub mod lane;

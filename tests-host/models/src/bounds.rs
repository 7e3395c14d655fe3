//! How far the model goes, and its check.

use stateright::{Checker, HasDiscoveries, Model};

use crate::{
    model::{Bounds, Protocol},
    oracle::Moderation,
};

/// Nothing is bounded by it but what follows: how often each thing happens.
const NONE: Bounds = Bounds { entries: 0, arms: 0, failures: 0, moderations: 0, resizes: 0, closes: 0, end: 0 };

/// A queue for two entries, which a resize makes a queue for one or for three.
fn protocol(bounds: Bounds) -> Protocol {
    // A time, a count, both with a count above the depth, and none.
    let limits = [(Some(2), None), (None, Some(2)), (Some(1), Some(3)), (Some(0), Some(0))];
    let moderations = limits.map(|(interval, count)| Moderation { interval, count }).to_vec();
    Protocol { bounds, depth: 2, moderations, depths: vec![1, 3] }
}

/// Arms, callbacks, a failure, a resize and a close; nothing is held back.
pub fn unmoderated(entries: u8) -> Protocol {
    protocol(Bounds { entries, arms: 3, failures: 1, resizes: 1, closes: 1, ..NONE })
}

/// The same with interrupt moderation.
pub fn moderated(entries: u8, moderations: u8, end: u32) -> Protocol {
    protocol(Bounds { entries, arms: 2, failures: 1, moderations, resizes: 1, closes: 1, end })
}

/// The moderation is changed while callbacks are held back.
pub fn changed() -> Protocol {
    protocol(Bounds { entries: 3, arms: 2, moderations: 2, end: 1, ..NONE })
}

/// Looks at every state, until a property is violated.
pub fn check(protocol: Protocol) -> impl Checker<Protocol> {
    protocol.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join()
}

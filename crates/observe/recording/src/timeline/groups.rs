//! Which lanes belong together: those of a connection.

use std::collections::HashMap;

use crate::{Recording, peers};

use super::{Lane, LaneKind, names::Names};

/// Says of each lane what it belongs to. A completion queue of several connections is with the first of them.
pub fn name(lanes: &mut [Lane], recording: &Recording, names: &Names) {
    let peers = peers(recording);
    // The lower number of a connection stands for it.
    let first = |qp: u32| peers.get(&qp).map_or(qp, |peer| qp.min(*peer));
    let mut of_queues: HashMap<u32, u32> = HashMap::new();
    for (qp, cqs) in names.cqs() {
        for cq in cqs {
            let group = of_queues.entry(cq).or_insert(u32::MAX);
            *group = (*group).min(first(qp));
        }
    }
    let pair = |near, far| format!("{} - {}", names.name(near), names.name(far));
    let named = |qp: u32| peers.get(&qp).map_or_else(|| names.name(qp), |peer| pair(qp, *peer));
    for lane in lanes {
        lane.group = match lane.kind {
            LaneKind::Processor => "processors".to_owned(),
            LaneKind::Wire => "wires".to_owned(),
            LaneKind::QueuePair => named(first(lane.number)),
            LaneKind::CompletionQueue => {
                of_queues.get(&lane.number).map_or_else(|| "other queues".to_owned(), |group| named(*group))
            }
        };
    }
}

//! Which queue pairs are connected with which, where both sides are in the recording.

use std::collections::{HashMap, VecDeque};

use interpose::{Function, Phase};

use crate::{Arguments, Recording, timeline::Names};

/// A connect that no connect event has been seen for.
struct Attempt {
    connector: u32,
    remote: Vec<u8>,
}

/// The queue pair that each connected one is connected with.
#[must_use]
pub fn peers(recording: &Recording) -> HashMap<u32, u32> {
    let names = Names::of(recording);
    let (mut attempts, mut peers) = (VecDeque::<Attempt>::new(), HashMap::new());
    let mut listeners: HashMap<u32, Vec<u8>> = HashMap::new();
    for record in &recording.records {
        match (record.phase, record.function, &record.arguments) {
            (Phase::Call, Function::Listen, Arguments::Listen { address }) => {
                listeners.insert(record.object, address.bytes.clone());
            }
            (Phase::Return, Function::GetListenerLocalAddress, Arguments::Address { out })
                if !out.stored.bytes.is_empty() =>
            {
                listeners.insert(record.object, out.stored.bytes.clone());
            }
            (Phase::Call, Function::Connect | Function::ConnectWithSharedEndpoint, Arguments::Connect(connect)) => {
                attempts.push_back(Attempt { connector: record.object, remote: connect.remote.bytes.clone() });
            }
            (Phase::Callback, Function::ConnectEvent, _) => {
                let listener = listeners.get(&record.object);
                let found = attempts.iter().position(|attempt| Some(&attempt.remote) == listener);
                let Some(attempt) = attempts.remove(found.unwrap_or(0)) else { continue };
                let ends = names.qp_of(attempt.connector).zip(names.qp_of(record.created));
                if let Some((near, far)) = ends {
                    peers.extend([(near, far), (far, near)]);
                }
            }
            _ => {}
        }
    }
    peers
}

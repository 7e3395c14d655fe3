//! Which queue pairs are connected, and from which address to which.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use interpose::{Function, Phase};

use crate::{Arguments, Record, Recording, timeline::Names};

/// From one queue pair to the one that it is connected with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The address that packets come from.
    pub from: IpAddr,
    /// The address that they go to.
    pub to: IpAddr,
    /// The number of the queue pair that they come from.
    pub from_qp: u32,
    /// The number of the queue pair that they go to.
    pub to_qp: u32,
}

impl Link {
    /// The way back.
    pub const fn back(self) -> Self {
        Self { from: self.to, to: self.from, from_qp: self.to_qp, to_qp: self.from_qp }
    }
}

/// The connections of a recording.
pub struct Connections {
    names: Names,
    links: HashMap<u32, Link>,
}

/// The peer of a queue pair whose peer is not in the recording.
const UNKNOWN: u32 = 0x00FF_FFFE;

/// A connect that no connect event has been seen for.
struct Attempt {
    connector: u32,
    remote: Vec<u8>,
    addresses: Option<(IpAddr, IpAddr)>,
}

impl Connections {
    /// Those of a recording.
    pub fn of(recording: &Recording) -> Self {
        let names = Names::of(recording);
        let (mut attempts, mut links) = (VecDeque::<Attempt>::new(), HashMap::new());
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
                    let addresses = address(&connect.local.bytes).zip(address(&connect.remote.bytes));
                    let remote = connect.remote.bytes.clone();
                    attempts.push_back(Attempt { connector: record.object, remote, addresses });
                }
                (Phase::Callback, Function::ConnectEvent, _) => {
                    let listener = listeners.get(&record.object);
                    let found = attempts.iter().position(|attempt| Some(&attempt.remote) == listener);
                    let Some(attempt) = attempts.remove(found.unwrap_or(0)) else { continue };
                    let ends = names.qp_of(attempt.connector).zip(names.qp_of(record.created));
                    let (Some((from_qp, to_qp)), Some((from, to))) = (ends, attempt.addresses) else { continue };
                    let link = Link { from, to, from_qp, to_qp };
                    links.insert(from_qp, link);
                    links.insert(to_qp, link.back());
                }
                _ => {}
            }
        }
        Self { names, links }
    }

    /// Where the packets of a queue pair go.
    pub fn link(&self, qp: u32) -> Link {
        let known = self.links.get(&qp).copied();
        known.unwrap_or_else(|| Link {
            from: Ipv4Addr::new(192, 0, 2, 1).into(),
            to: Ipv4Addr::new(192, 0, 2, 2).into(),
            from_qp: qp,
            to_qp: UNKNOWN,
        })
    }

    /// The peer of each connected queue pair.
    pub fn peers(&self) -> HashMap<u32, u32> {
        self.links.iter().map(|(qp, link)| (*qp, link.to_qp)).collect()
    }

    /// The name of an object.
    pub fn name(&self, object: u32) -> String {
        self.names.name(object)
    }

    /// The queue pair with this context whose completion a poll has taken.
    pub fn qp(&self, poll: &Record, context: u64) -> Option<u32> {
        self.names.qp(poll, context)
    }
}

/// The address in a `SOCKADDR_IN` or `SOCKADDR_IN6` (`NDKPI 0.2`).
fn address(bytes: &[u8]) -> Option<IpAddr> {
    match u16::from_le_bytes(bytes.first_chunk().copied()?) {
        2 => bytes.get(4..8)?.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets).into()),
        23 => bytes.get(8..24)?.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets).into()),
        _ => None,
    }
}

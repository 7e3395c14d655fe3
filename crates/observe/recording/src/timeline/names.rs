//! What the objects of a recording are called, and what belongs to what.

use std::collections::HashMap;

use interpose::Function;
use ndkpi::NDK_OBJECT_TYPE;

use crate::{Arguments, Outcome, Record, Recording};

/// The objects of a recording.
pub struct Names {
    kinds: HashMap<u32, (NDK_OBJECT_TYPE, u32)>,
    /// The queue pairs of a context, for each adapter, with the record that made each: contexts come again.
    qps: HashMap<(u8, u64), Vec<(u64, u32)>>,
    /// The completion queues of a queue pair: for receives, for initiator requests.
    cqs: HashMap<u32, [u32; 2]>,
    /// The queue pair of a connector.
    connectors: HashMap<u32, u32>,
}

impl Names {
    /// Those of a recording.
    pub fn of(recording: &Recording) -> Self {
        let mut names =
            Self { kinds: HashMap::new(), qps: HashMap::new(), cqs: HashMap::new(), connectors: HashMap::new() };
        let mut counts = HashMap::new();
        // What the call was given, for a creation that completes later.
        let mut given = HashMap::new();
        for record in &recording.records {
            let call = (record.adapter, record.call);
            match (record.function, &record.arguments) {
                (Function::CreateQp | Function::CreateQpWithSrq, Arguments::CreateQp(sizes)) => {
                    given.insert(call, (sizes.context, [record.related[0], record.related[1]]));
                }
                (
                    Function::Connect | Function::ConnectWithSharedEndpoint | Function::Accept | Function::AcceptEx,
                    _,
                ) if record.related[0] != 0 => {
                    names.connectors.insert(record.object, record.related[0]);
                }
                _ => {}
            }
            if record.created == 0 || names.kinds.contains_key(&record.created) {
                continue;
            }
            let count = counts.entry(record.created_kind.0).or_insert(0_u32);
            *count += 1;
            names.kinds.insert(record.created, (record.created_kind, *count));
            if let Some((context, cqs)) = given.get(&call).filter(|_| record.created_kind == NDK_OBJECT_TYPE::QP) {
                names.qps.entry((record.adapter, *context)).or_default().push((record.ordinal, record.created));
                names.cqs.insert(record.created, *cqs);
            }
        }
        names
    }

    /// What an object is, if its creation is in the recording.
    pub fn kind(&self, object: u32) -> Option<NDK_OBJECT_TYPE> {
        self.kinds.get(&object).map(|(kind, _)| *kind)
    }

    /// The name of an object: its type and a number.
    pub fn name(&self, object: u32) -> String {
        match self.kinds.get(&object) {
            Some((kind, number)) => {
                let word = match *kind {
                    NDK_OBJECT_TYPE::CQ => "CQ",
                    NDK_OBJECT_TYPE::QP => "QP",
                    NDK_OBJECT_TYPE::PD => "PD",
                    NDK_OBJECT_TYPE::MR => "MR",
                    NDK_OBJECT_TYPE::MW => "MW",
                    NDK_OBJECT_TYPE::SRQ => "SRQ",
                    NDK_OBJECT_TYPE::CONNECTOR => "connector",
                    NDK_OBJECT_TYPE::LISTENER => "listener",
                    NDK_OBJECT_TYPE::SHARED_ENDPOINT => "shared endpoint",
                    _ => "object",
                };
                format!("{word} {number}")
            }
            None if object == 0 => "no object".to_owned(),
            None => format!("object {object}"),
        }
    }

    /// The queue pair with this context whose completion a poll has taken: the newest that completes to its queue.
    pub fn qp(&self, poll: &Record, context: u64) -> Option<u32> {
        let candidates = self.qps.get(&(poll.adapter, context))?.iter().rev();
        let mut known = candidates.filter(|(made, _)| *made <= poll.ordinal).map(|(_, qp)| *qp);
        known.find(|qp| self.cqs.get(qp).is_some_and(|cqs| cqs.contains(&poll.object)))
    }

    /// The completion queue of a queue pair for receives, or for initiator requests.
    pub fn cq(&self, qp: u32, receives: bool) -> Option<u32> {
        self.cqs.get(&qp).map(|cqs| cqs[usize::from(!receives)])
    }

    /// The queue pairs with their completion queues: for receives, for initiator requests.
    pub fn cqs(&self) -> impl Iterator<Item = (u32, [u32; 2])> {
        self.cqs.iter().map(|(qp, cqs)| (*qp, *cqs))
    }

    /// The queue pair of a connector.
    pub fn qp_of(&self, connector: u32) -> Option<u32> {
        self.connectors.get(&connector).copied()
    }
}

/// The result of a call in words.
pub fn outcome(record: &Record) -> String {
    match record.outcome {
        Outcome::None => "nothing".to_owned(),
        Outcome::Status(status) => status.to_string(),
        Outcome::Count(count) => format!("{count} results"),
        Outcome::Token(token) => format!("the token {token:#x}"),
    }
}

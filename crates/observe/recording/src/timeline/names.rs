//! What the objects of a recording are called, and what belongs to what.

use std::collections::HashMap;

use interpose::Function;
use ndkpi::NDK_OBJECT_TYPE;

use crate::{Arguments, Outcome, Record, Recording};

/// The types of objects that have names.
const KINDS: [NDK_OBJECT_TYPE; 9] = [
    NDK_OBJECT_TYPE::CQ,
    NDK_OBJECT_TYPE::QP,
    NDK_OBJECT_TYPE::PD,
    NDK_OBJECT_TYPE::MR,
    NDK_OBJECT_TYPE::MW,
    NDK_OBJECT_TYPE::SRQ,
    NDK_OBJECT_TYPE::CONNECTOR,
    NDK_OBJECT_TYPE::LISTENER,
    NDK_OBJECT_TYPE::SHARED_ENDPOINT,
];

/// The word of the adviser for a type (`interpose::ObjectId`).
fn advised(kind: NDK_OBJECT_TYPE) -> Option<&'static str> {
    kind.name()?.strip_prefix("NdkObjectType")
}

/// The objects of a recording.
pub struct Names {
    kinds: HashMap<u32, (NDK_OBJECT_TYPE, u32)>,
    /// The queue pairs of a context, for each adapter, with the record that made each: contexts come again.
    qps: HashMap<(u8, u64), Vec<(u64, u32)>>,
    /// The completion queues of a queue pair: for receives, for initiator requests.
    cqs: HashMap<u32, [u32; 2]>,
    /// The queue pair of a connector.
    connectors: HashMap<u32, u32>,
    /// The objects by what the adviser calls them: for each adapter by type and number.
    advised: HashMap<(u8, i32, u16), u32>,
}

impl Names {
    /// Those of a recording.
    pub fn of(recording: &Recording) -> Self {
        let mut names = Self {
            kinds: HashMap::new(),
            qps: HashMap::new(),
            cqs: HashMap::new(),
            connectors: HashMap::new(),
            advised: HashMap::new(),
        };
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
            if record.created_number != 0 {
                let key = (record.adapter, record.created_kind.0, record.created_number);
                names.advised.insert(key, record.created);
            }
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

    /// Words of the adviser about an adapter, with its objects called as here: `QP 1` for `Qp 4`. What is not in the recording keeps its
    /// name.
    pub fn in_words(&self, adapter: u8, words: &str) -> String {
        let mut parts: Vec<String> = words.split(' ').map(str::to_owned).collect();
        for at in 1..parts.len() {
            let [kind, number] = &mut parts[at - 1..=at] else { continue };
            let word = kind.trim_start_matches(|letter: char| !letter.is_alphanumeric());
            let digits = number.len() - number.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
            let object = number[..digits].parse().ok().and_then(|count: u16| {
                let kind = KINDS.into_iter().find(|kind| advised(*kind) == Some(word))?;
                self.advised.get(&(adapter, kind.0, count))
            });
            let Some(name) = object.map(|object| self.name(*object)) else { continue };
            let Some((named, count)) = name.rsplit_once(' ') else { continue };
            *kind = format!("{}{named}", &kind[..kind.len() - word.len()]);
            *number = format!("{count}{}", &number[digits..]);
        }
        parts.join(" ")
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

#[cfg(test)]
mod tests {
    use ndkpi::NDK_OBJECT_TYPE;

    use super::Names;
    use crate::Recording;

    #[test]
    fn words_of_the_adviser_get_the_names_of_the_recording() {
        let mut names = Names::of(&Recording::default());
        for (object, kind, number) in [(9, NDK_OBJECT_TYPE::QP, 4), (10, NDK_OBJECT_TYPE::SHARED_ENDPOINT, 5)] {
            names.kinds.insert(object, (kind, 1));
            names.advised.insert((2, kind.0, number), object);
        }
        let words =
            "SN0025 (NDKPI 7.4): Qp 4: Qp 40, qp 4, Mr 4 and (Qp 4), SharedEndpoint 5, in NdkWrite, processor 4";
        assert_eq!(
            names.in_words(2, words),
            "SN0025 (NDKPI 7.4): QP 1: Qp 40, qp 4, Mr 4 and (QP 1), shared endpoint 1, in NdkWrite, processor 4"
        );
        assert_eq!(names.in_words(1, words), words, "those of another adapter");
    }
}

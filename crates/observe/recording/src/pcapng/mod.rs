//! A recording as packets: what an adapter for RoCE v2 would have put on the wire, for tools that know its protocol.
//!
//! The packets are made up from the requests. Their order, addresses, tokens, lengths and kinds are those of the recording; queue
//! pair numbers are the objects' numbers, and the bytes of messages are zeros, because a recording has none. Each packet has a comment with
//! the request that it belongs to.

mod connections;
mod packet;
mod writer;

use std::collections::{HashMap, VecDeque};

use interpose::{Function, Phase};
use ndkpi::{NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT as SOLICIT, NDK_OP_FLAG_SILENT_SUCCESS as SILENT, NtStatus};

use crate::{Arguments, Outcome, Record, Recording, timeline::describe};

use connections::{Connections, Link};
use packet::{Packet, Work, answer, request};
use writer::Writer;

/// Packets of one message at most; the rest of a longer one is left out, which the comment of the last one says.
pub const MOST_PACKETS: u32 = 32;

/// A request whose answer was not seen.
struct Waiting {
    work: Work,
    link: Link,
    first_psn: u32,
    packets: u32,
    comment: String,
}

/// What is known of the traffic so far.
struct Traffic {
    writer: Writer,
    /// The next packet number of each queue pair.
    numbers: HashMap<u32, u32>,
    /// Posts that have not returned, by adapter and call.
    posts: HashMap<(u8, u64), Work>,
    /// Initiator requests in their order, by queue pair: context, and whether they are silent.
    waiting: HashMap<u32, VecDeque<(u64, bool, Waiting)>>,
}

/// The recording in the format pcapng.
#[must_use]
pub fn pcapng(recording: &Recording) -> Vec<u8> {
    let connections = Connections::of(recording);
    let mut traffic =
        Traffic { writer: Writer::new(), numbers: HashMap::new(), posts: HashMap::new(), waiting: HashMap::new() };
    let (begin, _) = recording.times();
    for record in &recording.records {
        let time = record.time - begin;
        let key = (record.adapter, record.call);
        match record.phase {
            Phase::Call => {
                if let Some(work) = work(record) {
                    traffic.posts.insert(key, work);
                }
            }
            Phase::Return => {
                if let Some(work) = traffic.posts.remove(&key)
                    && matches!(record.outcome, Outcome::Status(status) if status.is_success())
                {
                    traffic.post(time, record, work, &connections);
                } else if matches!(record.function, Function::GetCqResults | Function::GetCqResultsEx) {
                    traffic.poll(time, record, &connections);
                }
            }
            Phase::Callback | Phase::CallbackReturn => {}
        }
    }
    traffic.writer.finish()
}

/// The queue pair that each connected one is connected with.
#[must_use]
pub fn peers(recording: &Recording) -> HashMap<u32, u32> {
    Connections::of(recording).peers()
}

/// What goes over the wire for a post.
fn work(record: &Record) -> Option<Work> {
    let Arguments::Transfer { remote_address, remote_token, flags, elements, .. } = &record.arguments else {
        return None;
    };
    let bytes: u64 = elements.iter().map(|element| u64::from(element.length)).sum();
    let length = u32::try_from(bytes).ok()?;
    let (address, token) = (*remote_address, *remote_token);
    Some(match record.function {
        Function::Send => Work::Send { length, invalidates: None, solicits: flags & SOLICIT != 0 },
        Function::SendAndInvalidate => Work::Send { length, invalidates: Some(token), solicits: flags & SOLICIT != 0 },
        Function::Write => Work::Write { length, address, token },
        Function::Read => Work::Read { length, address, token },
        _ => return None,
    })
}

impl Traffic {
    /// A request was posted: its packets leave.
    fn post(&mut self, time: u64, record: &Record, work: Work, connections: &Connections) {
        let Arguments::Transfer { context, flags, .. } = &record.arguments else { return };
        let link = connections.link(record.object);
        let psn = self.numbers.entry(record.object).or_insert(0);
        let comment = format!("{}: {}", connections.name(record.object), describe(record));
        let packets = request(&work, *psn);
        let first_psn = *psn;
        *psn = psn.wrapping_add(work.numbers()) & packet::PSN_MASK;
        let count = u32::try_from(packets.len()).unwrap_or(u32::MAX);
        self.send(time, &link, &packets, &comment);
        let waiting = Waiting { work, link, first_psn, packets: count, comment };
        self.waiting.entry(record.object).or_default().push_back((*context, flags & SILENT != 0, waiting));
    }

    fn send(&mut self, time: u64, link: &Link, packets: &[Packet], comment: &str) {
        for packet in packets {
            let note = if packet.is_cut { " (the rest of the message is left out)" } else { "" };
            self.writer.packet(time, &packet.bytes(link), packet.length(link), &format!("{comment}{note}"));
        }
    }

    /// Completions were taken: their requests have been answered.
    fn poll(&mut self, time: u64, record: &Record, connections: &Connections) {
        let Arguments::GetCqResults { results, .. } = &record.arguments else { return };
        for result in results {
            let Some(qp) = connections.qp(record, result.qp_context) else { continue };
            let Some(queue) = self.waiting.get_mut(&qp) else { continue };
            // A completion ends the silent requests before it too.
            let found = queue.iter().position(|(context, _, _)| *context == result.request_context);
            let Some(found) = found.filter(|found| queue.iter().take(*found).all(|(_, silent, _)| *silent)) else {
                continue;
            };
            let ended: Vec<_> = queue.drain(..=found).collect();
            let last = ended.len() - 1;
            for (index, (_, _, waiting)) in ended.into_iter().enumerate() {
                let status = if index == last { result.status } else { NtStatus::SUCCESS };
                let answers = answer(&waiting.work, waiting.first_psn, waiting.packets, status);
                self.send(time, &waiting.link.back(), &answers, &format!("answer to {}", waiting.comment));
            }
        }
    }
}

//! A page of many queue pairs and marks, made up: what `cargo xtask timeline` opens in a browser.
//! `-- FILE.html [QUEUE-PAIRS [MESSAGES]]`, 500 queue pairs and a million marks without numbers.

use std::{env, fs};

use interpose::{Function, Phase};
use ndkpi::{NDK_OBJECT_TYPE, NtStatus};
use recording::{
    Arguments, Completion, Element, Found, Outcome, QpSizes, Record, Recording,
    timeline::{Timeline, html},
};

/// Queue pairs, each with a completion queue.
const QUEUE_PAIRS: u32 = 500;
/// Messages: of each a post, a poll and what they are of are marks.
const MESSAGES: u32 = 250_000;
/// One message in so many fails.
const FAILS: u32 = 10_007;
/// Of one message in so many the adviser finds that its queue pair has too many requests.
const FINDS: u32 = 2_503;
/// The number of that finding.
const FINDING: u16 = 13;

/// The numbers of the objects, which the adapter begins.
const fn queue(pair: u32) -> u32 {
    2 + 2 * pair
}

const fn pair_of(pair: u32) -> u32 {
    3 + 2 * pair
}

/// Makes up a recording.
struct Maker {
    pairs: u32,
    records: Vec<Record>,
    findings: Vec<Found>,
}

impl Maker {
    fn add(&mut self, function: Function, object: u32, phase: Phase, arguments: Arguments) -> &mut Record {
        let number = self.records.len() as u64;
        self.records.push(Record {
            ordinal: number,
            time: 7 * number,
            // A call and its return come one behind the other.
            call: number / 2,
            object,
            created: 0,
            created_kind: NDK_OBJECT_TYPE::UNDEFINED,
            created_number: 0,
            related: [0; 3],
            outcome: Outcome::None,
            thread: 1,
            processor: u16::from(number % 6 > 2),
            adapter: 1,
            phase,
            function,
            irql: 0,
            has_completion: false,
            lacks_place: false,
            arguments,
        });
        let last = self.records.len() - 1;
        &mut self.records[last]
    }

    /// A call that returns an outcome.
    fn call(&mut self, function: Function, object: u32, [given, returned]: [Arguments; 2], outcome: Outcome) {
        self.add(function, object, Phase::Call, given);
        self.add(function, object, Phase::Return, returned).outcome = outcome;
    }

    /// A queue pair and its queue.
    fn create(&mut self, pair: u32) {
        const GOOD: Outcome = Outcome::Status(NtStatus::SUCCESS);
        self.call(Function::CreateCq, 1, [Arguments::None, Arguments::None], GOOD);
        self.made(queue(pair), NDK_OBJECT_TYPE::CQ);
        let sizes = QpSizes { context: u64::from(pair), ..QpSizes::default() };
        self.call(Function::CreateQp, 1, [Arguments::CreateQp(sizes), Arguments::None], GOOD);
        self.made(pair_of(pair), NDK_OBJECT_TYPE::QP);
        let call = self.records.len() - 2;
        self.records[call].related = [queue(pair), queue(pair), 0];
    }

    fn made(&mut self, object: u32, kind: NDK_OBJECT_TYPE) {
        if let Some(last) = self.records.last_mut() {
            (last.created, last.created_kind) = (object, kind);
        }
    }

    /// A message that is sent, and whose completion is taken.
    fn message(&mut self, number: u32) {
        // Neighbours do not do the same at the same time.
        let pair = number.wrapping_mul(977) % self.pairs;
        let transfer = || Arguments::Transfer {
            context: number.into(),
            remote_address: 0,
            remote_token: 0,
            flags: 0,
            given: 1,
            elements: vec![Element { address: 0x1000, length: 64 << (number % 8), token: 7 }],
        };
        let good = Outcome::Status(NtStatus::SUCCESS);
        self.call(Function::Send, pair_of(pair), [transfer(), transfer()], good);
        if number % FINDS == FINDS - 1 {
            let place = self.records.len();
            self.findings.push(Found {
                time: self.records[place - 1].time,
                place,
                finding: FINDING,
                kind: NDK_OBJECT_TYPE::QP,
                function: Function::Send,
                seen: format!("{} requests in a queue of {}", 1 + number % 8, number % 8),
                thread: 1,
                processor: 0,
                in_front: false,
            });
        }
        let status = if number % FAILS == FAILS - 1 { NtStatus::CANCELLED } else { NtStatus::SUCCESS };
        let poll = |results| Arguments::GetCqResults { room: 8, extended: true, results };
        let (request_context, qp_context) = (number.into(), pair.into());
        let taken = Completion { status, bytes: 0, qp_context, request_context, kind: 2, error: 0, output: 0 };
        self.call(Function::GetCqResultsEx, queue(pair), [poll(Vec::new()), poll(vec![taken])], Outcome::Count(1));
    }
}

fn main() {
    let mut words = env::args().skip(1);
    let path = words.next().expect("the name of the page");
    let mut number = |otherwise| words.next().map_or(otherwise, |word| word.parse().expect("a number"));
    let (pairs, messages) = (number(QUEUE_PAIRS), number(MESSAGES));
    let mut maker = Maker { pairs, records: Vec::new(), findings: Vec::new() };
    (0..pairs).for_each(|pair| maker.create(pair));
    (0..messages).for_each(|number| maker.message(number));
    let recording =
        Recording { records: maker.records, findings: maker.findings, processors: 2, ..Recording::default() };
    let timeline = Timeline::of(&recording);
    fs::write(path, html(&timeline, &format!("{pairs} queue pairs"))).expect("the page is written");
    println!("{} marks on {} lanes", timeline.marks.len(), timeline.lanes.len());
}

//! Which requests an event ends, in every short history, compared with an oracle that keeps the completions themselves and
//! was written from the text (`IND2CompletionQueue::Notify`: all are completed by the next event, and a stronger request changes the
//! type; "errors always satisfy").

use engine::cq::{
    Observation,
    notify::{ArmType, Class, Notify},
};
use nd2::cq::waiters::{Kind, Waiters};
use ndkpi::NtStatus;

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Step {
    Completion(Class),
    Take,
    Request(Kind),
    /// The queue looks what has happened: late, as a DPC does.
    Look,
    Cancel,
}

const STEPS: [Step; 9] = [
    Step::Completion(Class::Plain),
    Step::Completion(Class::Solicited),
    Step::Completion(Class::Failed),
    Step::Take,
    Step::Request(Kind::Errors),
    Step::Request(Kind::Any),
    Step::Request(Kind::Solicited),
    Step::Look,
    Step::Cancel,
];

/// The text, in the simplest words: a list of completions, and of requests with what was new to them.
#[derive(Default)]
struct Oracle {
    classes: Vec<Class>,
    taken: usize,
    /// Completions that were there at the last event: they never notify again.
    triggered: usize,
    waiting: Vec<(usize, Kind, usize)>,
}

impl Oracle {
    /// Returns true if a request that found so many completions taken is completed by an event of a queue of this type.
    fn meets(&self, queue: Kind, taken: usize) -> bool {
        let new = self.classes.iter().skip(taken.max(self.triggered));
        new.into_iter().any(|class| match (queue, class) {
            (Kind::Any, _) | (_, Class::Failed) | (Kind::Solicited, Class::Solicited) => true,
            (Kind::Solicited, Class::Plain) | (Kind::Errors, Class::Plain | Class::Solicited) => false,
        })
    }

    /// Looks; the requests that end, in their order, and whether a new one would.
    fn look(&mut self, new: Option<Kind>) -> (Vec<usize>, bool) {
        let kinds: Vec<_> = self.waiting.iter().map(|(_, kind, _)| *kind).chain(new).collect();
        let strongest = [Kind::Any, Kind::Solicited, Kind::Errors].into_iter().find(|kind| kinds.contains(kind));
        let Some(queue) = strongest else { return (Vec::new(), false) };
        let ended: Vec<_> =
            self.waiting.iter().filter(|(_, _, taken)| self.meets(queue, *taken)).map(|(id, ..)| *id).collect();
        let now = new.is_some() && self.meets(queue, self.taken);
        if now || !ended.is_empty() {
            self.triggered = self.classes.len();
        }
        self.waiting.retain(|(id, ..)| !ended.contains(id));
        (ended, now)
    }
}

/// Both at once.
struct Both {
    oracle: Oracle,
    notify: Notify,
    waiters: Waiters<usize>,
    first: u64,
    next: usize,
}

impl Both {
    fn new(first: u64) -> Self {
        let (notify, waiters) = (Notify::new(first), Waiters::new(16, first));
        Self { oracle: Oracle::default(), notify, waiters, first, next: 0 }
    }

    fn observe(&mut self) -> Observation {
        // As the queue does: arm first, then look.
        let _ = self.notify.arm(ArmType::Any, self.first.wrapping_add(self.oracle.taken as u64));
        Observation { view: self.notify.view(), newest_failed: self.notify.newest_failed(), failure: None }
    }

    fn ended(&mut self, with: NtStatus) -> Vec<usize> {
        core::iter::from_fn(|| self.waiters.take_ended())
            .map(|(id, status)| {
                assert_eq!(status, with);
                id
            })
            .collect()
    }

    fn step(&mut self, step: Step, history: &[Step]) {
        match step {
            Step::Completion(class) => {
                self.oracle.classes.push(class);
                let _ = self.notify.queued(class, false);
            }
            Step::Take => self.oracle.taken = self.oracle.classes.len(),
            Step::Request(kind) => {
                let seen = self.observe();
                let (ended, now) = self.oracle.look(Some(kind));
                assert_eq!(self.waiters.decide(&seen, Some(kind)), now, "{history:?}");
                assert_eq!(self.ended(NtStatus::SUCCESS), ended, "{history:?}");
                if !now {
                    let id = self.next;
                    self.next += 1;
                    self.waiters.reserve().expect("room");
                    self.waiters.push(kind, seen.view.taken, id, None);
                    self.oracle.waiting.push((id, kind, self.oracle.taken));
                }
            }
            Step::Look => {
                let seen = self.observe();
                let (ended, _) = self.oracle.look(None);
                assert!(!self.waiters.decide(&seen, None));
                assert_eq!(self.ended(NtStatus::SUCCESS), ended, "{history:?}");
            }
            Step::Cancel => {
                self.waiters.end(NtStatus::CANCELLED);
                let all: Vec<_> = self.oracle.waiting.drain(..).map(|(id, ..)| id).collect();
                assert_eq!(self.ended(NtStatus::CANCELLED), all, "{history:?}");
            }
        }
        assert_eq!(self.waiters.len(), self.oracle.waiting.len(), "{history:?}");
        assert_eq!(self.waiters.is_empty(), self.oracle.waiting.is_empty());
    }
}

fn run(first: u64, history: &[Step]) {
    let mut both = Both::new(first);
    for step in history {
        both.step(*step, history);
    }
}

#[test]
fn every_short_history_ends_the_requests_that_the_text_ends() {
    let mut histories = 0_u32;
    for length in 1..=6_u32 {
        for number in 0..9_usize.pow(length) {
            let history: Vec<_> = (0..length).map(|place| STEPS[number / 9_usize.pow(place) % 9]).collect();
            // Only those that end with a look at the outcome say anything new.
            if matches!(history.last(), Some(Step::Look | Step::Request(_) | Step::Cancel)) {
                run(0, &history);
                histories += 1;
            }
        }
    }
    assert!(histories > 300_000, "{histories}");
}

#[test]
fn long_histories_and_ordinals_that_wrap_around() {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for first in [0, u64::MAX - 3, u64::MAX / 2 - 3] {
        for _ in 0..4000 {
            let history: Vec<_> = (0..24)
                .map(|_| STEPS[usize::try_from(next() >> 33).expect("small") % STEPS.len()])
                .scan(0, |waiting, step| {
                    // No more requests than there is room for.
                    *waiting += i32::from(matches!(step, Step::Request(_)));
                    Some(if *waiting > 16 && matches!(step, Step::Request(_)) { Step::Look } else { step })
                })
                .collect();
            run(first, &history);
        }
    }
}

#[test]
fn there_is_room_for_no_more_than_the_limit() {
    let mut waiters = Waiters::new(2, 0);
    for id in 0..2 {
        waiters.reserve().expect("room");
        waiters.push(Kind::Any, 0, id, None);
    }
    assert!(waiters.reserve().is_err());
    waiters.end(NtStatus::CANCELLED);
    assert_eq!(waiters.take_ended(), Some((0, NtStatus::CANCELLED)));
    assert!(waiters.reserve().is_ok());
}

#[test]
fn the_arm_satisfies_whatever_waits() {
    let arms = [(Kind::Errors, ArmType::Solicited), (Kind::Solicited, ArmType::Solicited), (Kind::Any, ArmType::Any)];
    for (kind, arm) in arms {
        let mut waiters = Waiters::new(2, 0);
        assert_eq!((waiters.arm(None), waiters.arm(Some(kind))), (None, Some(arm)));
        waiters.push(kind, 0, (), None);
        assert_eq!((waiters.arm(None), waiters.arm(Some(Kind::Any))), (Some(arm), Some(ArmType::Any)));
        waiters.end(NtStatus::CANCELLED);
        assert_eq!(waiters.arm(None), None, "who has ended needs no arm");
    }
}

#[test]
fn types_have_the_values_of_the_document() {
    let kinds = [0, 1, 2, 3, u32::MAX].map(Kind::from_value);
    assert_eq!(kinds, [Some(Kind::Errors), Some(Kind::Any), Some(Kind::Solicited), None, None]);
}

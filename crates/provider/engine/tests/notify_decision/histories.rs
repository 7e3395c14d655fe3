//! Every short history of one queue: what is queued, taken, armed, begun, ended and failed, in every order.

use engine::cq::notify::{Action, ArmType, Class, CqFailure, Notify};
use ndkpi::NtStatus;

use super::{ARMS, CLASSES, matches, merged, starts};

/// An entry, as the consumer and the provider know it.
#[derive(Clone, Copy)]
struct Entry {
    class: Class,
    /// The consumer has not taken it.
    present: bool,
    /// A callback has begun since it was queued.
    old: bool,
}

/// What NDKPI says, without a number in it.
#[derive(Clone, Default)]
struct Oracle {
    entries: Vec<Entry>,
    arm: Option<ArmType>,
    /// Arms that were satisfied and not answered by a callback: one callback answers for all.
    due: bool,
    running: bool,
    failure: Option<NtStatus>,
    reported: bool,
}

impl Oracle {
    const fn to_report(&self) -> bool {
        self.failure.is_some() && !self.reported
    }

    fn queue(&mut self, class: Class) {
        self.entries.push(Entry { class, present: true, old: false });
        if self.arm.is_some_and(|arm| matches(arm, class)) {
            self.satisfy();
        }
    }

    fn arm(&mut self, kind: ArmType) {
        let arm = merged(self.arm, kind);
        self.arm = Some(arm);
        let new = |entry: &Entry| entry.present && !entry.old && matches(arm, entry.class);
        if self.to_report() || self.entries.iter().any(new) {
            self.satisfy();
        }
    }

    const fn fail(&mut self, failure: CqFailure) {
        if self.failure.is_none() {
            self.failure = Some(failure.status());
            if self.arm.is_some() {
                self.satisfy();
            }
        }
    }

    const fn satisfy(&mut self) {
        self.arm = None;
        self.due = true;
    }

    fn begin(&mut self) -> Option<NtStatus> {
        if !self.due || self.running {
            return None;
        }
        self.due = false;
        self.running = true;
        self.entries.iter_mut().for_each(|entry| entry.old = true);
        let status = if self.to_report() { self.failure } else { None };
        self.reported |= status.is_some();
        Some(status.unwrap_or(NtStatus::SUCCESS))
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Queue(Class),
    TakeOne,
    TakeAll,
    Arm(ArmType),
    Begin,
    End,
    Fail(CqFailure),
}

fn steps() -> Vec<Step> {
    let mut steps = vec![Step::TakeOne, Step::TakeAll, Step::Begin, Step::End, Step::Fail(CqFailure::Overrun)];
    steps.extend(CLASSES.map(Step::Queue));
    steps.extend(ARMS.map(Step::Arm));
    steps
}

/// The queue and the oracle side by side.
#[derive(Clone)]
struct Pair {
    notify: Notify,
    oracle: Oracle,
    /// Ordinal of the newest entry taken.
    taken: u64,
    start: u64,
    /// Somebody was told to queue the DPC, which has not begun since.
    scheduled: bool,
}

impl Pair {
    fn new(start: u64) -> Self {
        Self { notify: Notify::new(start), oracle: Oracle::default(), taken: start, start, scheduled: false }
    }

    fn follow(&mut self, action: Action) {
        assert_eq!(action.timer, None, "no moderation, no timer");
        self.scheduled |= action.queue;
    }

    fn take(&mut self, count: usize) {
        for entry in self.oracle.entries.iter_mut().filter(|entry| entry.present).take(count) {
            entry.present = false;
            self.taken = self.taken.wrapping_add(1);
        }
    }

    /// Takes a step. `false` if it makes no sense here.
    fn step(&mut self, step: Step) -> bool {
        match step {
            // A failed queue takes no more entries (`NDKPI 7.1.10`), and one failure is enough.
            Step::Queue(_) | Step::Fail(_) if self.oracle.failure.is_some() => return false,
            Step::Queue(class) => {
                self.oracle.queue(class);
                let mut unseen = self.notify.clone();
                let action = self.notify.queued(class, false);
                if class == Class::Plain && unseen.ignores_plain() {
                    unseen.ignored_up_to(unseen.view().newest.wrapping_add(1));
                    assert_eq!((&unseen, Action::default()), (&self.notify, action), "an entry that nobody waited for");
                }
                self.follow(action);
            }
            Step::TakeOne | Step::TakeAll if !self.oracle.entries.iter().any(|entry| entry.present) => return false,
            Step::TakeOne => self.take(1),
            Step::TakeAll => self.take(usize::MAX),
            Step::Arm(kind) => {
                self.oracle.arm(kind);
                let action = self.notify.arm(kind, self.taken);
                self.follow(action);
            }
            Step::Fail(failure) => {
                self.oracle.fail(failure);
                let action = self.notify.fail(failure);
                self.follow(action);
            }
            Step::Begin => {
                // The DPC may begin at any time: it is also queued for other reasons.
                self.scheduled = false;
                assert_eq!(self.notify.begin(), self.oracle.begin(), "whether a callback begins, and its status");
            }
            Step::End if !self.oracle.running => return false,
            Step::End => {
                self.oracle.running = false;
                let again = self.notify.end();
                assert_eq!(again, self.oracle.due, "a callback that waited has its turn");
                self.scheduled |= again;
            }
        }
        assert_eq!(self.notify.view().arm, self.oracle.arm, "the arm that stands");
        assert_eq!(self.notify.failure().map(CqFailure::status), self.oracle.failure);
        assert!(!self.oracle.due || self.oracle.running || self.scheduled, "a due callback that nobody will begin");
        true
    }
}

/// Walks all histories of `left` more steps and counts them.
fn walk(pair: &Pair, steps: &[Step], left: u32, history: &mut Vec<Step>) -> u64 {
    if left == 0 {
        return 1;
    }
    let mut count = 0;
    for &step in steps {
        let mut next = pair.clone();
        history.push(step);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| next.step(step)));
        match outcome {
            Ok(true) => count += walk(&next, steps, left - 1, history),
            Ok(false) => {}
            Err(panic) => {
                eprintln!("the history was {history:?}, from {}", pair.start);
                std::panic::resume_unwind(panic);
            }
        }
        history.pop();
    }
    count
}

//= NDKPI 7.1.5
#[test]
fn every_short_history_notifies_as_the_text_says() {
    let count = walk(&Pair::new(0), &steps(), 7, &mut Vec::new());
    assert!(count > 2_000_000, "only {count} histories");
}

#[test]
fn histories_across_the_wrap_around_notify_alike() {
    for start in starts() {
        let count = walk(&Pair::new(start), &steps(), 4, &mut Vec::new());
        assert!(count > 4_000, "only {count} histories");
    }
}

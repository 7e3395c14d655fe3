//! The protocol: producers, the consumer, the DPC, the timer and time, one step at a time, with the engine's own
//! [`Notify`] beside the [`Oracle`].

use engine::cq::{
    moderation,
    notify::{Action as Told, ArmType, Class, CqFailure, Notify, View, satisfied},
};
use ndkpi::NtStatus;
use stateright::{Model, Property};

use crate::oracle::{Failure, Hold, Moderation, Oracle};

/// How often each thing happens at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    pub entries: u8,
    pub arms: u8,
    pub failures: u8,
    pub moderations: u8,
    pub resizes: u8,
    pub closes: u8,
    /// Until when time goes on. One unit is the resolution of the timer.
    pub end: u32,
}

/// The protocol within bounds, from a queue of `depth` entries.
#[derive(Clone, Debug)]
pub struct Protocol {
    pub bounds: Bounds,
    pub depth: usize,
    /// What a consumer asks for.
    pub moderations: Vec<Moderation>,
    pub depths: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    notify: Notify,
    oracle: Oracle,
    /// Ordinal of the newest entry that the consumer has taken.
    taken: u64,
    now: u32,
    /// Those who were told to queue the DPC and have not done so yet: they have let go of the lock.
    about_to_queue: u8,
    /// The DPC is queued.
    queued: bool,
    /// When the timer runs out.
    timer: Option<u32>,
    left: Bounds,
    /// Where the engine and the oracle disagreed.
    disagreement: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request completes.
    Complete(Class),
    /// The consumer takes the oldest entry.
    Poll,
    Arm(ArmType),
    /// The adapter cannot go on.
    Fail,
    Moderate(usize),
    Resize(usize),
    Close,
    /// Who was told to queue the DPC does so.
    Queue,
    /// The DPC begins, or begins the next callback.
    Begin,
    /// The callback returns.
    End,
    /// The timer's call runs; too early, if the clock of timers is ahead.
    Expire,
    Tick,
}

/// The ordinals begin where they wrap around.
const FIRST: u64 = u64::MAX - 1;

impl State {
    fn new(protocol: &Protocol) -> Self {
        Self {
            notify: Notify::new(FIRST),
            oracle: Oracle::new(protocol.depth),
            taken: FIRST,
            now: 0,
            about_to_queue: 0,
            queued: false,
            timer: None,
            left: protocol.bounds,
            disagreement: None,
        }
    }

    /// Does what the engine's state says, and compares it with what the oracle says.
    fn follow(&mut self, told: Told, becomes_due: bool, was_idle: bool) {
        self.about_to_queue += u8::from(told.queue);
        if told.queue != (becomes_due && was_idle) {
            self.disagreement = Some("when the DPC is to be queued");
        }
        let wanted = self.oracle.hold.and_then(|hold| {
            let interval = self.oracle.moderation.interval?;
            Some(hold.since.unwrap_or(self.now) + interval)
        });
        if let Some(micros) = told.timer {
            let deadline = self.now + micros;
            self.notify.hold_for(self.now.into(), micros);
            self.timer = Some(deadline);
            if let Some(Hold { since, .. }) = &mut self.oracle.hold {
                since.get_or_insert(self.now);
            }
        }
        if wanted.is_some() && self.timer != wanted {
            self.disagreement = Some("how long a callback is held back");
        }
    }

    /// No DPC is queued or about to be, and no callback runs.
    const fn is_idle(&self) -> bool {
        self.about_to_queue == 0 && !self.queued && !self.oracle.running
    }

    fn complete(&mut self, class: Class) {
        let idle = self.is_idle();
        if self.oracle.failed().is_some() {
            return;
        }
        if self.oracle.is_full() {
            let told = self.notify.fail(CqFailure::Overrun);
            let due = self.oracle.fail(CqFailure::Overrun);
            return self.follow(told, due, idle);
        }
        let due = self.oracle.queue(class);
        let mut unseen = self.notify.clone();
        let told = self.notify.queued(class, self.oracle.is_full());
        if class == Class::Plain && unseen.ignores_plain() {
            unseen.ignored_up_to(unseen.view().newest.wrapping_add(1));
            if unseen != self.notify || told != Told::default() {
                self.disagreement = Some("a plain entry that was ignored");
            }
        }
        self.follow(told, due, idle);
    }

    fn step(&mut self, step: Step, protocol: &Protocol) {
        let idle = self.is_idle();
        match step {
            Step::Complete(class) => {
                self.left.entries -= 1;
                self.complete(class);
            }
            Step::Poll => {
                self.oracle.entries.remove(0);
                self.taken = self.taken.wrapping_add(1);
            }
            Step::Arm(kind) => {
                self.left.arms -= 1;
                let due = self.oracle.arm(kind);
                let told = self.notify.arm(kind, self.taken);
                self.follow(told, due, idle);
            }
            Step::Fail => {
                self.left.failures -= 1;
                let due = self.oracle.fail(CqFailure::Fatal);
                let told = self.notify.fail(CqFailure::Fatal);
                self.follow(told, due, idle);
            }
            Step::Moderate(index) => {
                self.left.moderations -= 1;
                let Moderation { interval, count } = protocol.moderations[index];
                let number = |limit: Option<u32>| limit.unwrap_or(moderation::UNLIMITED);
                let depth = u32::try_from(self.oracle.depth).expect("a small queue");
                // Without a limit on either side it is refused.
                let Ok(new) = moderation::Moderation::new(number(interval), number(count), depth, 1) else { return };
                let due = self.oracle.moderate(protocol.moderations[index], self.now);
                let told = self.notify.moderate(new, self.oracle.is_full(), self.now.into());
                self.follow(told, due, idle);
            }
            Step::Resize(index) => {
                self.left.resizes -= 1;
                let depth = protocol.depths[index];
                // Entries that are there have to fit.
                if self.oracle.entries.len() > depth {
                    return;
                }
                let due = self.oracle.resize(depth);
                let told = self.notify.resized(u32::try_from(depth).expect("small"), self.oracle.is_full());
                self.follow(told, due, idle);
            }
            Step::Close => {
                self.left.closes -= 1;
                self.timer = None;
                self.oracle.close();
                self.notify.close();
            }
            Step::Queue => {
                self.about_to_queue -= 1;
                self.queued = true;
            }
            Step::Begin => {
                self.queued = false;
                if self.notify.begin() != self.oracle.begin() {
                    self.disagreement = Some("if a callback begins, and its status");
                }
            }
            Step::End => {
                self.oracle.running = false;
                let again = self.notify.end();
                if again != self.oracle.due {
                    self.disagreement = Some("if another callback follows");
                }
                self.queued |= again;
            }
            Step::Expire => {
                self.timer = None;
                let due = self.oracle.expire(self.now);
                let told = self.notify.timer_ran(self.now.into());
                self.follow(told, due, idle);
            }
            Step::Tick => self.now += 1,
        }
    }

    /// What the system does by itself until it has nothing more to do: who was told to queue does so, the call runs, callbacks
    /// return, time goes by.
    fn settled(&self, protocol: &Protocol) -> Option<Self> {
        let mut state = self.clone();
        for _ in 0..32 {
            let step = if state.about_to_queue > 0 {
                Step::Queue
            } else if state.oracle.running {
                Step::End
            } else if state.queued {
                Step::Begin
            } else if let Some(deadline) = state.timer {
                state.now = state.now.max(deadline);
                Step::Expire
            } else {
                return Some(state);
            };
            state.step(step, protocol);
        }
        None
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        let State { left, oracle, .. } = state;
        let classes = [Class::Plain, Class::Solicited, Class::Failed];
        if left.entries > 0 && oracle.failed().is_none() {
            steps.extend(classes.map(Step::Complete));
        }
        if left.arms > 0 {
            steps.extend([ArmType::Errors, ArmType::Solicited, ArmType::Any].map(Step::Arm));
        }
        if left.moderations > 0 {
            steps.extend((0..self.moderations.len()).map(Step::Moderate));
        }
        if left.resizes > 0 {
            steps.extend((0..self.depths.len()).map(Step::Resize));
        }
        let others = [
            (!oracle.entries.is_empty(), Step::Poll),
            (left.failures > 0 && oracle.failed().is_none(), Step::Fail),
            (left.closes > 0, Step::Close),
            (state.about_to_queue > 0, Step::Queue),
            // Also while a callback runs: on another processor, or because the queue was failed.
            (state.queued, Step::Begin),
            (oracle.running, Step::End),
            (state.timer.is_some(), Step::Expire),
            (state.now < left.end, Step::Tick),
        ];
        steps.extend(others.into_iter().filter(|(possible, _)| *possible).map(|(_, step)| step));
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        next.step(step, self);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("the engine does what the oracle does", |_, state: &State| state.disagreement.is_none()),
            Property::always("the same arm and failure stand", |_, State { notify, oracle, .. }| {
                let to_report = matches!(oracle.failure, Failure::ToReport(_));
                notify.view().arm == oracle.arm
                    && notify.failure() == oracle.failed()
                    && notify.view().failure_to_report == to_report
            }),
            Property::always("the decision is that of the text, for whatever arm comes next", |_, state: &State| {
                let decides = |arm| satisfied(&View { arm: Some(arm), taken: state.taken, ..state.notify.view() });
                [ArmType::Errors, ArmType::Solicited, ArmType::Any]
                    .into_iter()
                    .all(|arm| decides(arm) == state.oracle.would_satisfy(arm))
            }),
            Property::always(
                "an arm that stands is not satisfied, or the callback that answers it is due",
                |_, state: &State| !satisfied(&state.notify.view()) || state.oracle.due,
            ),
            Property::always("who is owed a callback is not forgotten", |_, state: &State| {
                let comes = state.about_to_queue > 0 || state.queued || state.oracle.running;
                let held = state.oracle.hold.is_some();
                let ends = state.timer.is_some() || state.oracle.moderation.interval.is_none();
                (!state.oracle.due || comes) && (!held || (ends && !state.oracle.is_full()))
            }),
            Property::always(
                "left to itself the system answers every satisfied arm",
                |protocol: &Self, state: &State| {
                    let waits_for_count = |state: &State| state.oracle.moderation.interval.is_none();
                    let settled = state.settled(protocol);
                    settled.is_some_and(|state| {
                        !state.oracle.due && (state.oracle.hold.is_none() || waits_for_count(&state))
                    })
                },
            ),
            Property::always("a closed queue calls nobody", |protocol: &Self, state: &State| {
                let mut state = state.clone();
                !state.oracle.closed || {
                    state.step(Step::Begin, protocol);
                    state.oracle.running || state.notify.begin().is_none()
                }
            }),
            Property::sometimes("a callback says that the queue has failed", |_, state: &State| {
                matches!(state.oracle.failure, Failure::Reported(CqFailure::Overrun)) && state.oracle.running
            }),
            Property::sometimes("a callback waits for the one that runs", |_, state: &State| {
                state.oracle.due && state.oracle.running
            }),
            Property::sometimes("a callback is held back for a count", |_, state: &State| {
                state.oracle.hold.is_some() && state.oracle.moderation.interval.is_none()
            }),
            Property::sometimes("a callback is held back for a time", |_, state: &State| {
                state.oracle.hold.is_some() && state.timer.is_some()
            }),
        ]
    }
}

/// The status that a callback of a failed queue has, for who reads the properties.
const _: () = assert!(CqFailure::Overrun.status().0 == NtStatus::BUFFER_OVERFLOW.0);

//! The hooks that make faults happen.

use alloc::vec::Vec;
use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use engine::os::{Os, SpinLock};
use fallible::Arc;
use ndkpi::{NDK_ADAPTER_INFO, NDK_OBJECT_TYPE, NDK_OPERATION_TYPE, NDK_RESULT_EX, NtStatus};

use super::{
    Tally,
    plan::{Rule, Which, mix},
    statuses::results,
    table::Kind,
};
use crate::{Args, Event, Function, Hooks, InterposeOs, ObjectId, ObjectRef, Outcome, Phase, Results, Verdict};

/// The adapter behind the layer, for the fault [`Kind::Remove`].
pub trait Target: Send + Sync + 'static {
    /// The adapter goes, as if it were pulled. At `IRQL <= DISPATCH_LEVEL`, inside a call of a consumer.
    fn remove(&self);
}

/// An adapter that cannot be pulled: [`Kind::Remove`] does nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoAdapter;

impl Target for NoAdapter {
    fn remove(&self) {}
}

/// The hooks.
#[derive(Debug)]
pub struct Faults<O, T = NoAdapter> {
    os: O,
    consumer: u32,
    tally: Arc<Tally>,
    target: T,
}

/// What is kept of an object.
pub enum State<O: Os> {
    /// Of a completion queue.
    Cq(CqState<O>),
    /// Of a queue pair.
    Qp(Arc<QpState>),
    /// Of others nothing.
    Other,
}

/// Of a completion queue.
pub struct CqState<O: Os> {
    /// Queue pairs that complete into it; those that only this list knows are gone.
    qps: O::Lock<Vec<Arc<QpState>>>,
    /// Since the last notification a poll has found fewer than it had room for: what comes now satisfies the next arm.
    is_drained: AtomicBool,
    /// Until when polls find nothing, in microseconds.
    held_until: AtomicU64,
}

/// Of a queue pair.
pub struct QpState {
    context: usize,
    number: u32,
    /// One of its requests has failed, or its completion queue.
    is_broken: AtomicBool,
    /// It has to be flushed for that.
    to_flush: AtomicBool,
}

impl QpState {
    fn break_it(&self) {
        if !self.is_broken.swap(true, AcqRel) {
            self.to_flush.store(true, Release);
        }
    }
}

impl<O: InterposeOs> Faults<O> {
    /// Faults by the plan of a tally, for an adapter that cannot be pulled.
    pub const fn new(os: O, tally: Arc<Tally>) -> Self {
        Self { os, consumer: 1, tally, target: NoAdapter }
    }
}

impl<O: InterposeOs, T: Target> Faults<O, T> {
    /// Faults by the plan of a tally, of the consumer with this number.
    pub const fn with_target(os: O, consumer: u32, tally: Arc<Tally>, target: T) -> Self {
        Self { os, consumer, tally, target }
    }

    /// The rule that applies to a call, with a number that looks like chance.
    fn applies(&self, function: Function, id: ObjectId, is_wanted: impl Fn(&Rule) -> bool) -> Option<(&Rule, u64)> {
        for (index, rule) in self.tally.plan.rules().enumerate() {
            if !is_wanted(rule) || !rule.is_about(function, id, self.consumer) {
                continue;
            }
            let number = self.tally.call(index);
            let salt = mix(self.tally.plan.seed ^ (index as u64) << 56) ^ number;
            let does_apply = match rule.which {
                Which::Nth(nth) => number == u64::from(nth),
                Which::Every(count) => number.is_multiple_of(count.into()),
                Which::Chance(per_million) => mix(salt) % 1_000_000 < u64::from(per_million),
            };
            if does_apply {
                return Some((rule, mix(mix(salt))));
            }
        }
        None
    }

    fn make(&self, rule: &Rule, function: Function) {
        let index = self.tally.plan.rules().position(|there| core::ptr::eq(there, rule));
        self.tally.make(index.unwrap_or(0), function);
    }

    /// What happens to a call.
    fn call(&self, event: &Event<'_, State<O>>) -> Verdict {
        let function = event.function;
        if let State::Qp(qp) = event.object.state
            && qp.is_broken.load(Acquire)
            && is_initiator(function)
        {
            return Verdict::Refuse(NtStatus::CONNECTION_INVALID);
        }
        if let State::Cq(cq) = event.object.state
            && function.is_poll()
            && self.os.now() < cq.held_until.load(Relaxed)
        {
            return Verdict::Refuse(NtStatus::UNSUCCESSFUL);
        }
        let is_of_a_call = |rule: &Rule| match rule.kind {
            Kind::Result | Kind::Event | Kind::NotReady | Kind::Cross => false,
            // A completion that nobody hears of can be neither late nor early.
            Kind::Fail | Kind::Late | Kind::Early => event.request.is_some_and(|request| request.has_completion),
            Kind::Hold => matches!(event.object.state, State::Cq(cq) if cq.is_drained.load(Relaxed)),
            _ => true,
        };
        let Some((rule, chance)) = self.applies(function, event.object.id, is_of_a_call) else {
            return Verdict::Forward;
        };
        let delay = rule.delay.draw(chance);
        let verdict = match rule.kind {
            Kind::Refuse => rule.status_of(function).map(Verdict::Refuse),
            Kind::Fail => rule.status_of(function).map(|status| Verdict::Fail(status, delay)),
            Kind::Late => Some(Verdict::Late(delay)),
            Kind::Early => Some(Verdict::Early),
            Kind::Disconnect => Some(Verdict::EndAfter(delay)),
            Kind::CqError => Some(fail_queue(event, NtStatus::INTERNAL_ERROR)),
            Kind::Overrun => Some(fail_queue(event, NtStatus::BUFFER_OVERFLOW)),
            Kind::Hold => {
                if let State::Cq(cq) = event.object.state {
                    cq.held_until.store(self.os.now().saturating_add(delay), Relaxed);
                    cq.is_drained.store(false, Relaxed);
                }
                Some(Verdict::Refuse(NtStatus::UNSUCCESSFUL))
            }
            Kind::Remove => {
                self.target.remove();
                Some(Verdict::Forward)
            }
            Kind::Event | Kind::Result | Kind::NotReady | Kind::Cross => None,
        };
        let Some(verdict) = verdict else { return Verdict::Forward };
        self.make(rule, function);
        verdict
    }

    /// The status that a result gets instead of success, if it gets one.
    fn fails(&self, cq: ObjectRef<'_, State<O>>, context: usize, kind: Option<NDK_OPERATION_TYPE>) -> Option<NtStatus> {
        let State::Cq(state) = cq.state else { return None };
        let qp = state.qps.with(|qps| {
            let mut with_it = qps.iter().filter(|qp| qp.context == context);
            let first = with_it.next().cloned();
            if with_it.next().is_some() { None } else { first }
        })?;
        if qp.is_broken.load(Acquire) {
            return Some(NtStatus::CANCELLED);
        }
        let function = if kind.is_some() { Function::GetCqResultsEx } else { Function::GetCqResults };
        let is_send = kind == Some(NDK_OPERATION_TYPE::SEND);
        let is_wanted = |rule: &Rule| rule.kind == Kind::Result || (is_send && rule.kind == Kind::NotReady);
        let (rule, _) = self.applies(function, cq.id, is_wanted)?;
        let allowed: &[NtStatus] = if rule.kind == Kind::NotReady { &[NtStatus::IO_TIMEOUT] } else { results(kind) };
        let status = rule.status.filter(|wanted| allowed.contains(wanted)).or_else(|| allowed.first().copied())?;
        self.make(rule, function);
        qp.break_it();
        Some(status)
    }

    /// Puts receives before the initiator completions before them. Both keep their order among themselves, and so each queue does.
    fn cross(&self, cq: ObjectRef<'_, State<O>>, results: &mut [NDK_RESULT_EX]) {
        /// A poll that finds more has these crossed, so that the work is bounded.
        const MOST: usize = 64;
        let most = results.len().min(MOST);
        let results = &mut results[..most];
        let is_receive = |result: &NDK_RESULT_EX| {
            matches!(result.Type, NDK_OPERATION_TYPE::RECEIVE | NDK_OPERATION_TYPE::RECEIVE_AND_INVALIDATE)
        };
        // Only a poll for which that changes something counts as one.
        if results.is_sorted_by_key(|result| !is_receive(result)) {
            return;
        }
        let function = Function::GetCqResultsEx;
        let Some((rule, _)) = self.applies(function, cq.id, |rule| rule.kind == Kind::Cross) else { return };
        self.make(rule, function);
        let mut receives = 0;
        for place in 0..results.len() {
            if is_receive(&results[place]) {
                results[receives..=place].rotate_right(1);
                receives += 1;
            }
        }
    }

    /// What a creation keeps of a completion queue.
    fn cq_state(&self) -> Result<CqState<O>, NtStatus> {
        Ok(CqState { qps: self.os.lock(Vec::new())?, is_drained: AtomicBool::new(true), held_until: AtomicU64::new(0) })
    }
}

/// A completion queue fails, and every queue pair on it.
fn fail_queue<O: Os>(event: &Event<'_, State<O>>, status: NtStatus) -> Verdict {
    if let State::Cq(cq) = event.object.state {
        cq.qps.with(|qps| qps.iter().for_each(|qp| qp.break_it()));
    }
    Verdict::FailQueue(status)
}

/// Puts a queue pair into the list of a completion queue, in place of those that are gone.
fn attach<O: Os>(cq: &CqState<O>, qp: &Arc<QpState>) -> Result<(), NtStatus> {
    let gone = cq.qps.with(|qps| {
        let gone = qps.iter().position(|there| Arc::references_now(there) == 1).map(|place| qps.swap_remove(place));
        qps.try_reserve(1).map_err(fallible::AllocError::from)?;
        qps.push(qp.clone());
        Ok::<_, NtStatus>(gone)
    });
    // Freed without the lock.
    gone.map(drop)
}

const fn is_initiator(function: Function) -> bool {
    matches!(
        function,
        Function::Send
            | Function::SendAndInvalidate
            | Function::Read
            | Function::Write
            | Function::Bind
            | Function::FastRegister
            | Function::Invalidate
    )
}

impl<O: InterposeOs, T: Target> Hooks for Faults<O, T> {
    type Os = O;
    type State = State<O>;
    type Call = ();
    const INTERFERES: bool = true;

    fn os(&self) -> &O {
        &self.os
    }

    fn adapter(&self, _: &NDK_ADAPTER_INFO) -> Result<State<O>, NtStatus> {
        Ok(State::Other)
    }

    fn object(&self, event: &Event<'_, State<O>>, id: ObjectId) -> Result<State<O>, NtStatus> {
        match (id.kind, event.args) {
            (NDK_OBJECT_TYPE::CQ, _) => Ok(State::Cq(self.cq_state()?)),
            (NDK_OBJECT_TYPE::QP, Args::CreateQp(args)) => {
                let qp = Arc::try_new(QpState {
                    context: args.context,
                    number: id.number,
                    is_broken: AtomicBool::new(false),
                    to_flush: AtomicBool::new(false),
                })?;
                let mut before = None;
                for cq in event.related.iter().flatten() {
                    if let State::Cq(state) = cq.state
                        && before.replace(cq.id.number) != Some(cq.id.number)
                    {
                        attach(state, &qp)?;
                    }
                }
                Ok(State::Qp(qp))
            }
            _ => Ok(State::Other),
        }
    }

    fn event(&self, event: &Event<'_, State<O>>, (): &mut ()) -> Verdict {
        if let State::Cq(cq) = event.object.state {
            match (event.phase, event.function, event.args, event.outcome) {
                (Phase::Callback, Function::CqNotification, ..) => {
                    // Who is notified finds what it is notified of: the next arm need not be satisfied by that.
                    cq.is_drained.store(false, Relaxed);
                    cq.held_until.store(0, Relaxed);
                }
                (
                    Phase::Return,
                    _,
                    Args::GetCqResults { room, .. } | Args::GetCqResultsEx { room, .. },
                    Outcome::Count(count),
                ) if count < room => cq.is_drained.store(true, Relaxed),
                _ => {}
            }
        }
        if event.phase == Phase::Call { self.call(event) } else { Verdict::Forward }
    }

    fn delay(&self, function: Function, object: ObjectRef<'_, State<O>>) -> u64 {
        let Some((rule, chance)) = self.applies(function, object.id, |rule| rule.kind == Kind::Event) else { return 0 };
        self.make(rule, function);
        rule.delay.draw(chance)
    }

    fn results(&self, cq: ObjectRef<'_, State<O>>, results: Results<'_>) {
        match results {
            Results::Plain(results) => {
                for result in results.iter_mut().filter(|result| result.Status.is_success()) {
                    if let Some(status) = self.fails(cq, result.QPContext.addr(), None) {
                        (result.Status, result.BytesTransferred) = (status, 0);
                    }
                }
            }
            Results::Ex(results) => {
                self.cross(cq, results);
                for result in results.iter_mut().filter(|result| result.Status.is_success()) {
                    if let Some(status) = self.fails(cq, result.QPContext.addr(), Some(result.Type)) {
                        (result.Status, result.BytesTransferred) = (status, 0);
                    }
                }
            }
        }
    }

    fn broken(&self, cq: ObjectRef<'_, State<O>>) -> Option<u32> {
        let State::Cq(cq) = cq.state else { return None };
        cq.qps.with(|qps| qps.iter().find(|qp| qp.to_flush.swap(false, AcqRel)).map(|qp| qp.number))
    }
}

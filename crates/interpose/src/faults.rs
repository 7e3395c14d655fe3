//! Faults: hooks that let calls fail as NDKPI allows, so that a consumer's error paths are run.
//!
//! A call that is refused does not reach the provider. Only calls are refused that a provider may fail, with a status that its
//! page names, or that stands for "other status codes"; [`legitimate`] says which, and by which section.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fallible::Arc;
use ndkpi::{NDK_ADAPTER_INFO, NtStatus};

use crate::{Event, Function, Hooks, InterposeOs, ObjectId, Phase, Verdict};

/// The status with which a provider may refuse a call, and the section that allows it. `None` for what must not fail for want of
/// anything: closes, deregistrations, arms, polls, receives, disconnects.
#[must_use]
pub const fn legitimate(function: Function) -> Option<(NtStatus, &'static str)> {
    match function {
        Function::CreateCq
        | Function::CreatePd
        | Function::CreateSharedEndpoint
        | Function::CreateConnector
        | Function::CreateListener
        | Function::BuildLam => Some((NtStatus::INSUFFICIENT_RESOURCES, "NDKPI 5.2")),
        Function::CreateMr
        | Function::CreateMw
        | Function::CreateSrq
        | Function::CreateQp
        | Function::CreateQpWithSrq => Some((NtStatus::INSUFFICIENT_RESOURCES, "NDKPI 5.3")),
        Function::ResizeCq | Function::ControlCqInterruptModeration => {
            Some((NtStatus::INSUFFICIENT_RESOURCES, "NDKPI 5.4"))
        }
        Function::RegisterMr => Some((NtStatus::INSUFFICIENT_RESOURCES, "NDKPI 5.5")),
        Function::InitializeFastRegisterMr => Some((NtStatus::IMPLEMENTATION_LIMIT, "NDKPI 5.5")),
        Function::Send
        | Function::SendAndInvalidate
        | Function::Read
        | Function::Write
        | Function::Bind
        | Function::FastRegister
        | Function::Invalidate => Some((NtStatus::INSUFFICIENT_RESOURCES, "NDKPI 5.7")),
        Function::Connect | Function::ConnectWithSharedEndpoint => {
            Some((NtStatus::INSUFFICIENT_RESOURCES, "NDKPI 5.8"))
        }
        Function::Listen => Some((NtStatus::INSUFFICIENT_RESOURCES, "NDKPI 5.9")),
        _ => None,
    }
}

/// Which calls are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one with this number, from 1, among those that may fail.
    Nth(u64),
    /// So many of each million, as the seed says.
    Chance {
        /// Determines which.
        seed: u64,
        /// Of each million.
        per_million: u32,
    },
}

/// What is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Only calls of this function; of all if there is none.
    pub function: Option<Function>,
    /// Which of them.
    pub which: Which,
}

/// What has happened. Several adapters may have one in common: their calls are counted together.
#[derive(Debug, Default)]
pub struct Tally {
    calls: AtomicU64,
    refused: AtomicU64,
    /// The number of the function that was refused last, plus one.
    last: AtomicU64,
}

impl Tally {
    /// Calls that might have been refused.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// Calls that were refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// The function that was refused last.
    #[must_use]
    pub fn last(&self) -> Option<Function> {
        let index = self.last.load(Relaxed).checked_sub(1)?;
        Function::ALL.get(usize::try_from(index).ok()?).copied()
    }
}

/// The hooks.
#[derive(Debug)]
pub struct Faults<O> {
    os: O,
    plan: Plan,
    tally: Arc<Tally>,
}

impl<O: InterposeOs> Faults<O> {
    /// Faults by a plan.
    pub const fn new(os: O, plan: Plan, tally: Arc<Tally>) -> Self {
        Self { os, plan, tally }
    }

    fn refuses(&self, function: Function) -> Option<NtStatus> {
        let (status, _) = legitimate(function)?;
        if self.plan.function.is_some_and(|wanted| wanted != function) {
            return None;
        }
        let number = self.tally.calls.fetch_add(1, Relaxed) + 1;
        let refuses = match self.plan.which {
            Which::Nth(nth) => number == nth,
            Which::Chance { seed, per_million } => mix(seed ^ number) % 1_000_000 < u64::from(per_million),
        };
        if !refuses {
            return None;
        }
        self.tally.refused.fetch_add(1, Relaxed);
        self.tally.last.store(function as u64 + 1, Relaxed);
        Some(status)
    }
}

/// A number that looks like chance: the finaliser of `SplitMix64`.
const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

impl<O: InterposeOs> Hooks for Faults<O> {
    type Os = O;
    type State = ();

    fn os(&self) -> &O {
        &self.os
    }

    fn adapter(&self, _: &NDK_ADAPTER_INFO) -> Result<(), NtStatus> {
        Ok(())
    }

    fn object(&self, _: &Event<'_, ()>, _: ObjectId) -> Result<(), NtStatus> {
        Ok(())
    }

    fn event(&self, event: &Event<'_, ()>) -> Verdict {
        if event.phase != Phase::Call {
            return Verdict::Forward;
        }
        self.refuses(event.function).map_or(Verdict::Forward, Verdict::Refuse)
    }
}

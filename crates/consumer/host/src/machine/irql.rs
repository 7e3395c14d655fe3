//! Interrupt request levels, as far as software sees them.

use std::fmt;

use super::{
    rules::{Rule, broken},
    thread::{self, CHECKED},
};

/// An interrupt request level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Irql(pub u8);

impl Irql {
    /// Ordinary code: may wait, may touch paged memory.
    pub const PASSIVE_LEVEL: Self = Self(0);
    /// Asynchronous procedure calls are held off.
    pub const APC_LEVEL: Self = Self(1);
    /// The scheduler is held off: DPCs and holders of a spin lock.
    pub const DISPATCH_LEVEL: Self = Self(2);
    /// Everything is held off.
    pub const HIGH_LEVEL: Self = Self(15);
}

impl fmt::Display for Irql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PASSIVE_LEVEL => f.write_str("PASSIVE_LEVEL"),
            Self::APC_LEVEL => f.write_str("APC_LEVEL"),
            Self::DISPATCH_LEVEL => f.write_str("DISPATCH_LEVEL"),
            Self::HIGH_LEVEL => f.write_str("HIGH_LEVEL"),
            Self(level) => write!(f, "level {level}"),
        }
    }
}

/// The IRQL of the current thread: `KeGetCurrentIrql`.
#[inline]
#[must_use]
pub fn current_irql() -> Irql {
    thread::with(|state| state.irql.get())
}

/// Raises the IRQL of the current thread and gives the one before: `KfRaiseIrql`.
///
/// # Panics
///
/// [`Rule::IrqlNotRaised`] if `to` is below the current IRQL.
#[track_caller]
#[must_use = "the level to return to"]
pub fn raise(to: Irql) -> Irql {
    let now = current_irql();
    if to < now {
        broken(Rule::IrqlNotRaised, format_args!("raised from {now} to {to}"));
    }
    thread::with(|state| state.raise(to))
}

/// Lowers the IRQL of the current thread: `KeLowerIrql`.
///
/// Below `DISPATCH_LEVEL`, DPCs that are queued to the thread's processor run first, if
/// [`MachineRef::run_on`](super::MachineRef::run_on) has put it on one.
///
/// # Panics
///
/// [`Rule::IrqlNotLowered`] if `to` is above the current IRQL, or below `DISPATCH_LEVEL` while a spin lock is held.
#[track_caller]
pub fn lower(to: Irql) {
    let now = current_irql();
    if to > now {
        broken(Rule::IrqlNotLowered, format_args!("lowered from {now} to {to}"));
    }
    if to < Irql::DISPATCH_LEVEL && !no_locks_held() {
        broken(Rule::IrqlNotLowered, format_args!("lowered to {to} while holding {HeldLocks}"));
    }
    thread::with(|state| state.lower(to));
}

/// Checks that the current thread is at `level` or below.
///
/// # Panics
///
/// [`Rule::IrqlTooHigh`] if it is above.
#[track_caller]
#[inline]
pub fn assert_irql_at_most(level: Irql) {
    let now = current_irql();
    if now > level {
        broken(Rule::IrqlTooHigh, format_args!("at {now}, but at most {level} is allowed here"));
    }
}

/// How many spin locks the current thread holds.
#[inline]
#[must_use]
pub fn locks_held() -> usize {
    thread::with(|state| state.locks.get())
}

/// Returns true if the current thread holds no spin lock.
#[inline]
#[must_use]
pub fn no_locks_held() -> bool {
    locks_held() == 0
}

/// Checks that the current thread holds no spin lock.
///
/// # Panics
///
/// [`Rule::LockHeld`] if it holds one.
#[track_caller]
#[inline]
pub fn assert_no_locks_held() {
    if !no_locks_held() {
        broken(Rule::LockHeld, format_args!("holding {HeldLocks} where none may be held"));
    }
}

/// The locks of the current thread in words, for a message.
pub struct HeldLocks;

impl fmt::Display for HeldLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        thread::with(|state| {
            let count = state.locks.get();
            write!(f, "{count} spin lock{}", if count == 1 { "" } else { "s" })?;
            for (index, lock) in state.held().enumerate() {
                write!(f, "{}{} acquired at {}", if index == 0 { " (" } else { ", " }, lock.name, lock.place)?;
            }
            if CHECKED && count > 0 { f.write_str(")") } else { Ok(()) }
        })
    }
}

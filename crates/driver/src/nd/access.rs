//! What tests reach in the driver, when its test build is linked into them: the adapters that programs have, and their sessions.
//!
//! A test asks for it with [`open`] before the driver is loaded, and gives it back with [`close`], as code of the driver, before the driver
//! is unloaded.

use std::sync::{Mutex, MutexGuard, PoisonError};

use driver_common::numbers::MAX_ADAPTERS;
use fallible::Arc;
use nd2::{Config, Item};
use nd2_control::Sessions;
use ndkpi::NtStatus;

use super::{NdAdapter, NdSystem};

/// Limits that are remembered.
const LIMITS: usize = 8;

/// A limit that a program has reached: its name, and how much there is.
pub type Limit = (&'static str, u64);

/// Everything, as long as a test wants it. Nothing in it is allocated: it belongs to no driver.
struct Access {
    change: fn(u8, &mut Config),
    adapters: [Option<Arc<NdAdapter>>; MAX_ADAPTERS],
    sessions: Option<Arc<Sessions<NdSystem>>>,
    limits: [Option<Limit>; LIMITS],
}

static ACCESS: Mutex<Option<Access>> = Mutex::new(None);

fn access() -> MutexGuard<'static, Option<Access>> {
    ACCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps what the driver makes from now on. `change` may change how an adapter is made, by its number.
pub fn open(change: fn(u8, &mut Config)) {
    *access() =
        Some(Access { change, adapters: [const { None }; MAX_ADAPTERS], sessions: None, limits: [None; LIMITS] });
}

/// Lets everything go.
pub fn close() {
    // Dropped after the lock is released.
    let closed = access().take();
    drop(closed);
}

/// An adapter is about to be made.
pub(super) fn change(number: u8, config: &mut Config) {
    let change = access().as_ref().map(|access| access.change);
    if let Some(change) = change {
        change(number, config);
    }
}

/// An adapter is made.
pub(super) fn made(number: u8, adapter: &Arc<NdAdapter>) {
    if let Some(place) = access().as_mut().and_then(|access| access.adapters.get_mut(usize::from(number) - 1)) {
        *place = Some(adapter.clone());
    }
}

/// The device for programs is made.
pub(super) fn begun(sessions: &Arc<Sessions<NdSystem>>) {
    if let Some(access) = access().as_mut() {
        access.sessions = Some(sessions.clone());
    }
}

/// A program has reached a limit.
pub(super) fn limit_reached(name: &'static str, most: u64) {
    if let Some(place) = access().as_mut().and_then(|access| access.limits.iter_mut().find(|place| place.is_none())) {
        *place = Some((name, most));
    }
}

/// The limits that programs have reached since this was asked last.
#[must_use]
pub fn limits_reached() -> [Option<Limit>; LIMITS] {
    access().as_mut().map_or([None; LIMITS], |access| core::mem::take(&mut access.limits))
}

/// The adapter with a number, also when it is removed.
#[must_use]
pub fn adapter(number: u8) -> Option<Arc<NdAdapter>> {
    access().as_ref()?.adapters.get(usize::from(number).checked_sub(1)?)?.clone()
}

/// Bytes of kernel memory that a process is charged for; `None` if it has no session.
#[must_use]
pub fn charged_memory(process: u32) -> Option<u64> {
    let sessions = access().as_ref().and_then(|access| access.sessions.clone())?;
    Some(sessions.of_process(process)?.account().taken(Item::Memory))
}

/// Lets a completion queue of a process fail as broken hardware would.
///
/// # Errors
///
/// `STATUS_INVALID_HANDLE` if the process has no such queue.
pub fn break_completion_queue(process: u32, queue: u64) -> Result<(), NtStatus> {
    let sessions = access().as_ref().and_then(|access| access.sessions.clone());
    let session = sessions.and_then(|sessions| sessions.of_process(process)).ok_or(NtStatus::INVALID_HANDLE)?;
    session.break_completion_queue(queue)
}

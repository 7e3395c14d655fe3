//! Timeouts of waits.

use wdk_bindings::LARGE_INTEGER;

use super::clock;
use crate::state::State;

/// When a wait ends: `None` without a timeout.
pub fn end(state: &State, timeout: *mut LARGE_INTEGER) -> Option<u64> {
    if timeout.is_null() {
        return None;
    }
    // SAFETY: not null, so the driver's number, which lives until the call returns.
    let timeout = unsafe { timeout.read() };
    // SAFETY: every value of the union's numbers is one.
    let units = unsafe { timeout.QuadPart };
    Some(match units {
        0 => 0,
        // From the time that the driver knows, so that no wait is shorter by its clock.
        ..0 => clock::known(state).saturating_add(units.unsigned_abs().div_ceil(10)),
        _ => units.unsigned_abs().saturating_sub(clock::date_at(0)).div_ceil(10),
    })
}

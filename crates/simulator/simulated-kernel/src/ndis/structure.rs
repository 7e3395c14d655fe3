//! Structures and handles that drivers and NDIS pass, and how a routine begins.

use ndkpi::NDIS_OBJECT_HEADER;

use crate::{report::bug_check, rule::Rule, state::State};

/// Carries out a routine of NDIS, at most at that IRQL.
macro_rules! ndis_routine {
    ($name:literal, $level:ident, $work:expr) => {
        $crate::routine::carry_out($name, &$crate::routine::Limit::at(host::machine::Irql::$level), $work)
    };
}
pub(super) use ndis_routine;

impl State {
    /// A new handle of NDIS.
    pub(super) fn new_handle(&self) -> usize {
        0xFB00_0000_0000 + usize::try_from(self.next()).unwrap_or(0) * 16
    }
}

/// The miniport may hold no lock when it calls up, for what it calls may call it.
pub fn check_no_lock(name: &str) {
    if host::machine::locks_held() > 0 {
        bug_check(Rule::LockHeld, format_args!("{name} is called with a spin lock held"));
    }
}

/// What structures with handles in them are aligned to.
const ALIGNMENT: u16 = 8;

/// Checks what a structure says of itself. The size that the reference names ends with the last member; `sizeof`, which Microsoft's own
/// samples have, with the padding behind it.
pub fn check_header(header: NDIS_OBJECT_HEADER, expected: NDIS_OBJECT_HEADER, name: &str) {
    let padded = NDIS_OBJECT_HEADER { Size: expected.Size.next_multiple_of(ALIGNMENT), ..expected };
    if header != expected && header != padded {
        bug_check(Rule::NdisHeader, format_args!("{name} begins with {header:?} and not with {expected:?}"));
    }
}

/// Reads a structure of a driver whose header must be `expected`.
///
/// # Safety
///
/// `place` is null or a structure of at least as many bytes as its header says.
pub unsafe fn read<T: Copy>(place: *const T, expected: NDIS_OBJECT_HEADER, name: &str) -> T {
    if place.is_null() {
        bug_check(Rule::BadArgument, format_args!("{name} is not there"));
    }
    // SAFETY: every structure begins with a header (`# Safety`).
    let header = unsafe { place.cast::<NDIS_OBJECT_HEADER>().read() };
    check_header(header, expected, name);
    // SAFETY: the header is the expected one, so the structure is all there.
    unsafe { place.read() }
}

/// A handle as a driver has it.
pub const fn pointer<T>(handle: usize) -> *mut T {
    std::ptr::without_provenance_mut(handle)
}

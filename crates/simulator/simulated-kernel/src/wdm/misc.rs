//! Critical regions, strings.

use host::machine;
use ndkpi::NDK_OBJECT_TYPE;
use wdk_bindings::{BOOLEAN, PCUNICODE_STRING, PCWSTR, PUNICODE_STRING, ULONG, ULONG_PTR, UNICODE_STRING};

use crate::{
    context,
    findings::Findings,
    report::{bug_check, bug_check_of},
    routine::routine,
    rule::Rule,
    state,
};

#[unsafe(no_mangle)]
extern "C" fn KeEnterCriticalRegion() {
    routine!("KeEnterCriticalRegion", |_| context::set_critical(context::critical() + 1));
}

#[unsafe(no_mangle)]
extern "C" fn KeLeaveCriticalRegion() {
    routine!("KeLeaveCriticalRegion", |_| {
        let Some(left) = context::critical().checked_sub(1) else {
            bug_check(Rule::CriticalRegion, format_args!("a critical region is left that was not entered"));
        };
        context::set_critical(left);
    });
}

/// A guarded region is a critical one in which special APCs do not come either.
#[unsafe(no_mangle)]
extern "C" fn KeEnterGuardedRegion() {
    routine!("KeEnterGuardedRegion", APC_LEVEL, |_| enter_guarded_region());
}

#[unsafe(no_mangle)]
extern "C" fn KeLeaveGuardedRegion() {
    routine!("KeLeaveGuardedRegion", APC_LEVEL, |_| leave_guarded_region());
}

pub fn enter_guarded_region() {
    context::set_critical(context::critical() + 1);
    context::set_guarded(context::guarded() + 1);
}

/// Ends the test unless the thread is in one.
pub fn leave_guarded_region() {
    let (Some(guarded), Some(critical)) = (context::guarded().checked_sub(1), context::critical().checked_sub(1))
    else {
        bug_check(Rule::CriticalRegion, format_args!("a guarded region is left that was not entered"));
    };
    context::set_guarded(guarded);
    context::set_critical(critical);
}

#[unsafe(no_mangle)]
extern "C" fn KeAreAllApcsDisabled() -> BOOLEAN {
    routine!("KeAreAllApcsDisabled", |_| {
        BOOLEAN::from(context::guarded() > 0 || machine::current_irql() >= machine::Irql::APC_LEVEL)
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeAreApcsDisabled() -> BOOLEAN {
    routine!("KeAreApcsDisabled", APC_LEVEL, |_| {
        BOOLEAN::from(context::critical() > 0 || machine::current_irql() >= machine::Irql::APC_LEVEL)
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeShouldYieldProcessor() -> ULONG {
    routine!("KeShouldYieldProcessor", |_| 0)
}

#[unsafe(no_mangle)]
extern "C" fn KeBugCheckEx(code: ULONG, one: ULONG_PTR, two: ULONG_PTR, three: ULONG_PTR, four: ULONG_PTR) -> ! {
    /// The code with which SoftNDK's adviser stops the machine (`docs/adviser.md`), with the number of the finding.
    const ADVISER: ULONG = 0x534E_4144;
    if code == ADVISER {
        // The adviser has said in an event what it has found, unless nobody could trace.
        let said = state::glance(|state| state.part::<Findings>().take(one));
        let said = said.unwrap_or_else(|| {
            let kind = i32::try_from(two).ok().and_then(|two| NDK_OBJECT_TYPE(two).name());
            let kind = kind.and_then(|name| name.strip_prefix("NdkObjectType")).unwrap_or("object");
            format!("{kind} {three}, function {four}; ndkctl explain SN{one:04} says what it is")
        });
        bug_check_of(format_args!("SN{one:04}"), format_args!("{said}"));
    }
    bug_check(Rule::DriverPanicked, format_args!("KeBugCheckEx {code:#x} ({one:#x}, {two:#x}, {three:#x}, {four:#x})"))
}

#[unsafe(no_mangle)]
extern "C" fn KeBugCheck(code: ULONG) -> ! {
    bug_check(Rule::DriverPanicked, format_args!("KeBugCheck {code:#x}"))
}

#[unsafe(no_mangle)]
extern "C" fn RtlInitUnicodeString(target: PUNICODE_STRING, source: PCWSTR) {
    /// As many as have a length with their terminator: of a longer string these are taken.
    const MOST: u16 = u16::MAX / 2 - 1;
    routine!("RtlInitUnicodeString", |_| {
        let mut units = 0_u16;
        while !source.is_null() && units < MOST {
            // SAFETY: the driver's string has units up to its terminator.
            let unit = unsafe { source.add(usize::from(units)) };
            // SAFETY: the driver's string has units up to its terminator.
            if unsafe { unit.read() } == 0 {
                break;
            }
            units += 1;
        }
        let terminator = if source.is_null() { 0 } else { 2 };
        let string =
            UNICODE_STRING { Length: units * 2, MaximumLength: units * 2 + terminator, Buffer: source.cast_mut() };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { target.write(string) };
    });
}

#[unsafe(no_mangle)]
extern "C" fn RtlCopyUnicodeString(target: PUNICODE_STRING, source: PCUNICODE_STRING) {
    routine!("RtlCopyUnicodeString", |_| {
        let units = crate::text::units(source);
        // SAFETY: the driver's string, which lives until the call returns.
        let target = unsafe { &mut *target };
        let count = units.len().min(usize::from(target.MaximumLength / 2));
        // SAFETY: the driver's buffer has as many bytes as its maximal length says.
        unsafe { target.Buffer.copy_from_nonoverlapping(units.as_ptr(), count) };
        target.Length = u16::try_from(count * 2).unwrap_or(0);
    });
}

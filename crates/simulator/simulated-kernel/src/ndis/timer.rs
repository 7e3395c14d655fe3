//! Timers of NDIS: a call at `DISPATCH_LEVEL`, once or again and again. A `KTIMER` with a DPC of its own, both in memory of NDIS's.

use std::{
    ffi::c_void,
    ptr,
    sync::{Mutex, PoisonError},
};

use host::machine::{self, Irql};
use litemap::LiteMap;
use ndis::NDIS_STATUS;
use ndkpi::{
    NDIS_HANDLE, NDIS_OBJECT_HEADER,
    status::{NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS},
};
use wdk_bindings::{_TIMER_TYPE, BOOLEAN, KDPC, KTIMER, LARGE_INTEGER, PVOID};

use super::{
    clients::BAD_CHARACTERISTICS,
    owner::Owner,
    structure::{ndis_routine, pointer},
};
use crate::{
    argument::Argument,
    report::bug_check,
    rule::Rule,
    sites::Site,
    state::{Part, State},
    tracked::Kind,
    wdm::{dpc, memory::check_tag, timer},
};

/// `NDIS_TIMER_FUNCTION`.
type TimerFunction =
    unsafe extern "system" fn(first: *mut c_void, context: *mut c_void, second: *mut c_void, third: *mut c_void);

/// `NDIS_TIMER_CHARACTERISTICS`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Characteristics {
    header: NDIS_OBJECT_HEADER,
    tag: u32,
    function: Option<TimerFunction>,
    context: *mut c_void,
}

impl Characteristics {
    /// The type, revision and size that the reference names.
    const HEADER: NDIS_OBJECT_HEADER = NDIS_OBJECT_HEADER { Type: 0x97, Revision: 1, Size: 0x18 };
}

const _: () = assert!(size_of::<Characteristics>() == 0x18, "the size that the header says");

/// What lies behind a handle. It is never freed: a call that was due before may still come after its timer is freed.
struct Memory {
    timer: KTIMER,
    dpc: KDPC,
    function: TimerFunction,
    /// What the function gets if the driver says nothing when it sets the timer.
    usual: Argument,
    /// What it gets.
    context: Mutex<Argument>,
}

/// A timer.
struct Timer {
    owner: Owner,
    /// The address of its [`Memory`].
    memory: usize,
    /// Set to expire again and again, the last time it was set.
    is_periodic: bool,
    site: Site,
}

/// The timers that are not freed, by their handles.
#[derive(Default)]
pub struct Timers(LiteMap<usize, Timer>);

impl Part for Mutex<Timers> {}

impl Timers {
    /// Where one was allocated that is left of those that `of` recognises.
    pub fn left(&self, of: impl Fn(Owner) -> bool) -> Option<Site> {
        self.0.values().find(|timer| of(timer.owner)).map(|timer| timer.site.clone())
    }
}

/// The memory of a timer, and whether it was set to expire again and again.
fn find(state: &State, handle: NDIS_HANDLE) -> (*mut Memory, bool) {
    let found = state.locked::<Timers>().0.get(&handle.addr()).map(|timer| (timer.memory, timer.is_periodic));
    let Some((memory, is_periodic)) = found else {
        bug_check(Rule::BadHandle, format_args!("{handle:p} is no timer of NDIS, or was one"));
    };
    (ptr::with_exposed_provenance_mut(memory), is_periodic)
}

/// It has expired: the routine of its DPC.
unsafe extern "C" fn expired(_: *mut KDPC, memory: PVOID, _: PVOID, _: PVOID) {
    // SAFETY: the memory of a timer, which is never freed. Its timer and DPC, which others write, are not read.
    let function = unsafe { (*memory.cast::<Memory>()).function };
    // SAFETY: as above; the lock is the only way to what it guards.
    let context = unsafe { &(*memory.cast::<Memory>()).context };
    let context = context.lock().unwrap_or_else(PoisonError::into_inner).pointer("a timer of NDIS");
    // SAFETY: the driver's own routine, with its own context, at `DISPATCH_LEVEL`. What is the system's is nothing.
    unsafe { function(ptr::null_mut(), context, ptr::null_mut(), ptr::null_mut()) };
}

#[unsafe(no_mangle)]
extern "system" fn NdisAllocateTimerObject(
    handle: NDIS_HANDLE,
    characteristics: *const c_void,
    place: *mut NDIS_HANDLE,
) -> NDIS_STATUS {
    ndis_routine!("NdisAllocateTimerObject", DISPATCH_LEVEL, |state| {
        let owner = state.owner_of(handle);
        let characteristics: *const Characteristics = characteristics.cast();
        // SAFETY: the driver's structure, which lives until the call returns, and begins with a header.
        if characteristics.is_null() || unsafe { (*characteristics).header } != Characteristics::HEADER {
            return BAD_CHARACTERISTICS;
        }
        // SAFETY: the header is the expected one, so the structure is all there.
        let Characteristics { tag, function, context, .. } = unsafe { characteristics.read() };
        let Some(function) = function else { return BAD_CHARACTERISTICS };
        check_tag(tag, format_args!("a timer of NDIS"));
        if state.strikes() {
            return NDIS_STATUS_RESOURCES;
        }
        let usual = Argument::of(context);
        let (timer, dpc) = (KTIMER::default(), KDPC::default());
        let memory = Box::into_raw(Box::new(Memory { timer, dpc, function, usual, context: Mutex::new(usual) }));
        // SAFETY: memory of this function, which nobody else knows.
        let (timer, dpc) = unsafe { (&raw mut (*memory).timer, &raw mut (*memory).dpc) };
        timer::initialise(state, timer, _TIMER_TYPE::NotificationTimer);
        dpc::initialise(state, dpc, Some(expired), memory.cast());
        let new = state.new_handle();
        let timer = Timer { owner, memory: memory.expose_provenance(), is_periodic: false, site: Site::here() };
        state.locked::<Timers>().0.insert(new, timer);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(pointer(new)) };
        NDIS_STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisSetTimerObject(
    handle: NDIS_HANDLE,
    due: LARGE_INTEGER,
    period: i32,
    context: *mut c_void,
) -> BOOLEAN {
    ndis_routine!("NdisSetTimerObject", DISPATCH_LEVEL, |state| set(state, handle, due, period, context))
}

/// No timer waits for another one here: it expires when it is due.
#[unsafe(no_mangle)]
extern "system" fn NdisSetCoalescableTimerObject(
    handle: NDIS_HANDLE,
    due: LARGE_INTEGER,
    period: u32,
    context: *mut c_void,
    _tolerance: u32,
) -> BOOLEAN {
    ndis_routine!("NdisSetCoalescableTimerObject", DISPATCH_LEVEL, |state| {
        set(state, handle, due, period.cast_signed(), context)
    })
}

/// Sets a timer. Whether it was set before.
fn set(state: &State, handle: NDIS_HANDLE, due: LARGE_INTEGER, period: i32, context: *mut c_void) -> BOOLEAN {
    let (memory, _) = find(state, handle);
    let Ok(milliseconds) = u64::try_from(period) else {
        bug_check(Rule::BadArgument, format_args!("a timer of NDIS with the period {period}"));
    };
    if let Some(timer) = state.locked::<Timers>().0.get_mut(&handle.addr()) {
        timer.is_periodic = period != 0;
    }
    // SAFETY: the memory of a timer, which is never freed. Nobody writes this field.
    let usual = unsafe { (*memory).usual };
    // SAFETY: as above; the lock is the only way to what it guards.
    let said = unsafe { &(*memory).context };
    let context = if context.is_null() { usual } else { Argument::of(context) };
    *said.lock().unwrap_or_else(PoisonError::into_inner) = context;
    // SAFETY: as above. The two are the kernel's.
    let (timer, dpc) = unsafe { (&raw mut (*memory).timer, &raw mut (*memory).dpc) };
    let was_set = timer::set(state, timer, due, milliseconds * 1000, dpc);
    state.preempt();
    was_set
}

/// A timer that expires again and again does not run any more afterwards; of one that expires once, a call may still be due.
#[unsafe(no_mangle)]
extern "system" fn NdisCancelTimerObject(handle: NDIS_HANDLE) -> BOOLEAN {
    ndis_routine!("NdisCancelTimerObject", DISPATCH_LEVEL, |state| {
        let (memory, is_periodic) = find(state, handle);
        let now = machine::current_irql();
        if is_periodic && now > Irql::PASSIVE_LEVEL {
            bug_check(Rule::IrqlTooHigh, format_args!("a periodic timer of NDIS is cancelled at {now}"));
        }
        state.preempt();
        // SAFETY: the memory of a timer, which is never freed.
        let cancelled = timer::tracked(state, unsafe { &raw mut (*memory).timer }).timer.cancel().is_some();
        if is_periodic {
            state.machine.flush();
        }
        BOOLEAN::from(cancelled)
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisFreeTimerObject(handle: NDIS_HANDLE) {
    ndis_routine!("NdisFreeTimerObject", DISPATCH_LEVEL, |state| {
        let (memory, _) = find(state, handle);
        // SAFETY: the memory of a timer, which is never freed.
        let (timer, dpc) = unsafe { (&raw mut (*memory).timer, &raw mut (*memory).dpc) };
        if timer::tracked(state, timer).timer.is_set() {
            bug_check(Rule::TimerFreedWhileSet, format_args!("a timer of NDIS is freed that is set"));
        }
        if dpc::tracked(state, dpc).is_queued() {
            bug_check(Rule::DpcFreedWhileQueued, format_args!("a timer of NDIS is freed whose call is due"));
        }
        state.locked::<Timers>().0.remove(&handle.addr());
        state.untrack(timer.expose_provenance(), Kind::Timer);
        state.untrack(dpc.expose_provenance(), Kind::Dpc);
    });
}

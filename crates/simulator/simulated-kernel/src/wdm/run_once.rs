//! What is to be initialised once, by whoever comes first.
//!
//! The driver's word is zero at first, and 1 while somebody is at it. Afterwards it is the context, whose two lowest bits are those of the state, 2.

use std::{
    ptr,
    sync::{
        Arc,
        atomic::{
            AtomicUsize,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
};

use wdk_bindings::{
    NTSTATUS, PVOID, STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS, STATUS_UNSUCCESSFUL, ULONG,
};

use crate::{context, report::bug_check, routine::routine, rule::Rule, state::State, waiting};

/// `RTL_RUN_ONCE_INIT_FN`.
type Initialise = unsafe extern "C" fn(*mut usize, PVOID, *mut PVOID) -> ULONG;

/// `RTL_RUN_ONCE_CHECK_ONLY`, `RTL_RUN_ONCE_ASYNC` and `RTL_RUN_ONCE_INIT_FAILED`.
const CHECK_ONLY: ULONG = 1;
const ASYNC: ULONG = 2;
const FAILED: ULONG = 4;

const BEGUN: usize = 1;
const DONE: usize = 2;
/// The bits of a context that have to be zero.
const STATE: usize = 3;

fn word<'driver>(once: *mut usize) -> &'driver AtomicUsize {
    // SAFETY: the driver's word, which these routines change only.
    unsafe { AtomicUsize::from_ptr(once) }
}

/// Begins. Returns true if it is done already, with the context in `place`, and false if the caller is to do it.
fn begin(state: &Arc<State>, once: *mut usize, place: *mut PVOID) -> bool {
    let word = word(once);
    loop {
        match word.compare_exchange(0, BEGUN, AcqRel, Acquire) {
            Ok(_) => return false,
            Err(now) if now & STATE == DONE => {
                give(place, now & !STATE);
                return true;
            }
            Err(BEGUN) => {
                let what = "what another thread initialises once";
                waiting::until(state, None, what, || word.load(Acquire) != BEGUN);
            }
            Err(now) => {
                bug_check(Rule::Uninitialised, format_args!("an RTL_RUN_ONCE at {once:p} has the value {now:#x}"))
            }
        }
    }
}

fn give(place: *mut PVOID, context: usize) {
    if !place.is_null() {
        // SAFETY: not null, so the driver's place, which lives until the call returns.
        unsafe { place.write(ptr::with_exposed_provenance_mut(context)) };
    }
}

/// Ends what was begun. False if nothing was.
fn end(state: &State, once: *mut usize, context: Option<usize>) -> bool {
    if let Some(context) = context.filter(|context| context & STATE != 0) {
        let words = format_args!("the context {context:#x} of an RTL_RUN_ONCE: its two lowest bits are not zero");
        bug_check(Rule::BadArgument, words);
    }
    let after = context.map_or(0, |context| context | DONE);
    let ended = word(once).compare_exchange(BEGUN, after, Release, Acquire).is_ok();
    state.dispatcher.signal();
    ended
}

#[unsafe(no_mangle)]
extern "C" fn RtlRunOnceInitialize(once: *mut usize) {
    routine!("RtlRunOnceInitialize", HIGH_LEVEL, |_| word(once).store(0, Release));
}

#[unsafe(no_mangle)]
extern "C" fn RtlRunOnceExecuteOnce(
    once: *mut usize,
    initialise: Option<Initialise>,
    parameter: PVOID,
    place: *mut PVOID,
) -> NTSTATUS {
    routine!("RtlRunOnceExecuteOnce", APC_LEVEL, |state| {
        let Some(initialise) = initialise else {
            bug_check(Rule::BadArgument, format_args!("RtlRunOnceExecuteOnce without a routine"));
        };
        if begin(state, once, place) {
            return STATUS_SUCCESS;
        }
        let mut made = ptr::null_mut();
        let succeeded = context::call(context::caller(), "what is initialised once", || {
            // SAFETY: the driver's own routine and argument, and a place that lives until it returns.
            unsafe { initialise(once, parameter, &raw mut made) }
        });
        let made = made.expose_provenance();
        end(state, once, (succeeded != 0).then_some(made));
        if succeeded == 0 {
            return STATUS_UNSUCCESSFUL;
        }
        give(place, made);
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn RtlRunOnceBeginInitialize(once: *mut usize, flags: ULONG, place: *mut PVOID) -> NTSTATUS {
    routine!("RtlRunOnceBeginInitialize", APC_LEVEL, |state| {
        if flags & ASYNC != 0 {
            bug_check(
                Rule::NotSimulated,
                format_args!("what several initialise at a time, and the first to end has done"),
            );
        }
        if flags & CHECK_ONLY != 0 {
            let now = word(once).load(Acquire);
            if now & STATE != DONE {
                return STATUS_UNSUCCESSFUL;
            }
            give(place, now & !STATE);
            return STATUS_SUCCESS;
        }
        if begin(state, once, place) { STATUS_SUCCESS } else { STATUS_PENDING }
    })
}

#[unsafe(no_mangle)]
extern "C" fn RtlRunOnceComplete(once: *mut usize, flags: ULONG, context: PVOID) -> NTSTATUS {
    routine!("RtlRunOnceComplete", APC_LEVEL, |state| {
        let has_failed = flags & FAILED != 0;
        if flags & !FAILED != 0 || has_failed && !context.is_null() {
            return STATUS_INVALID_PARAMETER;
        }
        let context = (!has_failed).then(|| context.expose_provenance());
        if end(state, once, context) { STATUS_SUCCESS } else { STATUS_UNSUCCESSFUL }
    })
}

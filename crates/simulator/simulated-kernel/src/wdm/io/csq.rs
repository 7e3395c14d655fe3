//! Cancel-safe queues: the driver's own queue, with a cancel routine that takes requests out of it.
//!
//! But for the checks of the level everything here runs as code of the driver, whose routines it calls: they raise the level and hold a
//! lock from one call to the next.

use std::{
    ptr,
    sync::atomic::{AtomicPtr, Ordering::AcqRel},
};

use wdk_bindings::{
    IO_CSQ, IO_CSQ_IRP_CONTEXT, KIRQL, NTSTATUS, PDEVICE_OBJECT, PDRIVER_CANCEL, PIO_CSQ, PIO_CSQ_ACQUIRE_LOCK,
    PIO_CSQ_COMPLETE_CANCELED_IRP, PIO_CSQ_INSERT_IRP, PIO_CSQ_IRP_CONTEXT, PIO_CSQ_PEEK_NEXT_IRP,
    PIO_CSQ_RELEASE_LOCK, PIO_CSQ_REMOVE_IRP, PIRP, PVOID, SL_PENDING_RETURNED, STATUS_SUCCESS, ULONG,
};

use super::cancel::IoReleaseCancelSpinLock;
use crate::{
    context, pool,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::State,
    tracked::{Kind, Object},
};

/// What the two structures begin with, so that one is told from the other.
const QUEUE: ULONG = 1;
const CONTEXT: ULONG = 2;
/// A queue whose insertion has a status, and an argument of the driver's.
const EXTENDED: ULONG = 3;
/// The word of a request's driver context in which its queue, or its context there, is.
const WORD: usize = 3;

/// A queue with its routines.
#[derive(Clone, Copy)]
struct Queue(PIO_CSQ);

/// `IO_CSQ_INSERT_IRP_EX`.
type InsertEx = Option<unsafe extern "C" fn(PIO_CSQ, PIRP, PVOID) -> NTSTATUS>;

/// Calls a routine of the queue, which the driver owes.
macro_rules! call {
    ($queue:expr, $name:ident($($argument:expr),*)) => {{
        let Queue(place) = $queue;
        // SAFETY: the driver's structure, which lives as long as its requests.
        let Some(routine) = (unsafe { (*place).$name }) else {
            bug_check(Rule::Uninitialised, format_args!("a queue of requests without {}", stringify!($name)));
        };
        // SAFETY: the driver's own routine and queue.
        unsafe { routine(place, $($argument),*) }
    }};
}

impl Queue {
    /// Does something while the driver's lock is held.
    fn locked<R>(self, work: impl FnOnce() -> R) -> R {
        let mut level: KIRQL = 0;
        call!(self, CsqAcquireLock(&raw mut level));
        let result = work();
        call!(self, CsqReleaseLock(level));
        result
    }

    /// Puts a request in. An extended queue may refuse it.
    fn insert(self, irp: PIRP, argument: PVOID) -> NTSTATUS {
        let Self(place) = self;
        // SAFETY: the driver's structure, which lives as long as its requests.
        if unsafe { (*place).Type } != EXTENDED {
            call!(self, CsqInsertIrp(irp));
            return STATUS_SUCCESS;
        }
        // SAFETY: the driver's structure, which lives as long as its requests.
        let routine = unsafe { (*place).CsqInsertIrp };
        // SAFETY: the same pointer, null or a routine, as `IoCsqInitializeEx` got it.
        let routine: InsertEx = unsafe { std::mem::transmute::<PIO_CSQ_INSERT_IRP, InsertEx>(routine) };
        let Some(routine) = routine else {
            bug_check(Rule::Uninitialised, format_args!("a queue of requests without CsqInsertIrpEx"));
        };
        // SAFETY: the driver's own routine and queue.
        unsafe { routine(place, irp, argument) }
    }

    /// Takes a request out.
    fn remove(self, irp: PIRP) {
        call!(self, CsqRemoveIrp(irp));
        let (_, context) = of(irp);
        if !context.is_null() {
            // SAFETY: the driver's structure, which lives as long as its request is in the queue.
            unsafe { (*context).Irp = ptr::null_mut() };
        }
        set_word(irp, ptr::null_mut());
    }
}

fn words(irp: PIRP) -> *mut [PVOID; 4] {
    // SAFETY: the request is the driver's, or in its queue; only an address is taken, and this arm of the union is the driver's.
    unsafe { &raw mut (*irp).Tail.Overlay.__bindgen_anon_1.__bindgen_anon_1.DriverContext }
}

fn set_word(irp: PIRP, word: PVOID) {
    // SAFETY: the driver's words of its request.
    unsafe { (*words(irp))[WORD] = word };
}

/// The request that a context names has the address of the context.
fn check_context(place: PIO_CSQ_IRP_CONTEXT) {
    // SAFETY: the driver's structure, which lives until the call returns.
    let irp = unsafe { (*place).Irp };
    if irp.is_null() || pool::is_live(irp.addr()) == Some(false) {
        return;
    }
    // SAFETY: the driver's words of a request that is in its queue.
    let word = unsafe { (*words(irp))[WORD] };
    if !word.is_null() && word != place.cast() {
        let words =
            format_args!("the context of a request in a queue was inserted at {word:p} and is used at {place:p}");
        bug_check(Rule::MovedObject, words);
    }
}

/// The queue of a request, and its context there if it has one.
fn of(irp: PIRP) -> (Queue, PIO_CSQ_IRP_CONTEXT) {
    // SAFETY: the driver's words of its request.
    let word = unsafe { (*words(irp))[WORD] };
    let kind: *mut ULONG = word.cast();
    // SAFETY: one of the two structures, which the insertion has noted.
    if unsafe { kind.read() } != CONTEXT {
        return (Queue(word.cast()), ptr::null_mut());
    }
    let context: PIO_CSQ_IRP_CONTEXT = word.cast();
    // SAFETY: it is this structure.
    (Queue(unsafe { (*context).Csq }), context)
}

/// Sets or takes away the cancel routine (`IoSetCancelRoutine`). True if there was one.
fn exchange_cancel(irp: PIRP, routine: PDRIVER_CANCEL) -> bool {
    // SAFETY: the request is in the driver's queue, whose lock is held; only an address is taken.
    let place = unsafe { &raw mut (*irp).CancelRoutine };
    // SAFETY: a pointer that is null or a routine, and is changed by exchanges only.
    let place = unsafe { AtomicPtr::<()>::from_ptr(place.cast()) };
    let routine = routine.map_or(ptr::null_mut(), |routine| (routine as *const ()).cast_mut());
    !place.swap(routine, AcqRel).is_null()
}

unsafe extern "C" fn cancel(_: PDEVICE_OBJECT, irp: PIRP) {
    // SAFETY: the request is not complete: its queue has it.
    IoReleaseCancelSpinLock(unsafe { (*irp).CancelIrql });
    let (queue, _) = of(irp);
    queue.locked(|| queue.remove(irp));
    call!(queue, CsqCompleteCanceledIrp(irp));
}

#[unsafe(no_mangle)]
extern "C" fn IoCsqInitialize(
    place: PIO_CSQ,
    insert: PIO_CSQ_INSERT_IRP,
    remove: PIO_CSQ_REMOVE_IRP,
    peek: PIO_CSQ_PEEK_NEXT_IRP,
    acquire: PIO_CSQ_ACQUIRE_LOCK,
    release: PIO_CSQ_RELEASE_LOCK,
    complete: PIO_CSQ_COMPLETE_CANCELED_IRP,
) -> NTSTATUS {
    routine!("IoCsqInitialize", |state| {
        initialise(state, QUEUE, place, [insert, remove], peek, (acquire, release), complete);
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoCsqInitializeEx(
    place: PIO_CSQ,
    insert: InsertEx,
    remove: PIO_CSQ_REMOVE_IRP,
    peek: PIO_CSQ_PEEK_NEXT_IRP,
    acquire: PIO_CSQ_ACQUIRE_LOCK,
    release: PIO_CSQ_RELEASE_LOCK,
    complete: PIO_CSQ_COMPLETE_CANCELED_IRP,
) -> NTSTATUS {
    routine!("IoCsqInitializeEx", HIGH_LEVEL, |state| {
        // SAFETY: both are null or a pointer to a routine; by the type of the queue it is called as what it is.
        let insert = unsafe { std::mem::transmute::<InsertEx, PIO_CSQ_INSERT_IRP>(insert) };
        initialise(state, EXTENDED, place, [insert, remove], peek, (acquire, release), complete);
        STATUS_SUCCESS
    })
}

fn initialise(
    state: &State,
    kind: ULONG,
    place: PIO_CSQ,
    [insert, remove]: [PIO_CSQ_INSERT_IRP; 2],
    peek: PIO_CSQ_PEEK_NEXT_IRP,
    (acquire, release): (PIO_CSQ_ACQUIRE_LOCK, PIO_CSQ_RELEASE_LOCK),
    complete: PIO_CSQ_COMPLETE_CANCELED_IRP,
) {
    let queue = IO_CSQ {
        Type: kind,
        CsqInsertIrp: insert,
        CsqRemoveIrp: remove,
        CsqPeekNextIrp: peek,
        CsqAcquireLock: acquire,
        CsqReleaseLock: release,
        CsqCompleteCanceledIrp: complete,
        ReservePointer: ptr::null_mut(),
    };
    // SAFETY: the driver's memory for a queue.
    unsafe { place.write(queue) };
    state.track(place.expose_provenance(), context::caller(), Object::plain(Kind::CancelSafeQueue));
}

#[unsafe(no_mangle)]
extern "C" fn IoCsqInsertIrp(place: PIO_CSQ, irp: PIRP, context: PIO_CSQ_IRP_CONTEXT) {
    routine!("IoCsqInsertIrp", |state| state.find(place.expose_provenance(), Kind::CancelSafeQueue));
    insert(Queue(place), irp, context, ptr::null_mut());
}

#[unsafe(no_mangle)]
extern "C" fn IoCsqInsertIrpEx(place: PIO_CSQ, irp: PIRP, context: PIO_CSQ_IRP_CONTEXT, argument: PVOID) -> NTSTATUS {
    routine!("IoCsqInsertIrpEx", DISPATCH_LEVEL, |state| {
        state.find(place.expose_provenance(), Kind::CancelSafeQueue);
    });
    insert(Queue(place), irp, context, argument)
}

/// Inserts a request, unless the driver refuses it: then it is the driver's again, with the status that it has said.
fn insert(queue: Queue, irp: PIRP, context: PIO_CSQ_IRP_CONTEXT, argument: PVOID) -> NTSTATUS {
    let Queue(place) = queue;
    if context.is_null() {
        set_word(irp, place.cast());
    } else {
        // SAFETY: the driver's memory for it.
        unsafe { context.write(IO_CSQ_IRP_CONTEXT { Type: CONTEXT, Irp: irp, Csq: place }) };
        set_word(irp, context.cast());
    }
    let (status, cancelled) = queue.locked(|| {
        // SAFETY: the driver has the request.
        let tail = unsafe { (*irp).Tail };
        // SAFETY: the arm that the I/O manager uses. The driver's own part of it.
        let control = unsafe {
            let overlay = tail.Overlay;
            let location = overlay.__bindgen_anon_2.__bindgen_anon_1.CurrentStackLocation;
            &mut (*location).Control
        };
        let before = *control;
        *control |= u8::try_from(SL_PENDING_RETURNED).unwrap_or(0);
        let status = queue.insert(irp, argument);
        if status < 0 {
            *control = before;
            set_word(irp, ptr::null_mut());
            return (status, false);
        }
        exchange_cancel(irp, Some(cancel));
        // SAFETY: the driver has the request. If somebody else has taken the routine away meanwhile, that one takes the request out.
        let cancelled = unsafe { (*irp).Cancel } != 0 && exchange_cancel(irp, None);
        if cancelled {
            queue.remove(irp);
        }
        (status, cancelled)
    });
    if cancelled {
        call!(queue, CsqCompleteCanceledIrp(irp));
    }
    status
}

#[unsafe(no_mangle)]
extern "C" fn IoCsqRemoveIrp(place: PIO_CSQ, context: PIO_CSQ_IRP_CONTEXT) -> PIRP {
    routine!("IoCsqRemoveIrp", |state| {
        state.find(place.expose_provenance(), Kind::CancelSafeQueue);
        check_context(context);
    });
    let queue = Queue(place);
    queue.locked(|| {
        // SAFETY: the driver's structure, whose request is taken out under the lock.
        let irp = unsafe { (*context).Irp };
        if irp.is_null() || !exchange_cancel(irp, None) {
            return ptr::null_mut();
        }
        queue.remove(irp);
        irp
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoCsqRemoveNextIrp(place: PIO_CSQ, wanted: PVOID) -> PIRP {
    routine!("IoCsqRemoveNextIrp", |state| state.find(place.expose_provenance(), Kind::CancelSafeQueue));
    let queue = Queue(place);
    queue.locked(|| {
        let mut irp = call!(queue, CsqPeekNextIrp(ptr::null_mut(), wanted));
        // One that is being cancelled is left to that.
        while !irp.is_null() && !exchange_cancel(irp, None) {
            irp = call!(queue, CsqPeekNextIrp(irp, wanted));
        }
        if !irp.is_null() {
            queue.remove(irp);
        }
        irp
    })
}

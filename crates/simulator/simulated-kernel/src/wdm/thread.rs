//! System threads, their handles and references.

use std::{
    ptr,
    sync::{
        Arc,
        atomic::Ordering::{AcqRel, Acquire},
    },
};

use wdk_bindings::{
    CLIENT_ID, HANDLE, KPRIORITY, LONG, NTSTATUS, OBJ_KERNEL_HANDLE, OBJECT_ATTRIBUTES, PKSTART_ROUTINE, PKTHREAD,
    PVOID, PWORK_QUEUE_ITEM, STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS, ULONG, WORK_QUEUE_TYPE,
};

use super::{
    handles,
    references::To,
    system_thread::{STATUS, Thread, Threads, id, spawn},
    thread_end,
};
use crate::{
    argument::{Argument, Word, check_size},
    context::{self, DriverId},
    pool,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{self, State},
    tracked::{Kind, Object},
};

impl State {
    /// The thread whose object that is.
    pub fn thread_at(&self, object: usize) -> Option<Arc<Thread>> {
        let threads = self.locked::<Threads>();
        let own = || threads.all.iter().map(|(thread, _)| thread).find(|thread| Arc::as_ptr(thread).addr() == object);
        threads.objects.get(&object).or_else(own).cloned()
    }

    /// Takes a reference to the thread with that identifier. Its object; `None` if no such thread runs.
    pub fn refer_to_thread(&self, identifier: u64) -> Option<usize> {
        let mut threads = self.locked::<Threads>();
        let program = threads.program();
        let all = threads.all.iter().map(|(thread, _)| thread).chain([&program]);
        let thread = all.into_iter().find(|thread| thread.id() == identifier && !thread.has_ended())?.clone();
        thread.references.fetch_add(1, AcqRel);
        let object = Arc::as_ptr(&thread).addr();
        threads.objects.insert(object, thread);
        Some(object)
    }

    /// Closes a handle, if it is one of a thread.
    pub fn close_thread(&self, handle: usize) -> bool {
        self.locked::<Threads>().handles.remove(&handle).is_some()
    }

    /// Counts references to a thread. How many there are then; `None` if the object is none.
    pub fn count_thread(&self, object: usize, by: i64) -> Option<i64> {
        let thread = self.thread_at(object)?;
        if by < 0 {
            // One of those that a look-up has given, as far as there are any.
            self.refer(object, To::Thread, by);
        }
        let after = thread.references.fetch_add(by, AcqRel) + by;
        if after < 0 {
            bug_check(Rule::ReferenceUnderflow, format_args!("an object is dereferenced once too often"));
        }
        Some(after)
    }

    /// A driver is unloaded: its threads must have ended and its handles be closed. Waits for what a thread does after its
    /// last call.
    pub fn check_threads(self: &Arc<Self>, owner: DriverId, name: &str) {
        let mine: Vec<Arc<Thread>> = {
            let threads = self.locked::<Threads>();
            if threads.handles.values().any(|thread| thread.owner == owner) {
                drop(threads);
                bug_check(Rule::ReferenceLeak, format_args!("driver {name} left a handle of a thread open"));
            }
            threads.all.iter().filter(|(thread, _)| thread.owner == owner).map(|(thread, _)| thread.clone()).collect()
        };
        for thread in &mine {
            if !thread.ended.load(Acquire) {
                bug_check(Rule::ThreadAtUnload, format_args!("a thread of driver {name} still runs at its unload"));
            }
            if thread.references.load(Acquire) > 0 {
                bug_check(Rule::ReferenceLeak, format_args!("driver {name} left a reference to a thread"));
            }
        }
        let ended = {
            let mut threads = self.locked::<Threads>();
            let all = std::mem::take(&mut threads.all);
            let (ended, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(thread, _)| thread.owner == owner);
            threads.all = others;
            ended
        };
        for (_, join) in ended {
            drop(join.join());
        }
    }
}

/// `CriticalWorkQueue` and `DelayedWorkQueue` are the drivers', others are the system's or none.
pub fn check_queue(queue: WORK_QUEUE_TYPE) {
    if queue == HYPER_CRITICAL || (MAXIMUM..CUSTOM).contains(&queue) {
        bug_check(Rule::BadArgument, format_args!("a work item for the queue {queue}, which is not for drivers"));
    }
}

/// `HyperCriticalWorkQueue`, `MaximumWorkQueue`, `CustomPriorityWorkQueue`.
const HYPER_CRITICAL: WORK_QUEUE_TYPE = 2;
const MAXIMUM: WORK_QUEUE_TYPE = 7;
const CUSTOM: WORK_QUEUE_TYPE = 32;

/// No device keeps the driver there for such a work item: who is unloaded while one runs is found out as with a thread of its own.
#[unsafe(no_mangle)]
extern "C" fn ExQueueWorkItem(item: PWORK_QUEUE_ITEM, queue: WORK_QUEUE_TYPE) {
    routine!("ExQueueWorkItem", |state| {
        check_queue(queue);
        check_live(item);
        // SAFETY: the driver's structure, which is the system's until its routine is called.
        let queued = unsafe { item.read() };
        let Some(work) = queued.WorkerRoutine else {
            bug_check(Rule::BadArgument, format_args!("a work item without a routine"));
        };
        if state.is_tracked(item.addr(), Kind::WorkItem) {
            bug_check(Rule::WorkItemQueued, format_args!("a work item is queued that is queued already"));
        }
        if !queued.List.Flink.is_null() {
            state.check_moved(item.addr(), Kind::WorkItem);
            bug_check(Rule::Uninitialised, format_args!("the work item at {item:p} was not initialised"));
        }
        state.track(item.expose_provenance(), context::caller(), Object::plain(Kind::WorkItem));
        let (owner, item, argument) = (context::caller(), Word::of(item), Argument::of(queued.Parameter));
        spawn(state, owner, false, move || {
            let item: PWORK_QUEUE_ITEM = item.pointer();
            let state = state::current();
            drop(state.find(item.addr(), Kind::WorkItem));
            state.untrack_and_remember(item.addr(), Kind::WorkItem, ", and has run since");
            // SAFETY: as above. From here on it is the driver's, which may queue it again or free it.
            unsafe { (*item).List.Flink = ptr::null_mut() };
            let argument = argument.pointer("a work item");
            context::call(owner, "a work item", || {
                // SAFETY: the driver's own routine, with its own argument.
                unsafe { work(argument) };
            });
        });
        state.preempt();
    });
}

fn check_live(item: PWORK_QUEUE_ITEM) {
    pool::check_live(item.addr(), format_args!("the work item at {item:p} is in"));
}

/// What `InitializeObjectAttributes`, a macro, makes for a kernel handle.
#[must_use]
pub fn object_attributes() -> OBJECT_ATTRIBUTES {
    #[expect(clippy::cast_possible_truncation, reason = "a small structure")]
    const LENGTH: ULONG = size_of::<OBJECT_ATTRIBUTES>() as ULONG;
    OBJECT_ATTRIBUTES { Length: LENGTH, Attributes: OBJ_KERNEL_HANDLE, ..OBJECT_ATTRIBUTES::default() }
}

#[unsafe(no_mangle)]
extern "C" fn PsCreateSystemThread(
    handle: *mut HANDLE,
    _access: ULONG,
    attributes: *mut OBJECT_ATTRIBUTES,
    process: HANDLE,
    _client: *mut CLIENT_ID,
    start: PKSTART_ROUTINE,
    context: PVOID,
) -> NTSTATUS {
    routine!("PsCreateSystemThread", |state| {
        if !process.is_null() {
            bug_check(Rule::NotSimulated, format_args!("a thread of another process"));
        }
        // SAFETY: null or the driver's structure, which lives until the call returns.
        let attributes = unsafe { attributes.as_ref() };
        if let Some(attributes) = attributes {
            check_size::<OBJECT_ATTRIBUTES>(attributes.Length, "OBJECT_ATTRIBUTES");
        }
        let flags = attributes.map_or(0, |attributes| attributes.Attributes);
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let Some(start) = start else { bug_check(Rule::BadArgument, format_args!("a thread without a routine")) };
        let place = handles::new_handle(state, flags, "a thread");
        // It is the kernel's all the same, since Windows Vista.
        handles::forget_process(state, place);
        let (owner, context) = (context::caller(), Argument::of(context));
        let thread = spawn(state, owner, false, move || {
            let context = context.pointer("a system thread");
            // Such a thread gets no normal APCs unless it asks for them.
            context::set_critical(1);
            context::call(owner, "a system thread", || {
                // SAFETY: the driver's own routine, with its own argument.
                unsafe { thread_end::run(start, context) };
            });
        });
        state.locked::<Threads>().handles.insert(place, thread);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { handle.write(ptr::without_provenance_mut(place)) };
        state.preempt();
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn PsTerminateSystemThread(status: NTSTATUS) -> NTSTATUS {
    routine!("PsTerminateSystemThread", |_| {
        if !thread_end::is_possible() {
            bug_check(Rule::BadArgument, format_args!("a thread is ended that is not the driver's"));
        }
        STATUS.set(status);
    });
    // Outside of the routine: nothing of this crate is on the stack any more that has to be put in order.
    thread_end::go();
    status
}

/// What threads of the system begin with.
const PRIORITY: KPRIORITY = 8;

/// Noted, and nothing else: who runs next is decided by the seed.
#[unsafe(no_mangle)]
extern "C" fn KeSetPriorityThread(thread: PKTHREAD, priority: KPRIORITY) -> KPRIORITY {
    routine!("KeSetPriorityThread", |state| {
        if !(1..=31).contains(&priority) {
            bug_check(Rule::BadArgument, format_args!("there is no priority {priority}"));
        }
        state.locked::<Threads>().priorities.insert(thread.addr(), priority).unwrap_or(PRIORITY)
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeQueryPriorityThread(thread: PKTHREAD) -> KPRIORITY {
    routine!("KeQueryPriorityThread", |state| {
        state.locked::<Threads>().priorities.get(&thread.addr()).copied().unwrap_or(PRIORITY)
    })
}

#[unsafe(no_mangle)]
extern "C" fn PsGetCurrentProcessId() -> HANDLE {
    routine!("PsGetCurrentProcessId", |_| ptr::without_provenance_mut(context::process() as usize))
}

#[unsafe(no_mangle)]
extern "C" fn PsGetCurrentThreadId() -> HANDLE {
    routine!("PsGetCurrentThreadId", |_| {
        ptr::without_provenance_mut(usize::try_from(id(context::thread())).unwrap_or(4))
    })
}

/// `(HIGH_PRIORITY + 1) / 2`.
const SATURATION: LONG = 16;

/// How much higher or lower a priority is than that of the process: here of a thread of the system.
#[unsafe(no_mangle)]
extern "C" fn KeSetBasePriorityThread(thread: PKTHREAD, increment: LONG) -> LONG {
    routine!("KeSetBasePriorityThread", APC_LEVEL, |state| {
        // As far as that is from the highest or the lowest of a class, the priority is that one.
        if !(-SATURATION..=SATURATION).contains(&increment) {
            bug_check(Rule::BadArgument, format_args!("a priority that is higher by {increment}"));
        }
        let priority = (PRIORITY + increment).clamp(1, 31);
        let before = state.locked::<Threads>().priorities.insert(thread.addr(), priority);
        before.map_or(0, |before| before - PRIORITY)
    })
}

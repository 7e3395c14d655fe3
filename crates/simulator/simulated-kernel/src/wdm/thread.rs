//! System threads, their handles and references.

use std::{
    collections::BTreeMap,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release},
    },
    thread::JoinHandle,
};

use wdk_bindings::{
    ACCESS_MASK, BOOLEAN, CLIENT_ID, HANDLE, KPRIORITY, KPROCESSOR_MODE, LARGE_INTEGER, LONG_PTR, NTSTATUS,
    OBJ_KERNEL_HANDLE, OBJECT_ATTRIBUTES, PKSTART_ROUTINE, PKTHREAD, POBJECT_HANDLE_INFORMATION, POBJECT_TYPE, PVOID,
    PWORK_QUEUE_ITEM, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_HANDLE, STATUS_SUCCESS, STATUS_TIMEOUT, ULONG,
    WORK_QUEUE_TYPE,
};

use super::{dpc::Word, event, io, routine};
use crate::{
    argument::Argument,
    context::{self, DriverId, SYSTEM_PROCESS},
    kernel::{self, State, lock},
    pool,
    report::bug_check,
    rule::Rule,
    tracked::{Kind, Object},
    waiting,
    wdf::object::check_size,
};

/// A system thread.
pub struct Thread {
    owner: DriverId,
    number: u64,
    /// It is the system's, and runs a work item.
    of_system: bool,
    ended: AtomicBool,
    /// References to the object, beside those of handles.
    references: AtomicI64,
}

/// The threads, and the handles that drivers have of them.
#[derive(Default)]
pub struct Threads {
    handles: BTreeMap<usize, Arc<Thread>>,
    /// The processes of handles that are not the kernel's, of threads and of keys.
    processes: BTreeMap<usize, u32>,
    /// By the address that a driver knows a referenced one by.
    objects: BTreeMap<usize, Arc<Thread>>,
    all: Vec<(Arc<Thread>, JoinHandle<()>)>,
    /// Those that were set, by the address that a driver knows a thread by.
    priorities: BTreeMap<usize, KPRIORITY>,
}

/// Handles of threads and keys: each is used once. They look like the kernel's.
static NEXT_HANDLE: AtomicU64 = AtomicU64::new(1);
const KERNEL_HANDLES: u64 = 0xFFFF_FFFF_8000_0000;

/// A handle that nothing else has had: the kernel's, if the driver says so, or one of the process in whose context it runs. A thread of
/// the system, such as that of `DriverEntry`, is in the system's own process; in another one the program could use the handle.
pub fn new_handle(state: &State, attributes: ULONG, what: &str) -> usize {
    let is_kernels = attributes & OBJ_KERNEL_HANDLE != 0;
    let process = context::process();
    if !is_kernels && process != SYSTEM_PROCESS {
        bug_check(
            Rule::BadArgument,
            format_args!("{what} whose handle is not a kernel handle, in the context of process {process}"),
        );
    }
    let number = 4 * NEXT_HANDLE.fetch_add(1, AcqRel);
    let handle = usize::try_from(if is_kernels { KERNEL_HANDLES + number } else { number }).unwrap_or(0);
    if !is_kernels {
        lock(&state.wdm.threads).processes.insert(handle, process);
    }
    handle
}

/// Ends the test if a handle is used in the context of another process than that whose it is.
pub fn check_handle(state: &State, handle: usize) {
    let (process, here) = (lock(&state.wdm.threads).processes.get(&handle).copied(), context::process());
    if let Some(process) = process.filter(|&process| process != here) {
        let words = "and is no kernel handle: there it is nothing, or another one";
        bug_check(
            Rule::BadHandle,
            format_args!(
                "the handle {handle:#x} is one of process {process}, is used in the context of process {here}, {words}"
            ),
        );
    }
}

impl Thread {
    /// Returns true if its routine has returned.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Acquire)
    }
}

fn by_handle(state: &State, handle: HANDLE) -> Option<Arc<Thread>> {
    check_handle(state, handle.addr());
    lock(&state.wdm.threads).handles.get(&handle.addr()).cloned()
}

impl State {
    /// The thread whose object that is, to which a driver has a reference.
    pub fn thread_at(&self, object: usize) -> Option<Arc<Thread>> {
        lock(&self.wdm.threads).objects.get(&object).cloned()
    }

    /// Returns true if a work item of one of these drivers runs, or is about to.
    pub fn has_work_items(&self, of: impl Fn(DriverId) -> bool) -> bool {
        let threads = lock(&self.wdm.threads);
        threads.all.iter().any(|(thread, _)| thread.of_system && !thread.has_ended() && of(thread.owner))
    }

    /// A work item refers to its device until its routine has returned, and a driver is not unloaded before the references to its devices
    /// are gone: waits for routines that run still.
    pub fn wait_for_work_items(self: &Arc<Self>, owner: DriverId) {
        let run = || self.has_work_items(|of| of == owner);
        if run() {
            waiting::until(self, None, "the unload of a driver, for its work items,", || !run());
        }
    }

    /// A driver is unloaded: its threads must have ended and its handles be closed. Waits for what a thread does after its
    /// last call.
    pub fn check_threads(self: &Arc<Self>, owner: DriverId, name: &str) {
        let mine: Vec<Arc<Thread>> = {
            let threads = lock(&self.wdm.threads);
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
            let mut threads = lock(&self.wdm.threads);
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

/// Starts a thread of the system, which runs a work item of a driver.
pub fn spawn_for_work_item(state: &Arc<State>, owner: DriverId, work: impl FnOnce() + Send + 'static) {
    spawn(state, owner, true, work);
}

/// Starts a system thread, which does `work` for a driver.
fn spawn(state: &Arc<State>, owner: DriverId, of_system: bool, work: impl FnOnce() + Send + 'static) -> Arc<Thread> {
    let (number, ended, references) = (state.next(), AtomicBool::new(false), AtomicI64::new(0));
    let thread = Arc::new(Thread { owner, number, of_system, ended, references });
    if let Some(baton) = &state.baton {
        baton.expect(number);
    }
    let (mine, of_thread) = (thread.clone(), state.clone());
    let body = move || {
        context::set_thread(mine.number);
        if let Some(baton) = &of_thread.baton {
            baton.start();
        }
        work();
        mine.ended.store(true, Release);
        of_thread.dispatcher.signal();
        if let Some(baton) = &of_thread.baton {
            baton.end();
        }
    };
    let Ok(join) = std::thread::Builder::new().name(format!("system thread {number}")).spawn(body) else {
        bug_check(Rule::NotSimulated, format_args!("the host gives no thread"));
    };
    lock(&state.wdm.threads).all.push((thread.clone(), join));
    thread
}

/// No device keeps the driver there for such a work item: who is unloaded while one runs is found out as with a thread of its own.
#[unsafe(no_mangle)]
extern "C" fn ExQueueWorkItem(item: PWORK_QUEUE_ITEM, queue: WORK_QUEUE_TYPE) {
    routine!("ExQueueWorkItem", |state| {
        io::check_queue(queue);
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
        state.track(item.expose_provenance(), context::caller(), Object::Plain(Kind::WorkItem));
        let (owner, item, argument) = (context::caller(), Word::of(item), Argument::of(queued.Parameter));
        spawn(state, owner, false, move || {
            let item: PWORK_QUEUE_ITEM = item.pointer();
            let state = kernel::current();
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
    if pool::is_live(item.addr()) == Some(false) {
        bug_check(Rule::UseAfterFree, format_args!("the work item at {item:p} is in memory that is free"));
    }
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
        let place = new_handle(state, flags, "a thread");
        // It is the kernel's all the same, since Windows Vista.
        lock(&state.wdm.threads).processes.remove(&place);
        let (owner, context) = (context::caller(), Argument::of(context));
        let thread = spawn(state, owner, false, move || {
            let context = context.pointer("a system thread");
            // Such a thread gets no normal APCs unless it asks for them.
            context::set_critical(1);
            context::call(owner, "a system thread", || {
                // SAFETY: the driver's own routine, with its own argument.
                unsafe { start(context) };
            });
        });
        lock(&state.wdm.threads).handles.insert(place, thread);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { handle.write(ptr::without_provenance_mut(place)) };
        state.preempt();
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn PsTerminateSystemThread(status: NTSTATUS) -> NTSTATUS {
    routine!("PsTerminateSystemThread", |_| {
        if context::thread() == 0 {
            bug_check(Rule::BadArgument, format_args!("a thread is ended that is not the driver's"));
        }
        // The real routine does not return. This one does: the driver's routine, whose last call it is, returns next.
        status
    })
}

#[unsafe(no_mangle)]
extern "C" fn ZwClose(handle: HANDLE) -> NTSTATUS {
    routine!("ZwClose", |state| {
        check_handle(state, handle.addr());
        let closed = lock(&state.wdm.threads).handles.remove(&handle.addr()).is_some()
            || lock(&state.wdm.keys).remove(&handle.addr()).is_some();
        lock(&state.wdm.threads).processes.remove(&handle.addr());
        if !closed {
            bug_check(Rule::BadHandle, format_args!("{handle:p} is closed and is not open"));
        }
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn ZwWaitForSingleObject(handle: HANDLE, _alertable: BOOLEAN, timeout: *mut LARGE_INTEGER) -> NTSTATUS {
    routine!("ZwWaitForSingleObject", |state| {
        let end = event::end(state, timeout);
        let Some(thread) = by_handle(state, handle) else { return STATUS_INVALID_HANDLE };
        let ended = waiting::until(state, end, "ZwWaitForSingleObject", || thread.ended.load(Acquire));
        if ended { STATUS_SUCCESS } else { STATUS_TIMEOUT }
    })
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
        lock(&state.wdm.threads).priorities.insert(thread.addr(), priority).unwrap_or(PRIORITY)
    })
}

#[unsafe(no_mangle)]
extern "C" fn KeQueryPriorityThread(thread: PKTHREAD) -> KPRIORITY {
    routine!("KeQueryPriorityThread", |state| {
        lock(&state.wdm.threads).priorities.get(&thread.addr()).copied().unwrap_or(PRIORITY)
    })
}

#[unsafe(no_mangle)]
extern "C" fn PsGetCurrentProcessId() -> HANDLE {
    routine!("PsGetCurrentProcessId", |_| ptr::without_provenance_mut(context::process() as usize))
}

#[unsafe(no_mangle)]
extern "C" fn PsGetCurrentThreadId() -> HANDLE {
    routine!("PsGetCurrentThreadId", |_| {
        // The kernel's numbers of threads are multiples of four, and not zero.
        let number = 4 * (context::thread() + 1);
        ptr::without_provenance_mut(usize::try_from(number).unwrap_or(4))
    })
}

#[unsafe(no_mangle)]
extern "C" fn ObReferenceObjectByHandle(
    handle: HANDLE,
    _access: ACCESS_MASK,
    _kind: POBJECT_TYPE,
    _mode: KPROCESSOR_MODE,
    object: *mut PVOID,
    _information: POBJECT_HANDLE_INFORMATION,
) -> NTSTATUS {
    routine!("ObReferenceObjectByHandle", |state| {
        let Some(thread) = by_handle(state, handle) else { return STATUS_INVALID_HANDLE };
        thread.references.fetch_add(1, AcqRel);
        let address = Arc::as_ptr(&thread).addr();
        lock(&state.wdm.threads).objects.insert(address, thread);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { object.write(ptr::without_provenance_mut(address)) };
        STATUS_SUCCESS
    })
}

fn count(state: &State, object: PVOID, by: i64) -> LONG_PTR {
    if let Some(left) = state.count_file(object.addr(), by) {
        return left as LONG_PTR;
    }
    if let Some(left) = state.count_object(object.addr(), by) {
        return left as LONG_PTR;
    }
    if let Some(left) = state.count_callback(object.addr(), by) {
        return left as LONG_PTR;
    }
    let Some(thread) = lock(&state.wdm.threads).objects.get(&object.addr()).cloned() else {
        bug_check(Rule::BadHandle, format_args!("{object:p} is no object"));
    };
    let after = thread.references.fetch_add(by, AcqRel) + by;
    if after < 0 {
        bug_check(Rule::ReferenceUnderflow, format_args!("an object is dereferenced once too often"));
    }
    after as LONG_PTR
}

#[unsafe(no_mangle)]
extern "C" fn ObfReferenceObject(object: PVOID) -> LONG_PTR {
    routine!("ObfReferenceObject", |state| count(state, object, 1))
}

#[unsafe(no_mangle)]
extern "C" fn ObfDereferenceObject(object: PVOID) -> LONG_PTR {
    routine!("ObfDereferenceObject", |state| count(state, object, -1))
}

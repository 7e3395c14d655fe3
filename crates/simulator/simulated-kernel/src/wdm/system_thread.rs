//! System threads: those that there are, and how one begins.

use std::{
    cell::Cell,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool, AtomicI32, AtomicI64,
            Ordering::{Acquire, Release},
        },
    },
    thread::JoinHandle,
};

use litemap::LiteMap;
use wdk_bindings::{KPRIORITY, NTSTATUS, STATUS_PENDING, STATUS_SUCCESS};

use crate::{
    context::{self, DriverId, NOBODY},
    kernel::Kernel,
    report::bug_check,
    rule::Rule,
    state::{Part, State},
    tracked::Structure,
    waiting,
};

/// A system thread.
pub struct Thread {
    pub(super) owner: DriverId,
    pub(super) number: u64,
    /// It is the system's, and runs a work item.
    pub(super) of_system: bool,
    pub(super) ended: AtomicBool,
    /// References to the object, beside those of handles.
    pub(super) references: AtomicI64,
    /// What it said at its end.
    pub(super) status: AtomicI32,
}

/// The threads, and the handles that drivers have of them.
#[derive(Default)]
pub struct Threads {
    pub(super) handles: LiteMap<usize, Arc<Thread>>,
    /// By the address that a driver knows one by.
    pub(super) objects: LiteMap<usize, Arc<Thread>>,
    pub(super) all: Vec<(Arc<Thread>, JoinHandle<()>)>,
    /// The threads of programs and of the test, which are one to drivers.
    program: Option<Arc<Thread>>,
    /// Those that were set, by the address that a driver knows a thread by.
    pub(super) priorities: LiteMap<usize, KPRIORITY>,
}

impl Part for Mutex<Threads> {}

thread_local! {
    /// The address that drivers know this thread by; zero if it is none of the system's.
    static OBJECT: Cell<usize> = const { Cell::new(0) };
    /// What the thread says at its end.
    pub(super) static STATUS: Cell<NTSTATUS> = const { Cell::new(STATUS_SUCCESS) };
}

/// The kernel's numbers of threads are multiples of four, and not zero.
pub(super) const fn id(number: u64) -> u64 {
    4 * (number + 1)
}

/// The address that drivers know the current thread by.
pub fn current_object(state: &State) -> usize {
    let object = OBJECT.get();
    if object == 0 { Arc::as_ptr(&state.locked::<Threads>().program()).addr() } else { object }
}

impl Threads {
    pub(super) fn program(&mut self) -> Arc<Thread> {
        let program = self.program.get_or_insert_with(|| Arc::new(Thread::new(NOBODY, 0, false))).clone();
        self.objects.insert(Arc::as_ptr(&program).addr(), program.clone());
        program
    }
}

impl Thread {
    const fn new(owner: DriverId, number: u64, of_system: bool) -> Self {
        let (ended, references) = (AtomicBool::new(false), AtomicI64::new(0));
        Self { owner, number, of_system, ended, references, status: AtomicI32::new(STATUS_SUCCESS) }
    }

    /// Returns true if its routine has returned.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Acquire)
    }

    /// Returns true if it is that of programs and of the test.
    pub const fn is_program(&self) -> bool {
        self.number == 0
    }

    /// Its number, as `PsGetCurrentThreadId` has it.
    pub const fn id(&self) -> u64 {
        id(self.number)
    }

    /// What it said at its end; `STATUS_PENDING` before.
    pub fn exit_status(&self) -> NTSTATUS {
        if self.has_ended() { self.status.load(Acquire) } else { STATUS_PENDING }
    }
}

impl Structure for Thread {
    fn is_signalled(&self) -> bool {
        self.has_ended()
    }

    fn try_wait(&self) -> bool {
        self.has_ended()
    }
}

impl State {
    /// Returns true if a work item of one of these drivers runs, or is about to.
    pub fn has_work_items(&self, of: impl Fn(DriverId) -> bool) -> bool {
        let threads = self.locked::<Threads>();
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
}

impl Kernel {
    /// Waits until all work items of all drivers have returned, but not longer than so many microseconds. Whether they have.
    #[must_use]
    pub fn wait_for_work_items(&self, longest: u64) -> bool {
        let end = self.now().saturating_add(longest);
        let have_returned = || !self.state.has_work_items(|_| true);
        have_returned() || waiting::until(&self.state, Some(end), "the test, for work items,", have_returned)
    }
}

/// Starts a thread of the system, which runs a work item of a driver.
pub fn spawn_for_work_item(state: &Arc<State>, owner: DriverId, work: impl FnOnce() + Send + 'static) {
    spawn(state, owner, true, work);
}

/// Starts a system thread, which does `work` for a driver.
pub(super) fn spawn(
    state: &Arc<State>,
    owner: DriverId,
    of_system: bool,
    work: impl FnOnce() + Send + 'static,
) -> Arc<Thread> {
    let number = state.next();
    let thread = Arc::new(Thread::new(owner, number, of_system));
    if let Some(baton) = &state.baton {
        baton.expect(number);
    }
    let (mine, of_thread) = (thread.clone(), state.clone());
    let body = move || {
        context::set_thread(mine.number);
        OBJECT.set(Arc::as_ptr(&mine).addr());
        if let Some(baton) = &of_thread.baton {
            baton.start(&of_thread.machine);
        }
        work();
        mine.status.store(STATUS.get(), Release);
        mine.ended.store(true, Release);
        of_thread.dispatcher.signal();
        if let Some(baton) = &of_thread.baton {
            baton.end();
        }
    };
    let Ok(join) = std::thread::Builder::new().name(format!("system thread {number}")).spawn(body) else {
        bug_check(Rule::NotSimulated, format_args!("the host gives no thread"));
    };
    state.locked::<Threads>().all.push((thread.clone(), join));
    thread
}

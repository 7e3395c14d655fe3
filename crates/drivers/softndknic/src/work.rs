//! Work at `PASSIVE_LEVEL` that is asked for at any level: one run at a time, and one more if somebody asks meanwhile.

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{AcqRel, Acquire},
    },
};

use cable::Turn;
use driver_common::os::{Kernel, KernelLock};
use engine::os::{Os, SpinLock};
use fallible::Arc;
use kernel::Event;
use ndis::{NdisAllocateIoWorkItem, NdisFreeIoWorkItem, NdisQueueIoWorkItem};
use ndkpi::{NDIS_HANDLE, NtStatus};

use crate::adapter::Adapter;

/// A kind of work on an adapter.
pub trait Job: 'static {
    /// The work of this kind of an adapter, if it has any.
    fn work(adapter: &Adapter) -> Option<&Work>;

    /// Does it. `PASSIVE_LEVEL`, one at a time.
    fn run(adapter: &Arc<Adapter>);
}

/// The work of one kind of one adapter.
pub struct Work {
    /// The work item; null after [`Work::close`].
    item: AtomicPtr<c_void>,
    state: KernelLock<State>,
    /// Set while no run is going on or queued.
    idle: Event,
}

#[derive(Default)]
struct State {
    turn: Turn,
    closed: bool,
}

impl Work {
    /// Work that nobody has asked for.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    ///
    /// `adapter` is an adapter of NDIS that lives until the result is closed or dropped.
    pub unsafe fn try_new(adapter: NDIS_HANDLE) -> Result<Self, NtStatus> {
        let state = Kernel.lock(State::default())?;
        let idle = Event::try_new()?;
        idle.set();
        // SAFETY: the adapter lives until the result is closed or dropped, which frees the item (`# Safety`).
        let item = unsafe { NdisAllocateIoWorkItem(adapter) };
        if item.is_null() {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        Ok(Self { item: AtomicPtr::new(item), state, idle })
    }

    /// Asks for a run, which begins later. `IRQL <= DISPATCH_LEVEL`.
    pub fn request<J: Job>(adapter: &Arc<Adapter>) {
        let Some(work) = J::work(adapter) else { return };
        let begins = work.state.with(|state| {
            let begins = !state.closed && state.turn.begin();
            if begins {
                work.idle.clear();
            }
            begins
        });
        if begins {
            let counted = Arc::into_raw(adapter.clone()).cast_mut().cast();
            // SAFETY: the item is not queued: it is this call's turn. `run::<J>` gets a counted reference. The item is not freed
            // before the run is over, because it is not idle.
            unsafe { NdisQueueIoWorkItem(work.item.load(Acquire), Some(run::<J>), counted) };
        }
    }

    /// Lets no more runs begin and waits for the one that goes on. `PASSIVE_LEVEL`, before the adapter is halted.
    pub fn close(&self) {
        self.state.with(|state| state.closed = true);
        self.idle.wait();
        self.free();
    }

    fn free(&self) {
        let item = self.item.swap(ptr::null_mut(), AcqRel);
        if !item.is_null() {
            // SAFETY: the item is not queued and is freed once.
            unsafe { NdisFreeIoWorkItem(item) };
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // Who runs or is queued has a reference to the adapter, and so to this.
        self.free();
    }
}

unsafe extern "system" fn run<J: Job>(context: *mut c_void, _item: NDIS_HANDLE) {
    // SAFETY: `request` has passed a counted reference, to one run.
    let adapter = unsafe { Arc::from_raw(context.cast_const().cast::<Adapter>()) };
    let Some(work) = J::work(&adapter) else { return };
    loop {
        J::run(&adapter);
        let over = work.state.with(|state| {
            let over = !state.turn.end() || state.closed || !state.turn.begin();
            if over {
                work.idle.set();
            }
            over
        });
        if over {
            return;
        }
    }
}

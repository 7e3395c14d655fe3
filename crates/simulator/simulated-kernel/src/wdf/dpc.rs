//! The framework's DPCs: a DPC of the kernel in memory of the framework's.

use std::{
    ptr,
    sync::{
        Arc,
        atomic::{
            AtomicUsize,
            Ordering::{Acquire, Release},
        },
    },
};

use host::machine::{self, Arguments, Irql};
use wdk_bindings::{
    BOOLEAN, KDPC, NTSTATUS, PFN_WDF_DPC, PVOID, PWDF_DPC_CONFIG, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_SUCCESS, WDF_DPC_CONFIG, WDFDPC,
};

use super::{
    device::check_parent,
    function::function,
    object::{Kind, Object, Part, check_level},
};
use crate::{
    argument::check_size,
    routine::{Limit, carry_out},
    state::State,
    tracked,
    wdm::dpc as dpc_of_wdm,
};

/// A DPC.
pub struct DpcObject {
    /// The address of its [`Memory`].
    memory: usize,
}

/// The system's side of a DPC. It is never freed: a call may still use it after the deletion.
#[repr(C)]
struct Memory {
    dpc: KDPC,
    callback: PFN_WDF_DPC,
    /// The handle, as soon as there is one.
    handle: AtomicUsize,
}

/// Its turn has come.
unsafe extern "C" fn called(_: *mut KDPC, memory: PVOID, _: PVOID, _: PVOID) {
    let memory = memory.cast::<Memory>();
    // SAFETY: the memory of a DPC, which is never freed. Nobody writes this field.
    let Some(callback) = (unsafe { (*memory).callback }) else { return };
    // SAFETY: as above; it is atomic.
    let handle = unsafe { &(*memory).handle }.load(Acquire);
    // SAFETY: the driver's own callback, with the handle of its DPC, at the level that it expects.
    unsafe { callback(ptr::without_provenance_mut(handle)) };
}

impl Part for DpcObject {
    const NAME: &'static str = "DPC";
}

impl Kind for DpcObject {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn end(&self, state: &Arc<State>, _object: &Object) {
        self.stop(state);
    }
}

impl DpcObject {
    /// The DPC is being deleted: it is taken out of its queue, and at `PASSIVE_LEVEL` a call that was begun ends before.
    fn stop(&self, state: &State) {
        let _ = self.of_the_machine(state).remove();
        if machine::current_irql() == Irql::PASSIVE_LEVEL {
            state.machine.flush();
            state.untrack(self.dpc().expose_provenance(), tracked::Kind::Dpc);
        }
    }

    fn new(state: &State, callback: PFN_WDF_DPC) -> Self {
        let memory = Box::into_raw(Box::new(Memory { dpc: KDPC::default(), callback, handle: AtomicUsize::new(0) }));
        let dpc = Self { memory: memory.expose_provenance() };
        dpc_of_wdm::initialise(state, dpc.dpc(), Some(called), memory.cast());
        dpc
    }

    const fn memory(&self) -> *mut Memory {
        ptr::with_exposed_provenance_mut(self.memory)
    }

    fn dpc(&self) -> *mut KDPC {
        // SAFETY: the memory is never freed; only the address is taken.
        unsafe { &raw mut (*self.memory()).dpc }
    }

    fn of_the_machine(&self, state: &State) -> Arc<machine::Dpc> {
        state.structure(self.dpc().expose_provenance(), tracked::Kind::Dpc)
    }
}

fn dpc(state: &State, handle: WDFDPC) -> (Arc<Object>, Arc<DpcObject>) {
    state.usable(handle, Object::is_there)
}

pub extern "C" fn WdfDpcCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    config: PWDF_DPC_CONFIG,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFDPC,
) -> NTSTATUS {
    function!("WdfDpcCreate", |state| {
        // SAFETY: the driver's structure, which lives until the call returns.
        let config = unsafe { config.read() };
        check_size::<WDF_DPC_CONFIG>(config.Size, "WDF_DPC_CONFIG");
        if config.EvtDpcFunc.is_none() {
            return STATUS_INVALID_PARAMETER;
        }
        if let Err(status) = check_parent(state, attributes) {
            return status;
        }
        let kind = Arc::new(DpcObject::new(state, config.EvtDpcFunc));
        let Some(object) = state.create_object(kind.clone(), attributes, None) else {
            kind.stop(state);
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        // SAFETY: the memory is never freed; the field is atomic.
        unsafe { &(*kind.memory()).handle }.store(object.handle, Release);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(object.pointer()) };
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfDpcEnqueue(_globals: PWDF_DRIVER_GLOBALS, handle: WDFDPC) -> BOOLEAN {
    function!("WdfDpcEnqueue", |state| {
        let (object, dpc) = dpc(state, handle);
        state.preempt();
        // While it is deleted its callback may still run, and ask for the next call.
        BOOLEAN::from(object.is_live() && dpc.of_the_machine(state).queue(Arguments::NONE))
    })
}

pub extern "C" fn WdfDpcCancel(_globals: PWDF_DRIVER_GLOBALS, handle: WDFDPC, wait: BOOLEAN) -> BOOLEAN {
    // At any level, unless it waits.
    carry_out("WdfDpcCancel", &Limit::at(Irql::HIGH_LEVEL), |state| {
        let (_, dpc) = dpc(state, handle);
        if wait != 0 {
            check_level("WdfDpcCancel", true);
        }
        state.preempt();
        let removed = dpc.of_the_machine(state).remove().is_some();
        if wait != 0 {
            state.machine.flush();
        }
        BOOLEAN::from(removed)
    })
}

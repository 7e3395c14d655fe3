//! Interrupts: the framework's objects for them. The device sends a message; `EvtInterruptIsr` runs at the level of its interrupt with the
//! interrupt's lock held, and asks for `EvtInterruptDpc`. What is created when, and what is called in which order, is that of the
//! framework's published source (`FxInterrupt`).
//!
//! The levels of interrupts of the machine's own, passive handling, and locks that the driver brings are not simulated.

use std::{
    ptr,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicU8, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use host::machine::{self, Arguments, Irql, RawSpinLock};
use wdk_bindings::{
    BOOLEAN, KDPC, NTSTATUS, PVOID, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES, STATUS_INFO_LENGTH_MISMATCH,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER, STATUS_SUCCESS, ULONG,
    WDFDEVICE,
};

use super::{
    device::{DeviceObject, device},
    function::entry,
    object::{Kind, Object, Part, STATUS_WDF_PARENT_ASSIGNMENT_NOT_ALLOWED, has_parent},
    resources::Message,
};
use crate::{
    context::{self, DriverId},
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
    tracked,
    wdm::{dpc as dpc_of_wdm, lock as lock_of_wdm},
};

/// The handle of an interrupt, of which the bindings have no type.
type Interrupt = PVOID;
type Isr = unsafe extern "C" fn(Interrupt, ULONG) -> BOOLEAN;
type Deferred = unsafe extern "C" fn(Interrupt, WDFDEVICE);
type Switch = unsafe extern "C" fn(Interrupt, WDFDEVICE) -> NTSTATUS;
type Synchronize = unsafe extern "C" fn(Interrupt, PVOID) -> BOOLEAN;

/// A `WDF_INTERRUPT_CONFIG` up to KMDF 1.9, and what it has since.
#[repr(C)]
#[derive(Clone, Copy)]
struct Config {
    size: ULONG,
    spin_lock: PVOID,
    share_vector: i32,
    floating_save: BOOLEAN,
    automatic_serialization: BOOLEAN,
    isr: Option<Isr>,
    deferred: Option<Deferred>,
    enable: Option<Switch>,
    disable: Option<Switch>,
    work_item: PVOID,
    raw: PVOID,
    translated: PVOID,
    wait_lock: PVOID,
    passive_handling: BOOLEAN,
    report_inactive: i32,
    can_wake: BOOLEAN,
}

/// How long the structure is in the versions of the framework: 1.0, 1.11, 1.13.
const SIZES: [usize; 3] =
    [std::mem::offset_of!(Config, work_item), std::mem::offset_of!(Config, can_wake), size_of::<Config>()];
/// `WdfUseDefault`.
const USE_DEFAULT: i32 = 2;
/// Nobody holds the lock. No level of the kernel.
const FREE: u8 = u8::MAX;

/// An interrupt.
pub struct InterruptObject {
    owner: DriverId,
    /// The handle of its device.
    device: usize,
    isr: Isr,
    enable: Option<Switch>,
    disable: Option<Switch>,
    /// The address of its [`Memory`].
    memory: usize,
    message: Mutex<Option<Message>>,
    /// It was created in `EvtDevicePrepareHardware`, and goes when the hardware does.
    is_of_hardware: bool,
    lock: RawSpinLock,
    /// The level to which the holder of the lock returns, or that nobody holds it. Changed by the holder only.
    before: AtomicU8,
    /// Its device can interrupt.
    connected: Mutex<bool>,
}

/// The system's side of the DPC of an interrupt. It is never freed: a call may still use it after the deletion.
#[repr(C)]
struct Memory {
    dpc: KDPC,
    callback: Option<Deferred>,
    device: usize,
    /// The handle, as soon as there is one.
    handle: AtomicUsize,
}

/// The turn of the DPC has come.
unsafe extern "C" fn called(_: *mut KDPC, memory: PVOID, _: PVOID, _: PVOID) {
    let memory = memory.cast::<Memory>();
    // SAFETY: the memory of an interrupt, which is never freed. Nobody writes these fields.
    let (callback, device) = unsafe { ((*memory).callback, (*memory).device) };
    let Some(callback) = callback else { return };
    // SAFETY: as above; it is atomic.
    let handle = unsafe { &(*memory).handle }.load(Acquire);
    // SAFETY: the driver's own callback, with the handles of its interrupt and device, at the level that it expects.
    unsafe { callback(ptr::without_provenance_mut(handle), ptr::without_provenance_mut(device)) };
}

impl Part for InterruptObject {
    const NAME: &'static str = "interrupt";
}

impl Kind for InterruptObject {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn check_deletion(&self, _object: &Object) {
        bug_check(Rule::BadHandle, format_args!("a driver may not delete an interrupt, which goes with its device"));
    }

    fn end(&self, state: &Arc<State>, object: &Object) {
        if self.before.load(Relaxed) != FREE {
            bug_check(Rule::LockHeld, format_args!("an interrupt is deleted while somebody holds its lock"));
        }
        let _ = self.of_the_machine(state).remove();
        if machine::current_irql() == Irql::PASSIVE_LEVEL {
            state.machine.flush();
            state.untrack(self.dpc().expose_provenance(), tracked::Kind::Dpc);
        }
        lock_of_wdm::forget_order(&(object.handle..object.handle + 1));
    }
}

impl InterruptObject {
    const fn memory(&self) -> *mut Memory {
        ptr::with_exposed_provenance_mut(self.memory)
    }

    fn dpc(&self) -> *mut KDPC {
        // SAFETY: the memory is never freed; only the address is taken.
        unsafe { &raw mut (*self.memory()).dpc }
    }

    fn handle(&self) -> usize {
        // SAFETY: the memory is never freed; the field is atomic.
        unsafe { &(*self.memory()).handle }.load(Acquire)
    }

    fn of_the_machine(&self, state: &State) -> Arc<machine::Dpc> {
        state.structure(self.dpc().expose_provenance(), tracked::Kind::Dpc)
    }

    /// The level at which its routine runs: that of the message that it has been given.
    fn level(&self) -> Option<Irql> {
        lock(&self.message).map(|message| Irql(message.level))
    }

    /// Acquires the lock, at the level of the interrupt.
    fn acquire(&self, state: &State) {
        let Some(level) = self.level() else {
            bug_check(Rule::BadHandle, format_args!("the lock of an interrupt that its device does not have"));
        };
        let before = lock_of_wdm::hold(state, &self.lock, lock_of_wdm::name_of(self.handle()));
        self.before.store(before.0, Relaxed);
        let _ = machine::raise(level);
    }

    fn release(&self, state: &State) {
        machine::lower(Irql::DISPATCH_LEVEL);
        let before = Irql(self.before.swap(FREE, Relaxed));
        lock_of_wdm::let_go(state, &self.lock, before);
    }

    /// Calls a routine of the driver's at the level of the interrupt, with its lock held.
    fn synchronized<R>(&self, state: &State, what: &'static str, routine: impl FnOnce(Interrupt) -> R) -> R {
        self.acquire(state);
        let result = context::call(self.owner, what, || routine(ptr::without_provenance_mut(self.handle())));
        self.release(state);
        result
    }

    /// Has the driver enable or disable its interrupt.
    fn switch(&self, state: &State, what: &'static str, switch: Option<Switch>) -> NTSTATUS {
        let device = ptr::without_provenance_mut(self.device);
        switch.map_or(STATUS_SUCCESS, |switch| {
            // SAFETY: the driver's own callback, with its live handles, at the level that it expects.
            self.synchronized(state, what, |interrupt| unsafe { switch(interrupt, device) })
        })
    }

    fn connect(&self, state: &State) -> NTSTATUS {
        if lock(&self.message).is_none() || std::mem::replace(&mut *lock(&self.connected), true) {
            return STATUS_SUCCESS;
        }
        self.switch(state, "EvtInterruptEnable", self.enable)
    }

    fn disconnect(&self, state: &State) {
        if std::mem::replace(&mut *lock(&self.connected), false) {
            self.switch(state, "EvtInterruptDisable", self.disable);
            state.machine.flush();
        }
    }

    /// The device sends its message. Returns what the driver says: true if it was its own.
    fn fire(&self, state: &State, number: u32) -> bool {
        // SAFETY: the driver's own callback, with its live handle, at the level that it expects.
        self.synchronized(state, "EvtInterruptIsr", |interrupt| unsafe { (self.isr)(interrupt, number) != 0 })
    }
}

impl State {
    /// The interrupts of a device, in the order in which they were made.
    fn interrupts_of(&self, device: &DeviceObject) -> Vec<Arc<InterruptObject>> {
        let mut interrupts = self.all_of::<InterruptObject>();
        interrupts.retain(|interrupt| interrupt.device == device.handle.load(Acquire));
        interrupts.sort_by_key(|interrupt| interrupt.handle());
        interrupts
    }

    /// The device is being started: its interrupts get its messages, in their order.
    pub fn assign_interrupts(&self, device: &DeviceObject) {
        let Some(hardware) = device.hardware.get() else { return };
        for (number, interrupt) in (0..).zip(self.interrupts_of(device)) {
            *lock(&interrupt.message) = hardware.message(number);
        }
    }

    /// The device is in D0, and can interrupt.
    pub fn connect_interrupts(&self, device: &DeviceObject) -> NTSTATUS {
        let mut interrupts = self.interrupts_of(device).into_iter();
        let failed = interrupts.find_map(|interrupt| Some(interrupt.connect(self)).filter(|&status| status < 0));
        failed.unwrap_or(STATUS_SUCCESS)
    }

    /// The device is about to leave D0, and does not interrupt any more.
    pub fn disconnect_interrupts(&self, device: &DeviceObject) {
        for interrupt in self.interrupts_of(device) {
            interrupt.disconnect(self);
        }
    }

    /// The hardware of the device is released, and with it go the interrupts that came with it.
    pub fn release_interrupts(self: &Arc<Self>, device: &DeviceObject) {
        for interrupt in self.interrupts_of(device) {
            *lock(&interrupt.message) = None;
            if interrupt.is_of_hardware {
                self.delete_object(interrupt.handle());
            }
        }
    }

    /// The device sends a message. `None` if no interrupt is connected to it.
    pub fn fire_interrupt(&self, device: &DeviceObject, number: u32) -> Option<bool> {
        let connected = self.interrupts_of(device).into_iter().find(|interrupt| {
            let is_its = lock(&interrupt.message).is_some_and(|message| message.number == number);
            is_its && *lock(&interrupt.connected)
        });
        Some(connected?.fire(self, number))
    }
}

fn interrupt(state: &State, handle: Interrupt) -> Arc<InterruptObject> {
    state.usable(handle, Object::is_there).1
}

/// The driver's structure, as long as it says that it is; what it does not have is zero.
///
/// # Safety
///
/// `config` is a `WDF_INTERRUPT_CONFIG` of some version.
unsafe fn read(config: *const Config) -> Option<Config> {
    // SAFETY: each version begins with its size (`# Safety`).
    let size = unsafe { config.cast::<ULONG>().read() } as usize;
    if !SIZES.contains(&size) {
        return None;
    }
    let mut whole = std::mem::MaybeUninit::<Config>::zeroed();
    // SAFETY: as many bytes as the structure has, and not more than there is room for.
    unsafe { ptr::copy_nonoverlapping(config.cast::<u8>(), whole.as_mut_ptr().cast(), size) };
    // SAFETY: zeros are a value of each field.
    Some(unsafe { whole.assume_init() })
}

/// What is not simulated of an interrupt ends the test.
fn check_simulated(config: &Config) {
    let what = if config.passive_handling != 0 {
        "an interrupt that is handled at PASSIVE_LEVEL"
    } else if !config.work_item.is_null() {
        "an interrupt with a work item"
    } else if !config.spin_lock.is_null() || !config.wait_lock.is_null() {
        "an interrupt with a lock of the driver's own"
    } else if config.automatic_serialization != 0 {
        "an interrupt whose DPC is serialized with other callbacks"
    } else if config.can_wake != 0 {
        "an interrupt that wakes its device"
    } else {
        return;
    };
    bug_check(Rule::NotSimulated, format_args!("{what}"));
}

/// The message that the interrupt is for, if that is known at this time; or why there is no interrupt now.
fn message_now(device: &DeviceObject, config: &Config) -> Result<Option<Message>, NTSTATUS> {
    if device.preparing.load(Acquire) {
        if config.raw.is_null() || config.translated.is_null() || config.share_vector != USE_DEFAULT {
            return Err(STATUS_INVALID_DEVICE_STATE);
        }
        let message = device.hardware.get().and_then(|hardware| hardware.message_of(config.raw, config.translated));
        if message.is_none() {
            bug_check(
                Rule::BadArgument,
                format_args!("an interrupt with descriptors that are not the two of one interrupt"),
            );
        }
        return Ok(message);
    }
    // From its start on the device has its lists.
    if *lock(&device.prepared) || device.finished.load(Acquire) {
        return Err(STATUS_INVALID_DEVICE_STATE);
    }
    if config.raw.is_null() && config.translated.is_null() { Ok(None) } else { Err(STATUS_INVALID_PARAMETER) }
}

extern "C" fn WdfInterruptCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    config: *const Config,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut Interrupt,
) -> NTSTATUS {
    routine!("WdfInterruptCreate", DISPATCH_LEVEL, |state| {
        let (_, device) = device(state, handle);
        // SAFETY: the driver's structure, which lives until the call returns.
        let Some(config) = (unsafe { read(config) }) else { return STATUS_INFO_LENGTH_MISMATCH };
        let Some(isr) = config.isr else { return STATUS_INVALID_PARAMETER };
        if has_parent(attributes) {
            return STATUS_WDF_PARENT_ASSIGNMENT_NOT_ALLOWED;
        }
        let message = match message_now(&device, &config) {
            Ok(message) => message,
            Err(status) => return status,
        };
        check_simulated(&config);
        let of_device = device.handle.load(Acquire);
        let memory =
            Memory { dpc: KDPC::default(), callback: config.deferred, device: of_device, handle: AtomicUsize::new(0) };
        let memory = Box::into_raw(Box::new(memory));
        let kind = Arc::new(InterruptObject {
            owner: device.owner,
            device: of_device,
            isr,
            enable: config.enable,
            disable: config.disable,
            memory: memory.expose_provenance(),
            message: Mutex::new(message),
            is_of_hardware: message.is_some(),
            lock: RawSpinLock::new(),
            before: AtomicU8::new(FREE),
            connected: Mutex::default(),
        });
        dpc_of_wdm::initialise(state, kind.dpc(), Some(called), memory.cast());
        let Some(object) = state.create_object(kind.clone(), attributes, Some(of_device)) else {
            state.untrack(kind.dpc().expose_provenance(), tracked::Kind::Dpc);
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        // SAFETY: the memory is never freed; the field is atomic.
        unsafe { &(*kind.memory()).handle }.store(object.handle, Release);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(object.pointer()) };
        STATUS_SUCCESS
    })
}

extern "C" fn WdfInterruptQueueDpcForIsr(_globals: PWDF_DRIVER_GLOBALS, handle: Interrupt) -> BOOLEAN {
    routine!("WdfInterruptQueueDpcForIsr", HIGH_LEVEL, |state| {
        let interrupt = interrupt(state, handle);
        // SAFETY: the memory is never freed, and nobody writes the field.
        if unsafe { (*interrupt.memory()).callback }.is_none() {
            bug_check(Rule::BadArgument, format_args!("a DPC of an interrupt without EvtInterruptDpc"));
        }
        BOOLEAN::from(interrupt.of_the_machine(state).queue(Arguments::NONE))
    })
}

extern "C" fn WdfInterruptGetDevice(_globals: PWDF_DRIVER_GLOBALS, handle: Interrupt) -> WDFDEVICE {
    routine!("WdfInterruptGetDevice", HIGH_LEVEL, |state| {
        ptr::without_provenance_mut(interrupt(state, handle).device)
    })
}

extern "C" fn WdfInterruptAcquireLock(_globals: PWDF_DRIVER_GLOBALS, handle: Interrupt) {
    routine!("WdfInterruptAcquireLock", HIGH_LEVEL, |state| interrupt(state, handle).acquire(state));
}

extern "C" fn WdfInterruptReleaseLock(_globals: PWDF_DRIVER_GLOBALS, handle: Interrupt) {
    routine!("WdfInterruptReleaseLock", HIGH_LEVEL, |state| {
        let interrupt = interrupt(state, handle);
        if !interrupt.lock.is_held_here() {
            bug_check(
                Rule::LockNotHeld,
                format_args!("the lock of an interrupt is released by a thread that does not hold it"),
            );
        }
        interrupt.release(state);
    });
}

extern "C" fn WdfInterruptSynchronize(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: Interrupt,
    callback: Synchronize,
    argument: PVOID,
) -> BOOLEAN {
    routine!("WdfInterruptSynchronize", HIGH_LEVEL, |state| {
        let interrupt = interrupt(state, handle);
        // SAFETY: the driver's own callback, with its live handle and its own argument, at the level that it expects.
        interrupt.synchronized(state, "EvtInterruptSynchronize", |handle| unsafe { callback(handle, argument) })
    })
}

extern "C" fn WdfInterruptEnable(_globals: PWDF_DRIVER_GLOBALS, handle: Interrupt) {
    routine!("WdfInterruptEnable", PASSIVE_LEVEL, |state| {
        let interrupt = interrupt(state, handle);
        interrupt.switch(state, "EvtInterruptEnable", interrupt.enable);
    });
}

extern "C" fn WdfInterruptDisable(_globals: PWDF_DRIVER_GLOBALS, handle: Interrupt) {
    routine!("WdfInterruptDisable", PASSIVE_LEVEL, |state| {
        let interrupt = interrupt(state, handle);
        interrupt.switch(state, "EvtInterruptDisable", interrupt.disable);
    });
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 8] {
    [
        entry!(WdfInterruptAcquireLock),
        entry!(WdfInterruptCreate),
        entry!(WdfInterruptDisable),
        entry!(WdfInterruptEnable),
        entry!(WdfInterruptGetDevice),
        entry!(WdfInterruptQueueDpcForIsr),
        entry!(WdfInterruptReleaseLock),
        entry!(WdfInterruptSynchronize),
    ]
}

//! What the provider drivers share: `softndk`, the laboratory driver with a device interface of its own, and `softndknic`, the
//! NDIS miniport. Each of them is a shell for plug and play around this crate and the crate `provider`.
//!
//! | Module | Contents |
//! |---|---|
//! | [`os`] | the engine's operating system on the Windows kernel |
//! | [`controls`] | what programs can ask of a driver and set while it runs |
//! | [`consumers`] | who has an adapter open: the open and close handlers of NDK |
//! | [`numbers`] | the numbers that tell adapters apart |
//! | [`settings`] | what the registry says |
//! | [`record`] | what happened between consumers and adapters |
//! | [`report`] | what an adapter tells programs and NDIS of itself |
//! | [`presence`] | an adapter of plug and play, which can go |
//! | [`fault_plan`] | what NDKPI allows to go wrong, in front of an adapter |
//! | [`faults`] | failures for tests of consumers, in test builds |
//! | [`trace`] | events for whoever collects traces |
//!
//! Off Windows the same code is a library on the bindings of `wdk-bindings`, for tests with a simulated kernel.

#![no_std]

extern crate alloc;
#[cfg(any(test, not(windows)))]
extern crate std;
#[cfg(not(windows))]
extern crate wdk_bindings as wdk_sys;
#[cfg(not(windows))]
extern crate wdk_tracelogging as tracelogging;

pub mod advise;
pub mod consumers;
pub mod controls;
pub mod fault_plan;
pub mod faults;
pub mod numbers;
pub mod os;
pub mod presence;
pub mod record;
pub mod report;
pub mod settings;
pub mod socket;
pub mod trace;

use ndkpi::NtStatus;
use wdk_sys::PDRIVER_OBJECT;

use crate::os::Kernel;

/// Begins what all adapters share: traces, the clock, the threads of [`os`]. `PASSIVE_LEVEL`, once, before anything else here.
///
/// # Errors
///
/// `STATUS_INSUFFICIENT_RESOURCES` or what the kernel says of a thread; then nothing is left behind.
///
/// # Safety
///
/// `driver` is the driver's object.
pub unsafe fn start(driver: PDRIVER_OBJECT) -> Result<(), NtStatus> {
    trace::start();
    faults::reset();
    // SAFETY: `driver` is the driver's object (`# Safety`).
    unsafe { Kernel::start(driver) }.inspect_err(|_| stop())
}

/// Undoes [`start`]. `PASSIVE_LEVEL`, when there is no adapter any more.
pub fn stop() {
    faults::reset();
    Kernel::stop();
    trace::stop();
}

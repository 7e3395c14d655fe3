//! What the `SoftNDK` drivers need of the Windows kernel, in small safe wrappers.
//!
//! The bindings come from `wdk-sys` on Windows targets. Elsewhere they come from `wdk-bindings`, which has the same items,
//! and whoever links a test supplies the routines.
//!
//! Unless a function says otherwise it is for `PASSIVE_LEVEL`.

#![no_std]

extern crate alloc;
#[cfg(not(windows))]
extern crate wdk_bindings as wdk_sys;

mod buffered;
#[cfg(feature = "consumer")]
mod consumer;
mod entry;
mod event;
#[cfg(feature = "faults")]
pub mod faults;
mod fixed;
pub mod irp;
mod non_paged;
mod own_irp;
mod pool;
mod processor;
mod rundown;
mod spin_lock;
mod stack;
mod status;
mod string;
mod thread;
mod wait_lock;
pub mod wdf;
#[cfg(feature = "wsk")]
mod wsk;

pub use buffered::Buffered;
#[cfg(feature = "consumer")]
pub use consumer::KernelRuntime;
pub use event::Event;
pub use fixed::Fixed;
pub use non_paged::NonPaged;
pub use own_irp::{Completion, OwnIrp};
pub use pool::Aligned;
pub use processor::{Bound, at_dispatch_level, irql};
pub use rundown::{Permit, Rundown};
pub use spin_lock::QueuedSpinLock;
pub use stack::callers;
pub use status::check;
pub use string::{terminated, unicode, wide, wide_terminated};
pub use thread::Thread;
pub use wait_lock::WaitLock;
#[cfg(feature = "wsk")]
pub use wsk::{Asking, DatagramSocket, WskProvider};

use wdk_sys::{_MODE, KPROCESSOR_MODE};

/// Who waits or maps: the kernel for itself.
#[expect(clippy::cast_possible_truncation, reason = "zero; the constants have C's widest enumeration type")]
pub const KERNEL_MODE: KPROCESSOR_MODE = _MODE::KernelMode as KPROCESSOR_MODE;

/// The allocator beneath the drivers' `alloc`: non-paged, no-execute pool.
#[cfg(windows)]
pub use wdk_alloc::WdkAllocator;

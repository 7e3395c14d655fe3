//! Atomics and cells: those of `core`, or loom's in the model checks.

#[cfg(not(loom))]
mod imp {
    pub use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

    /// `core::cell::UnsafeCell` with the interface of loom's.
    #[repr(transparent)]
    pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub const fn new(value: T) -> Self {
            Self(core::cell::UnsafeCell::new(value))
        }

        /// Gives `work` the address for reading.
        #[inline]
        pub fn with<U>(&self, work: impl FnOnce(*const T) -> U) -> U {
            work(self.0.get())
        }

        /// Gives `work` the address for writing.
        #[inline]
        pub fn with_mut<U>(&self, work: impl FnOnce(*mut T) -> U) -> U {
            work(self.0.get())
        }
    }
}

#[cfg(loom)]
mod imp {
    pub use loom::{
        cell::UnsafeCell,
        sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    };
}

pub use crossbeam_utils::CachePadded;
pub use imp::{AtomicBool, AtomicU32, AtomicU64, Ordering, UnsafeCell};

//! The numbers that tell the adapters of a driver apart.

use engine::os::{Os, SpinLock};
use fallible::Arc;
use ndkpi::NtStatus;

use crate::os::{Kernel, KernelLock};

/// Adapters of a driver at most: devices in the device manager.
pub const MAX_ADAPTERS: usize = u8::BITS as usize;

/// The numbers of one driver.
pub struct Numbers {
    /// One bit for each number that is taken.
    taken: KernelLock<u8>,
}

impl Numbers {
    /// All of them are free.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new() -> Result<Arc<Self>, NtStatus> {
        Arc::try_new(Self { taken: Kernel.lock(0)? }).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)
    }

    /// Takes the lowest number from 1 on that is free, until the result is dropped. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES` if there are [`MAX_ADAPTERS`] already.
    pub fn take(this: &Arc<Self>) -> Result<Number, NtStatus> {
        this.taken.with(|taken| {
            let free = taken.trailing_ones();
            let number = u8::try_from(free).ok().filter(|_| (free as usize) < MAX_ADAPTERS);
            *taken |= 1_u8.checked_shl(free).unwrap_or(0);
            let number = number.ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
            Ok(Number { number: number + 1, numbers: this.clone() })
        })
    }
}

/// The number of an adapter, taken until this is dropped.
pub struct Number {
    number: u8,
    numbers: Arc<Numbers>,
}

impl Number {
    /// The number, from 1 on.
    #[must_use]
    pub const fn get(&self) -> u8 {
        self.number
    }

    /// The number as an index, from 0 on.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.number as usize - 1
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        let bit = 1_u8.checked_shl(u32::from(self.number) - 1).unwrap_or(0);
        self.numbers.taken.with(|taken| *taken &= !bit);
    }
}

//! A machine with the provider and two adapters.

use simulated_kernel::{Device, Driver, Kernel, Value};

/// Seeds of the runs that are repeated with several.
pub const SEEDS: std::ops::Range<u64> = 1..5;

/// The provider, loaded.
pub struct World {
    pub kernel: Kernel,
    pub driver: Driver,
    pub adapters: Vec<Device>,
}

impl World {
    /// A kernel of one seeded thread, with `adapters` adapters.
    pub fn seeded(seed: u64, adapters: usize) -> Self {
        Self::on(Kernel::seeded(seed).start(), adapters, &[])
    }

    /// The provider on a kernel.
    pub fn on(kernel: Kernel, adapters: usize, parameters: &[(&str, Value)]) -> Self {
        kernel.image("softndk", &["softndk", "driver_common", "interpose", "provider", "engine", "nd2", "nd2_control"]);
        let driver = kernel.load_with("softndk", softndk::driver_entry, parameters).expect("the provider loads");
        let adapters = (0..adapters).map(|_| driver.add_device().expect("an adapter")).collect();
        Self { kernel, driver, adapters }
    }

    /// Removes the adapters and unloads the driver, which leaves nothing behind: the kernel looks.
    pub fn end(self) {
        for adapter in self.adapters {
            assert!(adapter.remove().is_ok(), "an adapter is removed");
        }
        self.driver.unload();
        drop(self.kernel);
    }
}

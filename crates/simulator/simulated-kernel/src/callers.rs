//! Whose code calls the kernel, and from where.
//!
//! Drivers call each other by interfaces that the kernel does not see, so what a thread was called for does not say whose code
//! it runs now. The stack does: each function belongs to a crate, and a test says of which crates each driver is made.

use std::sync::Mutex;

use litemap::LiteMap;

use crate::{
    context::{self, DriverId},
    kernel::Kernel,
    state::{Part, State},
};

#[cfg(unix)]
use crate::sites::symbols;

/// Frames of drivers that make a call site: the one that calls, and two of its callers, because helpers are called from many
/// places.
const DEPTH: usize = 3;

/// The drivers by the crates that their images are made of.
#[derive(Default)]
pub struct Images(LiteMap<String, String>);

impl Part for Mutex<Images> {}

impl State {
    /// Goes up the stack, from frame to frame of code of drivers, until `look` has seen enough.
    fn walk(&self, look: impl FnMut(usize, &str) -> bool) {
        #[cfg(unix)]
        symbols::walk(&self.locked::<Images>().0, look);
        #[cfg(windows)]
        crate::sites::frames::walk(look);
    }

    /// The driver whose code calls the kernel.
    pub fn calling_driver(&self) -> DriverId {
        if cfg!(windows) {
            // An image's imports say whose they are.
            return context::caller();
        }
        let mut found = None;
        self.walk(|_, driver| {
            found = Some(driver.to_owned());
            false
        });
        let loaded =
            found.and_then(|name| self.drivers().iter().find(|(_, driver)| driver.name == name).map(|(&id, _)| id));
        loaded.unwrap_or_else(context::caller)
    }

    /// A number for the place in the drivers' code from which the kernel is called.
    pub fn call_site(&self) -> u64 {
        let (mut site, mut depth) = (0xCBF2_9CE4_8422_2325_u64, 0);
        self.walk(|address, _| {
            site = (site ^ address as u64).wrapping_mul(0x0100_0000_01B3);
            depth += 1;
            depth < DEPTH
        });
        site
    }
}

impl Kernel {
    /// Says of which crates a driver's image is made, for drivers that call each other by interfaces. Crates that several
    /// drivers have in common are none of them.
    pub fn image(&self, driver: &str, crates: &[&str]) {
        let mut images = self.state.locked::<Images>();
        images.0.extend(crates.iter().map(|&home| (home.to_owned(), driver.to_owned())));
    }
}

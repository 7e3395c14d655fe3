//! Where a call comes from: whose code is on the stack, and which call sites.
//!
//! Drivers call each other by interfaces that the kernel does not see, so what a thread was called for does not say whose code
//! it runs now. The stack does: each function belongs to a crate, and a test says of which crates each driver is made.

#[cfg(unix)]
mod symbols;

use std::{collections::BTreeMap, fmt};

use crate::{
    context::{self, DriverId},
    kernel::{Kernel, State, lock},
};

/// The stack pointer of the code that calls this routine of the kernel; `None` if the stack does not tell.
#[cfg(unix)]
pub use symbols::{frames_of_caller, stack_of_caller};

/// The stack pointer of the image that calls the kernel, which its thunk has noted.
#[cfg(windows)]
pub fn stack_of_caller(_routine: &str) -> Option<usize> {
    context::stack_of_caller()
}

/// The same, if it is known without a look at the stack, which takes long.
pub fn known_stack() -> Option<usize> {
    #[cfg(windows)]
    return context::stack_of_caller();
    #[cfg(unix)]
    None
}

/// Frames of drivers that make a call site: the one that calls, and two of its callers, because helpers are called from many
/// places.
const DEPTH: usize = 3;

/// The drivers by the crates that their images are made of.
pub type Images = BTreeMap<String, String>;

impl State {
    /// Goes up the stack, from frame to frame of code of drivers, until `look` has seen enough.
    fn walk(&self, look: impl FnMut(usize, &str) -> bool) {
        #[cfg(unix)]
        symbols::walk(&lock(&self.images), look);
        #[cfg(windows)]
        crate::image::walk(look);
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
        let loaded = found.and_then(|name| {
            let pnp = lock(&self.pnp);
            pnp.drivers.iter().find(|(_, driver)| driver.name == name).map(|(&id, _)| id)
        });
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

/// A place in a driver's code from which the kernel was called. In words it is `, called from` and the place, or nothing if that is
/// not known.
#[derive(Clone, Default)]
pub struct Site(Option<Place>);

/// Addresses of the stack, of which one is the driver's; looked up when somebody wants to read them.
#[cfg(unix)]
type Place = symbols::Frames;
/// The address that the call returns to.
#[cfg(windows)]
type Place = usize;

impl Site {
    /// Where the driver is that has called the kernel.
    pub fn here() -> Self {
        #[cfg(unix)]
        return Self(Some(symbols::Frames::here(context::current_routine())));
        #[cfg(windows)]
        Self(Some(context::current_site()))
    }

    /// The same for a message, whose end says so itself where the thunks of images have noted it.
    pub fn of_use() -> Self {
        if cfg!(windows) { Self::default() } else { Self::here() }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(place) = &self.0 else { return Ok(()) };
        #[cfg(unix)]
        return place.in_words().map_or(Ok(()), |words| write!(f, ", called from {words}"));
        #[cfg(windows)]
        f.write_str(&context::site_in_words(*place))
    }
}

impl Kernel {
    /// Says of which crates a driver's image is made, for drivers that call each other by interfaces. Crates that several
    /// drivers have in common are none of them.
    pub fn image(&self, driver: &str, crates: &[&str]) {
        let mut images = lock(&self.state.images);
        images.extend(crates.iter().map(|&home| (home.to_owned(), driver.to_owned())));
    }
}

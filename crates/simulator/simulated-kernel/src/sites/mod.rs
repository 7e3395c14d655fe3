//! Where a call comes from: frames of the stack, and call sites.

#[cfg(windows)]
pub mod frames;
#[cfg(windows)]
pub mod images;
#[cfg(windows)]
pub mod origin;
#[cfg(unix)]
pub mod symbols;

use std::fmt;

use crate::running;

/// The stack pointer of the code that calls this routine of the kernel; `None` if the stack does not tell.
#[cfg(unix)]
pub use symbols::stack_of_caller;

/// The stack pointer of the image that calls the kernel, which its thunk has noted.
#[cfg(windows)]
pub fn stack_of_caller(_routine: &str) -> Option<usize> {
    running::stack_of_caller()
}

/// The same, if it is known without a look at the stack, which takes long.
pub fn known_stack() -> Option<usize> {
    #[cfg(windows)]
    return running::stack_of_caller();
    #[cfg(unix)]
    None
}

/// A place in a driver's code from which the kernel was called. In words it is `, called from` and the place, or nothing if that is
/// not known.
#[derive(Clone, Default)]
pub struct Site(Option<Caller>);

/// Addresses of the stack, of which one is the driver's; looked up when somebody wants to read them.
#[cfg(unix)]
type Caller = symbols::Frames;
/// The address that the call returns to.
#[cfg(windows)]
type Caller = usize;

impl Site {
    /// Where the driver is that has called the kernel.
    pub fn here() -> Self {
        #[cfg(unix)]
        return Self(Some(symbols::Frames::here(running::current_routine())));
        #[cfg(windows)]
        Self(Some(running::current_site()))
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
        f.write_str(&site_in_words(*place))
    }
}

/// A place in a driver's image from which the kernel was called, for a message: the image and an offset.
#[cfg(windows)]
pub fn site_in_words(site: usize) -> String {
    place_in_words(site).map_or_else(String::new, |words| format!(", called from {words}"))
}

/// An address in an image, for a message: the image and an offset.
#[cfg(windows)]
pub fn place_in_words(address: usize) -> Option<String> {
    crate::sites::images::describe(address)
}

/// Without images nobody knows.
#[cfg(unix)]
pub const fn place_in_words(_address: usize) -> Option<String> {
    None
}

/// Without images nobody knows.
#[cfg(unix)]
pub const fn site_in_words(_site: usize) -> String {
    String::new()
}

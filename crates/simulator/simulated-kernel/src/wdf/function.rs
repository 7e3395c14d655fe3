//! How a function of the framework begins.

/// Carries out a function of the framework, at most at the IRQL of the DDI reference.
macro_rules! function {
    ($name:literal, $work:expr) => {
        $crate::routine::routine!($name, $work)
    };
}
pub(super) use function;

/// A function and its name, for the table of the framework.
macro_rules! entry {
    ($name:ident) => {
        (stringify!($name), $name as *const ())
    };
}
pub(super) use entry;

/// What a driver calls by way of the table.
pub type Function = unsafe extern "C" fn();

//! The two variables of the framework's stub library: the function table, and the globals that every call passes back.

#![allow(missing_docs, non_upper_case_globals, reason = "names of the C headers")]

use crate::types::{PWDF_DRIVER_GLOBALS, WDFFUNC};

#[cfg(windows)]
#[unsafe(no_mangle)]
pub static mut WdfFunctions: *const WDFFUNC = core::ptr::null();
#[cfg(windows)]
#[unsafe(no_mangle)]
pub static mut WdfDriverGlobals: PWDF_DRIVER_GLOBALS = core::ptr::null_mut();

#[cfg(not(windows))]
unsafe extern "C" {
    pub static mut WdfFunctions: *const WDFFUNC;
    pub static mut WdfDriverGlobals: PWDF_DRIVER_GLOBALS;
}

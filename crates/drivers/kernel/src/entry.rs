//! What every driver begins with.

/// Defines `driver_entry`, which the framework's stub calls, and the allocator of a driver. In the root of a driver's crate,
/// which has `wdk_sys` (and `wdk` on Windows) in scope.
///
/// `$create` is an `unsafe fn(PDRIVER_OBJECT, PCUNICODE_STRING) -> Result<(), NtStatus>`, called once with the arguments of
/// `DriverEntry`; `$name` is what a debugger is shown if it fails.
#[macro_export]
macro_rules! driver_entry {
    ($name:literal, $create:path) => {
        #[cfg(all(windows, panic = "unwind"))]
        compile_error!(
            "a driver is built in its own directory, whose .cargo/config.toml has panics abort (docs/cross-build.md)"
        );

        #[cfg(windows)]
        #[global_allocator]
        static ALLOCATOR: $crate::Aligned<$crate::WdkAllocator> = $crate::Aligned($crate::WdkAllocator);

        /// Where the framework's stub enters the driver.
        ///
        /// # Safety
        ///
        /// Called once, by the system, with a driver object and the path of the service key.
        #[cfg_attr(windows, unsafe(export_name = "DriverEntry"))]
        pub unsafe extern "system" fn driver_entry(
            driver: wdk_sys::PDRIVER_OBJECT,
            registry_path: wdk_sys::PCUNICODE_STRING,
        ) -> wdk_sys::NTSTATUS {
            // SAFETY: the arguments are the system's own.
            match unsafe { $create(driver, registry_path) } {
                Ok(()) => wdk_sys::STATUS_SUCCESS,
                Err(status) => {
                    // For who has a debugger attached: the system only says that the driver did not start.
                    #[cfg(windows)]
                    wdk::println!("{}: {status}", $name);
                    status.0
                }
            }
        }
    };
}

/// Defines the trace provider of a driver, `PROVIDER`, with `start` and `stop`. In a crate that depends on `tracelogging`.
#[macro_export]
macro_rules! trace_provider {
    ($name:tt) => {
        tracelogging::define_provider!(PROVIDER, $name);

        /// Begins. `PASSIVE_LEVEL`, once, before any other function here.
        pub fn start() {
            // SAFETY: `stop` unregisters before the driver is unloaded. Without a registration there are just no events.
            let _ = unsafe { PROVIDER.register() };
        }

        /// Ends. `PASSIVE_LEVEL`, after all other functions here.
        pub fn stop() {
            let _ = PROVIDER.unregister();
        }
    };
}

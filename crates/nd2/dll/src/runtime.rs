//! The machine and the adapter: started for the first client, stopped when the last has gone.

use std::{
    env,
    ffi::CString,
    fs,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use engine::connection::{Fabric, InterfaceAddress};
use fallible::Arc;
use host::machine::Machine;
use nd2::{Device, Platform, abi::HRESULT, class::can_unload_now, settings::Settings};
use ndkpi::NtStatus;
use windows_sys::Win32::{
    Foundation::{FreeLibrary, HMODULE},
    System::{
        Diagnostics::Debug::OutputDebugStringA,
        LibraryLoader::{GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GetModuleHandleExW},
    },
};

use crate::platform::WindowsPlatform;

struct Runtime {
    device: Arc<Device<WindowsPlatform>>,
    machine: Machine,
    pin: Pin,
}

/// A reference to this library's image, by which it stays loaded while threads run in it, whatever its clients do.
struct Pin(HMODULE);

// SAFETY: a module may be freed by any thread.
unsafe impl Send for Pin {}

impl Pin {
    fn try_new() -> Result<Self, HRESULT> {
        let mut module = core::ptr::null_mut();
        let here = (&raw const RUNTIME).cast::<u16>();
        // SAFETY: with this flag any address of the image names it, and the handle has a place.
        let found = unsafe { GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, here, &raw mut module) };
        if found == 0 { Err(HRESULT::ND_INSUFFICIENT_RESOURCES) } else { Ok(Self(module)) }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // SAFETY: the reference is this value's own. It is not the last: who calls into the library has one.
        unsafe { FreeLibrary(self.0) };
    }
}

static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

fn runtime() -> MutexGuard<'static, Option<Runtime>> {
    RUNTIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The adapters, made if there are none.
///
/// # Errors
///
/// `ND_NO_MEMORY`; `ND_INVALID_ADDRESS` if the environment names an address that no adapter can have, and
/// `ND_INVALID_PARAMETER` if it names another setting that cannot be.
pub fn devices() -> Result<[Arc<Device<WindowsPlatform>>; 1], HRESULT> {
    let mut runtime = runtime();
    if let Some(runtime) = &*runtime {
        return Ok([runtime.device.clone()]);
    }
    let read = |path: &str| fs::read_to_string(path).map_err(|error| error.to_string());
    let settings = Settings::load(|name| env::var(name).ok(), read).map_err(|error| {
        say(&error);
        HRESULT::ND_INVALID_PARAMETER
    })?;
    let pin = Pin::try_new()?;
    let machine = Machine::threads().start();
    let device = make(&machine, &settings).map_err(|status| match status {
        NtStatus::INSUFFICIENT_RESOURCES => HRESULT::ND_NO_MEMORY,
        status => status.into(),
    })?;
    Ok([runtime.insert(Runtime { device, machine, pin }).device.clone()])
}

/// Tells whoever watches the process: a debugger, and the standard error output.
pub fn say(what: &str) {
    let line = format!("softnd: {what}\n");
    eprint!("{line}");
    if let Ok(line) = CString::new(line) {
        // SAFETY: the text ends with zero.
        unsafe { OutputDebugStringA(line.as_ptr().cast()) };
    }
}

fn make(machine: &Machine, settings: &Settings) -> Result<Arc<Device<WindowsPlatform>>, NtStatus> {
    let platform = WindowsPlatform::new(machine);
    let fabric = Fabric::try_new(platform.os())?;
    let prefixed =
        |address: &IpAddr| InterfaceAddress { address: *address, prefix: if address.is_ipv4() { 8 } else { 64 } };
    let addresses: Vec<_> = settings.addresses.iter().map(prefixed).collect();
    Device::try_new(&platform, &fabric, &addresses, settings.config)
}

/// Stops the machine if there are no objects: waits until what they have left behind has ended, and then for the ends of the
/// threads. `S_OK` if the library can be unloaded.
///
/// A library that is unloaded all the same stays where it is, with its threads, until somebody asks this.
pub fn stop() -> HRESULT {
    let mut place = runtime();
    loop {
        if can_unload_now() != HRESULT::S_OK {
            return HRESULT::S_FALSE;
        }
        let Some(Runtime { device, machine, .. }) = &*place else { return HRESULT::S_OK };
        // Deferred calls of closed objects, and those that they queue. They come to an end, for nobody posts any more.
        machine.flush();
        if Arc::references_now(device) == 1 && machine.leaks().is_none() {
            break;
        }
        thread::yield_now();
    }
    if let Some(Runtime { device, machine, pin }) = place.take() {
        drop(device);
        machine.shutdown();
        // The threads have ended, not only their work.
        drop(pin);
    }
    HRESULT::S_OK
}

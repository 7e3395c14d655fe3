//! Where the adapters are: those of the driver, or one on a machine in this process. Found for the first client, and left when
//! the last has gone.

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
use nd2::{Device, OverlappedOs, abi::HRESULT, class::can_unload_now};
use ndkpi::NtStatus;
use windows_sys::Win32::{
    Foundation::{FreeLibrary, HMODULE},
    System::{
        Diagnostics::Debug::OutputDebugStringA,
        LibraryLoader::{GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GetModuleHandleExW},
    },
};

use crate::{
    choice::{Choice, DEVICE, choose},
    settings::Settings,
    windows::{device::DriverTransport, overlapped_os::OverlappedWindows},
};

/// Adapters.
#[derive(Clone)]
pub enum Adapters {
    /// The driver's.
    Driver(DriverTransport),
    /// One in this process.
    Process(Arc<Device<OverlappedWindows>>),
}

enum Runtime {
    Driver(DriverTransport),
    Process(Process),
}

impl Runtime {
    fn adapters(&self) -> Adapters {
        match self {
            Self::Driver(transport) => Adapters::Driver(transport.clone()),
            Self::Process(process) => Adapters::Process(process.device.clone()),
        }
    }
}

struct Process {
    device: Arc<Device<OverlappedWindows>>,
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

/// The adapters, found or made for the first client.
///
/// # Errors
///
/// `ND_NO_MEMORY`; `ND_INVALID_ADDRESS` if the environment names an address that no adapter can have,
/// `ND_INVALID_PARAMETER` if it names another setting that cannot be, and `ND_DEVICE_NOT_READY` if it wants the driver's and
/// they cannot be reached.
pub fn adapters() -> Result<Adapters, HRESULT> {
    let mut runtime = runtime();
    if let Some(runtime) = &*runtime {
        return Ok(runtime.adapters());
    }
    let read = |path: &str| fs::read_to_string(path).map_err(|error| error.to_string());
    let settings = Settings::load(|name| env::var(name).ok(), read).map_err(|error| {
        say(&error);
        HRESULT::ND_INVALID_PARAMETER
    })?;
    let choice = choose(settings.back_end, DriverTransport::open).map_err(|error| {
        say(&format!("the setting `backend` wants the driver, and {DEVICE} cannot be used: {error}"));
        HRESULT::ND_DEVICE_NOT_READY
    })?;
    let line = choice.to_string();
    if settings.verbose {
        say(&line)
    } else {
        tell_debugger(&line)
    }
    let found = match choice {
        Choice::Driver(transport) => Runtime::Driver(transport),
        Choice::Process(_) => Runtime::Process(Process::start(&settings)?),
    };
    Ok(runtime.insert(found).adapters())
}

impl Process {
    fn start(settings: &Settings) -> Result<Self, HRESULT> {
        let pin = Pin::try_new()?;
        let machine = Machine::threads().start();
        let device = make(&machine, settings).map_err(|status| match status {
            NtStatus::INSUFFICIENT_RESOURCES => HRESULT::ND_NO_MEMORY,
            status => status.into(),
        })?;
        Ok(Self { device, machine, pin })
    }

    /// Ends what has no objects any more: waits until what they have left behind has ended, and then for the ends of the threads.
    /// Gives it back if there are objects again.
    fn stop(self) -> Result<(), Self> {
        loop {
            // DPCs of closed objects, and those that they queue. They come to an end, for nobody posts any more.
            self.machine.flush();
            if Arc::references_now(&self.device) == 1 && self.machine.leaks().is_none() {
                break;
            }
            if can_unload_now() != HRESULT::S_OK {
                return Err(self);
            }
            thread::yield_now();
        }
        let Self { device, machine, pin } = self;
        drop(device);
        machine.shutdown();
        // The threads have ended, not only their work.
        drop(pin);
        Ok(())
    }
}

/// Tells whoever watches the process: a debugger, and the standard error output.
pub fn say(what: &str) {
    eprintln!("softnd: {what}");
    tell_debugger(what);
}

/// Tells a debugger only.
fn tell_debugger(what: &str) {
    if let Ok(line) = CString::new(format!("softnd: {what}\n")) {
        // SAFETY: the text ends with zero.
        unsafe { OutputDebugStringA(line.as_ptr().cast()) };
    }
}

fn make(machine: &Machine, settings: &Settings) -> Result<Arc<Device<OverlappedWindows>>, NtStatus> {
    let platform = OverlappedWindows::new(machine, settings.addresses.is_empty());
    let fabric = Fabric::try_new(platform.os())?;
    let prefixed = |address: &IpAddr| InterfaceAddress::new(*address, if address.is_ipv4() { 8 } else { 64 });
    // Without any, the adapter takes those of the interfaces when it is asked first.
    let addresses: Vec<_> = settings.addresses.iter().map(prefixed).collect();
    Device::try_new(&platform, &fabric, &addresses, settings.config)
}

/// Leaves the adapters if there are no objects. `S_OK` if the library can be unloaded.
///
/// A library that is unloaded all the same stays where it is, with its threads, until somebody asks this.
pub fn stop() -> HRESULT {
    let mut place = runtime();
    if can_unload_now() != HRESULT::S_OK {
        return HRESULT::S_FALSE;
    }
    match place.take() {
        None => HRESULT::S_OK,
        Some(Runtime::Driver(transport)) => {
            // Ends the session.
            drop(transport);
            HRESULT::S_OK
        }
        Some(Runtime::Process(process)) => match process.stop() {
            Ok(()) => HRESULT::S_OK,
            Err(process) => {
                *place = Some(Runtime::Process(process));
                HRESULT::S_FALSE
            }
        },
    }
}

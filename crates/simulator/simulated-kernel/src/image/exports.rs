//! What the kernel exports to images: its routines by name, plain functions, and variables.

use std::{
    collections::HashMap,
    sync::{
        OnceLock,
        atomic::{AtomicU32, AtomicUsize},
    },
};

use image_loader::routines::{self, Found, LIBRARY};
use windows_sys::Win32::System::LibraryLoader::{GetProcAddress, LoadLibraryA};

/// What an import gets.
#[derive(Clone, Copy, Debug)]
pub enum Export {
    /// A routine of this kernel, which wants to know who calls it.
    Routine(usize),
    /// Something that does not care: a plain function, a variable, an export of another image.
    Plain(usize),
}

macro_rules! addresses {
    ($($module:literal { $($name:ident)* })*) => {
        /// The routines, by the symbols that this crate defines.
        fn routines() -> HashMap<&'static str, usize> {
            unsafe extern "C" {
                $($(fn $name();)*)*
            }
            HashMap::from([$($((stringify!($name), ($name as *const ()).expose_provenance())),*),*])
        }
    };
}

image_loader::with_routines!(addresses);

/// Variables of the kernel: those that hold pointers to types of objects, and numbers.
static FILE_TYPE: AtomicUsize = AtomicUsize::new(0xFA00_0000_0100);
static EVENT_TYPE: AtomicUsize = AtomicUsize::new(0xFA00_0000_0200);
static THREAD_TYPE: AtomicUsize = AtomicUsize::new(0xFA00_0000_0300);
static PROCESS_TYPE: AtomicUsize = AtomicUsize::new(0xFA00_0000_0400);
static SEMAPHORE_TYPE: AtomicUsize = AtomicUsize::new(0xFA00_0000_0500);
/// The upper bits: 0xF is a free build.
static BUILD: AtomicU32 = AtomicU32::new(0xF000_0000 | crate::wdm::version::BUILD);
/// No debugger.
static DEBUGGER: AtomicU32 = AtomicU32::new(0x0100);
static HIGHEST_USER_ADDRESS: AtomicUsize = AtomicUsize::new(0x7FFF_FFFE_FFFF);
/// The first address that no program may name.
static USER_PROBE_ADDRESS: AtomicUsize = AtomicUsize::new(0x7FFF_FFFF_0000);

fn variable(name: &str) -> Option<usize> {
    let address = match name {
        "IoFileObjectType" => (&raw const FILE_TYPE).addr(),
        "ExEventObjectType" => (&raw const EVENT_TYPE).addr(),
        "PsThreadType" => (&raw const THREAD_TYPE).addr(),
        "PsProcessType" => (&raw const PROCESS_TYPE).addr(),
        "ExSemaphoreObjectType" => (&raw const SEMAPHORE_TYPE).addr(),
        "NtBuildNumber" => (&raw const BUILD).addr(),
        "KdDebuggerEnabled" => (&raw const DEBUGGER).addr(),
        "KdDebuggerNotPresent" => (&raw const DEBUGGER).addr() + 1,
        "PsInitialSystemProcess" => (&raw const crate::wdm::process::SYSTEM).addr(),
        "MmUserProbeAddress" => (&raw const USER_PROBE_ADDRESS).addr(),
        "MmHighestUserAddress" => (&raw const HIGHEST_USER_ADDRESS).addr(),
        _ => return None,
    };
    Some(address)
}

/// A plain function of `ntdll.dll`, or of the C library.
fn library(name: &str) -> Option<usize> {
    let name = std::ffi::CString::new(name).ok()?;
    [c"ntdll.dll", c"msvcrt.dll"].into_iter().find_map(|module| {
        // SAFETY: the name ends with a zero. The system's own libraries, which it has loaded, or loads without harm.
        let module = unsafe { LoadLibraryA(module.as_ptr().cast()) };
        // SAFETY: the library stays in the process, or the handle is null, which has no functions; the name ends with a zero.
        let function = unsafe { GetProcAddress(module, name.as_ptr().cast()) }?;
        Some((function as *const ()).expose_provenance())
    })
}

/// The plain functions that this system does not have. Images that want them get none.
#[must_use]
pub fn missing_functions() -> Vec<&'static str> {
    LIBRARY.iter().filter(|(_, of)| library(of).is_none()).map(|&(name, _)| name).collect()
}

/// What is exported under a name by a module of the system. `None` if nothing is.
pub fn find(module: &str, name: &str) -> Option<Export> {
    static ROUTINES: OnceLock<HashMap<&'static str, usize>> = OnceLock::new();
    match routines::find(module, name)? {
        Found::Simulated => ROUTINES.get_or_init(routines).get(name).copied().map(Export::Routine),
        Found::Library(of) => library(of).map(Export::Plain),
        Found::Variable => variable(name).map(Export::Plain),
    }
}

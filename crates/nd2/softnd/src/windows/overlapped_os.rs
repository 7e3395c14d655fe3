//! A Windows process as an operating system for the provider.

use core::{ffi::c_void, ptr};

use engine::connection::InterfaceAddress;
use host::{HostMdl, HostMemory, HostOs, machine::MachineRef};
use nd2::OverlappedOs;
use ndkpi::NtStatus;
use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEMORY_BASIC_INFORMATION, PAGE_EXECUTE_READWRITE, PAGE_EXECUTE_WRITECOPY, PAGE_GUARD, PAGE_NOACCESS,
    PAGE_READWRITE, PAGE_WRITECOPY, VirtualQuery,
};

use crate::windows::{file::PipeFile, interfaces, runtime};

/// A Windows process, with a machine of threads for the engine.
#[derive(Clone)]
pub struct OverlappedWindows {
    os: HostOs,
    /// Its adapters have the addresses of the machine's interfaces.
    follows: bool,
}

impl OverlappedWindows {
    /// The platform on `machine`, whose adapters have the addresses of the machine's interfaces if `follows`.
    pub fn new(machine: &MachineRef, follows: bool) -> Self {
        Self { os: HostOs::new(machine), follows }
    }
}

/// Returns true if the process may use every page of the range in this way at this moment.
fn is_usable(address: *const c_void, length: usize, writable: bool) -> bool {
    const WRITE: u32 = PAGE_READWRITE | PAGE_WRITECOPY | PAGE_EXECUTE_READWRITE | PAGE_EXECUTE_WRITECOPY;
    let Some(end) = address.addr().checked_add(length) else { return false };
    let mut at = address.addr();
    while at < end {
        let mut about = MEMORY_BASIC_INFORMATION::default();
        let size = size_of::<MEMORY_BASIC_INFORMATION>();
        // SAFETY: any address may be asked about, and the result has a place.
        if unsafe { VirtualQuery(ptr::without_provenance(at), &raw mut about, size) } == 0 {
            return false;
        }
        let denied = about.Protect & (PAGE_NOACCESS | PAGE_GUARD) != 0;
        if about.State != MEM_COMMIT || denied || (writable && about.Protect & WRITE == 0) {
            return false;
        }
        let Some(next) = about.BaseAddress.addr().checked_add(about.RegionSize) else { return false };
        at = next;
    }
    length > 0
}

impl OverlappedOs for OverlappedWindows {
    type Os = HostOs;
    type File = PipeFile;
    type Pages = ();

    fn os(&self) -> &HostOs {
        &self.os
    }

    fn create_file(&self) -> Result<PipeFile, NtStatus> {
        PipeFile::try_new()
    }

    fn interfaces(&self) -> Option<Vec<InterfaceAddress>> {
        self.follows.then(interfaces::list)
    }

    fn limit_reached(&self, name: &'static str, most: u64) {
        runtime::say(&format!("the adapter has no more: {name} = {most} (SOFTND_{})", name.to_uppercase()));
    }

    unsafe fn memory(&self, address: *const c_void, length: usize, writable: bool) -> Result<HostMemory, NtStatus> {
        if !is_usable(address, length, writable) {
            return Err(NtStatus::ACCESS_VIOLATION);
        }
        let mdl = HostMdl { next: ptr::null_mut(), address: address.cast_mut().cast(), length };
        // SAFETY: the descriptor is valid; the bytes are there, and stay until the memory is dropped (`# Safety` of the trait).
        unsafe { HostMemory::from_mdl(&raw const mdl, length) }
    }
}

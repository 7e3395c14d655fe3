//! Memory of Windows.

use std::{io::Write, ptr, time::Duration};

use windows_sys::Win32::{
    Foundation::FILETIME,
    System::{
        Diagnostics::Debug::ReadProcessMemory,
        Memory::{
            MEM_COMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_NOACCESS, PAGE_PROTECTION_FLAGS, PAGE_READONLY, PAGE_READWRITE,
            VirtualAlloc, VirtualFree, VirtualProtect,
        },
        Threading::{GetCurrentProcess, GetCurrentThread, GetThreadTimes, TerminateProcess},
    },
};

/// Reserves addresses. Their bytes can be used when they are committed.
pub fn reserve(length: usize, _reachable: bool) -> usize {
    // SAFETY: new addresses of the system's choice, which nobody has.
    let base = unsafe { VirtualAlloc(ptr::null(), length, MEM_RESERVE, PAGE_NOACCESS) };
    assert!(!base.is_null(), "no addresses for {length} bytes");
    base.expose_provenance()
}

fn commit_as(address: usize, length: usize, protection: PAGE_PROTECTION_FLAGS) {
    let place = ptr::with_exposed_provenance(address);
    // SAFETY: pages of a reservation of this module, which nobody uses yet.
    let base = unsafe { VirtualAlloc(place, length, MEM_COMMIT, protection) };
    assert!(!base.is_null(), "no memory for {length} bytes");
}

/// Makes reserved bytes usable.
pub fn commit(address: usize, length: usize) {
    commit_as(address, length, PAGE_READWRITE);
}

/// Makes reserved bytes usable once they are reachable.
pub fn commit_unreachable(address: usize, length: usize) {
    commit_as(address, length, PAGE_NOACCESS);
}

/// Takes pages of a reservation out of reach, or brings them back.
pub fn protect(address: usize, length: usize, reachable: bool) {
    let protection = if reachable { PAGE_READWRITE } else { PAGE_NOACCESS };
    let mut before = 0;
    // SAFETY: committed pages of a reservation of this module, and a place for what they had.
    unsafe { VirtualProtect(ptr::with_exposed_provenance(address), length, protection, &raw mut before) };
}

/// New zeroed pages, for reading, and for writing if that is asked for.
pub fn map(length: usize, writable: bool) -> *mut u8 {
    let protection = if writable { PAGE_READWRITE } else { PAGE_READONLY };
    // SAFETY: new pages at an address of the system's choice.
    let bytes = unsafe { VirtualAlloc(ptr::null(), length, MEM_RESERVE | MEM_COMMIT, protection) };
    assert!(!bytes.is_null(), "no memory for {length} bytes");
    bytes.cast()
}

/// Gives pages of [`map`] back.
///
/// # Safety
///
/// They are a whole mapping of this length, which nobody uses any more.
pub unsafe fn unmap(bytes: *mut u8, _length: usize) {
    // SAFETY: a whole mapping that nobody uses any more (`# Safety`); a reservation is freed as a whole.
    unsafe { VirtualFree(bytes.cast(), 0, MEM_RELEASE) };
}

/// How long the current thread has run on a processor.
pub fn processor_time() -> Duration {
    let mut times = [FILETIME::default(); 4];
    let [created, ended, kernel, user] = &mut times;
    // SAFETY: the places are variables here, and the handle is that of the current thread.
    let got = unsafe { GetThreadTimes(GetCurrentThread(), created, ended, kernel, user) };
    assert_ne!(got, 0, "a thread has times");
    let hundreds = |time: &FILETIME| u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
    Duration::from_nanos(100 * (hundreds(kernel) + hundreds(user)))
}

/// The word at an address, if there is memory. The system looks, and says no where a read would be a fault.
pub fn peek(address: usize) -> Option<usize> {
    const BYTES: usize = size_of::<usize>();
    let (mut word, mut got) = (0_usize, 0);
    // SAFETY: the process's own pseudo handle.
    let process = unsafe { GetCurrentProcess() };
    let from = ptr::with_exposed_provenance(address);
    // SAFETY: the place is a variable of that size, and the system looks at the address itself.
    let read = unsafe { ReadProcessMemory(process, from, (&raw mut word).cast(), BYTES, &raw mut got) };
    (read != 0 && got == BYTES).then_some(word)
}

/// Says something and ends the process, from a handler of faults.
pub fn end(words: &[u8], code: i32) -> ! {
    let _ = std::io::stderr().write_all(words);
    // SAFETY: the process's own pseudo handle.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: the process ends itself.
    unsafe { TerminateProcess(process, code.cast_unsigned()) };
    std::process::abort()
}

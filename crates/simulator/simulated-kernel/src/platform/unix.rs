//! Memory of a Unix.

use std::{
    env,
    fs::{self, File},
    io,
    os::fd::AsRawFd,
    ptr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Reserves addresses. Their bytes can be used at once if they are to be reachable.
pub fn reserve(length: usize, reachable: bool) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the system's choice, of nothing that anybody has.
    let base = unsafe { libc::mmap(ptr::null_mut(), length, protection(reachable), flags, -1, 0) };
    assert!(base != libc::MAP_FAILED, "no addresses for {length} bytes");
    base.expose_provenance()
}

const fn protection(reachable: bool) -> libc::c_int {
    if reachable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE }
}

/// Makes reserved bytes usable. They are from the beginning.
pub const fn commit(_address: usize, _length: usize) {}

/// Makes reserved bytes usable once they are reachable. They are from the beginning.
pub const fn commit_unreachable(_address: usize, _length: usize) {}

/// Takes pages of a reservation out of reach, or brings them back.
pub fn protect(address: usize, length: usize, reachable: bool) {
    // SAFETY: pages of a reservation of this module, which the caller has.
    unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(address), length, protection(reachable)) };
}

/// New zeroed pages, for reading, and for writing if that is asked for.
pub fn map(length: usize, writable: bool) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    // SAFETY: a new mapping at an address of the system's choice, of nothing that anybody has.
    let bytes = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
    assert!(bytes != libc::MAP_FAILED, "no memory for {length} bytes");
    bytes.cast()
}

/// New zeroed pages, at two addresses.
pub fn map_twice(length: usize) -> [*mut u8; 2] {
    let file = unnamed(length).expect("a file for memory");
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    [(); 2].map(|()| {
        // SAFETY: a new mapping at an address of the system's choice, of a file that nobody else has.
        let bytes = unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert!(bytes != libc::MAP_FAILED, "no memory for {length} bytes");
        bytes.cast()
    })
}

/// A new file of zeros without a name. It lives as long as its mappings.
fn unnamed(length: usize) -> io::Result<File> {
    static FILES: AtomicU64 = AtomicU64::new(0);
    let (process, number) = (std::process::id(), FILES.fetch_add(1, Relaxed));
    let path = env::temp_dir().join(format!("simulated-kernel-{process}-{number}"));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    file.set_len(length as u64)?;
    Ok(file)
}

/// Gives pages of [`map`] or [`map_twice`] back.
///
/// # Safety
///
/// They are a whole mapping of this length, which nobody uses any more.
pub unsafe fn unmap(bytes: *mut u8, length: usize) {
    // SAFETY: a whole mapping of this length, which nobody uses any more (`# Safety`).
    unsafe { libc::munmap(bytes.cast(), length) };
}

/// How long the current thread has run on a processor.
pub fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is a variable here.
    let got = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(got, 0, "a thread has a clock");
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The word at an address, if there is memory. The system looks, and says no where a read would be a fault.
pub fn peek(address: usize) -> Option<usize> {
    const BYTES: usize = size_of::<usize>();
    let mut ends = [0; 2];
    // SAFETY: the places are variables here.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return None;
    }
    let [from, to] = ends;
    let mut word = 0_usize;
    // SAFETY: the system reads the bytes, and writes none.
    let written = unsafe { libc::write(to, ptr::with_exposed_provenance(address), BYTES) };
    let there = written.cast_unsigned() == BYTES
        // SAFETY: the place is a variable of that size.
        && unsafe { libc::read(from, (&raw mut word).cast(), BYTES) }.cast_unsigned() == BYTES;
    for end in ends {
        // SAFETY: opened above.
        unsafe { libc::close(end) };
    }
    there.then_some(word)
}

/// Says something and ends the process, from a handler of faults.
pub fn end(words: &[u8], code: i32) -> ! {
    // SAFETY: the bytes live until the call returns, and the call is safe in a handler.
    unsafe { libc::write(2, words.as_ptr().cast(), words.len()) };
    // SAFETY: the call is safe in a handler.
    unsafe { libc::_exit(code) }
}

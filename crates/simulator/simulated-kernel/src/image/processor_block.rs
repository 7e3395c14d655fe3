//! The processor's block (`KPCR`), as far as compilers read it by `gs`: the processor's number, the thread, the IRQL.
//!
//! Each thread has one of its own, because a thread moves from processor to processor and is asked for itself. It is filled in
//! when it is read.

use std::cell::Cell;

use host::machine;

use super::stubs;
use crate::{
    state::{self, lock},
    wdm::system_thread,
};

/// Offsets, as the public headers have them.
const OWN_ADDRESS: u64 = 0x18;
const PROCESSOR_ADDRESS: u64 = 0x20;
const IRQL: u64 = 0x50;
/// The part that is the processor's (`KPRCB`).
const PROCESSOR: u64 = 0x180;
const NUMBER: u64 = 0x184;
const THREAD: u64 = 0x188;
const INDEX: u64 = 0x1A4;

/// Bytes of a block.
const BLOCK: usize = 4096;

/// Blocks of threads that have ended.
static FREE: std::sync::Mutex<Vec<usize>> = std::sync::Mutex::new(Vec::new());

struct OfThread(Cell<usize>);

impl Drop for OfThread {
    fn drop(&mut self) {
        if self.0.get() != 0 {
            lock(&FREE).push(self.0.get());
        }
    }
}

thread_local! {
    static OF_THREAD: OfThread = const { OfThread(Cell::new(0)) };
}

/// The block of the current thread.
fn block() -> Option<usize> {
    OF_THREAD.with(|mine| {
        if mine.0.get() == 0 {
            let free = lock(&FREE).pop();
            mine.0.set(free.or_else(|| stubs::memory(BLOCK))?);
        }
        Some(mine.0.get())
    })
}

/// The simulated place of a field of the block, which is filled in. `None` for one that is not simulated.
pub fn simulated(offset: u64) -> Option<usize> {
    if ![OWN_ADDRESS, PROCESSOR_ADDRESS, IRQL, NUMBER, THREAD, INDEX].contains(&offset) {
        return None;
    }
    let block = block()?;
    let state = state::current();
    let number = state.machine.current_processor();
    put(block, OWN_ADDRESS, block as u64);
    put(block, PROCESSOR_ADDRESS, block as u64 + PROCESSOR);
    put(block, IRQL, machine::current_irql().0);
    put(block, NUMBER, u8::try_from(number).unwrap_or(u8::MAX));
    put(block, THREAD, system_thread::current_object(&state) as u64);
    put(block, INDEX, number);
    Some(block + usize::try_from(offset).ok()?)
}

fn put<T>(block: usize, offset: u64, value: T) {
    let place = block + usize::try_from(offset).unwrap_or(0);
    // SAFETY: a place of the block, which only this thread has.
    unsafe { std::ptr::with_exposed_provenance_mut::<T>(place).write_unaligned(value) };
}

//! Code that the loader writes: thunks from an image to what it imports.

use std::ptr;

use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_EXECUTE_READ, PAGE_READWRITE, VirtualAlloc, VirtualFree, VirtualProtect,
};

use crate::{
    context::DriverId,
    report::bug_check,
    rule::Rule,
    sites::origin::{offset, slots},
};

/// Code under construction.
#[derive(Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Where the next thunk goes.
    fn here(&mut self) -> usize {
        self.bytes.resize(self.bytes.len().next_multiple_of(16), 0xCC);
        self.bytes.len()
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// `jmp [rip]`, and the address behind it.
    fn jump(&mut self, target: usize) {
        self.add(&[0xFF, 0x25, 0, 0, 0, 0]);
        self.add(&target.to_le_bytes());
    }

    /// Notes whose call it is, where it returns to, and the stack pointer. It changes nothing but `r11`, which no argument is in.
    fn note(&mut self, driver: DriverId) {
        let slots = slots();
        // mov r11, [rsp]
        self.add(&[0x4C, 0x8B, 0x1C, 0x24]);
        self.store(slots.site);
        // mov r11d, driver
        self.add(&[0x41, 0xBB]);
        self.add(&driver.0.to_le_bytes());
        self.store(slots.driver);
        // mov gs:[slot], rsp
        self.add(&[0x65, 0x48, 0x89, 0x24, 0x25]);
        self.add(&offset(slots.stack).to_le_bytes());
    }

    /// `mov gs:[slot], r11`.
    fn store(&mut self, slot: u32) {
        self.add(&[0x65, 0x4C, 0x89, 0x1C, 0x25]);
        self.add(&offset(slot).to_le_bytes());
    }

    /// A thunk of a driver to `target`. Its offset.
    pub fn thunk(&mut self, driver: DriverId, target: usize) -> usize {
        let at = self.here();
        self.note(driver);
        self.jump(target);
        at
    }

    /// A thunk for an import that nobody has: it ends the run, with these words. Its offset.
    pub fn missing(&mut self, driver: DriverId, import: &str) -> usize {
        // As long as the process: calls of it may be anywhere.
        let import: &'static str = Box::leak(import.to_owned().into_boxed_str());
        let at = self.here();
        self.note(driver);
        // mov rcx, words
        self.add(&[0x48, 0xB9]);
        self.add(&import.as_ptr().expose_provenance().to_le_bytes());
        // mov rdx, length
        self.add(&[0x48, 0xBA]);
        self.add(&import.len().to_le_bytes());
        let target: extern "system" fn(usize, usize) -> ! = missing;
        self.jump(target as *const () as usize);
        at
    }

    /// A routine that does nothing. Its offset.
    pub fn nothing(&mut self) -> usize {
        let at = self.here();
        // ret
        self.add(&[0xC3]);
        at
    }

    /// A routine that goes on to where `rax` points. Its offset.
    pub fn dispatch(&mut self) -> usize {
        let at = self.here();
        // jmp rax
        self.add(&[0xFF, 0xE0]);
        at
    }

    /// The code, ready to run. `None` if there is no memory.
    pub fn finish(mut self) -> Option<Code> {
        self.here();
        let length = self.bytes.len().max(1);
        // SAFETY: new addresses of the system's choice, which nobody has.
        let base = unsafe { VirtualAlloc(ptr::null(), length, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE) };
        if base.is_null() {
            return None;
        }
        // SAFETY: the new pages have as many bytes, and nobody else knows of them.
        unsafe { base.cast::<u8>().copy_from_nonoverlapping(self.bytes.as_ptr(), self.bytes.len()) };
        let mut before = 0;
        // SAFETY: the new pages, and a place for what they had.
        let done = unsafe { VirtualProtect(base, length, PAGE_EXECUTE_READ, &raw mut before) };
        let code = Code { base: base.expose_provenance() };
        (done != 0).then_some(code)
    }
}

/// Code that can be run, in pages of its own. They go when it is dropped.
pub struct Code {
    base: usize,
}

impl Code {
    /// The address of a thunk.
    pub const fn at(&self, offset: usize) -> usize {
        self.base + offset
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: the pages of this value; whoever could run them is unloaded.
        unsafe { VirtualFree(ptr::with_exposed_provenance_mut(self.base), 0, MEM_RELEASE) };
    }
}

/// Where the thunk of an import leads that nobody has.
extern "system" fn missing(words: usize, length: usize) -> ! {
    let words = ptr::with_exposed_provenance::<u8>(words);
    // SAFETY: the thunk has the address and the length of words that are never freed.
    let words = unsafe { std::slice::from_raw_parts(words, length) };
    let _inside = crate::context::Inside::new("an import");
    let import = String::from_utf8_lossy(words);
    bug_check(Rule::MissingImport, format_args!("the driver calls {import}, which is not simulated"))
}

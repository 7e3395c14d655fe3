//! Bytes of a consumer, with addresses that a test chooses.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use engine::{memory::Released, os::Memory};

/// A consumer's buffer.
#[derive(Clone)]
pub struct Buffer {
    base: u64,
    bytes: Arc<Mutex<Vec<u8>>>,
    /// How many times the engine has the buffer mapped.
    mapped: Arc<AtomicU32>,
    /// How many clients there are: one for each registration.
    clients: Arc<AtomicU32>,
    /// How many times one was told.
    told: Arc<AtomicU32>,
    /// Where it was written to, in the order of the writes, from the first [`Buffer::take_written`] on.
    written: Arc<Mutex<Option<Vec<usize>>>>,
}

impl Buffer {
    /// `length` bytes, all zero, named by the addresses from `base` on.
    pub fn new(base: u64, length: usize) -> Self {
        Self {
            base,
            bytes: Arc::new(Mutex::new(vec![0; length])),
            mapped: Arc::default(),
            clients: Arc::default(),
            told: Arc::default(),
            written: Arc::default(),
        }
    }

    /// `length` bytes that differ from their neighbours and from those of other seeds.
    pub fn patterned(base: u64, length: usize, seed: usize) -> Self {
        let buffer = Self::new(base, length);
        buffer.with(|bytes| {
            for (index, byte) in bytes.iter_mut().enumerate() {
                *byte = u8::try_from((seed * 31 + index * 7 + index / 251) % 256).expect("a remainder");
            }
        });
        buffer
    }

    pub const fn base(&self) -> u64 {
        self.base
    }

    pub fn with<T>(&self, work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        work(&mut self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn contents(&self) -> Vec<u8> {
        self.with(|bytes| bytes.clone())
    }

    /// What the consumer hands in.
    pub fn memory(&self) -> TestMemory {
        self.mapped.fetch_add(1, SeqCst);
        TestMemory { length: self.with(|bytes| bytes.len()), buffer: self.clone() }
    }

    /// Who is told that the buffer is not used any more.
    pub fn client(&self) -> Client {
        self.clients.fetch_add(1, SeqCst);
        Client(self.clone())
    }

    pub fn is_mapped(&self) -> bool {
        self.mapped.load(SeqCst) != 0
    }

    pub fn told(&self) -> u32 {
        self.told.load(SeqCst)
    }

    /// Where the engine has written since the last call, in that order.
    pub fn take_written(&self) -> Vec<usize> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).replace(Vec::new()).unwrap_or_default()
    }
}

pub struct Client(Buffer);

impl Drop for Client {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, SeqCst);
    }
}

impl Released for Client {
    fn released(&self) {
        // The registration of this client is at an end, so what is mapped belongs to others.
        assert!(self.0.mapped.load(SeqCst) < self.0.clients.load(SeqCst), "told while the bytes are mapped");
        self.0.told.fetch_add(1, SeqCst);
    }
}

/// Registered bytes of a [`Buffer`].
pub struct TestMemory {
    buffer: Buffer,
    length: usize,
}

impl Drop for TestMemory {
    fn drop(&mut self) {
        self.buffer.mapped.fetch_sub(1, SeqCst);
    }
}

impl Memory for TestMemory {
    fn base(&self) -> u64 {
        self.buffer.base
    }

    fn len(&self) -> usize {
        self.length
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        self.buffer.with(|bytes| into.copy_from_slice(&bytes[offset..offset + into.len()]));
    }

    fn write(&self, offset: usize, from: &[u8]) {
        self.buffer.with(|bytes| bytes[offset..offset + from.len()].copy_from_slice(from));
        if let Some(written) = &mut *self.buffer.written.lock().unwrap_or_else(PoisonError::into_inner) {
            written.push(offset);
        }
    }

    fn copy_from(&self, offset: usize, from: &Self, from_offset: usize, len: usize) {
        // In parts on the stack: no allocation, and never two locks.
        let mut part = [0; 512];
        let mut done = 0;
        while done < len {
            let now = part.len().min(len - done);
            from.read(from_offset + done, &mut part[..now]);
            self.write(offset + done, &part[..now]);
            done += now;
        }
    }
}

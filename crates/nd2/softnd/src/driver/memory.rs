//! Memory regions and windows.

use std::{
    ffi::c_void,
    ptr::NonNull,
    sync::{Mutex, PoisonError},
};

use fallible::Arc;
use nd2::{
    abi::{OVERLAPPED, mr_flags},
    back_end,
};
use nd2_control::wire::{Register, Token, Tokens, Verb};
use ndkpi::NtStatus;
use zerocopy::{FromZeros, IntoBytes, little_endian::U32};

use super::{
    Driver, Registration, Transport,
    adapter::Adapter,
    held::{DriverHandle, OverlappedObject, requests},
};

/// A memory region.
pub struct MemoryRegion<T: Transport> {
    waiting: OverlappedObject<T>,
    /// The request that keeps the bytes registered. The one before may still be ending.
    registration: Mutex<Option<T::Registration>>,
}

requests!(MemoryRegion: waiting);

impl<T: Transport> MemoryRegion<T> {
    pub fn new(waiting: OverlappedObject<T>) -> Self {
        Self { waiting, registration: Mutex::new(None) }
    }

    /// The driver's handle.
    pub const fn handle(&self) -> u64 {
        self.waiting.held.handle
    }

    /// Zeros if it is not registered, or the driver is not reached.
    fn tokens(&self) -> Tokens {
        let held = &self.waiting.held;
        held.ask(Verb::Tokens, held.handle().as_bytes()).unwrap_or_else(|_| Tokens::new_zeroed())
    }

    /// Has the driver lock and register the client's bytes.
    ///
    /// # Safety
    ///
    /// Bytes that are there stay there as long as they are registered.
    unsafe fn lock(&self, bytes: (*const c_void, usize), flags: u32) -> Result<(), NtStatus> {
        let held = &self.waiting.held;
        // What every driver would say; and a removed adapter, which it has to be asked for.
        held.ask::<Tokens>(Verb::Tokens, held.handle().as_bytes())?;
        if flags & !mr_flags::ALL != 0 || bytes.1 > self.waiting.adapter.known_info().MaxRegistrationSize {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let verb = if nd2::writes(flags) { Verb::RegisterWritable } else { Verb::RegisterReadable };
        let address = (bytes.0.addr() as u64).into();
        let input = Register { region: held.handle.into(), address, flags: flags.into() };
        let mut place = self.registration.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: bytes that are there stay there as long as they are registered (`# Safety`).
        let registration = unsafe { held.transport.register(verb.code(), input.as_bytes(), bytes) }?;
        // The driver may not have come to it yet: it is registered when there are tokens, or the request has ended.
        while self.tokens().local == U32::ZERO {
            match registration.status() {
                NtStatus::PENDING => std::thread::yield_now(),
                status => return Err(status),
            }
        }
        if registration.status() != NtStatus::PENDING {
            // Another registration of the region stands.
            return Err(registration.status());
        }
        *place = Some(registration);
        Ok(())
    }
}

impl<T: Transport> back_end::MemoryRegion<Driver<T>> for MemoryRegion<T> {
    unsafe fn register(&self, bytes: (*const c_void, usize), flags: u32, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: bytes that are there stay there as long as they are registered (the trait's `# Safety`).
        if let Err(status) = unsafe { self.lock(bytes, flags) } {
            return status;
        }
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
        unsafe { self.waiting.begin_alone(Verb::Registered, overlapped) }
    }

    unsafe fn deregister(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
        unsafe { self.waiting.begin_alone(Verb::Deregister, overlapped) }
    }

    fn local_token(&self) -> u32 {
        self.tokens().local.get()
    }

    fn remote_token(&self) -> u32 {
        self.tokens().remote.get()
    }
}

/// A memory window.
pub struct MemoryWindow<T: Transport> {
    pub adapter: Arc<Adapter<T>>,
    pub held: DriverHandle<T>,
}

impl<T: Transport> back_end::Part<Driver<T>> for MemoryWindow<T> {
    fn adapter(&self) -> &Arc<Adapter<T>> {
        &self.adapter
    }
}

impl<T: Transport> back_end::MemoryWindow<Driver<T>> for MemoryWindow<T> {
    fn remote_token(&self) -> u32 {
        let answer = self.held.ask::<Token>(Verb::WindowToken, self.held.handle().as_bytes());
        answer.map_or(0, |token| token.remote.get())
    }
}

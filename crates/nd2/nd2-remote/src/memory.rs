//! `IND2MemoryRegion` and `IND2MemoryWindow`.

use std::{
    ffi::c_void,
    sync::{Arc, Mutex, PoisonError},
};

use nd2::{
    abi::{
        HRESULT, IID_IND2MemoryRegion, IID_IND2MemoryWindow, IID_IND2Overlapped, IND2MemoryRegionVtbl,
        IND2MemoryWindowVtbl, OVERLAPPED, mr_flags,
    },
    com::{Class, borrow, find, unknown},
};
use nd2_control::wire::{Reader, Verb};
use ndkpi::{GUID, NtStatus};

use crate::{
    Registration, Transport,
    adapter::Core,
    held::{Held, Overlapped, overlapped},
    post::first,
};

/// A memory region.
pub struct MemoryRegion<T: Transport> {
    adapter: Arc<Core<T>>,
    file: Arc<T::File>,
    held: Held<T>,
    /// The request that keeps the bytes registered. The one before may still be ending.
    registration: Mutex<Option<T::Registration>>,
}

impl<T: Transport> MemoryRegion<T> {
    pub fn new(adapter: Arc<Core<T>>, file: Arc<T::File>, held: Held<T>) -> Self {
        Self { adapter, file, held, registration: Mutex::new(None) }
    }

    /// The handle of the region behind a client's pointer; zero if it is none of this adapter.
    ///
    /// # Safety
    ///
    /// `unknown` is null or a COM object.
    pub unsafe fn handle_of(adapter: &Arc<Core<T>>, unknown: *mut c_void) -> u64 {
        let handle = |region: &Self| if Arc::ptr_eq(&region.adapter, adapter) { region.held.handle } else { 0 };
        // SAFETY: the caller's promise.
        unsafe { find::<Self, _>(unknown, handle) }.unwrap_or(0)
    }

    fn tokens(&self) -> [u32; 2] {
        let answer: [u8; 8] = self.held.ask(Verb::Tokens, &self.held.message()).unwrap_or_default();
        let mut answer = Reader::new(&answer);
        [answer.u32().unwrap_or(0), answer.u32().unwrap_or(0)]
    }

    /// Has the driver lock and register the client's bytes.
    ///
    /// # Safety
    ///
    /// Bytes that are there stay there as long as they are registered.
    unsafe fn lock(&self, bytes: (*const c_void, usize), flags: u32) -> Result<(), NtStatus> {
        // What every driver would say; and a removed adapter, which it has to be asked for.
        self.held.ask::<8>(Verb::Tokens, &self.held.message())?;
        if flags & !mr_flags::ALL != 0 || bytes.1 > self.adapter.info().MaxRegistrationSize {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let verb = if nd2::writes(flags) { Verb::RegisterWritable } else { Verb::RegisterReadable };
        let message = self.held.message().u64(bytes.0.addr() as u64).u32(flags);
        let mut place = self.registration.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller's promise.
        let registration = unsafe { self.held.transport.register(verb.code(), message.get()?, bytes) }?;
        // The driver may not have come to it yet: it is registered when there are tokens, or the request has ended.
        while self.tokens()[0] == 0 {
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

impl<T: Transport> Overlapped for MemoryRegion<T> {
    type Transport = T;

    fn held(&self) -> &Held<T> {
        &self.held
    }

    fn file(&self) -> &Arc<T::File> {
        &self.file
    }
}

impl<T: Transport> Class for MemoryRegion<T> {
    type Table = IND2MemoryRegionVtbl;

    const TABLE: &'static IND2MemoryRegionVtbl = &IND2MemoryRegionVtbl {
        base: overlapped::<Self>(),
        Register: register::<T>,
        Deregister: deregister::<T>,
        GetLocalToken: get_local_token::<T>,
        GetRemoteToken: get_remote_token::<T>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2MemoryRegion, IID_IND2Overlapped];
}

/// `IND2MemoryRegion::Register`.
///
/// # Safety
///
/// `this` is such a region; the bytes stay as long as they are registered; no request is outstanding on `overlapped`, which
/// the client keeps until a request that pends ends.
unsafe extern "system" fn register<T: Transport>(
    this: *mut c_void,
    buffer: *const c_void,
    length: usize,
    flags: u32,
    overlapped: *mut OVERLAPPED,
) -> HRESULT {
    if overlapped.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<MemoryRegion<T>>(this) };
    // SAFETY: the caller's promise.
    if let Err(status) = unsafe { object.lock((buffer, length), flags) } {
        return status.into();
    }
    // SAFETY: the caller's promise.
    unsafe { object.begin(Verb::Registered, &object.held.message(), overlapped) }
}

/// `IND2MemoryRegion::Deregister`.
///
/// # Safety
///
/// `this` is such a region; no request is outstanding on `overlapped`, which the client keeps until a request that pends ends.
unsafe extern "system" fn deregister<T: Transport>(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<MemoryRegion<T>>(this) };
    // SAFETY: the caller's promise.
    unsafe { object.begin(Verb::Deregister, &object.held.message(), overlapped) }
}

/// `IND2MemoryRegion::GetLocalToken`: zero, which is no token, if the region is not registered.
///
/// # Safety
///
/// `this` is such a region.
unsafe extern "system" fn get_local_token<T: Transport>(this: *mut c_void) -> u32 {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<MemoryRegion<T>>(this) };
    object.tokens()[0]
}

/// `IND2MemoryRegion::GetRemoteToken`: zero, which is no token, if the region is not registered.
///
/// # Safety
///
/// `this` is such a region.
unsafe extern "system" fn get_remote_token<T: Transport>(this: *mut c_void) -> u32 {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<MemoryRegion<T>>(this) };
    object.tokens()[1]
}

/// A memory window.
pub struct MemoryWindow<T: Transport> {
    pub adapter: Arc<Core<T>>,
    pub held: Held<T>,
}

impl<T: Transport> MemoryWindow<T> {
    /// The handle of the window behind a client's pointer; zero if it is none of this adapter.
    ///
    /// # Safety
    ///
    /// `unknown` is null or a COM object.
    pub unsafe fn handle_of(adapter: &Arc<Core<T>>, unknown: *mut c_void) -> u64 {
        let handle = |window: &Self| if Arc::ptr_eq(&window.adapter, adapter) { window.held.handle } else { 0 };
        // SAFETY: the caller's promise.
        unsafe { find::<Self, _>(unknown, handle) }.unwrap_or(0)
    }
}

impl<T: Transport> Class for MemoryWindow<T> {
    type Table = IND2MemoryWindowVtbl;

    const TABLE: &'static IND2MemoryWindowVtbl =
        &IND2MemoryWindowVtbl { base: unknown::<Self>(), GetRemoteToken: get_window_token::<T> };
    const INTERFACES: &'static [GUID] = &[IID_IND2MemoryWindow];
}

/// `IND2MemoryWindow::GetRemoteToken`: that of the bind posted last; zero, which is no token, before the first.
///
/// # Safety
///
/// `this` is such a window.
unsafe extern "system" fn get_window_token<T: Transport>(this: *mut c_void) -> u32 {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<MemoryWindow<T>>(this) };
    let answer: [u8; 4] = object.held.ask(Verb::WindowToken, &object.held.message()).unwrap_or_default();
    first(&answer)
}

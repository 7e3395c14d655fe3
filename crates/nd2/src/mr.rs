//! `IND2MemoryRegion`.

use core::{ffi::c_void, marker::PhantomData, ptr::NonNull};

use engine::{
    memory::{PAGE_SIZE, Region, RegionKind, Release, Released, Rights},
    os::{Dpc, Memory, Os, Routine, SpinLock},
};
use fallible::Arc;
use ndkpi::{GUID, NtStatus};

use crate::{
    Charge, Item, Platform,
    abi::{
        HRESULT, IID_IND2MemoryRegion, IID_IND2Overlapped, IND2MemoryRegionVtbl, OVERLAPPED,
        mr_flags::{
            self, ND_MR_FLAG_ALLOW_LOCAL_WRITE, ND_MR_FLAG_ALLOW_REMOTE_READ, ND_MR_FLAG_ALLOW_REMOTE_WRITE,
            ND_MR_FLAG_RDMA_READ_SINK,
        },
    },
    adapter::AdapterCore,
    com::{Class, borrow, find},
    limits::{Resource, Taken},
    overlapped::{Overlapped, Pending, overlapped, succeed},
};

/// A region behind its COM object.
pub struct Core<P: Platform> {
    adapter: Arc<AdapterCore<P>>,
    file: Arc<P::File>,
    /// What waits for the end of transfers that use the region's bytes. The removal of the adapter does not end it: the
    /// client may free the bytes afterwards.
    deregister: <P::Os as Os>::Lock<Option<Pending<P>>>,
    /// What keeps the pages of the registration, until nothing uses the bytes any more.
    pages: <P::Os as Os>::Lock<Option<P::Pages>>,
    dpc: <P::Os as Os>::Dpc<Deregistered<P>>,
}

/// Is told when the bytes of a registration are not used any more.
struct Client<P: Platform>(Arc<Core<P>>, #[expect(dead_code, reason = "given back when it is dropped")] Limited<P>);

/// What a registration takes.
type Limited<P> = (Taken<P>, Charge);

impl<P: Platform> Released for Client<P> {
    fn released(&self) {
        // The engine may hold locks here.
        self.0.dpc.queue(&self.0);
    }
}

/// The deferred call that completes a deregistration.
pub struct Deregistered<P>(PhantomData<P>);

impl<P: Platform> Routine for Deregistered<P> {
    type Target = Core<P>;

    fn run(core: &Arc<Core<P>>) {
        core.finish();
    }
}

impl<P: Platform> Core<P> {
    fn finish(&self) {
        self.drop_pages();
        if let Some(request) = self.deregister.with(Option::take) {
            request.complete(NtStatus::SUCCESS);
        }
    }

    /// Nothing uses the bytes any more.
    fn drop_pages(&self) {
        // Dropped after the lock is released.
        drop(self.pages.with(Option::take));
    }
}

/// A memory region.
///
/// The engine's region is here and not in the core: its registration refers to the core, and ends when the client has released
/// the object.
pub struct MemoryRegion<P: Platform> {
    core: Arc<Core<P>>,
    region: Arc<Region<P::Os>>,
}

impl<P: Platform> MemoryRegion<P> {
    /// Makes a region that is not registered.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, `STATUS_IMPLEMENTATION_LIMIT`.
    pub fn try_new(adapter: &Arc<AdapterCore<P>>, file: &Arc<P::File>) -> Result<Self, NtStatus> {
        let device = adapter.device();
        let taken = Taken::try_new(device, adapter.account(), Resource::MemoryRegions, 1)?;
        let charges = (device.charge(adapter.account(), Item::Tokens, 1)?, adapter.charge_object(0)?);
        let os = adapter.device().platform().os();
        let core = Arc::try_new(Core {
            adapter: adapter.clone(),
            file: file.clone(),
            deregister: os.lock(None)?,
            pages: os.lock(None)?,
            dpc: os.dpc(os.current_processor())?,
        })?;
        // Given back when windows do not keep the region any more.
        let region = Region::try_new_for(adapter.domain(), RegionKind::Normal, (taken, charges))?;
        Ok(Self { core, region })
    }

    /// The engine's region behind a client's pointer, if it is one of this adapter.
    ///
    /// # Safety
    ///
    /// `unknown` is null or a COM object.
    pub unsafe fn find(adapter: &Arc<AdapterCore<P>>, unknown: *mut c_void) -> Option<Arc<Region<P::Os>>> {
        let region = |region: &Self| Arc::ptr_eq(&region.core.adapter, adapter).then(|| region.region.clone());
        // SAFETY: the caller's promise.
        unsafe { find::<Self, _>(unknown, region) }?
    }

    /// Registers the client's bytes.
    ///
    /// # Safety
    ///
    /// Bytes that are there stay there as long as they are registered; `overlapped` as for [`MemoryRegion::deregister`].
    unsafe fn register(
        &self,
        buffer: *const c_void,
        length: usize,
        flags: u32,
        overlapped: NonNull<OVERLAPPED>,
    ) -> Result<NtStatus, NtStatus> {
        let device = self.core.adapter.device();
        self.check(length, flags)?;
        // SAFETY: the caller's promise.
        let memory = unsafe { device.platform().memory(buffer, length, writes(flags)) }?;
        self.begin(memory, length, flags)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { succeed(device, &self.core.file, overlapped) })
    }

    /// Checks what a client asks to be registered.
    fn check(&self, length: usize, flags: u32) -> Result<(), NtStatus> {
        let device = self.core.adapter.device();
        device.check_present()?;
        if flags & !mr_flags::ALL != 0 || length > device.config().info.MaxRegistrationSize {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(())
    }

    /// Registers bytes, after the [check](Self::check).
    fn begin(&self, memory: <P::Os as Os>::Memory, length: usize, flags: u32) -> Result<(), NtStatus> {
        let adapter = &self.core.adapter;
        // Besides the object: the list of the pages.
        let taken = Taken::try_new(adapter.device(), adapter.account(), Resource::RegisteredBytes, length as u64);
        let charge = adapter.charge_object(length as u64 / PAGE_SIZE * size_of::<usize>() as u64);
        let limited = taken.and_then(|taken| Ok((taken, charge?))).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        self.region.register(memory, rights_of(flags), Client(self.core.clone(), limited))
    }

    /// Registers bytes whose pages are locked already.
    fn register_pages(
        &self,
        memory: <P::Os as Os>::Memory,
        flags: u32,
        pages: P::Pages,
    ) -> Result<Registration<P>, (NtStatus, P::Pages)> {
        let length = memory.len();
        if let Err(status) = self.check(length, flags) {
            return Err((status, pages));
        }
        // The pages of the registration before may still be in use.
        let kept = self.core.pages.with(|place| match place {
            None => {
                *place = Some(pages);
                Ok(())
            }
            Some(_) => Err(pages),
        });
        kept.map_err(|pages| (NtStatus::INVALID_DEVICE_STATE, pages))?;
        let Err(status) = self.begin(memory, length, flags) else { return Ok(self.registration()) };
        // Only a registration that has begun gives them up, so they are there.
        self.core.pages.with(Option::take).map_or_else(|| Ok(self.registration()), |pages| Err((status, pages)))
    }

    fn registration(&self) -> Registration<P> {
        Registration { adapter: self.core.adapter.clone(), token: self.region.local_token() }
    }

    /// Ends a registration on behalf of the system. `false` if windows are bound to it: nothing has changed then.
    fn revoke(&self, registration: &Registration<P>) -> bool {
        if self.region.local_token() != registration.token {
            // It has ended, and this is another one.
            return true;
        }
        match self.region.deregister() {
            Ok(Release::Done) => self.core.drop_pages(),
            Ok(Release::Pending) => {}
            Err(status) => return status != NtStatus::DEVICE_BUSY,
        }
        true
    }

    /// Ends the registration.
    ///
    /// # Safety
    ///
    /// `overlapped` is valid, no request is outstanding on it, and the client keeps it until a request that pends ends.
    unsafe fn deregister(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        let core = &self.core;
        let status = core.deregister.with(|place| {
            if place.is_some() {
                return NtStatus::INVALID_DEVICE_STATE;
            }
            // Transfers may let go at once: their word is not taken before the lock is released.
            match self.region.deregister() {
                Ok(Release::Done) => NtStatus::SUCCESS,
                Ok(Release::Pending) => {
                    // SAFETY: the caller's promise.
                    *place = Some(unsafe { Pending::begin_on(core.adapter.device(), &core.file, overlapped) });
                    NtStatus::PENDING
                }
                Err(status) => status,
            }
        });
        if status == NtStatus::SUCCESS {
            core.drop_pages();
            // SAFETY: the caller's promise. The request has not begun.
            return unsafe { succeed(core.adapter.device(), &core.file, overlapped) };
        }
        status
    }
}

/// A registration that [`register_pages`] has begun, for who may have to [`revoke`] it. It does not keep the region.
pub struct Registration<P: Platform> {
    adapter: Arc<AdapterCore<P>>,
    /// The local token.
    token: u32,
}

impl<P: Platform> Clone for Registration<P> {
    fn clone(&self) -> Self {
        Self { adapter: self.adapter.clone(), token: self.token }
    }
}

impl<P: Platform> Registration<P> {
    /// Returns true if it is in force and windows keep it, whether the client has released the region or not.
    #[must_use]
    pub fn is_kept_by_windows(&self) -> bool {
        self.adapter.domain().has_windows(self.token)
    }
}

/// Registers bytes whose pages the platform has locked with the region behind `object`.
///
/// This is what `IND2MemoryRegion::Register` does where the client's addresses are those of another process. `pages` is dropped
/// when nothing uses the bytes any more.
///
/// # Errors
///
/// With `pages`, when `memory` is dropped: as `Register`; `STATUS_INVALID_HANDLE` if `object` is no region of this crate.
///
/// # Safety
///
/// `object` is null or a COM object.
pub unsafe fn register_pages<P: Platform>(
    object: *mut c_void,
    memory: <P::Os as Os>::Memory,
    flags: u32,
    pages: P::Pages,
) -> Result<Registration<P>, (NtStatus, Option<P::Pages>)> {
    let mut given = Some((memory, pages));
    let register =
        |region: &MemoryRegion<P>| given.take().map(|(memory, pages)| region.register_pages(memory, flags, pages));
    // SAFETY: the caller's promise.
    let registered = unsafe { find::<MemoryRegion<P>, _>(object, register) }.flatten();
    match (registered, given) {
        (Some(result), _) => result.map_err(|(status, pages)| (status, Some(pages))),
        (None, given) => Err((NtStatus::INVALID_HANDLE, given.map(|(_, pages)| pages))),
    }
}

/// Answers a request that asks if the region behind `object` is registered, as `IND2MemoryRegion::Register` would.
///
/// This is for who has registered it with [`register_pages`]. `ND_INVALID_DEVICE_STATE` if it is not registered,
/// `ND_INVALID_HANDLE` if `object` is no region of this crate.
///
/// # Safety
///
/// `object` is null or a COM object; no request is outstanding on `overlapped`, which is kept until a request that pends ends.
pub unsafe fn report_registered<P: Platform>(object: *mut c_void, overlapped: NonNull<OVERLAPPED>) -> HRESULT {
    let report = |region: &MemoryRegion<P>| {
        if region.region.local_token() == 0 {
            return NtStatus::INVALID_DEVICE_STATE;
        }
        // SAFETY: the caller's promise.
        unsafe { succeed(region.core.adapter.device(), &region.core.file, overlapped) }
    };
    // SAFETY: the caller's promise.
    unsafe { find::<MemoryRegion<P>, _>(object, report) }.unwrap_or(NtStatus::INVALID_HANDLE).into()
}

/// Ends a registration of the region behind `object`, if it is in force, because the system wants its pages back.
///
/// `false` if windows are bound to it: nothing has changed then. At `IRQL <= DISPATCH_LEVEL`.
///
/// # Safety
///
/// `object` is null or a COM object.
pub unsafe fn revoke<P: Platform>(object: *mut c_void, registration: &Registration<P>) -> bool {
    // SAFETY: the caller's promise.
    unsafe { find::<MemoryRegion<P>, _>(object, |region| region.revoke(registration)) }.unwrap_or(true)
}

/// Returns true if a registration with these flags lets the adapter write to the bytes.
#[must_use]
pub fn writes(flags: u32) -> bool {
    let rights = rights_of(flags);
    // Whatever peers may write the adapter may write too.
    rights.contain(Rights::LOCAL_WRITE) || rights.contain(Rights::READ_SINK)
}

/// The rights that the flags name. All flags are known.
fn rights_of(flags: u32) -> Rights {
    [
        (ND_MR_FLAG_ALLOW_LOCAL_WRITE, Rights::LOCAL_WRITE),
        (ND_MR_FLAG_ALLOW_REMOTE_READ, Rights::REMOTE_READ),
        (ND_MR_FLAG_ALLOW_REMOTE_WRITE, Rights::REMOTE_WRITE),
        (ND_MR_FLAG_RDMA_READ_SINK, Rights::READ_SINK),
    ]
    .iter()
    .filter(|(flag, _)| flags & flag == *flag)
    .fold(Rights::LOCAL_READ, |sum, (_, right)| sum.and(*right))
}

impl<P: Platform> Class for MemoryRegion<P> {
    type Table = IND2MemoryRegionVtbl;

    const TABLE: &'static IND2MemoryRegionVtbl = &IND2MemoryRegionVtbl {
        base: overlapped::<Self>(),
        Register: register::<P>,
        Deregister: deregister::<P>,
        GetLocalToken: get_local_token::<P>,
        GetRemoteToken: get_remote_token::<P>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2MemoryRegion, IID_IND2Overlapped];
}

impl<P: Platform> Overlapped for MemoryRegion<P> {
    type Platform = P;

    fn file(&self) -> &Arc<P::File> {
        &self.core.file
    }

    fn cancel(&self) -> Result<(), NtStatus> {
        // A deregistration has happened; only its end is outstanding.
        let waits = self.core.deregister.with(|place| place.is_some());
        if waits { Err(NtStatus::UNSUCCESSFUL) } else { Ok(()) }
    }

    fn cancel_one(&self, _: NonNull<OVERLAPPED>) {}
}

/// `IND2MemoryRegion::Register`. Waits for nothing.
///
/// # Safety
///
/// `this` is such a region; the bytes stay as long as they are registered; no request is outstanding on `overlapped`, which
/// the client keeps until a request that pends ends.
unsafe extern "system" fn register<P: Platform>(
    this: *mut c_void,
    buffer: *const c_void,
    length: usize,
    flags: u32,
    overlapped: *mut OVERLAPPED,
) -> HRESULT {
    let Some(overlapped) = NonNull::new(overlapped) else { return HRESULT::ND_INVALID_PARAMETER };
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<MemoryRegion<P>>(this) };
    // SAFETY: the caller's promise.
    unsafe { object.register(buffer, length, flags, overlapped) }.unwrap_or_else(|status| status).into()
}

/// `IND2MemoryRegion::Deregister`. Pends while transfers use the bytes.
///
/// # Safety
///
/// `this` is such a region; no request is outstanding on `overlapped`, which the client keeps until a request that pends ends.
unsafe extern "system" fn deregister<P: Platform>(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    let Some(overlapped) = NonNull::new(overlapped) else { return HRESULT::ND_INVALID_PARAMETER };
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<MemoryRegion<P>>(this) };
    // SAFETY: the caller's promise.
    unsafe { object.deregister(overlapped) }.into()
}

/// `IND2MemoryRegion::GetLocalToken`: zero, which is no token, if the region is not registered.
///
/// # Safety
///
/// `this` is such a region.
unsafe extern "system" fn get_local_token<P: Platform>(this: *mut c_void) -> u32 {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<MemoryRegion<P>>(this) };
    object.region.local_token()
}

/// `IND2MemoryRegion::GetRemoteToken`: zero, which is no token, if the region is not registered.
///
/// # Safety
///
/// `this` is such a region.
unsafe extern "system" fn get_remote_token<P: Platform>(this: *mut c_void) -> u32 {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<MemoryRegion<P>>(this) };
    object.region.remote_token()
}

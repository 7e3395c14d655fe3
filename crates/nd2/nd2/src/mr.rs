//! Memory regions.

use core::{ffi::c_void, marker::PhantomData, ptr::NonNull};

use engine::{
    memory::{PAGE_SIZE, Region, RegionKind, Release, Released, Rights},
    os::{Dpc, Memory, Os, Routine, SpinLock},
};
use fallible::Arc;
use ndkpi::NtStatus;

use crate::{
    Charge, Engine, Item, OverlappedOs,
    abi::{
        HRESULT, OVERLAPPED,
        mr_flags::{
            self, ND_MR_FLAG_ALLOW_LOCAL_WRITE, ND_MR_FLAG_ALLOW_REMOTE_READ, ND_MR_FLAG_ALLOW_REMOTE_WRITE,
            ND_MR_FLAG_RDMA_READ_SINK,
        },
    },
    adapter::AdapterCore,
    back_end,
    com::{self, find},
    limits::{Reservation, Resource},
    overlapped::{Pending, succeed},
};

/// A region behind its COM object.
pub struct Core<P: OverlappedOs> {
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
struct Client<P: OverlappedOs>(Arc<Core<P>>, #[expect(dead_code, reason = "given back when it is dropped")] Limited<P>);

/// What a registration takes.
type Limited<P> = (Reservation<P>, Charge);

impl<P: OverlappedOs> Released for Client<P> {
    fn released(&self) {
        // The engine may hold locks here.
        self.0.dpc.queue(&self.0);
    }
}

/// The DPC that completes a deregistration.
pub struct Deregistered<P>(PhantomData<P>);

impl<P: OverlappedOs> Routine for Deregistered<P> {
    type Target = Core<P>;

    fn run(core: &Arc<Core<P>>) {
        core.finish();
    }
}

impl<P: OverlappedOs> Core<P> {
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
pub struct MemoryRegion<P: OverlappedOs> {
    core: Arc<Core<P>>,
    region: Arc<Region<P::Os>>,
}

impl<P: OverlappedOs> MemoryRegion<P> {
    /// Makes a region that is not registered.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, `STATUS_IMPLEMENTATION_LIMIT`.
    pub fn try_new(adapter: &Arc<AdapterCore<P>>, file: &Arc<P::File>) -> Result<Self, NtStatus> {
        let device = adapter.device();
        let taken = Reservation::try_new(device, adapter.account(), Resource::MemoryRegions, 1)?;
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

    pub const fn region(&self) -> &Arc<Region<P::Os>> {
        &self.region
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
        // SAFETY: bytes that are there stay there as long as they are registered (`# Safety`).
        let memory = unsafe { device.platform().memory(buffer, length, writes(flags)) }?;
        self.begin(memory, length, flags)?;
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (`# Safety`).
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
        let taken = Reservation::try_new(adapter.device(), adapter.account(), Resource::RegisteredBytes, length as u64);
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
                    // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (`# Safety`).
                    *place = Some(unsafe { Pending::begin_on(core.adapter.device(), &core.file, overlapped) });
                    NtStatus::PENDING
                }
                Err(status) => status,
            }
        });
        if status == NtStatus::SUCCESS {
            core.drop_pages();
            // SAFETY: `overlapped` is valid with nothing outstanding on it (`# Safety`): this request has not begun.
            return unsafe { succeed(core.adapter.device(), &core.file, overlapped) };
        }
        status
    }
}

/// A registration that [`register_pages`] has begun, for who may have to [`revoke`] it. It does not keep the region.
pub struct Registration<P: OverlappedOs> {
    adapter: Arc<AdapterCore<P>>,
    /// The local token.
    token: u32,
}

impl<P: OverlappedOs> Clone for Registration<P> {
    fn clone(&self) -> Self {
        Self { adapter: self.adapter.clone(), token: self.token }
    }
}

impl<P: OverlappedOs> Registration<P> {
    /// Returns true if it is in force and windows keep it, whether the client has released the region or not.
    #[must_use]
    pub fn is_kept_by_windows(&self) -> bool {
        self.adapter.domain().has_windows(self.token)
    }
}

/// The region behind a client's pointer, of whatever adapter.
///
/// # Safety
///
/// `object` is null or a COM object.
unsafe fn find_region<P: OverlappedOs>(object: *mut c_void) -> Option<com::Found<com::MemoryRegion<Engine<P>>>> {
    // SAFETY: `object` is null or a COM object (`# Safety`).
    unsafe { find(object) }
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
pub unsafe fn register_pages<P: OverlappedOs>(
    object: *mut c_void,
    memory: <P::Os as Os>::Memory,
    flags: u32,
    pages: P::Pages,
) -> Result<Registration<P>, (NtStatus, P::Pages)> {
    // SAFETY: `object` is null or a COM object (`# Safety`).
    let Some(region) = (unsafe { find_region::<P>(object) }) else {
        return Err((NtStatus::INVALID_HANDLE, pages));
    };
    region.0.register_pages(memory, flags, pages)
}

/// Answers a request that asks if the region behind `object` is registered, as `IND2MemoryRegion::Register` would.
///
/// This is for who has registered it with [`register_pages`]. `ND_INVALID_DEVICE_STATE` if it is not registered,
/// `ND_INVALID_HANDLE` if `object` is no region of this crate.
///
/// # Safety
///
/// `object` is null or a COM object; no request is outstanding on `overlapped`, which is kept until a request that pends ends.
pub unsafe fn report_registered<P: OverlappedOs>(object: *mut c_void, overlapped: NonNull<OVERLAPPED>) -> HRESULT {
    // SAFETY: `object` is null or a COM object (`# Safety`).
    let Some(region) = (unsafe { find_region::<P>(object) }) else { return HRESULT::ND_INVALID_HANDLE };
    if region.0.region.local_token() == 0 {
        return HRESULT::ND_INVALID_DEVICE_STATE;
    }
    // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (`# Safety`).
    unsafe { succeed(region.0.core.adapter.device(), &region.0.core.file, overlapped) }.into()
}

/// Ends a registration of the region behind `object`, if it is in force, because the system wants its pages back.
///
/// `false` if windows are bound to it: nothing has changed then. At `IRQL <= DISPATCH_LEVEL`.
///
/// # Safety
///
/// `object` is null or a COM object.
pub unsafe fn revoke<P: OverlappedOs>(object: *mut c_void, registration: &Registration<P>) -> bool {
    // SAFETY: `object` is null or a COM object (`# Safety`).
    unsafe { find_region::<P>(object) }.is_none_or(|region| region.0.revoke(registration))
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

impl<P: OverlappedOs> back_end::Part<Engine<P>> for MemoryRegion<P> {
    fn adapter(&self) -> &Arc<AdapterCore<P>> {
        &self.core.adapter
    }
}

impl<P: OverlappedOs> back_end::Requests<Engine<P>> for MemoryRegion<P> {
    fn file(&self) -> &Arc<P::File> {
        &self.core.file
    }

    fn cancel(&self) -> Result<(), NtStatus> {
        // A deregistration has happened; only its end is outstanding.
        let waits = self.core.deregister.with(|place| place.is_some());
        if waits { Err(NtStatus::UNSUCCESSFUL) } else { Ok(()) }
    }
}

impl<P: OverlappedOs> back_end::MemoryRegion<Engine<P>> for MemoryRegion<P> {
    unsafe fn register(
        &self,
        (buffer, length): (*const c_void, usize),
        flags: u32,
        overlapped: NonNull<OVERLAPPED>,
    ) -> NtStatus {
        // SAFETY: bytes that are there stay there as long as they are registered, and no request is outstanding on `overlapped`, which
        // the client keeps (the trait's `# Safety`).
        unsafe { self.register(buffer, length, flags, overlapped) }.unwrap_or_else(|status| status)
    }

    unsafe fn deregister(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
        unsafe { self.deregister(overlapped) }
    }

    fn local_token(&self) -> u32 {
        self.region.local_token()
    }

    fn remote_token(&self) -> u32 {
        self.region.remote_token()
    }
}

//! `NDK_MR` (`NDKPI 5.5`, `NDKPI 7.4`).

use alloc::boxed::Box;
use core::{ffi::c_void, ptr};

use engine::{
    memory::{Region, RegionKind, Release, Released, Rights},
    os::SpinLock,
};
use fallible::{Arc, try_box};
use ndkpi::{BOOLEAN, MDL, NDK_FN_REQUEST_COMPLETION, NDK_MR, NDK_MR_DISPATCH, NDK_VERSION, NtStatus, mr_flags};

use crate::{
    Holder, NdkOs,
    borrow::Slot,
    completion::{AsyncRequest, CompletionCallback, Completions},
    device::Device,
    dispatch,
    fifo::Node,
    object::{Body, Borrowed, EngineObject, ObjectRef, close, kind, query_extension},
    pd::ProtectionDomain,
};

/// A deregistration that waits for transfers in progress, with the place for its callback.
struct PendingDeregistration<O: NdkOs> {
    node: Box<Node<CompletionCallback<O>>>,
    request: AsyncRequest,
    object: ObjectRef<MemoryRegion<O>>,
}

/// A memory region.
pub struct MemoryRegion<O: NdkOs> {
    region: Slot<Arc<Region<O>>>,
    waiting: O::Lock<Option<PendingDeregistration<O>>>,
    pd: ObjectRef<ProtectionDomain<O>>,
}

/// The region, as the user of the bytes that are registered.
fn holder<O: NdkOs>(object: &ObjectRef<MemoryRegion<O>>) -> Holder {
    Holder::Region(ptr::from_ref(&object.region).addr())
}

/// Called when the bytes of a registration are no longer in use.
struct Client<O: NdkOs>(ObjectRef<MemoryRegion<O>>);

impl<O: NdkOs> Released for Client<O> {
    fn released(&self) {
        let device = self.0.device();
        device.os().give_back(holder(&self.0));
        // A region that was closed without a deregistration has no request.
        if let Some(PendingDeregistration { node, request, object }) = self.0.waiting.with(Option::take) {
            let callback = request.into_callback(object, NtStatus::SUCCESS);
            Completions::push(device.completions().clone(), node, callback);
        }
    }
}

impl<O: NdkOs> MemoryRegion<O> {
    /// Makes a region in `pd`, for fast registration or for normal.
    pub fn create(pd: &ObjectRef<ProtectionDomain<O>>, fast: bool) -> Result<ObjectRef<Self>, NtStatus> {
        let waiting = pd.device().os().lock(None)?;
        let body = Self { region: Slot::empty(), waiting, pd: pd.clone() };
        let kind = if fast { RegionKind::Fast } else { RegionKind::Normal };
        // Windows keep the engine's region, and with it the object (`NDKPI 7.9`: the MR is an antecedent of the MW).
        ObjectRef::try_new_with(pd.adapter().version(), body, |object| Region::try_new_for(pd.domain(), kind, object))
    }

    const TABLE: &'static NDK_MR_DISPATCH = &NDK_MR_DISPATCH {
        NdkCloseMr: Some(close::<Self>),
        NdkQueryExtension: Some(query_extension),
        NdkRegisterMr: Some(register_mr::<O>),
        NdkDeregisterMr: Some(deregister_mr::<O>),
        NdkInitializeFastRegisterMr: Some(initialize_fast_register_mr::<O>),
        NdkGetRemoteTokenFromMr: Some(get_remote_token_from_mr::<O>),
        NdkGetLocalTokenFromMr: Some(get_local_token_from_mr::<O>),
    };
}

impl<O: NdkOs> Body for MemoryRegion<O> {
    kind!(Mr, b"NdkM");

    type Public = NDK_MR;

    fn public(version: NDK_VERSION) -> NDK_MR {
        NDK_MR::new(version, Self::TABLE)
    }

    fn device(&self) -> &Arc<Device<O>> {
        self.pd.device()
    }

    unsafe fn begin_close(&self) {
        // SAFETY: the object is being closed: no other call runs (`# Safety` of the trait).
        let region = unsafe { self.region.replace(None) };
        // Ends the registration, unless windows are bound to it: then it ends with the last of them.
        drop(region);
    }
}

impl<O: NdkOs> EngineObject for MemoryRegion<O> {
    type Engine = Region<O>;

    fn slot(&self) -> &Slot<Arc<Region<O>>> {
        &self.region
    }
}

/// The rights that region flags name; `None` for unknown flags.
fn rights_of(flags: u32) -> Option<Rights> {
    if flags & !mr_flags::ALL != 0 {
        return None;
    }
    let rights = [
        (mr_flags::allows_local_write(flags), Rights::LOCAL_WRITE),
        (mr_flags::allows_remote_read(flags), Rights::REMOTE_READ),
        (mr_flags::allows_remote_write(flags), Rights::REMOTE_WRITE),
        (mr_flags::is_read_sink(flags), Rights::READ_SINK),
    ];
    let granted = rights.iter().filter(|(is_granted, _)| *is_granted);
    Some(granted.fold(Rights::LOCAL_READ, |sum, (_, right)| sum.and(*right)))
}

/// `NDK_FN_REGISTER_MR` (`NDKPI 5.5`, `NDKPI 7.4`).
///
/// # Safety
///
/// `mr` is open; `mdl` is null or a chain of MDLs whose pages stay locked until the region is deregistered.
unsafe extern "system" fn register_mr<O: NdkOs>(
    mr: *mut NDK_MR,
    mdl: *mut MDL,
    length: usize,
    flags: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let register = |object: &Borrowed<MemoryRegion<O>>| {
        let rights = rights_of(flags).ok_or(NtStatus::INVALID_PARAMETER)?;
        if length == 0 || length > object.device().config().info.MaxRegistrationSize {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        // SAFETY: the pages of the chain stay locked while the bytes are registered (`# Safety`).
        let memory = unsafe { object.device().os().memory_from_mdl(mdl, length) }?;
        object.engine()?.register(memory, rights, Client(ObjectRef::clone(object)))?;
        object.device().os().borrow(holder(object), mdl, length);
        Ok(())
    };
    // SAFETY: the caller passes an open region.
    unsafe { dispatch::request(mr, completion, context, register) }
}

/// `NDK_FN_DEREGISTER_MR` (`NDKPI 5.5`, `NDKPI 7.4`). Pends while transfers use the bytes.
///
/// # Safety
///
/// `mr` is open.
unsafe extern "system" fn deregister_mr<O: NdkOs>(
    mr: *mut NDK_MR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let deregister = |object: &Borrowed<MemoryRegion<O>>, request| {
        let region = object.engine()?;
        let node = try_box(Node::new())?;
        // The last transfer may end before this call knows that it has to wait: the request is stored first.
        let waiting = PendingDeregistration { node, request, object: ObjectRef::clone(object) };
        let refused = object.waiting.with(|place| match place {
            None => {
                *place = Some(waiting);
                None
            }
            Some(_) => Some(waiting),
        });
        if let Some(PendingDeregistration { request, .. }) = refused {
            // A deregistration is in progress.
            return Ok(request.finish(object, NtStatus::INVALID_DEVICE_STATE));
        }
        let status = match region.deregister() {
            Ok(Release::Pending) => return Ok(NtStatus::PENDING),
            Ok(Release::Done) => {
                object.device().os().give_back(holder(object));
                NtStatus::SUCCESS
            }
            Err(status) => status,
        };
        Ok(object.waiting.with(Option::take).map_or(status, |waiting| waiting.request.finish(object, status)))
    };
    // SAFETY: the caller passes an open region.
    unsafe { dispatch::request_that_may_pend(mr, completion, context, deregister) }
}

/// `NDK_FN_INITIALIZE_FAST_REGISTER_MR` (`NDKPI 5.5`, `NDKPI 7.4`).
///
/// # Safety
///
/// `mr` is open.
unsafe extern "system" fn initialize_fast_register_mr<O: NdkOs>(
    mr: *mut NDK_MR,
    pages: u32,
    remote_access: BOOLEAN,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let initialize =
        |object: &Borrowed<MemoryRegion<O>>| object.engine()?.initialize_fast_register(pages, remote_access != 0);
    // SAFETY: the caller passes an open region.
    unsafe { dispatch::request(mr, completion, context, initialize) }
}

/// `NDK_FN_GET_REMOTE_TOKEN_FROM_MR` (`NDKPI 5.5`): the token that peers use; zero if there is none.
///
/// # Safety
///
/// `mr` is open.
unsafe extern "system" fn get_remote_token_from_mr<O: NdkOs>(mr: *mut NDK_MR) -> u32 {
    let get = |object: &Borrowed<MemoryRegion<O>>| object.engine().map(|region| region.remote_token());
    // SAFETY: the caller passes an open region.
    unsafe { dispatch::with(mr, get) }.unwrap_or(0)
}

/// `NDK_FN_GET_LOCAL_TOKEN_FROM_MR` (`NDKPI 5.5`): the token for scatter/gather elements; zero if there is none.
///
/// # Safety
///
/// `mr` is open.
unsafe extern "system" fn get_local_token_from_mr<O: NdkOs>(mr: *mut NDK_MR) -> u32 {
    let get = |object: &Borrowed<MemoryRegion<O>>| object.engine().map(|region| region.local_token());
    // SAFETY: the caller passes an open region.
    unsafe { dispatch::with(mr, get) }.unwrap_or(0)
}

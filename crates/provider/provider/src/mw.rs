//! `NDK_MW` (`NDKPI 5.5`, `NDKPI 7.6`).

use engine::memory::{Region, Window};
use fallible::Arc;
use ndkpi::{NDK_MW, NDK_MW_DISPATCH, NDK_VERSION, NtStatus};

use crate::{
    NdkOs,
    borrow::Slot,
    device::Device,
    dispatch,
    object::{Body, Borrowed, EngineObject, ObjectRef, close, kind, query_extension},
    pd::ProtectionDomain,
};

/// A memory window.
pub struct MemoryWindow<O: NdkOs> {
    window: Slot<Arc<Window<O>>>,
    /// The region that the window was bound to when its close began: it is closed after the window.
    region: Slot<Arc<Region<O>>>,
    pd: ObjectRef<ProtectionDomain<O>>,
}

impl<O: NdkOs> MemoryWindow<O> {
    /// Makes a window in `pd`.
    pub fn create(pd: &ObjectRef<ProtectionDomain<O>>) -> Result<ObjectRef<Self>, NtStatus> {
        let body = Self { window: Slot::empty(), region: Slot::empty(), pd: pd.clone() };
        // Transfers that use the window keep the object: its close waits for them.
        ObjectRef::try_new_with(pd.adapter().version(), body, |object| Window::try_new_for(pd.domain(), object))
    }

    const TABLE: &'static NDK_MW_DISPATCH = &NDK_MW_DISPATCH {
        NdkCloseMw: Some(close::<Self>),
        NdkQueryExtension: Some(query_extension),
        NdkGetRemoteTokenFromMw: Some(get_remote_token_from_mw::<O>),
    };
}

impl<O: NdkOs> Body for MemoryWindow<O> {
    kind!(Mw, b"NdkW");

    type Public = NDK_MW;

    fn public(version: NDK_VERSION) -> NDK_MW {
        NDK_MW::new(version, Self::TABLE)
    }

    fn device(&self) -> &Arc<Device<O>> {
        self.pd.device()
    }

    unsafe fn begin_close(&self) {
        // SAFETY: the object is being closed: no other call runs (`# Safety` of the trait).
        let window = unsafe { self.window.replace(None) };
        let region = window.as_ref().and_then(|window| window.bound_region());
        // SAFETY: no other call runs while the object is being closed (`# Safety` of the trait).
        unsafe { self.region.replace(region) };
        // Ends the binding.
        drop(window);
    }
}

impl<O: NdkOs> EngineObject for MemoryWindow<O> {
    type Engine = Window<O>;

    fn slot(&self) -> &Slot<Arc<Window<O>>> {
        &self.window
    }
}

/// `NDK_FN_GET_REMOTE_TOKEN_FROM_MW` (`NDKPI 5.5`): the token that peers use; zero if there is none.
///
/// # Safety
///
/// `mw` is open.
unsafe extern "system" fn get_remote_token_from_mw<O: NdkOs>(mw: *mut NDK_MW) -> u32 {
    let get = |object: &Borrowed<MemoryWindow<O>>| object.engine().map(|window| window.remote_token());
    // SAFETY: the caller passes an open window.
    unsafe { dispatch::with(mw, get) }.unwrap_or(0)
}

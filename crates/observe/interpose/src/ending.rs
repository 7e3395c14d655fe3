//! Connections that end although nobody has asked for it: the peer hears of a disconnect, and this consumer of an abort
//! (`NDKPI 7.7.6`).

use core::{
    ffi::c_void,
    sync::atomic::{
        AtomicU32,
        Ordering::{AcqRel, Acquire},
    },
};

use fallible::Arc;
use ndkpi::{NDK_CONNECTOR, NtStatus};

use crate::{
    Hooks,
    connect::tell_disconnect,
    later::{Later, Work, leave},
    shadow::{Shadow, ShadowRef},
};

/// Nobody has ended the connection.
const STANDS: u32 = 0;
/// The consumer has.
const CONSUMER: u32 = 1;
/// This layer has.
const LAYER: u32 = 2;

/// How a connection ends.
pub struct Ending<H: Hooks> {
    by: AtomicU32,
    later: Option<Arc<Later<H>>>,
}

impl<H: Hooks> Ending<H> {
    /// Of a connector that has no connection yet.
    pub fn try_new(os: &H::Os) -> Result<Self, NtStatus> {
        Ok(Self { by: AtomicU32::new(STANDS), later: Later::try_new(os)? })
    }

    /// The consumer disconnects. `false` if this layer was before.
    pub fn consumer_disconnects(&self) -> bool {
        self.by.compare_exchange(STANDS, CONSUMER, AcqRel, Acquire) != Err(LAYER)
    }

    /// The connection ends `delay` microseconds from now.
    pub fn after(&self, connector: &ShadowRef<H>, delay: u64) {
        // Refused if an end is on its way already.
        let _ = Later::put(self.later.as_ref(), delay, Work::End(connector.clone()));
    }

    /// The connector is closed: that ends the connection.
    pub fn cancel(&self) {
        if let Some(later) = &self.later {
            later.cancel();
        }
    }
}

/// Ends the connection of a connector.
pub fn end<H: Hooks>(connector: &ShadowRef<H>) {
    let Some(ending) = connector.ending() else { return };
    if !connector.gate.enter() {
        return;
    }
    if ending.by.compare_exchange(STANDS, LAYER, AcqRel, Acquire).is_err() {
        leave(connector);
        return;
    }
    let inner = connector.inner::<NDK_CONNECTOR>();
    // SAFETY: the provider's connector is open as long as the gate is held. Only the slot is read.
    let slot = unsafe { (*(*inner).Dispatch).NdkDisconnect };
    let context = Shadow::into_public(connector.clone());
    let status = slot.map_or(NtStatus::NOT_SUPPORTED, |function| {
        // SAFETY: the provider's connector is open; the context is a reference to its shadow.
        unsafe { function(inner, Some(ended::<H>), context) }
    });
    if status != NtStatus::PENDING {
        // SAFETY: the provider has not pended, so this is the one completion.
        unsafe { ended::<H>(context, status) };
    }
}

/// The provider has ended the connection.
///
/// # Safety
///
/// `context` is a reference to the shadow of a connector whose gate is held, and this is the one completion.
unsafe extern "system" fn ended<H: Hooks>(context: *mut c_void, _: NtStatus) {
    // SAFETY: `context` is the reference that was given to the creation, which this takes back (`# Safety`).
    let connector: ShadowRef<H> = unsafe { Arc::from_raw(context.cast_const().cast::<Shadow<H>>()) };
    tell_disconnect(&connector);
    leave(&connector);
}

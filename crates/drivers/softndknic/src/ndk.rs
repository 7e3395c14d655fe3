//! NDK of an adapter: its capabilities, and whether it is enabled (`NDIS-NDK 5`).

use alloc::boxed::Box;
use core::ptr;

use driver_common::{
    os::{Kernel, KernelLock},
    trace,
};
use engine::os::{Os, SpinLock};
use fallible::{Arc, try_box};
use ndis::NdisMNetPnPEvent;
use ndkpi::{
    NDIS_DEFAULT_PORT_NUMBER, NDIS_DEFAULT_SWITCH_ID, NDIS_DEFAULT_VPORT_ID, NDIS_HANDLE,
    NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES, NDIS_NDK_CAPABILITIES, NDK_ADAPTER_INFO, NET_PNP_EVENT, NET_PNP_EVENT_CODE,
    NET_PNP_EVENT_NOTIFICATION, NtStatus,
};

use crate::{
    adapter::Adapter,
    attributes,
    work::{Job, Work},
};

/// What an adapter says it can do. Stays in place for the adapter's life, because NDIS may keep the pointers.
struct Capabilities {
    capabilities: NDIS_NDK_CAPABILITIES,
    info: NDK_ADAPTER_INFO,
}

/// NDK of one adapter.
pub struct Ndk {
    capabilities: Box<Capabilities>,
    state: KernelLock<State>,
    work: Work,
}

// SAFETY: the pointers are those into the box, which nobody writes through.
#[expect(clippy::non_send_fields_in_send_ty, reason = "nobody writes through the pointers in it")]
unsafe impl Send for Ndk {}
// SAFETY: as for `Send`.
unsafe impl Sync for Ndk {}

struct State {
    /// The state that NDIS asked for last.
    wanted: bool,
    /// The state that protocols were told last.
    announced: bool,
}

impl Ndk {
    /// NDK with what the provider offers.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    ///
    /// `adapter` is an adapter of NDIS that lives until [`Ndk::end`] has returned or the result is dropped.
    #[inline(never)]
    pub unsafe fn try_new(adapter: NDIS_HANDLE, config: &provider::Config, enabled: bool) -> Result<Self, NtStatus> {
        let capabilities = NDIS_NDK_CAPABILITIES {
            Header: NDIS_NDK_CAPABILITIES::HEADER,
            Flags: 0,
            MaxQpCount: config.max_qps,
            MaxCqCount: config.max_cqs,
            MaxMrCount: config.max_tokens,
            MaxPdCount: config.max_pds,
            // Only each queue pair has a limit.
            MaxInboundReadLimit: 0,
            MaxOutboundReadLimit: 0,
            MaxMwCount: config.max_tokens,
            MaxSrqCount: config.max_qps,
            MissingCounterMask: 0,
            NdkInfo: ptr::null_mut(),
        };
        let mut capabilities =
            try_box(Capabilities { capabilities, info: config.info }).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        capabilities.capabilities.NdkInfo = &raw mut capabilities.info;
        let state = Kernel.lock(State { wanted: enabled, announced: enabled })?;
        // SAFETY: the adapter lives until `end` has returned or the result is dropped, which closes the work (`# Safety`).
        let work = unsafe { Work::try_new(adapter) }?;
        Ok(Self { capabilities, state, work })
    }

    /// Reports the capabilities, enabled or not. In `MiniportInitializeEx`, after the general attributes.
    ///
    /// # Errors
    ///
    /// What NDIS says.
    pub fn report(&self, adapter: &Adapter) -> Result<(), NtStatus> {
        let attributes = NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES {
            Header: NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES::HEADER,
            Enabled: self.is_wanted().into(),
            NdkCapabilities: (&raw const self.capabilities.capabilities).cast_mut(),
        };
        // SAFETY: the adapter is being initialised. The structure lives until the call returns, what it points to as long as the
        // adapter.
        unsafe { attributes::set(adapter.handle(), &raw const attributes.Header) }
    }

    /// Returns true if NDK was asked to be enabled last.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.state.with(|state| state.wanted)
    }

    /// `OID_NDK_SET_STATE`: enables NDK if the administrator has not switched it off, or disables it. Those above are told from a
    /// work item, because an OID handler must not. `IRQL <= DISPATCH_LEVEL`.
    pub fn set(adapter: &Arc<Adapter>, enable: bool) {
        let enable = enable && adapter.keywords().network_direct && !adapter.is_gone();
        adapter.ndk().state.with(|state| state.wanted = enable);
        if !enable {
            adapter.enable(false);
        }
        Work::request::<Announce>(adapter);
    }

    /// Waits until those above have been told what was asked for. `PASSIVE_LEVEL`.
    pub fn end(&self) {
        self.work.close();
    }
}

/// Tells those above that NDK is enabled, or disabled.
struct Announce;

impl Job for Announce {
    fn work(adapter: &Adapter) -> Option<&Work> {
        Some(&adapter.ndk().work)
    }

    fn run(adapter: &Arc<Adapter>) {
        let ndk = adapter.ndk();
        let news = ndk.state.with(|state| (state.wanted != state.announced).then_some(state.wanted));
        let Some(enabled) = news else {
            // It was asked to change and to change back before anybody was told.
            adapter.enable(ndk.is_wanted());
            return;
        };
        if enabled {
            // They open it while they are told.
            adapter.enable(true);
        } else {
            adapter.enable(false);
            // Consumers that hear of no event notice by their connections.
            adapter.provider().port().lose_connections();
        }
        trace::ndk(adapter.number(), enabled);
        let event = if enabled { NET_PNP_EVENT_CODE::NDK_ENABLE } else { NET_PNP_EVENT_CODE::NDK_DISABLE };
        let mut notification = NET_PNP_EVENT_NOTIFICATION {
            Header: NET_PNP_EVENT_NOTIFICATION::HEADER_2,
            PortNumber: NDIS_DEFAULT_PORT_NUMBER,
            NetPnPEvent: NET_PNP_EVENT::new(event),
            Flags: 0,
            SwitchId: NDIS_DEFAULT_SWITCH_ID,
            VPortId: NDIS_DEFAULT_VPORT_ID,
        };
        // Whatever it says, nobody would do anything else: those above cannot refuse.
        // SAFETY: the adapter is not halted while work goes on; a structure that lives until the call returns. No lock is held:
        // to be told of the end takes until every consumer has closed.
        let _ = unsafe { NdisMNetPnPEvent(adapter.handle(), &raw mut notification) };
        ndk.state.with(|state| state.announced = enabled);
    }
}

//! NDK: what NDIS does between the consumers of an adapter and its miniport.

use std::sync::{Arc, Mutex};

use ndis::NDIS_STATUS;
use ndkpi::{
    NDIS_OPEN_NDK_ADAPTER_PARAMETERS, NDK_ADAPTER, NDK_OBJECT_TYPE, NDK_VERSION, NtStatus,
    status::{NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_SUCCESS},
};

use super::adapter::{Adapter, Phase};
use crate::{
    kernel::Kernel,
    ndk_provider::NdkProvider,
    report::bug_check,
    rule::Rule,
    state::{Part, State, current, lock},
    waiting,
};

/// What becomes of NDK on an adapter. Who has it open has to close it when it is not `Enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdkEvent {
    /// It can be opened.
    Enabled,
    /// It cannot be opened any more.
    Disabled,
    /// The adapter is about to go.
    Leaving,
}

/// What Winsock Kernel opens by the interface of an adapter.
pub struct Provider(pub Arc<Adapter>);

impl NdkProvider for Provider {
    fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        current().open_ndk(&self.0, version)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        current().close_ndk(&self.0, adapter);
    }
}

/// Who wants to hear of it, with the index of the interface. Called at `PASSIVE_LEVEL`.
pub type Listener = Arc<dyn Fn(u32, NdkEvent) + Send + Sync>;

/// Who wants to hear what happens to NDK.
#[derive(Default)]
pub struct Listeners(Vec<Listener>);

impl Part for Mutex<Listeners> {}

impl State {
    fn tell_ndk(&self, adapter: &Adapter, event: NdkEvent) {
        let listeners = self.locked::<Listeners>().0.clone();
        for listener in listeners {
            listener(adapter.if_index, event);
        }
    }

    /// The miniport says that NDK is enabled.
    pub fn ndk_is_enabled(&self, adapter: &Adapter) {
        lock(&adapter.changing).ndk_enabled = true;
        self.tell_ndk(adapter, NdkEvent::Enabled);
    }

    /// The miniport says that NDK is disabled: returns when no consumer has the adapter open.
    pub fn ndk_is_disabled(self: &Arc<Self>, adapter: &Adapter) {
        lock(&adapter.changing).ndk_enabled = false;
        self.tell_ndk(adapter, NdkEvent::Disabled);
        waiting::until(self, None, "NdisMNetPnPEvent, for consumers of NDK to close", || is_closed(adapter));
    }

    /// The adapter is about to be halted: nobody may have it open then.
    pub fn ndk_leaves(self: &Arc<Self>, adapter: &Adapter) {
        lock(&adapter.changing).ndk_enabled = false;
        self.tell_ndk(adapter, NdkEvent::Leaving);
        let end = self.machine.now().saturating_add(self.request_limit());
        if !waiting::until(self, Some(end), "a halt, for consumers of NDK to close", || is_closed(adapter)) {
            let open = lock(&adapter.changing).ndk_open.len();
            bug_check(Rule::NdkOpenAtHalt, format_args!("consumers of NDK have {open} adapters open at a halt"));
        }
    }

    /// Opens an adapter for a consumer of NDK.
    ///
    /// # Errors
    ///
    /// What the miniport says, or that it is no provider of NDK.
    pub fn open_ndk(
        self: &Arc<Self>,
        adapter: &Arc<Adapter>,
        version: NDK_VERSION,
    ) -> Result<*mut NDK_ADAPTER, NDIS_STATUS> {
        let handler = adapter.ndk.and_then(|ndk| ndk.OpenNDKAdapterHandler);
        let Some(open) = handler else { return Err(NDIS_STATUS_NOT_SUPPORTED) };
        let enabled = {
            let mut changing = lock(&adapter.changing);
            if matches!(changing.phase, Phase::Initialising | Phase::Halted) {
                return Err(NtStatus::NDIS_ADAPTER_NOT_READY);
            }
            changing.ndk_opening += 1;
            changing.ndk_enabled
        };
        let parameters = NDIS_OPEN_NDK_ADAPTER_PARAMETERS { Version: version, SwitchId: 0, VPortId: 0 };
        let mut place = std::ptr::null_mut();
        let status = adapter.call("OpenNDKAdapterHandler", |context| {
            // SAFETY: the driver's own handler and context, and places that live until the call returns.
            unsafe { open(context, &raw const parameters, &raw mut place) }
        });
        if status == NDIS_STATUS_SUCCESS {
            check_adapter(place);
            if !enabled {
                bug_check(Rule::NdkNotEnabled, format_args!("an adapter is opened on which NDK is not enabled"));
            }
        } else if status.is_success() {
            bug_check(Rule::NdkAdapter, format_args!("OpenNDKAdapterHandler returned {status}"));
        }
        let is_new = {
            let mut changing = lock(&adapter.changing);
            changing.ndk_opening -= 1;
            status != NDIS_STATUS_SUCCESS || changing.ndk_open.insert(place.expose_provenance())
        };
        if !is_new {
            bug_check(Rule::NdkAdapter, format_args!("OpenNDKAdapterHandler returned the same adapter twice"));
        }
        self.dispatcher.signal();
        if status == NDIS_STATUS_SUCCESS { Ok(place) } else { Err(status) }
    }

    /// Closes it: returns when everything made from it is closed.
    pub fn close_ndk(&self, adapter: &Arc<Adapter>, opened: *mut NDK_ADAPTER) {
        if !lock(&adapter.changing).ndk_open.contains(&opened.addr()) {
            bug_check(Rule::NdkAdapter, format_args!("{opened:p} is closed and is not open"));
        }
        let handler = adapter.ndk.and_then(|ndk| ndk.CloseNDKAdapterHandler);
        if let Some(close) = handler {
            adapter.call("CloseNDKAdapterHandler", |context| {
                // SAFETY: the driver's own handler and context, and what its other handler opened.
                unsafe { close(context, opened) };
            });
        }
        lock(&adapter.changing).ndk_open.remove(&opened.addr());
        self.dispatcher.signal();
    }
}

fn is_closed(adapter: &Adapter) -> bool {
    let changing = lock(&adapter.changing);
    changing.ndk_open.is_empty() && changing.ndk_opening == 0
}

/// What a miniport has opened must look like an adapter.
fn check_adapter(opened: *mut NDK_ADAPTER) {
    // SAFETY: null, or the driver's object, which lives until it is closed.
    let Some(opened) = (unsafe { opened.as_ref() }) else {
        bug_check(Rule::NdkAdapter, format_args!("OpenNDKAdapterHandler returned success and no adapter"));
    };
    if opened.Header.ObjectType != NDK_OBJECT_TYPE::ADAPTER || opened.Dispatch.is_null() {
        bug_check(Rule::NdkAdapter, format_args!("OpenNDKAdapterHandler returned something that is no adapter"));
    }
}

impl Kernel {
    /// Has `listener` hear what becomes of NDK on any adapter, with the index of the interface, as long as the kernel runs.
    pub fn on_ndk(&self, listener: impl Fn(u32, NdkEvent) + Send + Sync + 'static) {
        self.state.locked::<Listeners>().0.push(Arc::new(listener));
    }
}

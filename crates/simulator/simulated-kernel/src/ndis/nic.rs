//! What a test asks of an adapter: requests, frames, and NDK.

use std::sync::Arc;

use host::machine::{self, Irql};
use ndis::{NDIS_REQUEST_TYPE, NDIS_STATUS, OID_GEN_CURRENT_PACKET_FILTER};
use ndkpi::{NDK_ADAPTER, NDK_VERSION};

use super::{
    adapter::Adapter,
    frame::Oob,
    ndk::Provider,
    oid::{OidAnswer, Path, PendingOid, Question},
    send::Sent,
    status::Status,
};
use crate::{
    ndk_provider::NdkProvider,
    state::{State, lock},
};

/// What the interface of an adapter is like; what is not said, the network stack chooses.
#[derive(Clone, Debug, Default)]
pub struct NicInterface {
    /// Its index.
    pub index: Option<u32>,
    /// The `Value` of its `NET_LUID`.
    pub luid: Option<u64>,
    /// Its name.
    pub alias: Option<String>,
}

/// An adapter of a miniport driver, with the protocols above it. It has to be removed.
pub struct Nic {
    pub(super) state: Arc<State>,
    pub(super) adapter: Arc<Adapter>,
}

impl Nic {
    /// The adapter as consumers of NDK have it, also while it leaves.
    #[must_use]
    pub fn ndk_provider(&self) -> Arc<dyn NdkProvider> {
        Arc::new(Provider(self.adapter.clone()))
    }

    /// The interface's index.
    #[must_use]
    pub fn if_index(&self) -> u32 {
        self.adapter.if_index
    }

    /// The interface's identifier.
    #[must_use]
    pub fn luid(&self) -> u64 {
        self.adapter.luid
    }

    /// The interface's name.
    #[must_use]
    pub fn alias(&self) -> String {
        self.adapter.alias.clone()
    }

    /// Asks for a value, with a buffer of so many bytes.
    pub fn query(&self, oid: u32, length: usize) -> OidAnswer {
        self.begin_query(oid, length).wait()
    }

    /// Sets a value.
    pub fn set(&self, oid: u32, value: &[u8]) -> OidAnswer {
        self.begin_set(oid, value).wait()
    }

    /// Has the miniport do something with a value, for an answer of so many bytes at most.
    pub fn method(&self, oid: u32, value: &[u8], length: usize) -> OidAnswer {
        let question = Question { oid, kind: NDIS_REQUEST_TYPE::METHOD, input: value, length };
        self.state.ask(&self.adapter, Path::Regular, &question).wait()
    }

    /// Asks for a value, and does not wait for the answer.
    pub fn begin_query(&self, oid: u32, length: usize) -> PendingOid {
        let question = Question { oid, kind: NDIS_REQUEST_TYPE::QUERY_INFORMATION, input: &[], length };
        self.state.ask(&self.adapter, Path::Regular, &question)
    }

    /// Sets a value, and does not wait for the answer.
    pub fn begin_set(&self, oid: u32, value: &[u8]) -> PendingOid {
        let kind = NDIS_REQUEST_TYPE::SET_INFORMATION;
        let filter = <[u8; 4]>::try_from(value).ok().filter(|_| oid == OID_GEN_CURRENT_PACKET_FILTER);
        if let Some(filter) = filter {
            lock(&self.adapter.changing).filter = u32::from_le_bytes(filter);
        }
        let question = Question { oid, kind, input: value, length: value.len() };
        self.state.ask(&self.adapter, Path::Regular, &question)
    }

    /// Asks for a value by a direct request, beside others, at `DISPATCH_LEVEL`.
    pub fn query_directly(&self, oid: u32, length: usize) -> OidAnswer {
        self.begin_query_directly(oid, length).wait()
    }

    /// Sets a value by a direct request, at `DISPATCH_LEVEL`.
    pub fn set_directly(&self, oid: u32, value: &[u8]) -> OidAnswer {
        let kind = NDIS_REQUEST_TYPE::SET_INFORMATION;
        let question = Question { oid, kind, input: value, length: value.len() };
        let before = machine::raise(Irql::DISPATCH_LEVEL);
        let pending = self.state.ask(&self.adapter, Path::Direct, &question);
        machine::lower(before);
        pending.wait()
    }

    /// Asks for a value by a synchronous request, which must not pend, at `DISPATCH_LEVEL`.
    pub fn query_synchronously(&self, oid: u32, length: usize) -> OidAnswer {
        let question = Question { oid, kind: NDIS_REQUEST_TYPE::QUERY_INFORMATION, input: &[], length };
        let before = machine::raise(Irql::DISPATCH_LEVEL);
        let pending = self.state.ask(&self.adapter, Path::Synchronous, &question);
        machine::lower(before);
        pending.wait()
    }

    /// Asks for a value directly, and does not wait for the answer.
    pub fn begin_query_directly(&self, oid: u32, length: usize) -> PendingOid {
        let question = Question { oid, kind: NDIS_REQUEST_TYPE::QUERY_INFORMATION, input: &[], length };
        let before = machine::raise(Irql::DISPATCH_LEVEL);
        let pending = self.state.ask(&self.adapter, Path::Direct, &question);
        machine::lower(before);
        pending
    }

    /// Sends frames, each in a list of its own, at `PASSIVE_LEVEL`.
    pub fn send(&self, frames: &[&[u8]]) -> Sent {
        self.send_cancellable(frames, 0)
    }

    /// The same, with an identifier by which the sends can be cancelled.
    pub fn send_cancellable(&self, frames: &[&[u8]], cancel: usize) -> Sent {
        let lists: Vec<Vec<&[u8]>> = frames.iter().map(|&frame| vec![frame]).collect();
        self.state.send(&self.adapter, &lists, Oob { cancel, tag: 0 }, false)
    }

    /// Sends frames, each in a list of its own with this value of 802.1Q (`NDIS_NET_BUFFER_LIST_8021Q_INFO`).
    pub fn send_tagged(&self, frames: &[&[u8]], tag: usize) -> Sent {
        let lists: Vec<Vec<&[u8]>> = frames.iter().map(|&frame| vec![frame]).collect();
        self.state.send(&self.adapter, &lists, Oob { cancel: 0, tag }, false)
    }

    /// Sends lists of several frames each, at `DISPATCH_LEVEL`.
    pub fn send_lists(&self, lists: &[Vec<&[u8]>]) -> Sent {
        self.state.send(&self.adapter, lists, Oob::default(), true)
    }

    /// The same, with an identifier by which the sends can be cancelled.
    pub fn send_lists_cancellable(&self, lists: &[Vec<&[u8]>], cancel: usize) -> Sent {
        self.state.send(&self.adapter, lists, Oob { cancel, tag: 0 }, true)
    }

    /// Cancels the sends with that identifier. The miniport may complete them nevertheless.
    pub fn cancel_sends(&self, cancel: usize) {
        self.state.cancel_down(&self.adapter, None, cancel);
    }

    /// Lets the protocols keep what they receive, or not, until [`Self::give_back`] or a pause.
    pub fn keep_received(&self, keeps: bool) {
        lock(&self.adapter.changing).keeps = keeps;
    }

    /// The protocols give back what they have kept. How many lists.
    #[must_use]
    pub fn give_back(&self) -> usize {
        self.state.give_back_kept(&self.adapter, usize::MAX)
    }

    /// How many lists the protocols keep.
    #[must_use]
    pub fn kept(&self) -> usize {
        lock(&self.adapter.changing).kept.len()
    }

    /// The frames that were received since this was last asked.
    #[must_use]
    pub fn take_received(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut lock(&self.adapter.changing).received)
    }

    /// What the lists of the frames that were received since this was last asked say of 802.1Q.
    #[must_use]
    pub fn take_tags(&self) -> Vec<usize> {
        std::mem::take(&mut lock(&self.adapter.changing).tags)
    }

    /// How many frames were received since they were last taken.
    #[must_use]
    pub fn received(&self) -> usize {
        lock(&self.adapter.changing).received.len()
    }

    /// What the miniport has indicated since this was last asked.
    #[must_use]
    pub fn take_statuses(&self) -> Vec<Status> {
        std::mem::take(&mut lock(&self.adapter.changing).statuses)
    }

    /// Opens the adapter as a consumer of NDK.
    ///
    /// # Errors
    ///
    /// What the miniport says.
    pub fn open_ndk(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NDIS_STATUS> {
        self.state.open_ndk(&self.adapter, version)
    }

    /// Closes what was opened.
    pub fn close_ndk(&self, opened: *mut NDK_ADAPTER) {
        self.state.close_ndk(&self.adapter, opened);
    }

    /// How many adapters consumers of NDK have open.
    #[must_use]
    pub fn ndk_open(&self) -> usize {
        lock(&self.adapter.changing).ndk_open.len()
    }

    /// Returns true if the miniport says that NDK is enabled.
    #[must_use]
    pub fn is_ndk_enabled(&self) -> bool {
        lock(&self.adapter.changing).ndk_enabled
    }
}

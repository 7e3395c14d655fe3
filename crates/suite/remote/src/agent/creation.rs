//! Objects: their creation, and what adapters answer.

use alloc::boxed::Box;
use core::{ffi::c_void, ptr, sync::atomic::Ordering::Relaxed};

use fallible::{Arc, try_box};
use ndkpi::{
    GROUP_AFFINITY, GUID, NDK_ADAPTER_INFO, NDK_EXTENSION_INTERFACE, NDK_FN_CREATE_COMPLETION, NDK_OBJECT_HEADER,
    NDK_OBJECT_TYPE, NDK_VERSION, NtStatus, Object,
};

use super::{
    Agent,
    call::{Incoming, Reply},
    callbacks,
    connecting::Address,
    object::{Entry, Used},
    queue::Node,
};
use crate::wire::{Carried, Happened};

/// A version in a word.
fn version(word: u64) -> NDK_VERSION {
    NDK_VERSION::new((word >> 16) as u16, word as u16)
}

impl Agent<'_> {
    pub(super) fn open_adapter(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let entry = Entry::try_new(NDK_OBJECT_TYPE::ADAPTER, 0, None, self.queue_pointer());
        let entry = entry.map_err(|_| Carried::NoMemory)?;
        let handle = self.tables().entries.insert(entry.clone()).map_err(|_| Carried::NoMemory)?;
        entry.set_handle(handle);
        let adapter = match self.platform.open(self.adapter, version(call.word(0))) {
            Ok(adapter) if !adapter.is_null() => adapter,
            opened => {
                self.tables().entries.remove(handle);
                return Ok(opened.err().unwrap_or(NtStatus::INTERNAL_ERROR));
            }
        };
        // SAFETY: the adapter is open, so its header is valid for reading.
        let got = unsafe { (*adapter).Header.Version };
        entry.open(adapter.cast());
        if let Ok(used) = Used::begin(entry.clone())
            && let Ok((NtStatus::SUCCESS, _, info)) = self.info(&used, size_of::<NDK_ADAPTER_INFO>() as u32)
        {
            entry.inline().store(info.MaxInlineDataSize, Relaxed);
        }
        reply.set(0, handle);
        reply.set(1, u64::from(got.Major) << 16 | u64::from(got.Minor));
        Ok(NtStatus::SUCCESS)
    }

    /// `NdkQueryAdapterInfo` with a buffer of this size, at most that of the structure.
    fn info(&self, adapter: &Used, size: u32) -> Result<(NtStatus, u32, Box<NDK_ADAPTER_INFO>), Carried> {
        let _turn = adapter.turn(self.platform)?;
        let mut info = try_box(NDK_ADAPTER_INFO::default()).map_err(|_| Carried::NoMemory)?;
        let mut stored = size.min(size_of::<NDK_ADAPTER_INFO>() as u32);
        let (raw, function) = slot!(adapter, NDK_ADAPTER, NdkQueryAdapterInfo);
        // SAFETY: the adapter is open, and the information at least as large as the size says; called at `PASSIVE_LEVEL`.
        let status = unsafe { function(raw, &raw mut *info, &raw mut stored) };
        Ok((status, stored, info))
    }

    pub(super) fn query_adapter_info(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let adapter = self.object(call.head.object.get(), NDK_OBJECT_TYPE::ADAPTER)?;
        let (status, stored, info) = self.info(&adapter, call.number(0)?)?;
        reply.set(0, stored);
        let place = reply.room(size_of::<NDK_ADAPTER_INFO>()).ok_or(Carried::Malformed)?;
        // SAFETY: the structure is as long as the place, and is plain numbers. What is between its fields was zero when the box was
        // made or is the provider's; nobody reads it as a value.
        unsafe { ptr::copy_nonoverlapping((&raw const *info).cast(), place.as_mut_ptr(), place.len()) };
        Ok(status)
    }

    pub(super) fn query_extension(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let used = self.any_object(call.head.object.get())?;
        let _turn = used.turn(self.platform)?;
        let id = GUID::from_u128(u128::from(call.word(0)) << 64 | u128::from(call.word(1)));
        let version = version(call.word(2));
        let mut interface = NDK_EXTENSION_INTERFACE { Dispatch: ptr::null() };
        let function = if used.entry().kind() == NDK_OBJECT_TYPE::ADAPTER {
            slot!(used, NDK_ADAPTER, NdkQueryExtension).1
        } else {
            // In every table but the adapter's it is the second slot.
            slot!(used, NDK_CQ, NdkQueryExtension).1
        };
        // SAFETY: the object is open, the other pointers are valid for the call.
        Ok(unsafe { function(used.raw(), &raw const id, version, &raw mut interface) })
    }

    /// Makes a creation. `make` gets the callback with its context, the context of the object's own callbacks, and the place.
    pub(super) fn create<T: Object>(
        &self,
        call: &Incoming<'_>,
        reply: &mut Reply<'_>,
        parent: &Used,
        prepare: impl FnOnce(&Entry) -> Result<(), Carried>,
        make: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut c_void, *mut *mut T) -> NtStatus,
    ) -> Result<NtStatus, Carried> {
        let adapter = parent.entry().adapter().unwrap_or_else(|| parent.entry());
        let entry = Entry::try_new(T::OBJECT_TYPE, call.head.cookie.get(), Some(adapter), self.queue_pointer());
        let entry = entry.map_err(|_| Carried::NoMemory)?;
        prepare(&entry)?;
        let mut node = self.node(Happened::Created, call)?;
        let handle = self.tables().entries.insert(entry.clone()).map_err(|_| Carried::NoMemory)?;
        entry.set_handle(handle);
        node.value = handle;
        node.entry = Arc::as_ptr(&entry);
        let own = Arc::as_ptr(&entry).cast_mut().cast();
        let node: *mut Node = Box::into_raw(node);
        // SAFETY: the node is ours until the creation pends, and after that the place in it is the provider's.
        let place = unsafe { &raw mut (*node).object };
        let status = make(Some(callbacks::created), node.cast(), own, place.cast());
        reply.set(0, handle);
        if status == NtStatus::PENDING {
            return Ok(status);
        }
        // SAFETY: a creation that does not pend has no completion (`NDKPI 5.0`), so the node is still ours.
        let node = unsafe { Box::from_raw(node) };
        if status.is_success() && !node.object.is_null() {
            entry.open(node.object);
            return Ok(status);
        }
        self.tables().entries.remove(handle);
        Ok(if status.is_success() { NtStatus::INTERNAL_ERROR } else { status })
    }

    /// A connector that came with a connection has its handle from now on.
    pub(super) fn adopt(&self, node: &Node) -> Result<u64, NtStatus> {
        let adapter = node.adapter.as_ref();
        let adopted = Entry::try_new(NDK_OBJECT_TYPE::CONNECTOR, 0, adapter, self.queue_pointer()).and_then(|entry| {
            let handle = self.tables().entries.insert(entry.clone())?;
            entry.set_handle(handle);
            entry.open(node.object);
            Ok(handle)
        });
        if adopted.is_err() {
            // SAFETY: the connector came with an event, and nobody has it yet.
            unsafe { callbacks::refuse(node.object) };
        }
        adopted
    }

    pub(super) fn create_cq(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let adapter = self.object(call.head.object.get(), NDK_OBJECT_TYPE::ADAPTER)?;
        let _turn = adapter.turn(self.platform)?;
        let (depth, affinity) = (call.number(0)?, affinity(call, 1)?);
        let (raw, function) = slot!(adapter, NDK_ADAPTER, NdkCreateCq);
        let notification = call.given(0).then_some(callbacks::notified as _);
        self.create(call, reply, &adapter, Entry::have_spare, |completion, context, own, place| {
            let affinity = affinity.as_ref().map_or(ptr::null(), ptr::from_ref);
            // SAFETY: the adapter is open; the contexts live until the callbacks have come, the rest for the call.
            unsafe { function(raw, depth, notification, own, affinity, completion, context, place) }
        })
    }

    pub(super) fn create_pd(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let adapter = self.object(call.head.object.get(), NDK_OBJECT_TYPE::ADAPTER)?;
        let _turn = adapter.turn(self.platform)?;
        let (raw, function) = slot!(adapter, NDK_ADAPTER, NdkCreatePd);
        self.create(
            call,
            reply,
            &adapter,
            |_| Ok(()),
            |completion, context, _, place| {
                // SAFETY: the adapter is open, the context lives until the completion has come.
                unsafe { function(raw, completion, context, place) }
            },
        )
    }

    pub(super) fn create_shared_endpoint(
        &self,
        call: &Incoming<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<NtStatus, Carried> {
        let adapter = self.object(call.head.object.get(), NDK_OBJECT_TYPE::ADAPTER)?;
        let _turn = adapter.turn(self.platform)?;
        let (address, _) = Address::read(call.tail, call.number(0)?)?;
        let (raw, function) = slot!(adapter, NDK_ADAPTER, NdkCreateSharedEndpoint);
        self.create(
            call,
            reply,
            &adapter,
            |_| Ok(()),
            |completion, context, _, place| {
                // SAFETY: as in `create_pd`; the address is valid for the call.
                unsafe { function(raw, address.pointer(), address.length(), completion, context, place) }
            },
        )
    }

    pub(super) fn create_connector(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let adapter = self.object(call.head.object.get(), NDK_OBJECT_TYPE::ADAPTER)?;
        let _turn = adapter.turn(self.platform)?;
        let (raw, function) = slot!(adapter, NDK_ADAPTER, NdkCreateConnector);
        self.create(
            call,
            reply,
            &adapter,
            |_| Ok(()),
            |completion, context, _, place| {
                // SAFETY: as in `create_pd`.
                unsafe { function(raw, completion, context, place) }
            },
        )
    }

    pub(super) fn create_listener(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let adapter = self.object(call.head.object.get(), NDK_OBJECT_TYPE::ADAPTER)?;
        let _turn = adapter.turn(self.platform)?;
        let (raw, function) = slot!(adapter, NDK_ADAPTER, NdkCreateListener);
        self.create(call, reply, &adapter, Entry::have_spare, |completion, context, own, place| {
            // SAFETY: as in `create_cq`.
            unsafe { function(raw, Some(callbacks::connected), own, completion, context, place) }
        })
    }

    pub(super) fn create_mr(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let pd = self.object(call.head.object.get(), NDK_OBJECT_TYPE::PD)?;
        let _turn = pd.turn(self.platform)?;
        let (raw, function) = slot!(pd, NDK_PD, NdkCreateMr);
        self.create(
            call,
            reply,
            &pd,
            |_| Ok(()),
            |completion, context, _, place| {
                // SAFETY: as in `create_pd`, of a protection domain.
                unsafe { function(raw, call.given(0).into(), completion, context, place) }
            },
        )
    }

    pub(super) fn create_mw(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let pd = self.object(call.head.object.get(), NDK_OBJECT_TYPE::PD)?;
        let _turn = pd.turn(self.platform)?;
        let (raw, function) = slot!(pd, NDK_PD, NdkCreateMw);
        self.create(
            call,
            reply,
            &pd,
            |_| Ok(()),
            |completion, context, _, place| {
                // SAFETY: as in `create_mr`.
                unsafe { function(raw, completion, context, place) }
            },
        )
    }

    pub(super) fn create_srq(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let pd = self.object(call.head.object.get(), NDK_OBJECT_TYPE::PD)?;
        let _turn = pd.turn(self.platform)?;
        let (depth, entries, threshold) = (call.number(0)?, call.number(1)?, call.number(2)?);
        let affinity = affinity(call, 3)?;
        let token = token_of(&pd)?;
        let (raw, function) = slot!(pd, NDK_PD, NdkCreateSrq);
        let notification = call.given(0).then_some(callbacks::notified as _);
        let prepare = |entry: &Entry| {
            entry.privileged().store(token, Relaxed);
            entry.have_spare()
        };
        self.create(call, reply, &pd, prepare, |completion, context, own, place| {
            let affinity = affinity.as_ref().map_or(ptr::null(), ptr::from_ref);
            // SAFETY: as in `create_cq`, of a protection domain.
            unsafe { function(raw, depth, entries, threshold, notification, own, affinity, completion, context, place) }
        })
    }

    pub(super) fn create_qp(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let pd = self.object(call.head.object.get(), NDK_OBJECT_TYPE::PD)?;
        let _turn = pd.turn(self.platform)?;
        let [receive, initiator] = self.completion_queues(&pd, call)?;
        let sizes = [call.number(3)?, call.number(4)?, call.number(5)?, call.number(6)?, call.number(7)?];
        let token = token_of(&pd)?;
        let (raw, function) = slot!(pd, NDK_PD, NdkCreateQp);
        let prepare = |entry: &Entry| {
            entry.privileged().store(token, Relaxed);
            Ok(())
        };
        self.create(call, reply, &pd, prepare, |completion, context, _, place| {
            let qp_context = crate::wire::word_as_pointer(call.word(2));
            let (receive, initiator) = (receive.raw(), initiator.raw());
            let [depth, initiator_depth, entries, initiator_entries, inline] = sizes;
            // SAFETY: the protection domain and the queues are open, the context lives until the completion has come.
            unsafe {
                function(
                    raw,
                    receive,
                    initiator,
                    qp_context,
                    depth,
                    initiator_depth,
                    entries,
                    initiator_entries,
                    inline,
                    completion,
                    context,
                    place,
                )
            }
        })
    }

    pub(super) fn create_qp_with_srq(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let pd = self.object(call.head.object.get(), NDK_OBJECT_TYPE::PD)?;
        let _turn = pd.turn(self.platform)?;
        let [receive, initiator] = self.completion_queues(&pd, call)?;
        let shared = self.object(call.word(8), NDK_OBJECT_TYPE::SRQ)?;
        of_one_adapter(&pd, &shared)?;
        let sizes = [call.number(3)?, call.number(4)?, call.number(5)?];
        let token = token_of(&pd)?;
        let (raw, function) = slot!(pd, NDK_PD, NdkCreateQpWithSrq);
        let prepare = |entry: &Entry| {
            entry.privileged().store(token, Relaxed);
            Ok(())
        };
        self.create(call, reply, &pd, prepare, |completion, context, _, place| {
            let qp_context = crate::wire::word_as_pointer(call.word(2));
            let (receive, initiator, shared) = (receive.raw(), initiator.raw(), shared.raw());
            let [depth, entries, inline] = sizes;
            // SAFETY: as in `create_qp`; the shared queue is open.
            unsafe {
                function(
                    raw, receive, initiator, shared, qp_context, depth, entries, inline, completion, context, place,
                )
            }
        })
    }

    fn completion_queues(&self, pd: &Used, call: &Incoming<'_>) -> Result<[Used; 2], Carried> {
        let queue = |index| {
            let queue = self.object(call.word(index), NDK_OBJECT_TYPE::CQ)?;
            of_one_adapter(pd, &queue)?;
            Ok(queue)
        };
        Ok([queue(0)?, queue(1)?])
    }

    pub(super) fn privileged_token(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let pd = self.object(call.head.object.get(), NDK_OBJECT_TYPE::PD)?;
        let _turn = pd.turn(self.platform)?;
        reply.set(0, token_of(&pd)?);
        Ok(NtStatus::SUCCESS)
    }
}

/// Objects that are used together are of one open of the adapter.
pub fn of_one_adapter(one: &Used, other: &Used) -> Result<(), Carried> {
    match (one.entry().adapter(), other.entry().adapter()) {
        (Some(one), Some(other)) if Arc::ptr_eq(one, other) => Ok(()),
        _ => Err(Carried::Stale),
    }
}

/// `NdkGetPrivilegedMemoryRegionToken`.
fn token_of(pd: &Used) -> Result<u32, Carried> {
    let (raw, function) = slot!(pd, NDK_PD, NdkGetPrivilegedMemoryRegionToken);
    let mut token = 0;
    // SAFETY: the protection domain is open, and the place valid for the call.
    unsafe { function(raw, &raw mut token) };
    Ok(token)
}

/// An affinity in two words, if there is one.
fn affinity(call: &Incoming<'_>, first: usize) -> Result<Option<GROUP_AFFINITY>, Carried> {
    let group = u16::try_from(call.word(first + 1)).map_err(|_| Carried::Malformed)?;
    let affinity = GROUP_AFFINITY { Mask: call.size(first)?, Group: group, Reserved: [0; 3] };
    Ok(call.given(1).then_some(affinity))
}

/// The first slot of the object's table, which closes it in every table but the adapter's (`NDKPI 4`).
pub fn close_slot(used: &Used) -> Result<(*mut NDK_OBJECT_HEADER, ndkpi::NDK_FN_CLOSE_OBJECT), Carried> {
    // All object structures have one shape (`NDKPI 3.4`).
    let (_, function) = slot!(used, NDK_CQ, NdkCloseCq);
    Ok((used.raw(), function))
}

//! Closes, one by one and of all that is left.

use core::{mem, sync::atomic::Ordering::Release};

use alloc::vec::Vec;
use fallible::Arc;
use ndkpi::{NDK_OBJECT_TYPE, NtStatus};

use super::{
    Agent,
    call::{Incoming, Reply},
    callbacks,
    creation::close_slot,
    object::{Entry, Used},
};
use crate::wire::Carried;

/// The objects of an adapter, successors first (`NDKPI 7.9`).
const ORDER: [NDK_OBJECT_TYPE; 9] = [
    NDK_OBJECT_TYPE::CONNECTOR,
    NDK_OBJECT_TYPE::LISTENER,
    NDK_OBJECT_TYPE::SHARED_ENDPOINT,
    NDK_OBJECT_TYPE::QP,
    NDK_OBJECT_TYPE::MW,
    NDK_OBJECT_TYPE::MR,
    NDK_OBJECT_TYPE::SRQ,
    NDK_OBJECT_TYPE::PD,
    NDK_OBJECT_TYPE::CQ,
];

impl Agent<'_> {
    pub(super) fn close_object(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let used = self.any_object(call.head.object.get())?;
        if used.entry().kind() == NDK_OBJECT_TYPE::ADAPTER {
            return Err(Carried::Stale);
        }
        used.entry().cookie().store(call.head.cookie.get(), Release);
        self.close_used(&used)
    }

    /// Closes an object. The completion is an event in any case, so that it comes behind the other ones of the object.
    fn close_used(&self, used: &Used) -> Result<NtStatus, Carried> {
        used.shut(self.platform)?;
        let (raw, function) = close_slot(used)?;
        let entry = used.entry();
        let context = Arc::as_ptr(entry).cast_mut().cast();
        // SAFETY: the object is open, no other call uses it, and none will; the table keeps the entry until the completion is
        // fetched.
        let status = unsafe { function(raw, Some(callbacks::closed), context) };
        if status != NtStatus::PENDING {
            callbacks::ended(entry);
        }
        Ok(NtStatus::PENDING)
    }

    /// Answers how many events there were until then.
    pub(super) fn close_adapter(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let used = self.object(call.head.object.get(), NDK_OBJECT_TYPE::ADAPTER)?;
        self.close_adapter_used(&used)?;
        reply.set(0, self.queue.count());
        Ok(NtStatus::SUCCESS)
    }

    fn close_adapter_used(&self, used: &Used) -> Result<(), Carried> {
        used.shut(self.platform)?;
        let entry = used.entry();
        if !self.platform.wait(self.platform.patience(), &|| entry.objects() == 0) {
            used.open_again();
            return Err(Carried::Stuck);
        }
        let of_adapter = || {
            let mut tables = self.tables();
            let found = tables.lams.iter().find(|(_, lam)| Arc::ptr_eq(lam.adapter(), entry)).map(|(handle, _)| handle);
            found.and_then(|handle| tables.lams.remove(handle))
        };
        while let Some(lam) = of_adapter() {
            lam.undo(used.raw());
        }
        // SAFETY: the adapter came from the platform; it has no objects, nobody uses it, and none will.
        let closed = unsafe { self.platform.close(used.raw()) };
        self.tables().entries.remove(entry.handle());
        if closed { Ok(()) } else { Err(Carried::Stuck) }
    }

    /// Closes everything that is left, in the order that NDKPI 7.9 asks for. `false` if something does not come to an end: then it
    /// stays as it is, and the agent must not be dropped. At `PASSIVE_LEVEL`.
    pub fn close(&self) -> bool {
        let until = self.platform.now().saturating_add(self.platform.patience());
        loop {
            self.forget_events();
            let objects = self.entries(|entry| entry.kind() != NDK_OBJECT_TYPE::ADAPTER);
            if objects.is_empty() {
                break;
            }
            for kind in ORDER {
                for entry in objects.iter().filter(|entry| entry.kind() == kind && entry.is_open()) {
                    let _ = Used::begin(entry.clone()).and_then(|used| self.close_used(&used));
                }
            }
            if self.platform.now() > until {
                return false;
            }
            self.platform.sleep(100);
        }
        let adapters = self.entries(Entry::is_open);
        let mut all = true;
        for adapter in adapters {
            all &= Used::begin(adapter).and_then(|used| self.close_adapter_used(&used)).is_ok();
        }
        let mut tables = self.tables();
        tables.memories.clear();
        tables.bytes = 0;
        all
    }

    fn entries(&self, which: impl Fn(&Entry) -> bool) -> Vec<Arc<Entry>> {
        let mut found = Vec::new();
        let tables = self.tables();
        for (_, entry) in tables.entries.iter().filter(|(_, entry)| which(entry)) {
            // What does not fit is found the next time.
            if found.try_reserve(1).is_err() {
                break;
            }
            found.push(entry.clone());
        }
        found
    }

    /// Callbacks may still come: what they use stays for good.
    pub(super) fn leave_behind(&self) {
        for entry in self.entries(|_| true) {
            mem::forget(entry);
        }
    }

    fn forget_events(&self) {
        let mut taken = self.queue.fetch(self.platform);
        while let Some(node) = self.queue.next(&mut taken) {
            let _ = self.fetched(&node);
        }
    }
}

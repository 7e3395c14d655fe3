//! What a completion or event that comes later has to be told.

use alloc::boxed::Box;
use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use fallible::{Arc, try_box};
use ndkpi::{
    NDK_FN_DISCONNECT_EVENT_CALLBACK, NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, NDK_FN_REQUEST_COMPLETION, NtStatus,
};

use crate::{
    Function, Hooks,
    later::Later,
    shadow::{Shadow, ShadowRef},
};

/// A request that may pend.
pub struct Request<H: Hooks> {
    pub shadow: Option<ShadowRef<H>>,
    pub function: Function,
    pub call: u64,
    pub completion: Option<NDK_FN_REQUEST_COMPLETION>,
    pub context: *mut c_void,
    /// How long the completion is held back, in microseconds, if it is.
    pub delay: Option<u64>,
    /// How long after its success the connection ends, in microseconds, if it does.
    pub end_after: Option<u64>,
    /// Where the completion waits that is held back.
    pub later: Option<Arc<Later<H>>>,
}

/// Boxes for the requests on one object. Two are there from the beginning: what must not fail for want of memory
/// (a deregistration, a disconnect beside an accept) finds one.
pub struct Requests<H: Hooks>([AtomicPtr<Request<H>>; 2]);

impl<H: Hooks> Requests<H> {
    pub fn try_new(os: &H::Os) -> Result<Self, NtStatus> {
        let this = Self([const { AtomicPtr::new(ptr::null_mut()) }; 2]);
        for place in &this.0 {
            place.store(Box::into_raw(Self::make(os)?), Relaxed);
        }
        Ok(this)
    }

    fn make(os: &H::Os) -> Result<Box<Request<H>>, NtStatus> {
        try_box(Request {
            shadow: None,
            function: Function::Close,
            call: 0,
            completion: None,
            context: ptr::null_mut(),
            delay: None,
            end_after: None,
            later: Later::try_new(os)?,
        })
        .map_err(Into::into)
    }

    /// A box for a request.
    pub fn take(&self, os: &H::Os) -> Result<Box<Request<H>>, NtStatus> {
        for place in &self.0 {
            let there = place.swap(ptr::null_mut(), Acquire);
            if !there.is_null() {
                // SAFETY: the pointer came from `into_raw`, and the swap has taken it out: nobody else has it.
                return Ok(unsafe { Box::from_raw(there) });
            }
        }
        Self::make(os)
    }

    /// Gives a box back.
    pub fn give_back(&self, request: Box<Request<H>>) {
        let raw = Box::into_raw(request);
        for place in &self.0 {
            if place.compare_exchange(ptr::null_mut(), raw, Release, Relaxed).is_ok() {
                return;
            }
        }
        // SAFETY: the pointer is that of `into_raw` above, and no place took it.
        drop(unsafe { Box::from_raw(raw) });
    }
}

impl<H: Hooks> Drop for Requests<H> {
    fn drop(&mut self) {
        for place in &mut self.0 {
            let raw = core::mem::replace(place.get_mut(), ptr::null_mut());
            if !raw.is_null() {
                // SAFETY: the pointer came from `into_raw` and was taken out.
                drop(unsafe { Box::from_raw(raw) });
            }
        }
    }
}

/// The disconnect event of a consumer.
#[derive(Clone, Copy)]
pub enum DisconnectCallback {
    /// Without a reason.
    Plain(NDK_FN_DISCONNECT_EVENT_CALLBACK),
    /// With one, from 2.1.
    Ex(NDK_FN_DISCONNECT_EVENT_CALLBACK_EX),
}

/// A disconnect event that the provider was given. Lives as long as its connector's shadow.
pub struct DisconnectEvent<H: Hooks> {
    next: *mut Self,
    used: AtomicBool,
    /// The connector; it outlives the event.
    pub shadow: *const Shadow<H>,
    /// The consumer's callback and its context.
    pub callback: core::cell::Cell<(DisconnectCallback, *mut c_void)>,
    /// The consumer was told, or will be.
    told: AtomicBool,
    /// Where the event waits that is held back.
    pub later: Option<Arc<Later<H>>>,
}

impl<H: Hooks> DisconnectEvent<H> {
    /// A place for an event of this connector: one that no connection uses, or a new one.
    pub fn try_new(
        shadow: &Shadow<H>,
        callback: DisconnectCallback,
        context: *mut c_void,
    ) -> Result<*mut Self, NtStatus> {
        let mut place = shadow.disconnects.load(Acquire);
        // As many as calls on this connector have failed with others in progress: few.
        while !place.is_null() {
            // SAFETY: what is in the list lives as long as the shadow.
            let there = unsafe { &*place };
            if there.used.compare_exchange(false, true, AcqRel, Relaxed).is_ok() {
                there.callback.set((callback, context));
                there.told.store(false, Relaxed);
                return Ok(place);
            }
            place = there.next;
        }
        let made = Box::into_raw(try_box(Self {
            next: ptr::null_mut(),
            used: AtomicBool::new(true),
            shadow: ptr::from_ref(shadow),
            callback: core::cell::Cell::new((callback, context)),
            told: AtomicBool::new(false),
            later: Later::try_new(shadow.root.hooks.os())?,
        })?);
        let mut first = shadow.disconnects.load(Relaxed);
        loop {
            // SAFETY: nobody else has the new one.
            unsafe { (*made).next = first };
            match shadow.disconnects.compare_exchange_weak(first, made, AcqRel, Relaxed) {
                Ok(_) => return Ok(made),
                Err(changed) => first = changed,
            }
        }
    }

    /// The event comes now. `false` if it has come before: it comes once (`NDKPI 7.7.6`).
    pub fn comes(&self) -> bool {
        !self.told.swap(true, AcqRel)
    }

    /// The event of the connection of a connector, if its consumer wants one.
    pub fn of(shadow: &Shadow<H>) -> Option<*mut Self> {
        let mut place = shadow.disconnects.load(Acquire);
        while !place.is_null() {
            // SAFETY: what is in the list lives as long as the shadow.
            let there = unsafe { &*place };
            if there.used.load(Acquire) {
                return Some(place);
            }
            place = there.next;
        }
        None
    }

    /// The call has failed: its event will not come.
    ///
    /// # Safety
    ///
    /// `this` came from [`Self::try_new`], of a shadow that lives, and the provider has refused it.
    pub unsafe fn unused(this: *mut Self) {
        // SAFETY: what is in the list lives as long as the shadow.
        unsafe { &*this }.used.store(false, Release);
    }

    /// Frees the whole list, of a shadow that is being dropped.
    pub(crate) fn free_all(mut first: *mut Self) {
        while !first.is_null() {
            // SAFETY: the shadow is being dropped, so nobody else uses its list; each came from `into_raw`.
            let event = unsafe { Box::from_raw(first) };
            first = event.next;
        }
    }
}

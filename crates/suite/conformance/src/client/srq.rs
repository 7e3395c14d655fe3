//! `NDK_SRQ` (`NDKPI 5.6`, `NDKPI 7.12`).

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicI32, AtomicU32,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use ndkpi::{NDK_SGE, NDK_SRQ, NtStatus};

use super::{
    life::{Core, Kind, Life, Owned},
    request::{Pending, request},
    session::Session,
};
use crate::case::Check;

/// What a case does inside the notification callback.
pub type SrqHook<'s> = &'s (dyn Fn(&'s SrqCore<'s>, NtStatus) -> Check + Send + Sync + 's);

/// A shared receive queue.
pub type Srq<'s> = Owned<'s, SrqCore<'s>>;

/// A shared receive queue, as callbacks and other threads see it.
pub struct SrqCore<'s> {
    life: Life<'s>,
    hook: Option<SrqHook<'s>>,
    posting: AtomicBool,
    callbacks: AtomicU32,
    status: AtomicI32,
}

impl<'s> Core<'s> for SrqCore<'s> {
    type Public = NDK_SRQ;
    const KIND: Kind = Kind::Srq;

    fn life(&self) -> &Life<'s> {
        &self.life
    }
}

impl<'s> SrqCore<'s> {
    pub(super) const fn new(life: Life<'s>, hook: Option<SrqHook<'s>>) -> Self {
        Self { life, hook, posting: AtomicBool::new(false), callbacks: AtomicU32::new(0), status: AtomicI32::new(0) }
    }

    pub(super) const fn context(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Its life.
    #[must_use]
    pub const fn life(&self) -> &Life<'s> {
        &self.life
    }

    /// The session.
    #[must_use]
    pub const fn session(&self) -> &'s Session<'s> {
        self.life.session()
    }

    /// Callbacks so far.
    #[must_use]
    pub fn callbacks(&self) -> u32 {
        self.callbacks.load(Acquire)
    }

    /// The status of the latest callback.
    pub fn status(&self) -> NtStatus {
        NtStatus(self.status.load(Acquire))
    }

    /// `NdkModifySrq`.
    ///
    /// # Errors
    ///
    /// The queue is closed, or there is no memory.
    pub fn modify(&'s self, depth: u32, threshold: u32) -> Check<Pending<'s>> {
        let call = self.life.call()?;
        let (srq, function) = slot!(call, NDK_SRQ, NdkModifySrq);
        request(&self.life, "NdkModifySrq", None, |completion, context| {
            // SAFETY: the queue is open, the context is kept by the session.
            unsafe { function(srq, depth, threshold, completion, context) }
        })
    }

    /// `NdkSrqReceive`.
    ///
    /// # Errors
    ///
    /// The queue is closed, or the case posts twice at a time.
    pub fn receive(&self, context: usize, list: &[NDK_SGE]) -> Check<NtStatus> {
        let call = self.life.call()?;
        ensure!(!self.posting.swap(true, Acquire), "the case posts to one queue twice at a time (NDKPI 7.3)");
        let (srq, function) = slot!(call, NDK_SRQ, NdkSrqReceive);
        let count = u32::try_from(list.len()).unwrap_or(u32::MAX);
        let elements = if list.is_empty() { ptr::null() } else { list.as_ptr() };
        // SAFETY: the queue is open, no other post to it runs, and the list is valid for the call.
        let status = unsafe { function(srq, ptr::without_provenance_mut(context), elements, count) };
        self.posting.store(false, Release);
        Ok(status)
    }

    /// Looks that it stays at `count` callbacks.
    ///
    /// # Errors
    ///
    /// There are more, or fewer.
    pub fn stays_at_callbacks(&self, count: u32) -> Check {
        self.session().settle();
        ensure_eq!(self.callbacks(), count, "callbacks of the shared receive queue");
        Ok(())
    }

    /// Waits for the callback number `count`.
    ///
    /// # Errors
    ///
    /// It does not come, or one more does.
    pub fn wait_callbacks(&self, count: u32) -> Check {
        self.session()
            .wait_for(format_args!("callback {count} of the shared receive queue"), || self.callbacks() >= count)?;
        ensure_eq!(self.callbacks(), count, "callbacks of the shared receive queue");
        Ok(())
    }
}

/// `NDK_FN_SRQ_NOTIFICATION_CALLBACK`.
///
/// # Safety
///
/// `context` is an `SrqCore` that is kept by a session.
pub(super) unsafe extern "system" fn srq_notified(context: *mut c_void, status: NtStatus) {
    // SAFETY: an `SrqCore` that a session keeps (`# Safety`), and the session outlives every callback.
    let core = unsafe { &*context.cast_const().cast::<SrqCore<'_>>() };
    let session = core.session();
    let running = session.enter_callback(Some(&core.life));
    core.status.store(status.0, Release);
    if let Some(hook) = core.hook {
        session.note(hook(core, status));
    }
    core.callbacks.fetch_add(1, AcqRel);
    drop(running);
}

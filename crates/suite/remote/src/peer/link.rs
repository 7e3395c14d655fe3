//! The link to the other machine: what all proxies share.

use alloc::{boxed::Box, vec::Vec};
use core::{
    mem,
    ptr::NonNull,
    sync::atomic::{
        AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use conformance::Platform;
use fallible::{Arc, try_slice};
use ndkpi::NtStatus;

use super::{mirror::Mirror, proxy::Proxy, request::Pending};
use crate::{
    Channel, MOST,
    lock::Lock,
    table::Table,
    wire::{Answer, Call, Carried},
};

/// The platform has gone; the other bits count those who use it.
const GONE: u32 = 1 << 31;

/// Why a case says nothing.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Excuse {
    Raised = 1,
    Dead,
    Stale,
    Withheld,
    NoMemory,
    TooLong,
    Stuck,
    Extension,
    Affinity,
}

impl Excuse {
    const fn words(number: u32) -> Option<&'static str> {
        Some(match number {
            1 => "the peer is on another machine, and the case calls it at DISPATCH_LEVEL",
            2 => "the channel to the other machine is dead",
            3 => "the case gives the other machine what it does not have",
            4 => "the other machine does not give its adapter what the case asks for",
            5 => "the other machine has no memory for what the case asks for",
            6 => "what the case asks for does not fit into a call of the other machine",
            7 => "a call on the other machine does not come to an end",
            8 => "the peer is on another machine, and extensions of it are not carried",
            9 => "the peer is on another machine, and its callbacks run here where they are fetched",
            _ => return None,
        })
    }
}

/// What an event is about.
pub enum Known {
    /// An object. It is freed when the completion of its close has been made.
    Object(*mut Proxy),
    /// A request.
    Request(Pending),
}

/// The token of a region, and what turns an address here into one there.
pub struct Token {
    /// Its value.
    pub value: u32,
    /// The region's number.
    pub region: u64,
    /// What is added.
    pub distance: u64,
}

/// The link.
pub struct Link {
    platform: NonNull<dyn Platform>,
    channel: NonNull<dyn Channel>,
    users: AtomicU32,
    excuse: AtomicU32,
    /// The status of the channel, once it is dead; else 0.
    dead: AtomicI32,
    /// What events are about.
    pub known: Lock<Table<Known>>,
    /// The buffers that can be doubled.
    pub mirrors: Lock<Vec<Arc<Mirror>>>,
    /// The tokens of regions.
    pub tokens: Lock<Vec<Token>>,
    /// Closes that could not be called where they were begun.
    pub closing: AtomicPtr<Proxy>,
    /// The events whose callbacks have been made, and those that are known to have come.
    pub delivered: AtomicU64,
    /// [`WithPeer::end`](super::WithPeer::end) was called.
    pub ended: AtomicBool,
}

#[expect(
    clippy::non_send_fields_in_send_ty,
    reason = "the proxies and contexts in the table are for the threads that make their callbacks"
)]
// SAFETY: the pointers are to a platform and a channel, which any thread may use; proxies are used as their functions say.
unsafe impl Send for Link {}
// SAFETY: as for `Send`.
unsafe impl Sync for Link {}

impl Link {
    /// A link.
    ///
    /// # Safety
    ///
    /// [`Link::leave`] is called before the platform or the channel ends.
    pub unsafe fn new(platform: &dyn Platform, channel: &dyn Channel) -> Self {
        // SAFETY: only the lifetime changes; the pointer is not used after `leave` (`# Safety`).
        let platform = unsafe { mem::transmute::<NonNull<dyn Platform + '_>, NonNull<dyn Platform>>(platform.into()) };
        // SAFETY: only the lifetime changes; the pointer is not used after `leave` (`# Safety`).
        let channel = unsafe { mem::transmute::<NonNull<dyn Channel + '_>, NonNull<dyn Channel>>(channel.into()) };
        Self {
            platform,
            channel,
            users: AtomicU32::new(0),
            excuse: AtomicU32::new(0),
            dead: AtomicI32::new(0),
            known: Lock::new(Table::new()),
            mirrors: Lock::new(Vec::new()),
            tokens: Lock::new(Vec::new()),
            closing: AtomicPtr::new(core::ptr::null_mut()),
            delivered: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        }
    }

    /// The platform and the channel, unless they have gone.
    pub fn ends(&self) -> Option<Ends<'_>> {
        if self.users.fetch_add(1, AcqRel) & GONE != 0 {
            self.users.fetch_sub(1, AcqRel);
            return None;
        }
        Some(Ends(self))
    }

    /// The platform and the channel go: waits for those that use them.
    pub fn leave(&self) {
        let Some(ends) = self.ends() else { return };
        self.users.fetch_or(GONE, AcqRel);
        while !ends.platform().wait(ends.platform().patience(), &|| self.users.load(Acquire) & !GONE == 1) {}
    }

    /// Notes why the case says nothing. The first reason counts.
    pub fn excuse(&self, why: Excuse) {
        let _ = self.excuse.compare_exchange(0, why as u32, Relaxed, Relaxed);
    }

    /// The words of why, once.
    pub fn take_excuse(&self) -> Option<&'static str> {
        Excuse::words(self.excuse.swap(0, Relaxed))
    }

    /// The status of the channel, if it is dead.
    pub fn dead(&self) -> Option<NtStatus> {
        let status = self.dead.load(Acquire);
        (status != 0).then_some(NtStatus(status))
    }

    /// The channel has said that it is dead.
    pub fn die(&self, status: NtStatus) {
        let status = if status.is_success() { NtStatus::IO_TIMEOUT } else { status };
        let _ = self.dead.compare_exchange(0, status.0, Release, Relaxed);
        self.excuse(Excuse::Dead);
    }

    /// Looks whether the caller may wait, and notes if not.
    ///
    /// # Errors
    ///
    /// `STATUS_NOT_SUPPORTED` if it may not.
    pub fn may_wait(&self) -> Result<Ends<'_>, NtStatus> {
        let ends = self.ends().ok_or(NtStatus::DEVICE_NOT_READY)?;
        if ends.channel().may_wait() {
            return Ok(ends);
        }
        self.excuse(Excuse::Raised);
        Err(NtStatus::NOT_SUPPORTED)
    }

    /// Makes a call. The caller may wait.
    ///
    /// # Errors
    ///
    /// The status of a dead channel; or the call was not carried out, which is noted.
    pub fn send(&self, call: &mut Call) -> Result<Answer, NtStatus> {
        let ends = self.may_wait()?;
        if let Some(status) = self.dead() {
            self.excuse(Excuse::Dead);
            return Err(status);
        }
        let mut bytes: Box<[u8]> = try_slice(MOST, |_| 0)?;
        let length = ends.channel().call(call.bytes(), &mut bytes).inspect_err(|status| self.die(*status))?;
        let Some(answer) = Answer::read(bytes, length) else {
            self.die(NtStatus::INTERNAL_ERROR);
            return Err(NtStatus::INTERNAL_ERROR);
        };
        let (excuse, status) = match answer.carried() {
            Carried::Out => return Ok(answer),
            Carried::Stale => (Excuse::Stale, NtStatus::INVALID_PARAMETER),
            Carried::Malformed | Carried::Withheld => (Excuse::Withheld, NtStatus::NOT_SUPPORTED),
            Carried::NoMemory => (Excuse::NoMemory, NtStatus::INSUFFICIENT_RESOURCES),
            Carried::OtherVersion => (Excuse::Withheld, NtStatus::NDIS_BAD_VERSION),
            Carried::Stuck => (Excuse::Stuck, NtStatus::IO_TIMEOUT),
        };
        self.excuse(excuse);
        Err(status)
    }

    /// Begins a close later, in the pump. At any `IRQL <= DISPATCH_LEVEL`.
    pub fn close_later(&self, proxy: *mut Proxy) {
        let mut newest = self.closing.load(Relaxed);
        loop {
            // SAFETY: the proxy is being closed, so nobody but this list uses it.
            unsafe { (*proxy).next.store(newest, Relaxed) };
            match self.closing.compare_exchange_weak(newest, proxy, Release, Relaxed) {
                Ok(_) => return,
                Err(changed) => newest = changed,
            }
        }
    }
}

/// The right to use the platform and the channel.
pub struct Ends<'l>(&'l Link);

impl Ends<'_> {
    /// The platform.
    pub fn platform(&self) -> &dyn Platform {
        // SAFETY: the platform has not gone, and `leave` waits for this.
        unsafe { self.0.platform.as_ref() }
    }

    /// The channel.
    pub fn channel(&self) -> &dyn Channel {
        // SAFETY: as in `platform`.
        unsafe { self.0.channel.as_ref() }
    }
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, AcqRel);
    }
}

//! Memory regions (`NDKPI 5.5`, `7.4`).

use alloc::boxed::Box;
use core::any::Any;

use fallible::{Arc, try_box};
use ndkpi::NtStatus;

use super::{
    Domain,
    access::Rights,
    entry::{Entry, Normal, Object, Windows},
    fast::Fast,
    grant::{Grant, Source, Span},
    pinned::{Pinned, Release, Released},
    token::Tag,
    uses::Client,
};
use crate::{
    fault::{self, Fault},
    memory_status,
    os::{Memory, Os},
};

/// What a region is for, all its life (`NDK_FN_CREATE_MR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// [`Region::register`] and [`Region::deregister`].
    Normal,
    /// [`Region::initialize_fast_register`], and then requests.
    Fast,
}

/// A memory region.
///
/// Its place among the tokens is its own from the beginning, so that deregistering and registering again cannot fail for
/// want of one. Dropping it ends its registration; windows that are bound to it keep it.
pub struct Region<O: Os> {
    domain: Arc<Domain<O>>,
    number: u32,
    /// Dropped with the region, which windows keep longer than its owner does, and with the last piece that was found
    /// through a fast registration.
    client: Arc<Client>,
}

impl<O: Os> Region<O> {
    /// A region of `domain` that is not registered.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(domain: &Arc<Domain<O>>, kind: RegionKind) -> Result<Arc<Self>, NtStatus> {
        Self::try_new_for(domain, kind, ())
    }

    /// [`Region::try_new`] with a client, which is dropped when the last of the region is gone, and with it the last use of
    /// bytes that were fast-registered with it. Normally registered bytes tell when they are [released](Released).
    ///
    /// # Errors
    ///
    /// As [`Region::try_new`].
    pub fn try_new_for(
        domain: &Arc<Domain<O>>,
        kind: RegionKind,
        client: impl Any + Send + Sync,
    ) -> Result<Arc<Self>, NtStatus> {
        let client = Client::try_new(client).map_err(memory_status)?;
        let object = match kind {
            RegionKind::Normal => Object::Normal(Normal { grant: None, windows: Windows::default(), cached_in: None }),
            RegionKind::Fast => Object::Fast(None),
        };
        let entry = Entry { domain: domain.number(), object };
        let number = domain.table().tokens().insert(|_| entry).map_err(memory_status)?;
        domain.table().population().regions.enter();
        // From here on a failure drops the region, which gives its place back.
        Arc::try_new(Self { domain: domain.clone(), number, client }).map_err(memory_status)
    }

    /// The region's protection domain.
    #[must_use]
    pub const fn domain(&self) -> &Arc<Domain<O>> {
        &self.domain
    }

    pub(super) const fn number(&self) -> u32 {
        self.number
    }

    /// Works on the region's state, under the rules of [`Places::with`](super::places::Places::with).
    pub(super) fn with<U>(
        &self,
        work: impl FnOnce(&mut u32, &mut Object<O>) -> Result<U, NtStatus>,
    ) -> Result<U, NtStatus> {
        let done = self.domain.table().tokens().with(self.number, |stamp, entry| work(stamp, &mut entry.object));
        // The region has its place as long as it lives.
        done.unwrap_or(Err(NtStatus::INVALID_DEVICE_STATE))
    }

    fn with_normal<U>(
        &self,
        work: impl FnOnce(&mut u32, &mut Normal<O>) -> Result<U, NtStatus>,
    ) -> Result<U, NtStatus> {
        self.with(|stamp, object| match object {
            Object::Normal(normal) => work(stamp, normal),
            Object::Domain | Object::Fast(_) | Object::Window(_) => Err(NtStatus::INVALID_DEVICE_REQUEST),
        })
    }

    /// Registers `memory` (`NDK_FN_REGISTER_MR`): requests name its bytes by the addresses from its base on, with the tokens
    /// that the region has when this returns. A range without bytes is fine.
    ///
    /// # Errors
    ///
    /// `memory` and `client` are dropped then, the latter without a call.
    ///
    /// - `STATUS_INVALID_PARAMETER`: more bytes than the adapter registers at once, or addresses that wrap.
    /// - `STATUS_INVALID_DEVICE_REQUEST`: the region is for fast registration.
    /// - `STATUS_INVALID_DEVICE_STATE`: it is registered already.
    /// - `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn register(&self, memory: O::Memory, rights: Rights, client: impl Released) -> Result<(), NtStatus> {
        let table = self.domain.table();
        let span = Span::new(memory.base(), memory.len() as u64);
        let span = span.filter(|span| span.length() <= table.limits().registration);
        let span = span.ok_or(NtStatus::INVALID_PARAMETER)?;
        // Dropped after the lock is released, if it is not taken.
        let mut pinned = Some(Pinned::try_new(memory, client).map_err(memory_status)?);
        let random = table.random();
        self.with_normal(|stamp, normal| {
            if normal.grant.is_some() {
                return Err(NtStatus::INVALID_DEVICE_STATE);
            }
            let local = Tag::next(stamp, random, |_| false);
            // Another generation makes it another tag.
            let remote = Tag::next(stamp, random >> 8, |_| false);
            let pinned = pinned.take().ok_or(NtStatus::INVALID_DEVICE_STATE)?;
            pinned.arm();
            let source = Source::Range(pinned, 0);
            normal.grant = Some(Grant { local: Some(local), remote, rights, span, source });
            Ok(())
        })
    }

    /// Ends the registration (`NDK_FN_DEREGISTER_MR`): its tokens are no good from now on. Requests that have found bytes by
    /// them may still use these bytes; the result says whether there are such.
    ///
    /// # Errors
    ///
    /// - `STATUS_DEVICE_BUSY`: windows are bound to the region, or binds are posted; nothing has changed then.
    /// - `STATUS_INVALID_DEVICE_REQUEST`: the region is for fast registration, which an invalidation ends.
    /// - `STATUS_INVALID_DEVICE_STATE`: it is not registered.
    pub fn deregister(&self) -> Result<Release, NtStatus> {
        if fault::is(Fault::TokenAfterDeregister) {
            return Ok(Release::Done);
        }
        let (grant, cache) = self.with_normal(|_, normal| {
            if normal.windows.exist() {
                return Err(NtStatus::DEVICE_BUSY);
            }
            Ok((normal.grant.take().ok_or(NtStatus::INVALID_DEVICE_STATE)?, normal.cached_in.take()))
        })?;
        match grant.source {
            Source::Range(pinned, _) => {
                if let Some(cache) = cache {
                    cache.forget(&pinned);
                }
                Ok(Pinned::let_go(pinned))
            }
            Source::Logical(_) | Source::Pages(..) => Ok(Release::Done),
        }
    }

    /// Makes room for fast registrations of up to `most_pages` pages, with remote rights or without
    /// (`NDK_FN_INITIALIZE_FAST_REGISTER_MR`). The local token is good for them all; both tokens exist when this returns.
    ///
    /// # Errors
    ///
    /// - `STATUS_IMPLEMENTATION_LIMIT`: no pages, or more than the adapter registers at once.
    /// - `STATUS_INVALID_DEVICE_REQUEST`: the region is not for fast registration.
    /// - `STATUS_INVALID_DEVICE_STATE`: it is initialised already.
    /// - `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn initialize_fast_register(&self, most_pages: u32, remote_access: bool) -> Result<(), NtStatus> {
        let table = self.domain.table();
        if !(1..=table.limits().fast_register_pages).contains(&most_pages) {
            return Err(NtStatus::IMPLEMENTATION_LIMIT);
        }
        let random = table.random();
        let new = |stamp: &mut u32| {
            let (local, remote) = (Tag::next(stamp, random, |_| false), Tag::next(stamp, random >> 8, |_| false));
            Fast::try_new(table, &self.client, most_pages, remote_access, local, remote)
        };
        // Tags are given out under the lock, memory before it.
        let mut stamp = self.with(|stamp, object| match object {
            Object::Fast(None) => Ok(*stamp),
            Object::Fast(Some(_)) => Err(NtStatus::INVALID_DEVICE_STATE),
            Object::Domain | Object::Normal(_) | Object::Window(_) => Err(NtStatus::INVALID_DEVICE_REQUEST),
        })?;
        let mut fast: Option<Box<Fast<O>>> = Some(try_box(new(&mut stamp)?).map_err(memory_status)?);
        self.with(|place, object| match object {
            Object::Fast(none @ None) => {
                *place = stamp;
                *none = fast.take();
                Ok(())
            }
            // Another call was faster. What was made is dropped after the lock is released.
            _ => Err(NtStatus::INVALID_DEVICE_STATE),
        })
    }

    /// The token for the consumer's own requests. Zero, which is no token, if there is none: before the region is registered
    /// or initialised.
    #[must_use]
    pub fn local_token(&self) -> u32 {
        self.token(|normal| normal.local, |fast| Some(fast.local))
    }

    /// The token for peers. [`FastTokens`](super::FastTokens) says if those of a region for fast registration differ: then it is
    /// that of the registration posted last. Zero, which is no token,
    /// if there is none: before the region is registered or initialised.
    #[must_use]
    pub fn remote_token(&self) -> u32 {
        self.token(|normal| Some(normal.remote), |fast| Some(fast.remote))
    }

    fn token(
        &self,
        normal_tag: impl FnOnce(&Grant<O>) -> Option<Tag>,
        fast_tag: impl FnOnce(&Fast<O>) -> Option<Tag>,
    ) -> u32 {
        let tag = self.with(|_, object| {
            Ok(match object {
                Object::Normal(normal) => normal.grant.as_ref().and_then(normal_tag),
                Object::Fast(fast) => fast.as_deref().and_then(fast_tag),
                Object::Domain | Object::Window(_) => None,
            })
        });
        tag.ok().flatten().map_or(0, |tag| tag.token(self.number))
    }

    /// What names the region in [`Domain::invalidate`], whichever of its registrations is in force then.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_DEVICE_REQUEST` if the region is for registration only, which [`Region::deregister`] ends
    /// (`NDKPI 7.6`); `STATUS_INVALID_DEVICE_STATE` if it is not initialised.
    pub fn invalidation_token(&self) -> Result<u32, NtStatus> {
        self.with_fast(|_, fast| Ok(fast.local.token(self.number)))
    }
}

impl<O: Os> Drop for Region<O> {
    fn drop(&mut self) {
        // The entry is dropped here, with no lock held: that may tell a client, and unmap memory.
        let entry = self.domain.table().tokens().remove_if(self.number, |_| true);
        if let Some(Entry { object: Object::Normal(normal), .. }) = &entry
            && let (Some(cache), Some(pinned)) = (&normal.cached_in, normal.pinned())
        {
            cache.forget(pinned);
        }
        drop(entry);
        self.domain.table().population().regions.leave();
    }
}

//! Memory regions (`NDKPI 5.5`, `7.4`).

use alloc::boxed::Box;
use core::any::Any;

use fallible::{Arc, try_box};
use ntstatus::NtStatus;

use super::{
    Domain, FastTokens, Kind,
    entry::{Entry, Normal, Object, Windows},
    fast::Fast,
    mr_entry::{MrEntry, Rights, Source, Span},
    pinned::{Pinned, Release, Released},
    token::{Pair, Rotation},
    uses::Client,
};
use crate::{
    os::{Memory, Os},
    sync::{AtomicU32, Ordering},
};

/// No token.
const NONE: u32 = 0;
/// No token either: it names no slot.
const BUSY: u32 = 1;

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
/// It counts among the objects with tokens from the beginning, so that registering again cannot fail for want of a token.
/// Dropping it ends its registration; windows that are bound to it keep it.
pub struct Region<O: Os> {
    domain: Arc<Domain<O>>,
    kind: RegionKind,
    /// The local token. That of a region for registration is [`NONE`] while it is not registered, and [`BUSY`] while that begins.
    token: AtomicU32,
    /// Dropped with the region, which windows keep longer than its owner does, and with the last segment that was found
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

    /// [`Region::try_new`] with a client, which is dropped after the region and the last use of bytes that were fast-registered
    /// with it. Normally registered bytes have a client of their own: [`Released`].
    ///
    /// # Errors
    ///
    /// As [`Region::try_new`].
    pub fn try_new_for(
        domain: &Arc<Domain<O>>,
        kind: RegionKind,
        client: impl Any + Send + Sync,
    ) -> Result<Arc<Self>, NtStatus> {
        let client = Client::try_new(client)?;
        let table = domain.table();
        table.population().enter(Kind::Region)?;
        // From here on a failure drops the region.
        let region = Self { domain: domain.clone(), kind, token: AtomicU32::new(NONE), client };
        if kind == RegionKind::Fast {
            let entry = || Entry { domain: domain.privileged_token(), object: Object::Fast(None) };
            let token = match table.fast_tokens() {
                FastTokens::Stable => table.tokens().insert_fixed(|_| entry()).map(|tokens| tokens.local),
                FastTokens::Rotating => table.tokens().insert_rotating(|_| entry()),
            };
            region.token.store(token?, Ordering::Release);
        }
        Arc::try_new(region).map_err(Into::into)
    }

    /// The region's protection domain.
    #[must_use]
    pub const fn domain(&self) -> &Arc<Domain<O>> {
        &self.domain
    }

    pub(super) const fn kind(&self) -> RegionKind {
        self.kind
    }

    /// Works on the region's state, under the rules of [`TokenTable::with`](super::tokens::TokenTable::with).
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_DEVICE_STATE` if it has none: it is for registration, and not registered.
    pub(super) fn with<U>(
        &self,
        work: impl FnOnce(Rotation<'_>, &mut Object<O>) -> Result<U, NtStatus>,
    ) -> Result<U, NtStatus> {
        let token = self.token.load(Ordering::Acquire);
        let done =
            self.domain.table().tokens().with(token, |rotation, entry| {
                entry.object.is_region(token).then(|| work(rotation, &mut entry.object))
            });
        done.flatten().unwrap_or(Err(NtStatus::INVALID_DEVICE_STATE))
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
        if self.kind == RegionKind::Fast {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        let pinned = Pinned::try_new(memory, client)?;
        let begun = self.token.compare_exchange(NONE, BUSY, Ordering::Acquire, Ordering::Relaxed);
        begun.map_err(|_| NtStatus::INVALID_DEVICE_STATE)?;
        let domain = self.domain.privileged_token();
        let tokens = table.tokens().insert_fixed(|Pair { local, remote }| {
            pinned.arm();
            let rights = table.in_force(rights);
            let grant = MrEntry { local, remote, rights, span, source: Source::Range(pinned, 0) };
            let normal = Normal { grant, windows: Windows::default(), cached_in: None };
            Entry { domain, object: Object::Normal(normal) }
        });
        self.token.store(tokens.map_or(NONE, |tokens| tokens.local), Ordering::Release);
        tokens.map(drop).map_err(Into::into)
    }

    //= NDKPI 7.4.3
    /// Ends the registration (`NDK_FN_DEREGISTER_MR`): its tokens are no good from now on. Requests that have found bytes by
    /// them may still use these bytes; the result says whether there are such.
    ///
    /// # Errors
    ///
    /// - `STATUS_DEVICE_BUSY`: windows are bound to the region, or binds are posted; nothing has changed then.
    /// - `STATUS_INVALID_DEVICE_REQUEST`: the region is for fast registration, which an invalidation ends.
    /// - `STATUS_INVALID_DEVICE_STATE`: it is not registered.
    pub fn deregister(&self) -> Result<Release, NtStatus> {
        if self.kind == RegionKind::Fast {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        let (token, mut busy) = (self.token.load(Ordering::Acquire), false);
        let entry = self.domain.table().tokens().remove_if(token, |entry| match &entry.object {
            Object::Normal(normal) if entry.object.is_region(token) => {
                busy = normal.windows.exist();
                !busy
            }
            _ => false,
        });
        let Some(Entry { object: Object::Normal(normal), .. }) = entry else {
            return Err(if busy { NtStatus::DEVICE_BUSY } else { NtStatus::INVALID_DEVICE_STATE });
        };
        // Nothing else changes it: whoever removed the entry ends the registration.
        self.token.store(NONE, Ordering::Release);
        match normal.grant.source {
            Source::Range(pinned, _) => {
                if let Some(cache) = normal.cached_in {
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
        if self.kind == RegionKind::Normal {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        let is_new = self.with(|_, object| Ok(matches!(object, Object::Fast(None))));
        if is_new != Ok(true) {
            return Err(NtStatus::INVALID_DEVICE_STATE);
        }
        // Memory is allocated before the lock is taken.
        let tokens = Pair::of_local(self.token.load(Ordering::Relaxed));
        let fast = Fast::try_new(table, &self.client, most_pages, remote_access, tokens)?;
        let mut fast: Option<Box<Fast<O>>> = Some(try_box(fast)?);
        self.with(|rotation, object| match (object, &mut fast) {
            (Object::Fast(none @ None), Some(new)) => {
                new.remote = rotation.next(1, |token| token == tokens.local).unwrap_or(tokens.remote);
                *none = fast.take();
                Ok(())
            }
            // Another call was faster. What was made is dropped after the lock is released.
            _ => Err(NtStatus::INVALID_DEVICE_STATE),
        })
    }

    //= NDKPI 7.4.4
    /// The token for the consumer's own requests. Zero, which is no token, if there is none: before the region is registered
    /// or initialised.
    #[must_use]
    pub fn local_token(&self) -> u32 {
        self.token_of(|grant| grant.local, |fast| fast.local)
    }

    /// The token for peers. [`FastTokens`] says if those of a region for fast registration differ: then it is
    /// that of the registration posted last. Zero, which is no token,
    /// if there is none: before the region is registered or initialised.
    #[must_use]
    pub fn remote_token(&self) -> u32 {
        self.token_of(|grant| grant.remote, |fast| fast.remote)
    }

    fn token_of(&self, normal: impl FnOnce(&MrEntry<O>) -> u32, fast: impl FnOnce(&Fast<O>) -> u32) -> u32 {
        let token = self.with(|_, object| {
            Ok(match object {
                Object::Normal(region) => normal(&region.grant),
                Object::Fast(region) => region.as_deref().map_or(NONE, fast),
                Object::Domain | Object::Window(_) => NONE,
            })
        });
        token.unwrap_or(NONE)
    }

    //= NDKPI 7.6.3
    /// What names the region in [`Domain::invalidate`], whichever of its registrations is in force then.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_DEVICE_REQUEST` if the region is for registration only, which [`Region::deregister`] ends
    /// (`NDKPI 7.6`); `STATUS_INVALID_DEVICE_STATE` if it is not initialised.
    pub fn invalidation_token(&self) -> Result<u32, NtStatus> {
        self.with_fast(|_, fast| Ok(fast.local))
    }
}

impl<O: Os> Drop for Region<O> {
    fn drop(&mut self) {
        // The entry is dropped here, with no lock held: that may tell a client, and unmap memory.
        let token = self.token.load(Ordering::Acquire);
        let entry = self.domain.table().tokens().remove_if(token, |entry| entry.object.is_region(token));
        if let Some(Entry { object: Object::Normal(normal), .. }) = &entry
            && let (Some(cache), Some(pinned)) = (&normal.cached_in, normal.pinned())
        {
            cache.forget(pinned);
        }
        drop(entry);
        self.domain.table().population().leave(Kind::Region);
    }
}

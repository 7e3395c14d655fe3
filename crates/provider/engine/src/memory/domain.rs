//! Protection domains (`NDKPI 5.3`): whose tokens a queue pair takes.

use fallible::Arc;
use ntstatus::NtStatus;

use super::{
    Kind, MemoryTable, Posted,
    entry::{Entry, Object},
    mr_entry::{Access, MrEntry, Source},
    segment::Segment,
    translation::{Side, Translation, TranslationCache},
    uses::{SegmentUses, Transfers, UsesOf},
};
use crate::os::{Memory, Os};

/// A token, and what it is to be used for.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    /// The token.
    pub token: u32,
    /// The use.
    pub access: Access,
}

/// What a token stands for, with its place locked: see [`Domain::with_token`].
pub struct LockedMr<'locked, O: Os> {
    token: u32,
    entry: &'locked MrEntry<O>,
    uses: UsesOf<'locked>,
}

impl<'locked, O: Os> LockedMr<'locked, O> {
    /// [`LockedMr::locate`], if they are named by this token.
    #[inline]
    pub fn find(&self, token: u32, address: u64, length: u32) -> Option<(&'locked O::Memory, usize)> {
        if token == self.token { self.locate(address, length) } else { None }
    }

    /// The memory of `length` bytes from `address` on, and where in it they begin. `None` if they are not all registered, or do
    /// not lie side by side in memory that was registered itself.
    #[inline]
    pub fn locate(&self, address: u64, length: u32) -> Option<(&'locked O::Memory, usize)> {
        let Source::Range(pinned, start) = &self.entry.source else { return None };
        let offset = self.entry.span.locate(address, u64::from(length))?;
        Some((pinned.memory(), usize::try_from(start + offset).ok()?))
    }

    /// Where `length` bytes from `address` on are, for longer than the lock is held. `None` if they are not all registered.
    #[inline]
    fn hold(&self, address: u64, length: u32) -> Option<(Source<O>, SegmentUses)> {
        let offset = self.entry.span.locate(address, u64::from(length))?;
        Some((self.entry.source.at(offset), self.uses.begin()))
    }

    /// Prefetches the bytes at `address` for writing.
    #[inline]
    pub fn prefetch(&self, address: u64) {
        if let Some((memory, offset)) = self.locate(address, 0) {
            memory.prefetch(offset);
        }
    }
}

/// Bytes of one packet.
fn length_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// A protection domain.
pub struct Domain<O: Os> {
    table: Arc<MemoryTable<O>>,
    /// The privileged token, which also stands for the domain in the table of tokens.
    privileged: u32,
}

impl<O: Os> Domain<O> {
    /// A protection domain without regions.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(table: &Arc<MemoryTable<O>>) -> Result<Arc<Self>, NtStatus> {
        table.population().enter(Kind::Domain)?;
        // The privileged token has a slot like any other, so that no other token equals it.
        let tokens = table.tokens().insert_fixed(|_| Entry { domain: 0, object: Object::Domain });
        let tokens = tokens.map_err(|error| {
            table.population().leave(Kind::Domain);
            NtStatus::from(error)
        })?;
        // From here on a failure drops the domain, which gives its slot back.
        Arc::try_new(Self { table: table.clone(), privileged: tokens.local }).map_err(Into::into)
    }

    /// The adapter's memory.
    #[must_use]
    pub const fn table(&self) -> &Arc<MemoryTable<O>> {
        &self.table
    }

    /// Returns true if this is the domain `other`.
    pub(super) fn is(&self, other: &Self) -> bool {
        core::ptr::eq(self, other)
    }

    /// The token that makes the addresses of scatter/gather elements logical ones (`NDKPI 7.5`).
    #[must_use]
    pub const fn privileged_token(&self) -> u32 {
        self.privileged
    }

    /// Finds the bytes that a request of this domain's queue pairs names, or that a peer's request names to them.
    ///
    /// With the privileged token, `address` is a logical address, and peers have no access. Without bytes there is nothing
    /// to protect, and nothing is checked.
    ///
    /// Costs one look-up by index, under a lock that 64 places share and for a constant time, and one reference for what is
    /// found; logical addresses cost a second look-up of the same kind. Fast-registered pages that do not follow each other
    /// cost one for each run of those that do, among the bytes asked for. Nothing allocates, whatever there is registered.
    ///
    /// # Errors
    ///
    /// `STATUS_ACCESS_VIOLATION`: no token of this domain, or no more; a remote token in a local request, or the other way
    /// round; a right that was not granted; a byte outside of what is registered, bound or mapped.
    #[inline]
    pub fn resolve(&self, token: u32, address: u64, length: u32, access: Access) -> Result<Segment<O>, NtStatus> {
        if length == 0 {
            return Ok(Segment::empty());
        }
        if token == self.privileged {
            if access.is_remote() {
                return Err(NtStatus::ACCESS_VIOLATION);
            }
            // The privileged token grants no read sink (`NDKPI 7.5`).
            if access == Access::ReadSink && self.table.is_read_sink_required() {
                return Err(NtStatus::ACCESS_VIOLATION);
            }
            return Source::Logical(address).segment(&self.table, length, SegmentUses::NONE);
        }
        let found = self.with_token(Lookup { token, access }, |mr| mr.hold(address, length));
        let (source, uses) = found.flatten().ok_or(NtStatus::ACCESS_VIOLATION)?;
        source.segment(&self.table, length, uses)
    }

    /// Copies the bytes that `key` names from `address` on, as [`Domain::resolve`] finds them. For a packet at most: bytes that lie side by
    /// side are copied under the lock of the token's place, which spares references to them.
    ///
    /// # Errors
    ///
    /// As [`Domain::resolve`].
    #[inline]
    pub(crate) fn read(&self, key: Lookup, address: u64, into: &mut [u8]) -> Result<(), NtStatus> {
        let length = length_of(into);
        let copy = |mr: &LockedMr<'_, O>| mr.locate(address, length).map(|(memory, at)| memory.read(at, into));
        if length > 0 && self.with_token(key, copy).flatten().is_some() {
            return Ok(());
        }
        self.resolve(key.token, address, length, key.access)?.read(0, into);
        Ok(())
    }

    /// Stores bytes where [`Domain::read`] copies them from.
    ///
    /// # Errors
    ///
    /// As [`Domain::resolve`].
    #[inline]
    pub(crate) fn write(&self, key: Lookup, address: u64, bytes: &[u8]) -> Result<(), NtStatus> {
        let length = length_of(bytes);
        let copy = |mr: &LockedMr<'_, O>| mr.locate(address, length).map(|(memory, at)| memory.write(at, bytes));
        if length > 0 && self.with_token(key, copy).flatten().is_some() {
            return Ok(());
        }
        self.resolve(key.token, address, length, key.access)?.write(0, bytes);
        Ok(())
    }

    /// Lets `work` use the bytes of a token as `key` says. `None` if it does not allow that.
    ///
    /// `work` runs under the lock of the token's place, which spares references to bytes and keeps the end of their registration
    /// waiting. So it is to be short, and may not come back to the table.
    #[inline]
    pub(crate) fn with_token<U>(&self, key: Lookup, work: impl FnOnce(&LockedMr<'_, O>) -> U) -> Option<U> {
        self.table.tokens().with(key.token, |_, entry| self.open(entry, key).map(|mr| work(&mr)))?
    }

    /// [`Domain::with_token`] for two: `local` is of this domain and `remote` of the domain `peer`. `None` also if these are not
    /// of the same adapter.
    #[inline]
    pub(crate) fn with_tokens<U>(
        &self,
        local: Lookup,
        peer: &Self,
        remote: Lookup,
        work: impl FnOnce(&LockedMr<'_, O>, &LockedMr<'_, O>) -> U,
    ) -> Option<U> {
        if !Arc::ptr_eq(&self.table, &peer.table) {
            return None;
        }
        let tokens = self.table.tokens();
        tokens.with_two(local.token, remote.token, |my_entry, their_entry| {
            Some(work(&self.open(my_entry, local)?, &peer.open(their_entry, remote)?))
        })?
    }

    /// Puts what a token of this domain stands for into a [cache](super::translation), in the place of what is there for that
    /// side, unless another cache has it.
    #[inline(never)]
    pub(crate) fn cache(&self, cache: &Arc<TranslationCache<O>>, side: Side, key: Lookup) {
        match cache.token(side) {
            Some(token) if token == key.token => return,
            Some(token) => self.table.uncache(cache, token),
            None => {}
        }
        self.table.tokens().with(key.token, |_, entry| {
            let Some(LockedMr { entry: mr, .. }) = self.open(entry, key) else { return };
            let MrEntry { rights, span, source: Source::Range(pinned, start), .. } = mr else { return };
            let (table, token, pinned) = (self.table.clone(), key.token, pinned.clone());
            let translation = Translation { table, token, rights: *rights, span: *span, pinned, start: *start };
            let Object::Normal(normal) = &mut entry.object else { return };
            let is_free = normal.cached_in.as_ref().is_none_or(|other| Arc::ptr_eq(other, cache));
            if is_free && cache.insert(side, translation) {
                normal.cached_in = Some(cache.clone());
            }
        });
    }

    /// What a token stands for, if it is of this domain and may be used so.
    #[inline]
    fn open<'a>(&self, entry: &'a Entry<O>, Lookup { token, access }: Lookup) -> Option<LockedMr<'a, O>> {
        if entry.domain != self.privileged {
            return None;
        }
        let (entry, uses) = entry.object.open(token, access)?;
        Some(LockedMr { token, entry, uses })
    }

    /// Works on the object of this domain that a token, good or stale, names the slot of, under the rules of
    /// [`TokenTable::with`](super::tokens::TokenTable::with).
    pub(super) fn with_own<U>(
        &self,
        token: u32,
        work: impl FnOnce(&mut Object<O>) -> Result<U, NtStatus>,
    ) -> Result<U, NtStatus> {
        let done = self.table.tokens().with(token, |_, entry| {
            if entry.domain == self.privileged {
                work(&mut entry.object)
            } else {
                Err(NtStatus::INVALID_DEVICE_REQUEST)
            }
        });
        done.unwrap_or(Err(NtStatus::INVALID_DEVICE_REQUEST))
    }

    /// The second half of a fast registration or a bind, when its request is carried out.
    ///
    /// # Errors
    ///
    /// With this status the request completes; what was posted is forgotten.
    ///
    /// - `STATUS_INVALID_DEVICE_REQUEST`: the region is registered or the window bound, and was not invalidated before; it, or
    ///   the registration to bind to, is gone.
    /// - `STATUS_ACCESS_VIOLATION`: the registration to bind to is not the one of the post any more, and lacks a right or the
    ///   addresses.
    pub fn commit(&self, posted: Posted) -> Result<(), NtStatus> {
        let bind = self.with_own(posted.token, |object| match object {
            Object::Fast(Some(fast)) => fast.commit(posted.post).map(|()| None),
            Object::Window(window) => window.take_posted(posted.token).map(Some),
            Object::Domain | Object::Normal(_) | Object::Fast(None) => Err(NtStatus::INVALID_DEVICE_REQUEST),
        })?;
        bind.map_or(Ok(()), |bind| self.carry_out(bind))
    }

    /// Forgets a fast registration or a bind whose request is not carried out: it was flushed, or could not be posted.
    pub fn cancel(&self, posted: Posted) {
        let bind = self.with_own(posted.token, |object| match object {
            Object::Fast(Some(fast)) => {
                fast.cancel(posted.post);
                Ok(None)
            }
            Object::Window(window) => window.take_posted(posted.token).map(Some),
            Object::Domain | Object::Normal(_) | Object::Fast(None) => Ok(None),
        });
        if let Ok(Some(bind)) = bind {
            bind.forget();
        }
    }

    /// Ends the registration of a fast-registered region, or the binding of a window, for a request of this side
    /// (`NDKPI 7.6`). `token` is the invalidation token of the object, or a token of what is in force: the local token of a
    /// read's first element, the remote token.
    ///
    /// No request finds the bytes from now on. Requests of peers that have found them may be using them: the completion of the
    /// invalidation has to wait until the [transfers](Domain::transfers) are over.
    ///
    /// # Errors
    ///
    /// - `STATUS_INVALID_DEVICE_REQUEST`: the token names no such object of this domain, or nothing that is in force.
    /// - `STATUS_DEVICE_BUSY`: windows are bound to the region.
    pub fn invalidate(&self, token: u32) -> Result<(), NtStatus> {
        self.end(token, false)
    }

    /// Returns true if [`Domain::invalidate`] would succeed now.
    #[must_use]
    pub fn may_invalidate(&self, token: u32) -> bool {
        let outcome = self.with_own(token, |object| match object {
            Object::Fast(Some(fast)) => fast.may_end(token, false),
            Object::Window(window) => window.may_end(token, false),
            Object::Domain | Object::Normal(_) | Object::Fast(None) => Err(NtStatus::INVALID_DEVICE_REQUEST),
        });
        outcome.is_ok()
    }

    //= NDKPI 7.6.4
    /// [`Domain::invalidate`] for a peer's send, which may name a remote token that is in force and nothing else.
    ///
    /// # Errors
    ///
    /// As [`Domain::invalidate`].
    pub fn invalidate_remote(&self, token: u32) -> Result<(), NtStatus> {
        self.end(token, true)
    }

    fn end(&self, token: u32, by_peer: bool) -> Result<(), NtStatus> {
        let binding = self.with_own(token, |object| match object {
            Object::Fast(Some(fast)) => fast.end(token, by_peer).map(|()| None),
            Object::Window(window) => window.end(token, by_peer).map(Some),
            Object::Domain | Object::Normal(_) | Object::Fast(None) => Err(NtStatus::INVALID_DEVICE_REQUEST),
        })?;
        // With no lock held: the region may go away here.
        if let Some(binding) = binding {
            binding.unbind();
        }
        Ok(())
    }

    /// Returns true if `token` is the local one of a normal registration in force that windows keep, or binds that are posted
    /// ([`Region::deregister`](super::Region::deregister) answers `STATUS_DEVICE_BUSY`). The region's owner may have dropped it.
    #[must_use]
    pub fn has_windows(&self, token: u32) -> bool {
        let has_windows = self.table.tokens().with(token, |_, entry| match &entry.object {
            Object::Normal(normal) => entry.object.is_region(token) && normal.windows.exist(),
            Object::Domain | Object::Fast(_) | Object::Window(_) => false,
        });
        has_windows == Some(true)
    }

    /// The transfers that use the bytes of the fast-registered region or the window that `token` names, also through windows
    /// that are or were bound to the region. `token` is any that the object has or had.
    ///
    /// To be asked for before the invalidation, because the object may be closed after it.
    #[must_use]
    pub fn transfers(&self, token: u32) -> Transfers {
        Transfers(self.with_own(token, |object| Ok(object.uses().cloned())).ok().flatten())
    }

    /// Returns true if nothing speaks against [`Domain::commit`] now. It has to wait while transfers use what the object was
    /// registered for or bound to before: the invalidation that ended that waits for them, and must not have to wait for
    /// those that come after.
    #[must_use]
    pub fn may_commit(&self, posted: Posted) -> bool {
        let waits = self.with_own(posted.token, |object| {
            // If something is in force the commit fails, at once.
            Ok(!object.is_in_force() && object.uses().is_some_and(|uses| !uses.are_over()))
        });
        waits != Ok(true)
    }
}

impl<O: Os> Drop for Domain<O> {
    fn drop(&mut self) {
        drop(self.table.tokens().remove_if(self.privileged, |_| true));
        self.table.population().leave(Kind::Domain);
    }
}

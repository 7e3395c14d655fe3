//! The translations that a queue pair has used last.
//!
//! Like an adapter, a queue pair caches translations. If two tokens are used twice in succession, what they stand for is cached:
//! the next transfer needs neither the token table nor references, only the cache's lock. The end of a registration removes it
//! from its cache, which waits for a copy that is under way.
//!
//! There is one translation for a queue pair's own side and one for the peer's. A registration is in one cache at a time: other
//! queue pairs that use it find it by the table, and try now and then whether it is free. Fast registrations and windows, which
//! are there for single transfers, are in none.
//!
//! # Invariant
//!
//! A cache has the translation of a registration if, and only if, the [`Normal`](super::entry::Normal) of the registration names
//! that cache. Both are changed with the place of the token locked, except by the end of the registration and the close of the
//! cache, which change the second of the two after the first.
//!
//! Number and token say which registration is meant in one table only. The two sides may belong to two adapters, each with a
//! table of its own, so what the cache forgets is named by the registered bytes.
//!
//! Locks: the place of a number is locked before a cache, and nothing is locked after it.

use fallible::Arc;
use ntstatus::NtStatus;

use super::{
    MemoryTable,
    domain::Lookup,
    mr_entry::{Rights, Span},
    pinned::Pinned,
};
use crate::os::{Os, SpinLock};

/// Bytes that are copied at most with a cache locked: the end of a registration waits so long.
pub const MOST: u32 = 256 << 10;

/// Successive misses of the same two tokens before they are cached again: another cache may have released them by then.
const PATIENCE: u32 = 64;

/// A side of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The queue pair's own.
    Local,
    /// The peer's.
    Remote,
}

/// What a token stands for.
pub struct Translation<O: Os> {
    /// Where the token lies.
    pub table: Arc<MemoryTable<O>>,
    pub token: u32,
    pub rights: Rights,
    pub span: Span,
    pub pinned: Arc<Pinned<O::Memory>>,
    /// Where in the memory the span begins.
    pub start: u64,
}

impl<O: Os> Translation<O> {
    /// The memory of `length` bytes from `address` on, and where in it they begin, if that is what the key allows.
    #[inline]
    fn find(&self, key: Lookup, address: u64, length: u32) -> Option<(&O::Memory, usize)> {
        if self.token != key.token || !self.rights.allow(key.access) {
            return None;
        }
        let offset = self.span.locate(address, u64::from(length))?;
        Some((self.pinned.memory(), usize::try_from(self.start + offset).ok()?))
    }
}

/// The translations of a queue pair.
pub struct TranslationCache<O: Os> {
    state: O::Lock<State<O>>,
}

struct State<O: Os> {
    local: Option<Translation<O>>,
    remote: Option<Translation<O>>,
    /// The tokens of the last miss, and how often they were missed in succession.
    missed: (u32, u32),
    misses: u32,
    is_closed: bool,
}

/// What [`TranslationCache::with_both`] has found.
pub enum CacheResult<U> {
    /// Both sides, and the result of `work`.
    Hit(U),
    /// At most one side.
    Miss {
        /// The tokens have been missed before, and are to be cached now.
        is_due: bool,
    },
}

impl<O: Os> TranslationCache<O> {
    /// An empty one.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(os: &O) -> Result<Arc<Self>, NtStatus> {
        let state = State { local: None, remote: None, missed: (0, 0), misses: 0, is_closed: false };
        Arc::try_new(Self { state: os.lock(state)? }).map_err(Into::into)
    }

    /// Lets `work` use `length` bytes of both sides, [`MOST`] at most, if both translations are cached and allow it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "counted: what is known of the request stays in registers")]
    pub fn with_both<U>(
        &self,
        (local, my_address): (Lookup, u64),
        (remote, their_address): (Lookup, u64),
        length: u32,
        work: impl FnOnce((&O::Memory, usize), (&O::Memory, usize)) -> U,
    ) -> CacheResult<U> {
        self.state.with(move |state| {
            if let (Some(my), Some(their)) = (&state.local, &state.remote)
                && let Some(my) = my.find(local, my_address, length)
                && let Some(their) = their.find(remote, their_address, length)
            {
                return CacheResult::Hit(work(my, their));
            }
            CacheResult::Miss { is_due: state.miss((local.token, remote.token)) }
        })
    }

    /// The token of the translation for a side.
    pub fn token(&self, side: Side) -> Option<u32> {
        self.state.with(|state| state.side(side).as_ref().map(|translation| translation.token))
    }

    /// Inserts a translation, unless the side has one. The caller has locked the token's slot.
    #[must_use]
    pub fn insert(&self, side: Side, translation: Translation<O>) -> bool {
        let mut translation = Some(translation);
        self.state.with(|state| {
            if state.is_closed || state.side(side).is_some() {
                return false;
            }
            *state.side(side) = translation.take();
            true
        })
    }

    //= NDKPI 7.4.3
    /// Removes a registration of these bytes. When this returns, no transfer uses them through this cache.
    pub fn forget(&self, pinned: &Arc<Pinned<O::Memory>>) {
        // Dropped after the lock is released.
        let _forgotten = self.state.with(|state| {
            [Side::Local, Side::Remote]
                .map(|side| state.side(side).take_if(|translation| Arc::ptr_eq(&translation.pinned, pinned)))
        });
    }

    /// Removes everything, and refuses later insertions. Other caches may have what was in this one.
    pub fn close(this: &Arc<Self>) {
        let forgotten = this.state.with(|state| {
            state.is_closed = true;
            [state.local.take(), state.remote.take()]
        });
        for translation in forgotten.into_iter().flatten() {
            translation.table.uncache(this, translation.token);
        }
    }
}

impl<O: Os> State<O> {
    /// Counts a miss. Returns true if the tokens are to be cached now.
    fn miss(&mut self, tokens: (u32, u32)) -> bool {
        self.misses = if self.missed == tokens { self.misses.wrapping_add(1) } else { 1 };
        self.missed = tokens;
        self.misses % PATIENCE == 2
    }

    const fn side(&mut self, side: Side) -> &mut Option<Translation<O>> {
        match side {
            Side::Local => &mut self.local,
            Side::Remote => &mut self.remote,
        }
    }
}

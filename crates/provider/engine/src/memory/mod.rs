//! Registered memory: regions, windows, logical addresses, and the tokens that name them (`NDKPI 7.4` to `7.6`).
//!
//! ```text
//! MemoryTable   all tokens and all logical addresses of an adapter
//!   Domain      protection domain: what a queue pair asks to find bytes
//!     Region    registered bytes, normally or by fast registration
//!     Window    a part of a region, for peers
//!   Mapping     logical addresses of bytes
//! Segment         bytes that a request has found: they stay mapped as long as it lives
//! Uses          who uses the bytes of a fast-registered region or a window: invalidation and close wait for them
//! Translation   what a token stands for, in the cache of a queue pair
//! ```
//!
//! A request names bytes by token, address and length; [`Domain::resolve`] turns that into a [`Segment`] or refuses, and
//! [`transfer()`] copies between segments. Nothing is read or written that was not found so.
//!
//! Fast registrations and binds have two halves. The first belongs to the post, which checks everything that can be checked
//! and makes the new remote token; the second to the moment when the request is carried out, in the order of its queue.
//! Between them [`Posted`] stands for the request, a plain value that its place in the queue can hold.
//!
//! # What NDKPI leaves open
//!
//! | question | here |
//! |---|---|
//! | local and remote token of a region | differ; each is good for its own kind of access only |
//! | local token of a fast-registered region | stays the same |
//! | remote token of a fast-registered region | stays the same, or changes with each post, as [`FastTokens`] says |
//! | tokens without bytes (length zero) | not checked |
//! | register when registered, initialise twice | `STATUS_INVALID_DEVICE_STATE` |
//! | deregister when not registered | `STATUS_INVALID_DEVICE_STATE` |
//! | the call of the other kind of region | `STATUS_INVALID_DEVICE_REQUEST` |
//! | more pages than initialised for | `STATUS_INVALID_PARAMETER` inline |
//! | fast-registering bytes that no mapping covers | `STATUS_ACCESS_VIOLATION` inline |
//! | fast register or bind again without invalidation | completes with `STATUS_INVALID_DEVICE_REQUEST` |
//! | fast registrations of a region, or binds of a window, posted one behind the other | as many as the queues hold; the post that is one more than ever before allocates |
//! | a window outside of its region | `STATUS_ACCESS_VIOLATION` inline |
//! | region and window of different domains | `STATUS_INVALID_PARAMETER` inline |
//! | deregister with windows bound or binds posted | `STATUS_DEVICE_BUSY` |
//! | invalidate a region with windows bound | completes with `STATUS_DEVICE_BUSY` |
//! | second invalidation | completes with `STATUS_INVALID_DEVICE_REQUEST` |
//! | close or invalidation of a region, transfers through a window that is or was bound to it | completes when these are over |
//! | fast register or bind while an invalidation waits for transfers | carried out when these are over |
//! | a mapping released under a registration | its bytes are refused from then on |
//!
//! # Locks
//!
//! Tokens and mappings lie in tables with one lock to 64 slots, and one for the free slots. A look-up of one takes one
//! lock at a time, one of two tokens may take two: fixed before rotating ones, and then in the order of the table. A queue pair's cache of translations has a lock that is
//! taken after these, or alone. No lock is held while anything is dropped that was handed in from outside.

mod domain;
mod entry;
mod fast;
mod growing;
mod mapping;
mod mr_entry;
mod pages;
mod pinned;
mod region;
mod segment;
mod slots;
mod token;
mod tokens;
mod transfer;
mod translation;
mod uses;
mod window;

pub use domain::Domain;
pub(crate) use domain::{LockedMr, Lookup};
use entry::Object;
use fallible::Arc;
pub use fast::{FastRegister, FastTokens, MOST_POSTED};
use mapping::Mappings;
pub use mapping::{MAX_LENGTH, Mapping, PAGE_SIZE, pages_touched};
pub use mr_entry::{Access, Rights};
use ntstatus::NtStatus;
pub use pinned::{Release, Released};
pub use region::{Region, RegionKind};
pub use segment::Segment;
pub(crate) use token::are_of_one_object;
use tokens::TokenTable;
pub use transfer::{transfer, transfer_in_disorder, write};
pub(crate) use translation::{CacheResult, MOST as MOST_BY_CACHE, Side, TranslationCache};
pub use uses::Transfers;
pub use window::{Bind, Window};

use crate::{
    os::{Memory, Os},
    sync::{AtomicU32, Ordering},
};

/// How much of everything an adapter has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Regions, windows and protection domains at one time, taken together. Of windows there are no more than
    /// [`MemoryLimits::WINDOWS`] in any case.
    pub tokens: u32,
    /// Mappings at one time.
    pub mappings: u32,
    /// Bytes of one region, window or mapping (`MaxRegistrationSize`, `MaxWindowSize`).
    pub registration: u64,
    /// Pages of one fast registration.
    pub fast_register_pages: u32,
}

impl MemoryLimits {
    /// The largest limits that tokens and logical addresses have room for.
    pub const MAX: Self = Self {
        tokens: token::MOST_FIXED,
        mappings: mapping::MOST,
        registration: MAX_LENGTH,
        fast_register_pages: 4096,
    };

    /// Windows at one time, whatever the limits are: their tokens change with each bind, and need more bits for that. With
    /// [`FastTokens::Rotating`] regions for fast registration are counted among them.
    pub const WINDOWS: u32 = token::MOST_ROTATING;

    const fn are_possible(&self) -> bool {
        self.tokens <= Self::MAX.tokens
            && self.mappings <= Self::MAX.mappings
            && self.registration <= Self::MAX.registration
            && self.fast_register_pages <= Self::MAX.fast_register_pages
    }
}

/// Rules on which adapters differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryRules {
    /// What fast registrations do to remote tokens.
    pub fast_tokens: FastTokens,
    /// True if the consumer's own reads may put their data only where [`Rights::READ_SINK`] is granted (`NDKPI 2.6`: the adapter
    /// does not say `RDMA_READ_SINK_NOT_REQUIRED`); false if local write is enough.
    pub read_sink_required: bool,
}

/// What a [`MemoryTable`] holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounts {
    /// Protection domains.
    pub domains: u32,
    /// Memory regions, registered or not.
    pub regions: u32,
    /// Memory windows, bound or not.
    pub windows: u32,
    /// Mappings.
    pub mappings: u32,
    /// Bytes of the tables. What one object has for itself is not among them.
    pub bytes: usize,
}

/// Objects that have tokens.
#[derive(Clone, Copy)]
enum Kind {
    Domain,
    Region,
    Window,
}

/// How many objects exist.
struct Population {
    all: AtomicU32,
    limit: u32,
    kinds: [AtomicU32; 3],
}

impl Population {
    fn new(limit: u32) -> Self {
        Self { all: AtomicU32::new(0), limit, kinds: [const { 0 }; 3].map(AtomicU32::new) }
    }

    fn now(&self, kind: Kind) -> u32 {
        self.kinds[kind as usize].load(Ordering::Relaxed)
    }

    /// Counts one more, of which there is a token at most at a time.
    fn enter(&self, kind: Kind) -> Result<(), NtStatus> {
        let more = |all| (all < self.limit).then_some(all + 1);
        let counted = self.all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted.map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        self.kinds[kind as usize].fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// After the object's slot was given back.
    fn leave(&self, kind: Kind) {
        self.kinds[kind as usize].fetch_sub(1, Ordering::Relaxed);
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All tokens and all logical addresses of an adapter.
///
/// The tables grow while objects are made, and a look-up costs the same however many there are.
pub struct MemoryTable<O: Os> {
    limits: MemoryLimits,
    rules: MemoryRules,
    tokens: TokenTable<O>,
    mappings: Mappings<O>,
    population: Population,
}

impl<O: Os> MemoryTable<O> {
    /// An empty table. At `PASSIVE_LEVEL`: it makes a lock for every 64 slots that there may be.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if a limit is above its [maximum](MemoryLimits::MAX); `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(os: &O, limits: MemoryLimits) -> Result<Arc<Self>, NtStatus> {
        Self::try_new_with(os, limits, MemoryRules::default())
    }

    /// [`MemoryTable::try_new`] with other rules.
    ///
    /// # Errors
    ///
    /// As [`MemoryTable::try_new`].
    // Not inlined, so that its parts do not lie in the stack frame of who makes an adapter.
    #[inline(never)]
    pub fn try_new_with(os: &O, limits: MemoryLimits, rules: MemoryRules) -> Result<Arc<Self>, NtStatus> {
        if !limits.are_possible() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Arc::try_new(Self {
            limits,
            rules,
            tokens: TokenTable::try_new(os, limits.tokens)?,
            mappings: Mappings::try_new(os, limits.mappings)?,
            population: Population::new(limits.tokens),
        })
        .map_err(Into::into)
    }

    /// What the table holds now.
    #[must_use]
    pub fn counts(&self) -> MemoryCounts {
        MemoryCounts {
            domains: self.population.now(Kind::Domain),
            regions: self.population.now(Kind::Region),
            windows: self.population.now(Kind::Window),
            mappings: self.mappings.count(),
            bytes: self.tokens.bytes() + self.mappings.bytes(),
        }
    }

    /// The limits it was made with.
    #[must_use]
    pub const fn limits(&self) -> &MemoryLimits {
        &self.limits
    }

    /// Gives the pages of `memory` logical addresses (`NDK_FN_BUILD_LAM`).
    ///
    /// How many pages there will be [can be known](pages_touched) before.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` for more bytes than the adapter registers at once; `STATUS_INSUFFICIENT_RESOURCES`. `memory` and
    /// `client` are dropped then, the latter without a call.
    pub fn map(&self, memory: O::Memory, client: impl Released) -> Result<Mapping, NtStatus> {
        if memory.len() as u64 > self.limits.registration {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        self.mappings.map(memory, client)
    }

    /// Takes the addresses of a mapping back (`NDK_FN_RELEASE_LAM`): they name nothing from now on, also in regions that were
    /// fast-registered with them. Transfers in progress may still use bytes, which is against `NDKPI 7.5`; the result says so.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_DEVICE_REQUEST` if no mapping has this [key](Mapping::key), for example because it was released.
    pub fn unmap(&self, key: u64) -> Result<Release, NtStatus> {
        self.mappings.unmap(key)
    }

    /// Takes what a token stands for out of a [cache](translation).
    fn uncache(&self, cache: &Arc<TranslationCache<O>>, token: u32) {
        // Dropped after the lock is released.
        let _reference = self.tokens.with(token, |_, entry| {
            let Object::Normal(normal) = &mut entry.object else { return None };
            if token != normal.grant.local && token != normal.grant.remote {
                return None;
            }
            let reference = normal.cached_in.take_if(|other| Arc::ptr_eq(other, cache))?;
            if let Some(pinned) = normal.pinned() {
                reference.forget(pinned);
            }
            Some(reference)
        });
    }

    const fn fast_tokens(&self) -> FastTokens {
        self.rules.fast_tokens
    }

    fn is_read_sink_required(&self) -> bool {
        self.rules.read_sink_required
    }

    /// The rights in force of a registration with these.
    fn in_force(&self, rights: Rights) -> Rights {
        rights.in_force(self.is_read_sink_required())
    }

    const fn tokens(&self) -> &TokenTable<O> {
        &self.tokens
    }

    const fn mappings(&self) -> &Mappings<O> {
        &self.mappings
    }

    const fn population(&self) -> &Population {
        &self.population
    }
}

/// A fast registration or bind that is posted and not yet carried out: what its request keeps.
///
/// It says which object and which post is meant, and nothing becomes of one that is no longer good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The remote token, new for a bind.
    token: u32,
    /// The number of the post, for a fast registration.
    post: u32,
}

impl Posted {
    /// The remote token of what it puts in force.
    pub(crate) const fn token(self) -> u32 {
        self.token
    }
}

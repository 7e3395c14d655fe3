//! Registered memory: regions, windows, logical addresses and the tokens that name them (`NDKPI 7.4` to `7.6`).
//!
//! The interface only, so far: what is not written yet panics.

use alloc::boxed::Box;
use core::marker::PhantomData;

use fallible::Shared;
use ndkpi::NtStatus;

use crate::os::Os;

/// How much of everything an adapter has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Tokens at one time: one for each region, window and protection domain.
    pub tokens: u32,
    /// Logical address mappings at one time.
    pub mappings: u32,
    /// Bytes of one region, window or mapping (`MaxRegistrationSize`).
    pub registration: u64,
    /// Pages of one fast registration.
    pub fast_register_pages: u32,
}

/// What is in use of a [`MemoryTable`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounts {
    /// Protection domains.
    pub domains: u32,
    /// Memory regions.
    pub regions: u32,
    /// Memory windows.
    pub windows: u32,
    /// Logical address mappings.
    pub mappings: u32,
}

/// All tokens and all logical addresses of an adapter.
pub struct MemoryTable<O: Os>(PhantomData<O>);

impl<O: Os> MemoryTable<O> {
    /// An empty table.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(_os: &O, _limits: MemoryLimits) -> Result<Shared<Self>, NtStatus> {
        todo!()
    }

    /// What is in use.
    #[must_use]
    pub fn counts(&self) -> MemoryCounts {
        todo!()
    }

    /// Gives the pages of `memory` logical addresses (`NDK_FN_BUILD_LAM`).
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER`, `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn map(&self, _memory: O::Memory, _client: impl Released) -> Result<Mapping, NtStatus> {
        todo!()
    }

    /// Takes logical addresses back (`NDK_FN_RELEASE_LAM`).
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_DEVICE_REQUEST` if there is no such mapping.
    pub fn unmap(&self, _key: u64) -> Result<Release, NtStatus> {
        todo!()
    }
}

/// The logical addresses of a pinned range: a plain value. [`MemoryTable::unmap`] ends the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    base: u64,
    pages: u32,
    first_byte: u32,
}

impl Mapping {
    /// What names the mapping in [`MemoryTable::unmap`]. Never zero.
    #[must_use]
    pub const fn key(&self) -> u64 {
        self.base
    }

    /// The number of pages.
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// Where in the first page the range begins.
    #[must_use]
    pub const fn first_byte(&self) -> u32 {
        self.first_byte
    }
}

/// Who is told that registered bytes are not used any more.
pub trait Released: Send + Sync + 'static {
    /// Nothing of the engine refers to the bytes any more, and their [`Memory`](crate::os::Memory) is dropped.
    ///
    /// Called once, at `IRQL <= DISPATCH_LEVEL`, possibly with engine locks held: it may queue work, nothing else.
    fn released(&self);
}

/// Whether bytes are still used after their registration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// No. Their [`Released`] was dropped and is not called.
    Done,
    /// Yes, by transfers in progress. [`Released::released`] is called when the last of them lets go.
    Pending,
}

/// Rights on a region or window (`NDKPI 2.4`, `2.5`). Local read is always granted on a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// Local read only.
    pub const LOCAL_READ: Self = Self(0);
    /// The consumer's own requests may write.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(2);
    /// Peers may write. Implies local write.
    pub const REMOTE_WRITE: Self = Self(4 | 1);
    /// The consumer's own reads may put their data here.
    pub const READ_SINK: Self = Self(8);

    /// The rights of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What a request does with the bytes it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Sends or writes them to the peer.
    LocalRead,
    /// Receives into them.
    LocalWrite,
    /// Reads from the peer into them.
    ReadSink,
    /// Is a peer's read.
    RemoteRead,
    /// Is a peer's write.
    RemoteWrite,
}

/// A protection domain.
pub struct Domain<O: Os>(PhantomData<O>);

/// What names a posted fast registration or bind until it is carried out: small enough for a request queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted(u32);

/// The parameters of a fast registration (`NDK_FN_FAST_REGISTER`).
#[derive(Clone, Copy, Debug)]
pub struct FastRegister<'a> {
    /// Logical page addresses.
    pub pages: &'a [u64],
    /// Where in the first page the region begins (FBO).
    pub first_byte: u32,
    /// Bytes.
    pub length: u64,
    /// The address by which requests name the first byte.
    pub base: u64,
    /// What may be done with the bytes.
    pub rights: Rights,
}

/// The parameters of a bind (`NDK_FN_BIND`).
#[derive(Clone, Copy, Debug)]
pub struct Bind {
    /// The first byte of the window, in the addresses of the region.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// What peers may do with the bytes.
    pub rights: Rights,
}

impl<O: Os> Domain<O> {
    /// A protection domain without regions.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(_table: &Shared<MemoryTable<O>>) -> Result<Shared<Self>, NtStatus> {
        todo!()
    }

    /// The token of logical addresses.
    #[must_use]
    pub fn privileged_token(&self) -> u32 {
        todo!()
    }

    /// Finds the bytes that a request names.
    ///
    /// # Errors
    ///
    /// `STATUS_ACCESS_VIOLATION` if it may not use them so.
    pub fn resolve(&self, _token: u32, _address: u64, _length: u32, _access: Access) -> Result<Piece<O>, NtStatus> {
        todo!()
    }

    /// Prepares a fast registration when it is posted. The region's remote token is the new one from now on.
    ///
    /// # Errors
    ///
    /// Various.
    pub fn prepare_fast_register(&self, _region: &Region<O>, _what: &FastRegister<'_>) -> Result<Posted, NtStatus> {
        todo!()
    }

    /// Prepares a bind when it is posted. The window's remote token is the new one from now on.
    ///
    /// # Errors
    ///
    /// Various.
    pub fn prepare_bind(&self, _window: &Window<O>, _region: &Shared<Region<O>>, _what: &Bind) -> Result<Posted, NtStatus> {
        todo!()
    }

    /// Carries out what was prepared.
    ///
    /// # Errors
    ///
    /// The status with which the request completes.
    pub fn commit(&self, _posted: Posted) -> Result<(), NtStatus> {
        todo!()
    }

    /// Forgets what was prepared: the request was flushed.
    pub fn cancel(&self, _posted: Posted) {
        todo!()
    }

    /// Ends the use of a fast-registered region or window of this domain, named by its key or a current token.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_DEVICE_REQUEST` if there is none, or its use has ended already.
    pub fn invalidate(&self, _token: u32) -> Result<(), NtStatus> {
        todo!()
    }

    /// [`Domain::invalidate`] on behalf of a peer, who may name a current remote token only.
    ///
    /// # Errors
    ///
    /// As [`Domain::invalidate`].
    pub fn invalidate_remote(&self, _token: u32) -> Result<(), NtStatus> {
        todo!()
    }

    /// Whether no transfer uses bytes of an ended registration of the object that `token` names. Until then the completion of
    /// its invalidation has to wait.
    #[must_use]
    pub fn is_quiet(&self, _token: u32) -> bool {
        todo!()
    }
}

/// What a region is for, all its life (`NDK_FN_CREATE_MR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// Register and deregister.
    Normal,
    /// Fast register and invalidate.
    Fast,
}

/// A memory region.
pub struct Region<O: Os>(PhantomData<O>);

impl<O: Os> Region<O> {
    /// A region of `domain` without memory.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(_domain: &Shared<Domain<O>>, _kind: RegionKind) -> Result<Shared<Self>, NtStatus> {
        todo!()
    }

    /// Registers `memory` (`NDK_FN_REGISTER_MR`).
    ///
    /// # Errors
    ///
    /// Various.
    pub fn register(&self, _memory: O::Memory, _rights: Rights, _client: Box<dyn Released>) -> Result<(), NtStatus> {
        todo!()
    }

    /// Ends the registration (`NDK_FN_DEREGISTER_MR`).
    ///
    /// # Errors
    ///
    /// Various.
    pub fn deregister(&self) -> Result<Release, NtStatus> {
        todo!()
    }

    /// Prepares for fast registrations (`NDK_FN_INITIALIZE_FAST_REGISTER_MR`).
    ///
    /// # Errors
    ///
    /// Various.
    pub fn initialize_fast_register(&self, _max_pages: u32, _remote_access: bool) -> Result<(), NtStatus> {
        todo!()
    }

    /// The token for scatter/gather elements; zero before there is one.
    #[must_use]
    pub fn local_token(&self) -> u32 {
        todo!()
    }

    /// The token for peers; zero before there is one.
    #[must_use]
    pub fn remote_token(&self) -> u32 {
        todo!()
    }
}

/// A memory window.
pub struct Window<O: Os>(PhantomData<O>);

impl<O: Os> Window<O> {
    /// A window of `domain` that is not bound.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(_domain: &Shared<Domain<O>>) -> Result<Shared<Self>, NtStatus> {
        todo!()
    }

    /// The token for peers; zero before there is one.
    #[must_use]
    pub fn remote_token(&self) -> u32 {
        todo!()
    }
}

/// Bytes that a request may use. Keeps them mapped.
pub struct Piece<O: Os>(PhantomData<O>);

impl<O: Os> Clone for Piece<O> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<O: Os> Piece<O> {
    /// No bytes.
    #[must_use]
    pub const fn empty() -> Self {
        Self(PhantomData)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        0
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes out.
    pub fn read(&self, _offset: usize, _into: &mut [u8]) {
        todo!()
    }

    /// Copies bytes in.
    pub fn write(&self, _offset: usize, _from: &[u8]) {
        todo!()
    }
}

/// Copies `length` bytes from one list of pieces to another, beginning at an offset into each list as a whole.
pub fn transfer<O: Os>(
    _to: &[Piece<O>],
    _to_offset: usize,
    _from: &[Piece<O>],
    _from_offset: usize,
    _length: usize,
) {
    todo!()
}

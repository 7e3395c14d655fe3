//! What a token stands for: which bytes, under which addresses, for whom.

use fallible::Arc;
use ntstatus::NtStatus;

use super::{MemoryTable, pages::PageList, pinned::Pinned, segment::Segment, uses::SegmentUses};
use crate::os::Os;

//= NDKPI 7.4.2
/// Rights on a region or a window (`NDKPI 2.4`, `2.5`). Local read is always granted on a region.
///
/// The rights of NDKPI's region flags and request flags, under bits of their own: the layer above converts from either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// Nothing but local read.
    pub const LOCAL_READ: Self = Self(0);
    /// The consumer's own requests may write.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(2);
    /// Peers may write. As in NDKPI, this is two rights: local write is one of them.
    pub const REMOTE_WRITE: Self = Self(4 | Self::LOCAL_WRITE.0);
    /// The consumer's own reads may put their data here.
    pub const READ_SINK: Self = Self(8);

    /// The rights of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if all of `other` are among these.
    #[must_use]
    pub const fn contain(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if a peer may do anything.
    #[must_use]
    pub const fn are_remote(self) -> bool {
        self.contain(Self::REMOTE_READ) || self.contain(Self::REMOTE_WRITE)
    }

    /// The rights that a registration with these has on an adapter (`NDKPI 2.6`, `NDKPI 7.4`). Where no special right is asked
    /// for (`RDMA_READ_SINK_NOT_REQUIRED`), the consumer's own reads may put their data wherever local write is granted.
    #[must_use]
    pub const fn in_force(self, read_sink_required: bool) -> Self {
        if !read_sink_required && self.contain(Self::LOCAL_WRITE) { self.and(Self::READ_SINK) } else { self }
    }

    /// Returns true if a region that has these rights [in force](Rights::in_force) lets `access` happen.
    #[must_use]
    pub const fn allow(self, access: Access) -> bool {
        self.contain(Self(access as u8))
    }

    /// Returns true if a window with the rights `window` may be bound to a region with these (`NDKPI 7.6`): a peer may
    /// write through it only where the region's owner may.
    #[must_use]
    pub const fn allow_window(self, window: Self) -> bool {
        !window.contain(Self::REMOTE_WRITE) || self.contain(Self::LOCAL_WRITE)
    }
}

impl core::ops::BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.and(other)
    }
}

/// What a request does with the bytes it names, as the rights that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Access {
    /// Sends them, or writes them to a peer.
    LocalRead = Rights::LOCAL_READ.0,
    /// Receives into them.
    LocalWrite = Rights::LOCAL_WRITE.0,
    /// Reads from a peer into them.
    ReadSink = Rights::READ_SINK.0,
    /// Is a peer's read.
    RemoteRead = Rights::REMOTE_READ.0,
    /// Is a peer's write.
    RemoteWrite = Rights::REMOTE_WRITE.0,
}

impl Access {
    /// Returns true if a peer asks for it, with a remote token.
    #[must_use]
    pub const fn is_remote(self) -> bool {
        matches!(self, Self::RemoteRead | Self::RemoteWrite)
    }
}

/// The addresses of a region or window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    base: u64,
    length: u64,
}

impl Span {
    /// `length` bytes from the address `base` on; `None` if they would go on behind the last address there is.
    pub fn new(base: u64, length: u64) -> Option<Self> {
        base.checked_add(length.saturating_sub(1)).map(|_| Self { base, length })
    }

    //= invariant 7
    /// Where in this span `other` lies; `None` if it does not lie in it with all its bytes.
    ///
    /// Nothing wraps: lengths are compared with what is left, not added to addresses.
    #[inline]
    pub fn locate(self, address: u64, length: u64) -> Option<u64> {
        let offset = address.checked_sub(self.base)?;
        let left = self.length.checked_sub(offset)?;
        (length <= left).then_some(offset)
    }

    /// The address of the first byte.
    pub const fn base(self) -> u64 {
        self.base
    }

    /// The number of bytes.
    pub const fn length(self) -> u64 {
        self.length
    }
}

/// Where the bytes of a registration are.
pub enum Source<O: Os> {
    /// In memory that was registered itself, from an offset on.
    Range(Arc<Pinned<O::Memory>>, u64),
    /// Behind logical addresses that follow each other, from this one on.
    Logical(u64),
    /// In logical pages, from an offset on.
    Pages(Arc<PageList<O>>, u64),
}

impl<O: Os> Source<O> {
    /// The source of the bytes from `offset` on.
    #[inline]
    pub fn at(&self, offset: u64) -> Self {
        match self {
            Self::Range(pinned, start) => Self::Range(pinned.clone(), start + offset),
            Self::Logical(address) => Self::Logical(address + offset),
            Self::Pages(pages, start) => Self::Pages(pages.clone(), start + offset),
        }
    }

    /// The first `length` bytes.
    ///
    /// # Errors
    ///
    /// `STATUS_ACCESS_VIOLATION` if they have logical addresses that no live mapping covers.
    #[inline]
    pub fn segment(self, table: &MemoryTable<O>, length: u32, uses: SegmentUses) -> Result<Segment<O>, NtStatus> {
        let bytes = u64::from(length);
        let segment = match self {
            Self::Range(pinned, start) => {
                usize::try_from(start).ok().map(|start| Segment::of_range(pinned, start, length as usize, uses))
            }
            Self::Logical(address) => {
                let found = table.mappings().find(address, bytes);
                found.map(|(pinned, start)| Segment::of_range(pinned, start, length as usize, uses))
            }
            Self::Pages(pages, start) => {
                let covered = pages.are_mapped(start, bytes);
                covered.then(|| Segment::of_pages(pages, start, length as usize, uses))
            }
        };
        segment.ok_or(NtStatus::ACCESS_VIOLATION)
    }
}

/// What the tokens of a registered region or bound window stand for.
pub struct MrEntry<O: Os> {
    /// The token for the consumer's own requests. Zero for windows, which have none.
    pub local: u32,
    /// The token for peers.
    pub remote: u32,
    /// The rights in force.
    pub rights: Rights,
    pub span: Span,
    pub source: Source<O>,
}

impl<O: Os> MrEntry<O> {
    /// Returns true if `token` stands for these bytes and allows `access`.
    ///
    /// Local and remote tokens are not the same, so that a token that was handed to a peer by mistake is found out.
    #[inline]
    pub fn allows(&self, token: u32, access: Access) -> bool {
        let named = token == if access.is_remote() { self.remote } else { self.local };
        named && self.rights.allow(access)
    }

    /// Where a window with these rights over these addresses would lie (`NDKPI 7.6`).
    ///
    /// # Errors
    ///
    /// `STATUS_ACCESS_VIOLATION` if the region lacks a right or does not have the addresses.
    pub fn admit_window(&self, span: Span, rights: Rights) -> Result<u64, NtStatus> {
        let offset = self.span.locate(span.base(), span.length());
        offset.filter(|_| self.rights.allow_window(rights)).ok_or(NtStatus::ACCESS_VIOLATION)
    }
}

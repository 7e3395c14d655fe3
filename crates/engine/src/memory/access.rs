//! Rights on registered bytes, and what requests want to do with them.

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
        match access {
            Access::LocalRead => true,
            Access::LocalWrite => self.contain(Self::LOCAL_WRITE),
            Access::ReadSink => self.contain(Self::READ_SINK),
            Access::RemoteRead => self.contain(Self::REMOTE_READ),
            Access::RemoteWrite => self.contain(Self::REMOTE_WRITE),
        }
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

/// What a request does with the bytes it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Sends them, or writes them to a peer.
    LocalRead,
    /// Receives into them.
    LocalWrite,
    /// Reads from a peer into them.
    ReadSink,
    /// Is a peer's read.
    RemoteRead,
    /// Is a peer's write.
    RemoteWrite,
}

impl Access {
    /// Returns true if a peer asks for it, with a remote token.
    #[must_use]
    pub const fn is_remote(self) -> bool {
        matches!(self, Self::RemoteRead | Self::RemoteWrite)
    }
}

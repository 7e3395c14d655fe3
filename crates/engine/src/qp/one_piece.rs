//! Local bytes of a request that are in one piece, as those of most requests are.
//!
//! Not an enumeration of the two kinds: which one it is would be asked again at every step of a post, and its fields would lie in
//! memory meanwhile (counted).

use fallible::Shared;

use super::{
    Flags, Qp,
    request::{HERE, Here, Sge, Source},
    short,
};
use crate::os::Os;

/// Bytes that are named by an element, or a [`Few`] inline ones.
pub trait OnePiece: LocalBytes {}

impl<T: LocalBytes> OnePiece for T {}

/// A few inline bytes.
#[derive(Clone, Copy, Debug)]
pub struct Few {
    bytes: Here,
    length: u32,
}

impl Few {
    /// A copy of `bytes`; `None` if they are more than go in registers.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: its result is in registers then")]
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let length = u32::try_from(bytes.len()).ok()?;
        (bytes.len() <= HERE).then(|| Self { bytes: Here::of(bytes), length })
    }
}

/// What the engine does with a [`OnePiece`].
pub trait LocalBytes: Copy {
    /// The request carries the bytes itself.
    const IS_INLINE: bool;

    /// How many bytes there are.
    fn length(self) -> u32;

    /// The bytes in a request of the queue.
    fn source(self) -> Source;

    /// Sends them to the peer's first receive. Whether that is done: if not, nothing has happened.
    fn send<O: Os>(self, qp: &Qp<O>, peer: &Shared<Qp<O>>, flags: Flags) -> bool;

    /// Writes them to the peer's at an address. Whether that is done.
    fn write<O: Os>(self, qp: &Qp<O>, peer: &Qp<O>, at: (u64, u32)) -> bool;

    /// Reads the peer's at an address into their place. Whether that is done.
    fn read<O: Os>(self, qp: &Qp<O>, peer: &Qp<O>, at: (u64, u32)) -> bool;
}

impl LocalBytes for Sge {
    const IS_INLINE: bool = false;

    #[inline]
    fn length(self) -> u32 {
        self.length
    }

    #[inline]
    fn source(self) -> Source {
        Source::Elements { count: 1, first: self }
    }

    #[inline]
    fn send<O: Os>(self, qp: &Qp<O>, peer: &Shared<Qp<O>>, flags: Flags) -> bool {
        short::send_element(qp, peer, self, flags)
    }

    #[inline]
    fn write<O: Os>(self, qp: &Qp<O>, peer: &Qp<O>, at: (u64, u32)) -> bool {
        short::copy_element::<short::Write, true, O>(qp, peer, self, at)
    }

    #[inline]
    fn read<O: Os>(self, qp: &Qp<O>, peer: &Qp<O>, at: (u64, u32)) -> bool {
        short::copy_element::<short::Read, true, O>(qp, peer, self, at)
    }
}

impl LocalBytes for Few {
    const IS_INLINE: bool = true;

    #[inline]
    fn length(self) -> u32 {
        self.length
    }

    #[inline]
    fn source(self) -> Source {
        Source::Inline { first: self.bytes }
    }

    #[inline]
    fn send<O: Os>(self, _: &Qp<O>, peer: &Shared<Qp<O>>, flags: Flags) -> bool {
        short::send_inline(peer, self.bytes, self.length, flags)
    }

    #[inline]
    fn write<O: Os>(self, _: &Qp<O>, peer: &Qp<O>, at: (u64, u32)) -> bool {
        short::write_inline(peer, self.bytes, self.length, at)
    }

    /// Inline bytes have no place to read into.
    #[inline]
    fn read<O: Os>(self, _: &Qp<O>, _: &Qp<O>, _: (u64, u32)) -> bool {
        false
    }
}

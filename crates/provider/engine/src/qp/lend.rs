//! How a post gets the poster's end of its queue.

use core::ops::DerefMut;

use super::NtStatus;

/// Lends a post the poster's end of its queue, a `T`: not before the post needs it, and until the request can have an effect.
///
/// As soon as a request can be carried out, the consumer may be called back, and posts the next one. Whoever guards the end against
/// two posts at one time has to have it back by then, so a post drops what it was lent. An end that nobody else can use needs no
/// guard: it is lent as it is.
pub trait Lend<T> {
    /// What is lent, until it is dropped.
    type Lent: DerefMut<Target = T>;

    /// Lends the end.
    ///
    /// # Errors
    ///
    /// The post fails with this status.
    fn lend(self) -> Result<Self::Lent, NtStatus>;
}

impl<T> Lend<T> for &mut T {
    type Lent = Self;

    #[inline]
    fn lend(self) -> Result<Self, NtStatus> {
        Ok(self)
    }
}

//! Scatter/gather elements of requests, and tokens.

use core::marker::PhantomData;

use ndkpi::NDK_SGE;

/// Names a region in its owner's requests (`NDKPI 7.4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalToken(pub(crate) u32);

/// Names a region or window in a peer's requests (`NDKPI 7.4`, `NDKPI 7.6`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteToken(u32);

impl RemoteToken {
    /// A token that came from the peer.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The value to send to the peer, unchanged (`NDKPI 7.3`).
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        self.0
    }
}

/// A place in the peer's memory.
///
/// The peer's adapter checks the token and the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The virtual address at the peer.
    pub address: u64,
    /// The peer's token.
    pub token: RemoteToken,
}

impl Remote {
    /// The place this many bytes further on.
    #[must_use]
    pub const fn offset(self, bytes: u64) -> Self {
        Self { address: self.address.wrapping_add(bytes), token: self.token }
    }

    /// Encodes address and token, little-endian, for a message to the peer.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..].copy_from_slice(&self.token.0.to_le_bytes());
        bytes
    }

    /// Decodes the result of [`Remote::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: [u8; 12]) -> Self {
        let (mut address, mut token) = ([0; 8], [0; 4]);
        address.copy_from_slice(&bytes[..8]);
        token.copy_from_slice(&bytes[8..]);
        Self { address: u64::from_le_bytes(address), token: RemoteToken(u32::from_le_bytes(token)) }
    }
}

/// An element of a request: bytes of a region, which is borrowed until the request is posted (`NDKPI 3.9`).
///
/// Dropping the region after that is safe: its close takes the memory away from the adapter before it is freed, and requests in
/// flight fail. But NDKPI wants them to complete first (`NDKPI 7.4`).
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Sge<'a>(NDK_SGE, PhantomData<&'a ()>);

impl Sge<'_> {
    pub(crate) const fn new(address: *mut u8, length: u32, token: LocalToken) -> Self {
        Self(NDK_SGE::new(address.cast(), length, token.0), PhantomData)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn length(&self) -> u32 {
        self.0.Length
    }
}

// SAFETY: the address is for the adapter; nothing is read or written through it here.
unsafe impl Send for Sge<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for Sge<'_> {}

/// The elements in the form a call takes; valid as long as the slice is.
pub fn elements(sgl: &[Sge<'_>]) -> Result<(*const NDK_SGE, u32), ndkpi::NtStatus> {
    let count = u32::try_from(sgl.len()).map_err(|_| ndkpi::NtStatus::INVALID_PARAMETER)?;
    let first = if sgl.is_empty() { core::ptr::null() } else { sgl.as_ptr().cast() };
    Ok((first, count))
}

#[cfg(test)]
mod tests {
    use super::{Remote, RemoteToken};

    #[test]
    fn a_place_survives_a_message() {
        let place = Remote { address: 0x1122_3344_5566_7788, token: RemoteToken::from_bits(0x99AA_BBCC) };
        assert_eq!(Remote::from_bytes(place.to_bytes()), place);
        assert_eq!(place.to_bytes()[..2], [0x88, 0x77]);
        assert_eq!(place.offset(8).address, 0x1122_3344_5566_7790);
    }
}

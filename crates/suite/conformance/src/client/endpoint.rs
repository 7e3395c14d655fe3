//! `NDK_SHARED_ENDPOINT` (`NDKPI 5.9`, `NDKPI 7.8`).

use ndkpi::NDK_SHARED_ENDPOINT;

use super::{
    address::{Answer, ask},
    life::{Core, Kind, Life, Owned},
};
use crate::case::Check;

/// A shared endpoint.
pub type SharedEndpoint<'s> = Owned<'s, SharedEndpointCore<'s>>;

/// A shared endpoint, as other threads see it.
pub struct SharedEndpointCore<'s> {
    life: Life<'s>,
}

impl<'s> Core<'s> for SharedEndpointCore<'s> {
    type Public = NDK_SHARED_ENDPOINT;
    const KIND: Kind = Kind::SharedEndpoint;

    fn life(&self) -> &Life<'s> {
        &self.life
    }
}

impl<'s> SharedEndpointCore<'s> {
    pub(super) const fn new(life: Life<'s>) -> Self {
        Self { life }
    }

    /// Its life.
    #[must_use]
    pub const fn life(&self) -> &Life<'s> {
        &self.life
    }

    /// `NdkGetLocalAddress` with a buffer of this size, or with none.
    ///
    /// # Errors
    ///
    /// The endpoint is closed.
    pub fn local_address(&self, size: Option<u32>) -> Check<Answer> {
        let call = self.life.call()?;
        let (endpoint, function) = slot!(call, NDK_SHARED_ENDPOINT, NdkGetLocalAddress);
        Ok(ask(size, |address, length| {
            // SAFETY: the endpoint is open, the address has as many bytes as the length says or is null.
            unsafe { function(endpoint, address, length) }
        }))
    }
}

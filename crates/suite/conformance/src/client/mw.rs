//! `NDK_MW` (`NDKPI 5.5`, `NDKPI 7.6`).

use ndkpi::NDK_MW;

use super::{
    life::{Core, Kind, Life, Owned},
    mr::MrCore,
};
use crate::case::Check;

/// A memory window.
pub type Mw<'s> = Owned<'s, MwCore<'s>>;

/// A memory window, as other threads see it.
pub struct MwCore<'s> {
    life: Life<'s>,
}

impl<'s> Core<'s> for MwCore<'s> {
    type Public = NDK_MW;
    const KIND: Kind = Kind::Mw;

    fn life(&self) -> &Life<'s> {
        &self.life
    }
}

impl<'s> MwCore<'s> {
    pub(super) const fn new(life: Life<'s>) -> Self {
        Self { life }
    }

    /// Its life.
    #[must_use]
    pub const fn life(&self) -> &Life<'s> {
        &self.life
    }

    /// Says that the window is bound to `region` and will be when it is closed: the region's close has to wait (`NDKPI 7.9`).
    pub fn stays_bound_to(&self, region: &'s MrCore<'s>) {
        self.life.depend_on(region.life());
    }

    /// `NdkGetRemoteTokenFromMw`.
    ///
    /// # Errors
    ///
    /// The window is closed.
    pub fn remote_token(&self) -> Check<u32> {
        let call = self.life.call()?;
        let (mw, function) = slot!(call, NDK_MW, NdkGetRemoteTokenFromMw);
        // SAFETY: the window is open.
        Ok(unsafe { function(mw) })
    }
}

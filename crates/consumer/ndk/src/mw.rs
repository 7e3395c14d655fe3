//! Memory windows (`NDKPI 5.5`, `NDKPI 7.6`).

use ndkpi::{NDK_MW, NtStatus};

use crate::{
    object::{Object, Parts, slot},
    pd::{Pd, PdParts},
    sge::RemoteToken,
};

/// The parts of a window.
pub struct MwParts {
    _pd: Object<PdParts>,
}

impl Parts for MwParts {
    type Raw = NDK_MW;
}

/// A memory window: gives peers access to a part of a region until it is invalidated. `Initiator::bind` binds it.
///
/// A region closes after the windows bound to it (`NDKPI 7.9`) and keeps its memory until then.
pub struct Mw {
    pub(crate) object: Object<MwParts>,
}

impl Pd {
    /// Creates a memory window. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status.
    pub fn create_mw(&self) -> Result<Mw, NtStatus> {
        let function = slot!(self.object.raw(), NdkCreateMw)?;
        let parts = MwParts { _pd: self.object.clone() };
        let object = Object::create(self.adapter(), parts, |_, completion, context, place| {
            // SAFETY: the domain is open, and the context lives until the request has completed.
            unsafe { function(self.object.raw(), completion, context, place) }
        })?;
        Ok(Mw { object })
    }
}

impl Mw {
    pub(crate) const fn object(&self) -> &Object<MwParts> {
        &self.object
    }

    /// The token for the peer, valid as soon as the bind is posted. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider does not return it.
    pub fn remote_token(&self) -> Result<RemoteToken, NtStatus> {
        let function = slot!(self.object.raw(), NdkGetRemoteTokenFromMw)?;
        // SAFETY: the window is open.
        Ok(RemoteToken::from_bits(unsafe { function(self.object.raw()) }))
    }
}

//! Protection domains (`NDKPI 5.3`).

use ndkpi::{NDK_PD, NtStatus};

use crate::{
    adapter::{Adapter, AdapterRef},
    object::{Object, Parts, slot},
};

/// A protection domain has no parts.
pub struct PdParts;

impl Parts for PdParts {
    type Raw = NDK_PD;
}

/// A protection domain: only regions, windows and queue pairs of the same domain work together.
///
/// Objects created from it keep it open, so it may be dropped first.
#[derive(Clone)]
pub struct Pd {
    pub(crate) object: Object<PdParts>,
}

impl Adapter {
    /// Creates a protection domain. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status.
    pub fn create_pd(&self) -> Result<Pd, NtStatus> {
        let function = slot!(self.core().raw(), NdkCreatePd)?;
        let object = Object::create(self.reference(), PdParts, |_, completion, context, place| {
            // SAFETY: the adapter is open, and the context lives until the request has completed.
            unsafe { function(self.core().raw(), completion, context, place) }
        })?;
        Ok(Pd { object })
    }
}

impl Pd {
    /// A reference to the adapter, for an object created from this domain.
    pub(crate) fn adapter(&self) -> AdapterRef {
        AdapterRef::of(self.object.adapter())
    }
}

//! MDLs on the host.

use ndkpi::{MDL, NtStatus};
use provider::NdkOs;

use super::HostOs;
use crate::{HostMdl, HostMemory};

impl NdkOs for HostOs {
    unsafe fn memory_from_mdl(&self, mdl: *mut MDL, length: usize) -> Result<HostMemory, NtStatus> {
        // SAFETY: what a consumer on the host passes as an MDL is a chain of `HostMdl`s; that its bytes stay valid is the
        // caller's promise.
        unsafe { HostMemory::from_mdl(mdl.cast_const().cast::<HostMdl>(), length) }
    }
}

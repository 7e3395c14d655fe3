//! MDLs on the host.

use ndkpi::{MDL, NtStatus};
use provider::NdkOs;

use super::HostOs;
use crate::{HostMdl, HostMemory};

impl NdkOs for HostOs {
    unsafe fn memory_from_mdl(&self, mdl: *mut MDL, length: usize) -> Result<HostMemory, NtStatus> {
        // SAFETY: an MDL on the host is a chain of `HostMdl`s, whose bytes outlive the result (`# Safety` of the trait).
        unsafe { HostMemory::from_mdl(mdl.cast_const().cast::<HostMdl>(), length) }
    }
}

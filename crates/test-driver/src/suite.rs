//! What a run does with the provider.
//!
//! So far each kind of run opens the adapter, looks at it and closes it. The suite of the crate `conformance` comes in here.

use ndk_interface::test_control::Kind;
use ndkpi::{NDK_ADAPTER, NDK_ADAPTER_INFO, NDK_OBJECT_TYPE, NDK_VERSION, NtStatus};

use crate::{provider::Interface, run::Run};

/// Carries out a run.
pub fn run(run: &Run, interface: &Interface) {
    let versions = [NDK_VERSION::V1_1, NDK_VERSION::V1_2, NDK_VERSION::V2_0, NDK_VERSION::V2_1];
    run.expect(u32::try_from(versions.len()).unwrap_or(0));
    let name = match run.kind() {
        Kind::Conformance => "conformance",
        Kind::Stress => "stress",
        Kind::Performance => "performance",
    };
    run.say(format_args!("{name}, seed {:#x}", run.start().seed));
    for version in versions {
        if run.is_cancelled() {
            run.say(format_args!("cancelled"));
            return;
        }
        match look(interface, version) {
            Ok(info) => run.step(true, format_args!("{version}: CQ depth {}", info.MaxCqDepth)),
            Err(what) => run.step(false, format_args!("{version}: {what}")),
        }
    }
}

/// Opens the adapter, asks what it can do, and closes it.
fn look(interface: &Interface, version: NDK_VERSION) -> Result<NDK_ADAPTER_INFO, NtStatus> {
    let adapter = interface.open(version)?;
    // SAFETY: the provider has just opened it for us, and it is closed below.
    let answer = unsafe { query(adapter) };
    // SAFETY: the interface opened it, and nothing was created from it.
    unsafe { interface.close(adapter) };
    answer
}

/// # Safety
///
/// `adapter` is open.
unsafe fn query(adapter: *mut NDK_ADAPTER) -> Result<NDK_ADAPTER_INFO, NtStatus> {
    // SAFETY: the caller's promise; the header does not change.
    let kind = unsafe { (*adapter).Header.ObjectType };
    if kind != NDK_OBJECT_TYPE::ADAPTER {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // SAFETY: the caller's promise.
    let dispatch = unsafe { (*adapter).Dispatch };
    // SAFETY: an open object has a table, which lives as long as the object (`NDKPI 3.4`).
    let query = unsafe { (*dispatch).NdkQueryAdapterInfo }.ok_or(NtStatus::NOT_SUPPORTED)?;
    let mut info = NDK_ADAPTER_INFO::default();
    #[expect(clippy::cast_possible_truncation, reason = "a small structure")]
    let mut size = size_of::<NDK_ADAPTER_INFO>() as u32;
    // SAFETY: the adapter's own function, a place of the size that is said, both alive until the call returns.
    unsafe { query(adapter, &raw mut info, &raw mut size) }.ok().map(|()| info)
}

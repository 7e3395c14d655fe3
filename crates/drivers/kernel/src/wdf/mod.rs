//! Wrappers for the parts of the framework (KMDF) that take more than one call.

mod context;
mod control_device;
mod device;
mod driver;
mod registry;
mod request;

pub use context::ContextType;
pub use control_device::{ControlDevice, Files, Names};
pub use device::create_device;
pub use driver::create_driver;
pub use registry::{Key, REGISTRY_LIST_BYTES};
pub use request::Request;
use wdk_sys::{_WDF_EXECUTION_LEVEL, _WDF_SYNCHRONIZATION_SCOPE, ULONG, WDF_OBJECT_ATTRIBUTES};

/// The size of a structure, for its size field.
///
/// # Panics
///
/// When compiled, if `T` is larger than a `ULONG` can say.
#[expect(clippy::cast_possible_truncation, reason = "checked when compiled")]
#[must_use]
pub const fn size<T>() -> ULONG {
    const { assert!(size_of::<T>() <= ULONG::MAX as usize) };
    size_of::<T>() as ULONG
}

/// `WDF_OBJECT_ATTRIBUTES_INIT`: everything as the parent has it.
#[must_use]
pub fn attributes() -> WDF_OBJECT_ATTRIBUTES {
    WDF_OBJECT_ATTRIBUTES {
        Size: size::<WDF_OBJECT_ATTRIBUTES>(),
        ExecutionLevel: _WDF_EXECUTION_LEVEL::WdfExecutionLevelInheritFromParent,
        SynchronizationScope: _WDF_SYNCHRONIZATION_SCOPE::WdfSynchronizationScopeInheritFromParent,
        ..WDF_OBJECT_ATTRIBUTES::default()
    }
}

//! Objects: their types, the header they share and the ten structures (NDKPI 2.1, NDKPI 3.2 to 3.4).

use core::{ffi::c_void, ptr};

use crate::{
    NDK_ADAPTER_DISPATCH, NDK_CONNECTOR_DISPATCH, NDK_CQ_DISPATCH, NDK_LISTENER_DISPATCH, NDK_MR_DISPATCH,
    NDK_MW_DISPATCH, NDK_PD_DISPATCH, NDK_QP_DISPATCH, NDK_SHARED_ENDPOINT_DISPATCH, NDK_SRQ_DISPATCH, NDK_VERSION,
};

open_enum! {
    /// The type of an object (NDKPI 2.1). It lets people recognise objects in a memory dump.
    NDK_OBJECT_TYPE {
        /// No object has this type.
        UNDEFINED = 0, "NdkObjectTypeUndefined";
        /// An [`NDK_ADAPTER`].
        ADAPTER = 1, "NdkObjectTypeAdapter";
        /// An [`NDK_QP`].
        QP = 2, "NdkObjectTypeQp";
        /// An [`NDK_CQ`].
        CQ = 3, "NdkObjectTypeCq";
        /// An [`NDK_MR`].
        MR = 4, "NdkObjectTypeMr";
        /// An [`NDK_MW`].
        MW = 5, "NdkObjectTypeMw";
        /// An [`NDK_PD`].
        PD = 6, "NdkObjectTypePd";
        /// An [`NDK_SHARED_ENDPOINT`].
        SHARED_ENDPOINT = 7, "NdkObjectTypeSharedEndpoint";
        /// An [`NDK_CONNECTOR`].
        CONNECTOR = 8, "NdkObjectTypeConnector";
        /// An [`NDK_LISTENER`].
        LISTENER = 9, "NdkObjectTypeListener";
        /// An [`NDK_SRQ`].
        SRQ = 10, "NdkObjectTypeSrq";
        /// One more than the greatest type.
        MAX = 11, "NdkObjectTypeMax";
    }
}

/// The part of an object that belongs to the operating system (NDKPI 3.2, NDKPI 7.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NDK_OBJECT_HEADER_RESERVED_BLOCK {
    /// State that the layer between provider and consumer keeps.
    pub rf: [*mut c_void; 4],
}

layout!(NDK_OBJECT_HEADER_RESERVED_BLOCK: size 0x20, align 8, { rf @ 0x00 });

/// The header of every object (NDKPI 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NDK_OBJECT_HEADER {
    /// The version in force, which tells how long the dispatch table is.
    pub Version: NDK_VERSION,
    /// The type of the object.
    pub ObjectType: NDK_OBJECT_TYPE,
    /// Zeroed by the provider at creation and not touched by it again until the object is closed.
    pub NdkReserved: NDK_OBJECT_HEADER_RESERVED_BLOCK,
}

layout!(NDK_OBJECT_HEADER: size 0x28, align 8, { Version @ 0x00, ObjectType @ 0x04, NdkReserved @ 0x08 });

impl NDK_OBJECT_HEADER {
    /// A header with a zeroed reserved block.
    #[must_use]
    pub const fn new(version: NDK_VERSION, object_type: NDK_OBJECT_TYPE) -> Self {
        let reserved = NDK_OBJECT_HEADER_RESERVED_BLOCK { rf: [ptr::null_mut(); 4] };
        Self { Version: version, ObjectType: object_type, NdkReserved: reserved }
    }
}

/// One of the ten object structures.
///
/// # Safety
///
/// The structure is `repr(C)` and begins with an [`NDK_OBJECT_HEADER`], so that a pointer to the one is a pointer to the
/// other, and an object with the type [`OBJECT_TYPE`](Self::OBJECT_TYPE) in its header begins with this structure.
pub unsafe trait Object {
    /// The table of the object's functions.
    type Dispatch;
    /// The type in the object's header.
    const OBJECT_TYPE: NDK_OBJECT_TYPE;
}

object! {
    /// An adapter opened by one consumer: the parent of all its other objects (NDKPI 3.4, NDKPI 7.9).
    NDK_ADAPTER, NDK_ADAPTER_DISPATCH, ADAPTER
}
object! {
    /// A completion queue (NDKPI 3.4, NDKPI 7.1).
    NDK_CQ, NDK_CQ_DISPATCH, CQ
}
object! {
    /// A queue pair (NDKPI 3.4, NDKPI 7.2).
    NDK_QP, NDK_QP_DISPATCH, QP
}
object! {
    /// A shared receive queue (NDKPI 3.4, NDKPI 7.12).
    NDK_SRQ, NDK_SRQ_DISPATCH, SRQ
}
object! {
    /// A protection domain: the parent of memory regions, memory windows and queue pairs (NDKPI 3.4, NDKPI 7.9).
    NDK_PD, NDK_PD_DISPATCH, PD
}
object! {
    /// A memory region (NDKPI 3.4, NDKPI 7.4).
    NDK_MR, NDK_MR_DISPATCH, MR
}
object! {
    /// A memory window (NDKPI 3.4, NDKPI 7.6).
    NDK_MW, NDK_MW_DISPATCH, MW
}
object! {
    /// A local address that several outgoing connections share (NDKPI 3.4, NDKPI 7.8).
    NDK_SHARED_ENDPOINT, NDK_SHARED_ENDPOINT_DISPATCH, SHARED_ENDPOINT
}
object! {
    /// One end of a connection (NDKPI 3.4, NDKPI 7.7).
    NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, CONNECTOR
}
object! {
    /// A listener for incoming connections (NDKPI 3.4, NDKPI 7.7).
    NDK_LISTENER, NDK_LISTENER_DISPATCH, LISTENER
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;

    use super::{NDK_CQ, NDK_OBJECT_TYPE};
    use crate::NDK_VERSION;

    #[test]
    fn a_new_object_carries_version_type_and_a_zeroed_block() {
        let table = crate::NDK_CQ_DISPATCH::default();
        let cq = NDK_CQ::new(NDK_VERSION::V1_2, &raw const table);
        assert_eq!(cq.Header.Version, NDK_VERSION::V1_2);
        assert_eq!(cq.Header.ObjectType, NDK_OBJECT_TYPE::CQ);
        assert!(cq.Header.NdkReserved.rf.iter().all(|pointer| pointer.is_null()));
        assert!(core::ptr::eq(cq.Dispatch, &raw const table));
    }

    #[test]
    fn an_unknown_object_type_prints_its_number() {
        assert_eq!(format!("{:?}", NDK_OBJECT_TYPE::SRQ), "NdkObjectTypeSrq");
        assert_eq!(format!("{:?}", NDK_OBJECT_TYPE(-7)), "NDK_OBJECT_TYPE(-7)");
        assert_eq!(NDK_OBJECT_TYPE(12).name(), None);
    }
}

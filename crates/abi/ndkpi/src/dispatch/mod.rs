//! The functions of the provider and the ten tables that hold them (NDKPI 4, NDKPI 5).
//!
//! Every function may be called at any IRQL up to `DISPATCH_LEVEL`, except [`NDK_FN_QUERY_ADAPTER_INFO`], which is for
//! `PASSIVE_LEVEL`. Each is of one of four patterns (NDKPI 5.0):
//!
//! - **create**: the object is stored and [`STATUS_SUCCESS`](NtStatus::SUCCESS) returned, or
//!   [`STATUS_PENDING`](NtStatus::PENDING) is returned and the object comes with the completion callback; with any other
//!   status neither happens;
//! - **request**: the outcome is returned, or [`STATUS_PENDING`](NtStatus::PENDING) and the outcome comes with the
//!   completion callback;
//! - **post**: [`STATUS_SUCCESS`](NtStatus::SUCCESS) means that the work request is posted and that its outcome comes
//!   through the completion queue; with any other status it is not posted;
//! - **immediate**: what is returned is the outcome.
//!
//! A slot is an [`Option`], because a table may come from elsewhere and a null pointer in it must be detectable. A
//! provider fills every slot. In every table but the adapter's slot 0 is the close and slot 1 asks for an extension.
//!
//! The functions that NDKPI 1.2 and 2.1 added are the last slots of their tables. A consumer reaches them through
//! [`NDK_CQ::get_cq_results_ex`](crate::NDK_CQ::get_cq_results_ex),
//! [`NDK_QP::send_and_invalidate`](crate::NDK_QP::send_and_invalidate),
//! [`NDK_CONNECTOR::complete_connect_ex`](crate::NDK_CONNECTOR::complete_connect_ex) and
//! [`NDK_CONNECTOR::accept_ex`](crate::NDK_CONNECTOR::accept_ex), which look at the version first: in an older table the
//! slot is not there and the memory behind the table belongs to someone else.

use core::ffi::c_void;

use crate::{GUID, NDK_EXTENSION_INTERFACE, NDK_FN_CLOSE_COMPLETION, NDK_OBJECT_HEADER, NDK_VERSION, NtStatus};

pub mod adapter;
pub mod connector;
pub mod cq;
pub mod listener;
pub mod mr;
pub mod mw;
pub mod pd;
pub mod qp;
pub mod shared_endpoint;
pub mod srq;

pub use adapter::*;
pub use connector::*;
pub use cq::*;
pub use listener::*;
pub use mr::*;
pub use mw::*;
pub use pd::*;
pub use qp::*;
pub use shared_endpoint::*;
pub use srq::*;

/// Closes an object: a request that can only succeed or pend.
///
/// The consumer must not use the object after the call. It pends while objects that depend on this one are open. IRQL
/// <= `DISPATCH_LEVEL` (NDKPI 5.1, NDKPI 7.9).
pub type NDK_FN_CLOSE_OBJECT = unsafe extern "system" fn(
    pNdkObject: *mut NDK_OBJECT_HEADER,
    CloseCompletion: Option<NDK_FN_CLOSE_COMPLETION>,
    RequestContext: *mut c_void,
) -> NtStatus;

/// Asks an object for the table of an extension; immediate.
///
/// [`NtStatus::NOT_SUPPORTED`] if the provider does not have it in this version. IRQL <= `DISPATCH_LEVEL` (NDKPI 5.1).
pub type NDK_FN_QUERY_EXTENSION_INTERFACE = unsafe extern "system" fn(
    pNdkObject: *mut NDK_OBJECT_HEADER,
    ExtensionInterfaceID: *const GUID,
    ExtensionInterfaceVersion: NDK_VERSION,
    pExtensionInterface: *mut NDK_EXTENSION_INTERFACE,
) -> NtStatus;

#[cfg(test)]
mod tests {
    use core::ptr;

    use super::*;
    use crate::{
        NDK_CONNECTOR, NDK_CQ, NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, NDK_FN_REQUEST_COMPLETION, NDK_QP, NDK_RESULT_EX,
        NDK_SGE,
    };

    unsafe extern "system" fn get_cq_results_ex(_: *mut NDK_CQ, _: *mut NDK_RESULT_EX, _: u32) -> u32 {
        0
    }

    unsafe extern "system" fn send_and_invalidate(
        _: *mut NDK_QP,
        _: *mut c_void,
        _: *const NDK_SGE,
        _: u32,
        _: u32,
        _: u32,
    ) -> NtStatus {
        NtStatus::NOT_SUPPORTED
    }

    unsafe extern "system" fn complete_connect_ex(
        _: *mut NDK_CONNECTOR,
        _: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
        _: *mut c_void,
        _: Option<NDK_FN_REQUEST_COMPLETION>,
        _: *mut c_void,
    ) -> NtStatus {
        NtStatus::NOT_SUPPORTED
    }

    unsafe extern "system" fn accept_ex(
        _: *mut NDK_CONNECTOR,
        _: *mut NDK_QP,
        _: u32,
        _: u32,
        _: *const c_void,
        _: u32,
        _: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
        _: *mut c_void,
        _: Option<NDK_FN_REQUEST_COMPLETION>,
        _: *mut c_void,
    ) -> NtStatus {
        NtStatus::NOT_SUPPORTED
    }

    const BEFORE_1_2: [NDK_VERSION; 3] = [NDK_VERSION::new(1, 0), NDK_VERSION::V1_1, NDK_VERSION::new(0, 9)];
    const BEFORE_2_1: [NDK_VERSION; 3] = [NDK_VERSION::V1_1, NDK_VERSION::V1_2, NDK_VERSION::V2_0];

    #[test]
    fn an_older_object_is_not_asked_for_a_newer_slot() {
        // A table that is not there at all shows that it is not read.
        for version in BEFORE_1_2 {
            let cq = NDK_CQ::new(version, ptr::null());
            // SAFETY: the version says that the table has no such slot, and here it has none at all.
            assert!(unsafe { NDK_CQ::get_cq_results_ex(&raw const cq) }.is_none());
            let qp = NDK_QP::new(version, ptr::null());
            // SAFETY: the version says that the table has no such slot.
            assert!(unsafe { NDK_QP::send_and_invalidate(&raw const qp) }.is_none());
        }
        for version in BEFORE_2_1 {
            let connector = NDK_CONNECTOR::new(version, ptr::null());
            // SAFETY: the version says that the table has no such slot.
            assert!(unsafe { NDK_CONNECTOR::complete_connect_ex(&raw const connector) }.is_none());
            // SAFETY: the version says that the table has no such slot.
            assert!(unsafe { NDK_CONNECTOR::accept_ex(&raw const connector) }.is_none());
        }
    }

    #[test]
    fn an_object_of_the_right_version_has_the_slot() {
        let table = NDK_CQ_DISPATCH { NdkGetCqResultsEx: Some(get_cq_results_ex), ..Default::default() };
        let cq = NDK_CQ::new(NDK_VERSION::V1_2, &raw const table);
        // SAFETY: the object has a whole table.
        let slot = unsafe { NDK_CQ::get_cq_results_ex(&raw const cq) };
        assert_eq!(slot.map(|slot| slot as usize), Some(get_cq_results_ex as *const () as usize));

        let table = NDK_QP_DISPATCH { NdkSendAndInvalidate: Some(send_and_invalidate), ..Default::default() };
        let qp = NDK_QP::new(NDK_VERSION::V2_0, &raw const table);
        // SAFETY: the object has a whole table.
        let slot = unsafe { NDK_QP::send_and_invalidate(&raw const qp) };
        assert_eq!(slot.map(|slot| slot as usize), Some(send_and_invalidate as *const () as usize));

        let table = NDK_CONNECTOR_DISPATCH {
            NdkCompleteConnectEx: Some(complete_connect_ex),
            NdkAcceptEx: Some(accept_ex),
            ..Default::default()
        };
        let connector = NDK_CONNECTOR::new(NDK_VERSION::V2_1, &raw const table);
        // SAFETY: the object has a whole table.
        let slot = unsafe { NDK_CONNECTOR::complete_connect_ex(&raw const connector) };
        assert_eq!(slot.map(|slot| slot as usize), Some(complete_connect_ex as *const () as usize));
        // SAFETY: the object has a whole table.
        let slot = unsafe { NDK_CONNECTOR::accept_ex(&raw const connector) };
        assert_eq!(slot.map(|slot| slot as usize), Some(accept_ex as *const () as usize));
    }

    #[test]
    fn a_slot_that_a_provider_left_empty_is_absent() {
        let table = NDK_CQ_DISPATCH::default();
        let cq = NDK_CQ::new(NDK_VERSION::V2_1, &raw const table);
        // SAFETY: the object has a whole table.
        assert!(unsafe { NDK_CQ::get_cq_results_ex(&raw const cq) }.is_none());
    }

    #[test]
    fn tables_grow_with_the_version_that_added_a_slot() {
        for version in BEFORE_1_2 {
            assert_eq!(NDK_CQ_DISPATCH::size_in(version), 0x30);
            assert_eq!(NDK_QP_DISPATCH::size_in(version), 0x50);
        }
        for version in [NDK_VERSION::V1_2, NDK_VERSION::V2_0, NDK_VERSION::V2_1] {
            assert_eq!(NDK_CQ_DISPATCH::size_in(version), size_of::<NDK_CQ_DISPATCH>());
            assert_eq!(NDK_QP_DISPATCH::size_in(version), size_of::<NDK_QP_DISPATCH>());
        }
        for version in BEFORE_2_1 {
            assert_eq!(NDK_CONNECTOR_DISPATCH::size_in(version), 0x58);
        }
        assert_eq!(NDK_CONNECTOR_DISPATCH::size_in(NDK_VERSION::V2_1), 0x68);
    }
}

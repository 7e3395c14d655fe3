//! The ten dispatch tables of this layer (`NDKPI 4`).

use core::{ffi::c_void, marker::PhantomData, ptr};

use ndkpi::{
    NDK_ADAPTER_DISPATCH, NDK_CONNECTOR_DISPATCH, NDK_CQ_DISPATCH, NDK_LISTENER_DISPATCH, NDK_MR_DISPATCH,
    NDK_MW_DISPATCH, NDK_OBJECT_TYPE, NDK_PD_DISPATCH, NDK_QP_DISPATCH, NDK_SHARED_ENDPOINT_DISPATCH, NDK_SRQ_DISPATCH,
};

use crate::{
    Hooks, adapter, close::close, connect, connector, cq, extension::query_extension, listener, memory, pd, post, srq,
};

struct Tables<H>(PhantomData<H>);

impl<H: Hooks> Tables<H> {
    const ADAPTER: &'static NDK_ADAPTER_DISPATCH = &NDK_ADAPTER_DISPATCH {
        NdkQueryExtension: Some(query_extension::<H, ndkpi::NDK_ADAPTER>),
        NdkQueryAdapterInfo: Some(adapter::query_info::<H>),
        NdkCreateCq: Some(adapter::create_cq::<H>),
        NdkCreatePd: Some(adapter::create_pd::<H>),
        NdkCreateSharedEndpoint: Some(adapter::create_shared_endpoint::<H>),
        NdkCreateConnector: Some(adapter::create_connector::<H>),
        NdkCreateListener: Some(adapter::create_listener::<H>),
        NdkBuildLAM: Some(adapter::build_lam::<H>),
        NdkReleaseLAM: Some(adapter::release_lam::<H>),
    };

    const CQ: &'static NDK_CQ_DISPATCH = &NDK_CQ_DISPATCH {
        NdkCloseCq: Some(close::<H, ndkpi::NDK_CQ>),
        NdkQueryExtension: Some(query_extension::<H, ndkpi::NDK_CQ>),
        NdkResizeCq: Some(cq::resize::<H>),
        NdkArmCq: Some(cq::arm::<H>),
        NdkGetCqResults: Some(cq::get_results::<H>),
        NdkControlCqInterruptModeration: Some(cq::control_moderation::<H>),
        NdkGetCqResultsEx: Some(cq::get_results_ex::<H>),
    };

    const PD: &'static NDK_PD_DISPATCH = &NDK_PD_DISPATCH {
        NdkClosePd: Some(close::<H, ndkpi::NDK_PD>),
        NdkQueryExtension: Some(query_extension::<H, ndkpi::NDK_PD>),
        NdkCreateMr: Some(pd::create_mr::<H>),
        NdkCreateMw: Some(pd::create_mw::<H>),
        NdkCreateSrq: Some(pd::create_srq::<H>),
        NdkCreateQp: Some(pd::create_qp::<H>),
        NdkCreateQpWithSrq: Some(pd::create_qp_with_srq::<H>),
        NdkGetPrivilegedMemoryRegionToken: Some(pd::get_privileged_token::<H>),
    };

    const QP: &'static NDK_QP_DISPATCH = &NDK_QP_DISPATCH {
        NdkCloseQp: Some(close::<H, ndkpi::NDK_QP>),
        NdkQueryExtension: Some(query_extension::<H, ndkpi::NDK_QP>),
        NdkFlush: Some(post::flush::<H>),
        NdkSend: Some(post::send::<H>),
        NdkReceive: Some(post::receive::<H>),
        NdkBind: Some(post::bind::<H>),
        NdkFastRegister: Some(post::fast_register::<H>),
        NdkInvalidate: Some(post::invalidate::<H>),
        NdkRead: Some(post::read::<H>),
        NdkWrite: Some(post::write::<H>),
        NdkSendAndInvalidate: Some(post::send_and_invalidate::<H>),
    };

    const SRQ: &'static NDK_SRQ_DISPATCH = &NDK_SRQ_DISPATCH {
        NdkCloseSrq: Some(close::<H, ndkpi::NDK_SRQ>),
        NdkQueryExtension: Some(query_extension::<H, ndkpi::NDK_SRQ>),
        NdkModifySrq: Some(srq::modify::<H>),
        NdkSrqReceive: Some(post::srq_receive::<H>),
    };

    const MR: &'static NDK_MR_DISPATCH = &NDK_MR_DISPATCH {
        NdkCloseMr: Some(close::<H, ndkpi::NDK_MR>),
        NdkQueryExtension: Some(query_extension::<H, ndkpi::NDK_MR>),
        NdkRegisterMr: Some(memory::register::<H>),
        NdkDeregisterMr: Some(memory::deregister::<H>),
        NdkInitializeFastRegisterMr: Some(memory::initialize::<H>),
        NdkGetRemoteTokenFromMr: Some(memory::remote_token::<H>),
        NdkGetLocalTokenFromMr: Some(memory::local_token::<H>),
    };

    const MW: &'static NDK_MW_DISPATCH = &NDK_MW_DISPATCH {
        NdkCloseMw: Some(close::<H, ndkpi::NDK_MW>),
        NdkQueryExtension: Some(query_extension::<H, ndkpi::NDK_MW>),
        NdkGetRemoteTokenFromMw: Some(memory::window_token::<H>),
    };

    const CONNECTOR: &'static NDK_CONNECTOR_DISPATCH = &NDK_CONNECTOR_DISPATCH {
        NdkCloseConnector: Some(close::<H, ndkpi::NDK_CONNECTOR>),
        NdkQueryExtension: Some(query_extension::<H, ndkpi::NDK_CONNECTOR>),
        NdkConnect: Some(connect::connect::<H>),
        NdkConnectWithSharedEndpoint: Some(connect::connect_with_shared_endpoint::<H>),
        NdkCompleteConnect: Some(connect::complete_connect::<H>),
        NdkAccept: Some(connect::accept::<H>),
        NdkReject: Some(connect::reject::<H>),
        NdkGetConnectionData: Some(connector::connection_data::<H>),
        NdkGetLocalAddress: Some(connector::local_address::<H>),
        NdkGetPeerAddress: Some(connector::peer_address::<H>),
        NdkDisconnect: Some(connect::disconnect::<H>),
        NdkCompleteConnectEx: Some(connect::complete_connect_ex::<H>),
        NdkAcceptEx: Some(connect::accept_ex::<H>),
    };

    const LISTENER: &'static NDK_LISTENER_DISPATCH = &NDK_LISTENER_DISPATCH {
        NdkCloseListener: Some(close::<H, ndkpi::NDK_LISTENER>),
        NdkQueryExtension: Some(query_extension::<H, ndkpi::NDK_LISTENER>),
        NdkListen: Some(listener::listen::<H>),
        NdkGetLocalAddress: Some(connector::listener_address::<H>),
        NdkControlConnectEvents: Some(listener::control_connect_events::<H>),
    };

    const ENDPOINT: &'static NDK_SHARED_ENDPOINT_DISPATCH = &NDK_SHARED_ENDPOINT_DISPATCH {
        NdkCloseSharedEndpoint: Some(close::<H, ndkpi::NDK_SHARED_ENDPOINT>),
        NdkQueryExtension: Some(query_extension::<H, ndkpi::NDK_SHARED_ENDPOINT>),
        NdkGetLocalAddress: Some(connector::endpoint_address::<H>),
    };
}

/// The table of this layer for objects of this type; null for what is no type.
pub const fn table<H: Hooks>(kind: NDK_OBJECT_TYPE) -> *const c_void {
    match kind {
        NDK_OBJECT_TYPE::ADAPTER => ptr::from_ref(Tables::<H>::ADAPTER).cast(),
        NDK_OBJECT_TYPE::CQ => ptr::from_ref(Tables::<H>::CQ).cast(),
        NDK_OBJECT_TYPE::PD => ptr::from_ref(Tables::<H>::PD).cast(),
        NDK_OBJECT_TYPE::QP => ptr::from_ref(Tables::<H>::QP).cast(),
        NDK_OBJECT_TYPE::SRQ => ptr::from_ref(Tables::<H>::SRQ).cast(),
        NDK_OBJECT_TYPE::MR => ptr::from_ref(Tables::<H>::MR).cast(),
        NDK_OBJECT_TYPE::MW => ptr::from_ref(Tables::<H>::MW).cast(),
        NDK_OBJECT_TYPE::CONNECTOR => ptr::from_ref(Tables::<H>::CONNECTOR).cast(),
        NDK_OBJECT_TYPE::LISTENER => ptr::from_ref(Tables::<H>::LISTENER).cast(),
        NDK_OBJECT_TYPE::SHARED_ENDPOINT => ptr::from_ref(Tables::<H>::ENDPOINT).cast(),
        _ => ptr::null(),
    }
}

//! The items of the crate, as the facts name them.

use std::mem::offset_of;

use serde_json::{Value, json};

use crate::spelling::{Function, Prototype, Spelled};

/// A field of a structure.
#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    pub offset: usize,
    pub spelling: String,
}

impl Field {
    /// The field at an offset, whose type is that of what the function reaches.
    fn new<S, T: Spelled>(name: &'static str, offset: usize, _reach: fn(&S) -> &T) -> Self {
        Self { name, offset, spelling: T::spelling() }
    }

    /// A field that the crate reaches by another name.
    const fn view(name: &'static str, offset: usize, spelling: String) -> Self {
        Self { name, offset, spelling }
    }
}

/// A structure.
#[derive(Debug)]
pub struct Type {
    pub name: &'static str,
    pub size: usize,
    pub align: usize,
    pub fields: Vec<Field>,
}

/// Lists structures with all their fields: a field that is not listed does not compile.
macro_rules! types {
    ($($type:ident { $($field:ident)+ })+) => {
        $(impl Spelled for ndkpi::$type {
            fn spelling() -> String {
                stringify!($type).to_owned()
            }
        }

        const _: fn(&ndkpi::$type) = |value| {
            let ndkpi::$type { $($field: _),+ } = value;
        };)+

        /// Every structure of the crate that the facts describe.
        pub fn types() -> Vec<Type> {
            vec![$(Type {
                name: stringify!($type),
                size: size_of::<ndkpi::$type>(),
                align: align_of::<ndkpi::$type>(),
                fields: vec![$(Field::new(
                    stringify!($field),
                    offset_of!(ndkpi::$type, $field),
                    |value: &ndkpi::$type| &value.$field,
                )),+],
            }),+]
        }
    };
}

types! {
    GROUP_AFFINITY { Mask Group Reserved }
    IN6_ADDR { Byte }
    NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES { Header Enabled NdkCapabilities }
    NDIS_NDK_CAPABILITIES {
        Header Flags MaxQpCount MaxCqCount MaxMrCount MaxPdCount MaxInboundReadLimit MaxOutboundReadLimit
        MaxMwCount MaxSrqCount MissingCounterMask NdkInfo
    }
    NDIS_NDK_CONNECTIONS { Header Flags Count NDConnectionsMappedtoTCPConnections Connections }
    NDIS_NDK_CONNECTION_ENTRY { Local Remote UserModeOwner OwnerPid }
    NDIS_NDK_LOCAL_ENDPOINTS { Header Flags Count NDLocalEndpointsMappedtoTCPLocalEndpoints LocalEndpoints }
    NDIS_NDK_LOCAL_ENDPOINT_ENTRY { Local UserModeOwner Listener OwnerPid }
    NDIS_NDK_PERFORMANCE_COUNTERS {
        Connect Accept ConnectFailure ConnectionError ActiveConnection Reserved01 Reserved02 Reserved03
        Reserved04 Reserved05 Reserved06 Reserved07 Reserved08 Reserved09 Reserved10 Reserved11 Reserved12
        Reserved13 Reserved14 Reserved15 Reserved16 Reserved17 Reserved18 Reserved19 Reserved20 CQError
        RDMAInOctets RDMAOutOctets RDMAInFrames RDMAOutFrames
    }
    NDIS_NDK_PROVIDER_CHARACTERISTICS { Header Flags OpenNDKAdapterHandler CloseNDKAdapterHandler }
    NDIS_NDK_STATISTICS_INFO { Header Flags CounterSet }
    NDIS_OBJECT_HEADER { Type Revision Size }
    NDIS_OPEN_NDK_ADAPTER_PARAMETERS { Version SwitchId VPortId }
    NDK_ADAPTER { Header Dispatch }
    NDK_ADAPTER_DISPATCH {
        NdkQueryExtension NdkQueryAdapterInfo NdkCreateCq NdkCreatePd NdkCreateSharedEndpoint
        NdkCreateConnector NdkCreateListener NdkBuildLAM NdkReleaseLAM
    }
    NDK_ADAPTER_INFO {
        Version VendorId DeviceId MaxRegistrationSize MaxWindowSize FRMRPageCount MaxInitiatorRequestSge
        MaxReceiveRequestSge MaxReadRequestSge MaxTransferLength MaxInlineDataSize MaxInboundReadLimit
        MaxOutboundReadLimit MaxReceiveQueueDepth MaxInitiatorQueueDepth MaxSrqDepth MaxCqDepth
        LargeRequestThreshold MaxCallerData MaxCalleeData AdapterFlags RdmaTechnology
    }
    NDK_CONNECTOR { Header Dispatch }
    NDK_CONNECTOR_DISPATCH {
        NdkCloseConnector NdkQueryExtension NdkConnect NdkConnectWithSharedEndpoint NdkCompleteConnect
        NdkAccept NdkReject NdkGetConnectionData NdkGetLocalAddress NdkGetPeerAddress NdkDisconnect
        NdkCompleteConnectEx NdkAcceptEx
    }
    NDK_CQ { Header Dispatch }
    NDK_CQ_DISPATCH {
        NdkCloseCq NdkQueryExtension NdkResizeCq NdkArmCq NdkGetCqResults NdkControlCqInterruptModeration
        NdkGetCqResultsEx
    }
    NDK_EXTENSION_ADAPTER_RSS_DISPATCH { NdkGetRssProcessorInfo }
    NDK_EXTENSION_INTERFACE { Dispatch }
    NDK_LISTENER { Header Dispatch }
    NDK_LISTENER_DISPATCH { NdkCloseListener NdkQueryExtension NdkListen NdkGetLocalAddress NdkControlConnectEvents }
    NDK_LOGICAL_ADDRESS_MAPPING { AdapterContext AdapterPageCount AdapterPageArray }
    NDK_MR { Header Dispatch }
    NDK_MR_DISPATCH {
        NdkCloseMr NdkQueryExtension NdkRegisterMr NdkDeregisterMr NdkInitializeFastRegisterMr
        NdkGetRemoteTokenFromMr NdkGetLocalTokenFromMr
    }
    NDK_MW { Header Dispatch }
    NDK_MW_DISPATCH { NdkCloseMw NdkQueryExtension NdkGetRemoteTokenFromMw }
    NDK_OBJECT_HEADER { Version ObjectType NdkReserved }
    NDK_OBJECT_HEADER_RESERVED_BLOCK { rf }
    NDK_PD { Header Dispatch }
    NDK_PD_DISPATCH {
        NdkClosePd NdkQueryExtension NdkCreateMr NdkCreateMw NdkCreateSrq NdkCreateQp NdkCreateQpWithSrq
        NdkGetPrivilegedMemoryRegionToken
    }
    NDK_QP { Header Dispatch }
    NDK_QP_DISPATCH {
        NdkCloseQp NdkQueryExtension NdkFlush NdkSend NdkReceive NdkBind NdkFastRegister NdkInvalidate
        NdkRead NdkWrite NdkSendAndInvalidate
    }
    NDK_RESULT { Status BytesTransferred QPContext RequestContext }
    NDK_RESULT_EX {
        Status BytesTransferred QPContext RequestContext Type ProviderErrorCode TypeSpecificCompletionOutput
    }
    NDK_SGE { Address Length MemoryRegionToken }
    NDK_SHARED_ENDPOINT { Header Dispatch }
    NDK_SHARED_ENDPOINT_DISPATCH { NdkCloseSharedEndpoint NdkQueryExtension NdkGetLocalAddress }
    NDK_SRQ { Header Dispatch }
    NDK_SRQ_DISPATCH { NdkCloseSrq NdkQueryExtension NdkModifySrq NdkSrqReceive }
    NDK_VERSION { Major Minor }
    NET_PNP_EVENT { NetEvent Buffer BufferLength NdisReserved TransportReserved TdiReserved TdiClientReserved }
    NET_PNP_EVENT_NOTIFICATION { Header PortNumber NetPnPEvent Flags SwitchId VPortId }
    SOCKADDR_IN { sin_family sin_port sin_addr sin_zero }
    SOCKADDR_IN6 { sin6_family sin6_port sin6_flowinfo sin6_addr sin6_scope_id }
    SOCKADDR_INET { Ipv6 }
    WSK_PROVIDER_NDK_DISPATCH { WskOpenNdkAdapter WskCloseNdkAdapter }
}

/// Members of C's unions, for which the crate has something else at the same place.
pub fn views() -> Vec<(&'static str, Field)> {
    let virtual_address = offset_of!(ndkpi::NDK_SGE, Address.VirtualAddress);
    let logical_address = offset_of!(ndkpi::NDK_SGE, Address.LogicalAddress);
    let ipv4: fn(&ndkpi::SOCKADDR_INET) -> ndkpi::SOCKADDR_IN = ndkpi::SOCKADDR_INET::ipv4;
    let family: fn(&ndkpi::SOCKADDR_INET) -> u16 = ndkpi::SOCKADDR_INET::family;
    let family_at = offset_of!(ndkpi::SOCKADDR_INET, Ipv6.sin6_family);
    vec![
        ("IN6_ADDR", Field::view("u.Byte", offset_of!(ndkpi::IN6_ADDR, Byte), <[u8; 16]>::spelling())),
        ("NDK_SGE", Field::view("VirtualAddress", virtual_address, <*mut std::ffi::c_void>::spelling())),
        ("NDK_SGE", Field::view("LogicalAddress", logical_address, ndkpi::NDK_LOGICAL_ADDRESS::spelling())),
        ("SOCKADDR_INET", Field::view("Ipv4", 0, spelling_of_result(ipv4))),
        ("SOCKADDR_INET", Field::view("si_family", family_at, spelling_of_result(family))),
    ]
}

/// The spelling of what a method returns.
fn spelling_of_result<S, T: Spelled>(_method: fn(&S) -> T) -> String {
    T::spelling()
}

macro_rules! functions {
    ($($function:ident)+) => {
        /// Every function type of the crate.
        pub fn functions() -> Vec<(&'static str, Prototype)> {
            vec![$((stringify!($function), <ndkpi::$function as Function>::prototype())),+]
        }
    };
}

functions! {
    CLOSE_NDK_ADAPTER_HANDLER NDK_FN_ACCEPT NDK_FN_ACCEPT_EX NDK_FN_ARM_CQ NDK_FN_BIND NDK_FN_BUILD_LAM
    NDK_FN_CLOSE_COMPLETION NDK_FN_CLOSE_OBJECT NDK_FN_COMPLETE_CONNECT NDK_FN_COMPLETE_CONNECT_EX
    NDK_FN_CONNECT NDK_FN_CONNECT_EVENT_CALLBACK NDK_FN_CONNECT_WITH_SHARED_ENDPOINT
    NDK_FN_CONTROL_CONNECT_EVENTS NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION NDK_FN_CQ_NOTIFICATION_CALLBACK
    NDK_FN_CREATE_COMPLETION NDK_FN_CREATE_CONNECTOR NDK_FN_CREATE_CQ NDK_FN_CREATE_LISTENER NDK_FN_CREATE_MR
    NDK_FN_CREATE_MW NDK_FN_CREATE_PD NDK_FN_CREATE_QP NDK_FN_CREATE_QP_WITH_SRQ NDK_FN_CREATE_SHARED_ENDPOINT
    NDK_FN_CREATE_SRQ NDK_FN_DEREGISTER_MR NDK_FN_DISCONNECT NDK_FN_DISCONNECT_EVENT_CALLBACK
    NDK_FN_DISCONNECT_EVENT_CALLBACK_EX NDK_FN_DISCONNECT_EX NDK_FN_FAST_REGISTER NDK_FN_FLUSH
    NDK_FN_GET_CONNECTION_DATA NDK_FN_GET_CQ_RESULTS NDK_FN_GET_CQ_RESULTS_EX NDK_FN_GET_LISTENER_LOCAL_ADDRESS
    NDK_FN_GET_LOCAL_ADDRESS NDK_FN_GET_LOCAL_TOKEN_FROM_MR NDK_FN_GET_PEER_ADDRESS
    NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN NDK_FN_GET_REMOTE_TOKEN_FROM_MR NDK_FN_GET_REMOTE_TOKEN_FROM_MW
    NDK_FN_GET_RSS_PROCESSOR_INFO NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS NDK_FN_INITIALIZE_FAST_REGISTER_MR
    NDK_FN_INVALIDATE NDK_FN_LISTEN NDK_FN_MODIFY_SRQ NDK_FN_QUERY_ADAPTER_INFO NDK_FN_QUERY_ADAPTER_INFO_EX
    NDK_FN_QUERY_EXTENSION_INTERFACE NDK_FN_READ NDK_FN_RECEIVE NDK_FN_REGISTER_MR NDK_FN_REJECT
    NDK_FN_RELEASE_LAM NDK_FN_REQUEST_COMPLETION NDK_FN_RESIZE_CQ NDK_FN_SEND NDK_FN_SEND_AND_INVALIDATE
    NDK_FN_SRQ_NOTIFICATION_CALLBACK NDK_FN_SRQ_RECEIVE NDK_FN_WRITE OPEN_NDK_ADAPTER_HANDLER
    PFN_WSK_NDK_CLOSE_ADAPTER PFN_WSK_NDK_OPEN_ADAPTER
}

macro_rules! constants {
    ($($constant:ident)+) => {
        /// Every constant of the crate that the facts know.
        pub fn constants() -> Vec<(&'static str, Value)> {
            vec![$((stringify!($constant), Constant::json(ndkpi::$constant))),+]
        }
    };
}

/// The value of a constant as the facts write it.
trait Constant {
    fn json(self) -> Value;
}

macro_rules! constants_of {
    ($($type:ty)+) => {
        $(impl Constant for $type {
            fn json(self) -> Value {
                json!(self)
            }
        })+
    };
}

constants_of!(u8 u16 u32 &str);

impl Constant for ndkpi::NtStatus {
    fn json(self) -> Value {
        json!(self.to_bits())
    }
}

constants! {
    NDIS_DEFAULT_PORT_NUMBER
    NDIS_DEFAULT_SWITCH_ID
    NDIS_DEFAULT_VPORT_ID
    NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1
    NDIS_NDK_CAPABILITIES_REVISION_1
    NDIS_NDK_CONNECTIONS_REVISION_1
    NDIS_NDK_LOCAL_ENDPOINTS_REVISION_1
    NDIS_NDK_PROVIDER_CHARACTERISTICS_REVISION_1
    NDIS_NDK_STATISTICS_INFO_REVISION_1
    NDIS_OBJECT_TYPE_DEFAULT
    NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES
    NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS
    NDIS_SIZEOF_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1
    NDIS_SIZEOF_NDK_CAPABILITIES_REVISION_1
    NDIS_SIZEOF_NDK_PROVIDER_CHARACTERISTICS_REVISION_1
    NDIS_SIZEOF_NDK_STATISTICS_INFO_REVISION_1
    NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_1
    NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_2
    NDIS_STATUS_ADAPTER_NOT_READY
    NDIS_STATUS_BAD_VERSION
    NDIS_STATUS_PENDING
    NDIS_STATUS_RESOURCES
    NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED
    NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED
    NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED
    NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED
    NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED
    NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED
    NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED
    NDK_CQ_NOTIFY_ANY
    NDK_CQ_NOTIFY_ERRORS
    NDK_CQ_NOTIFY_SOLICITED
    NDK_MR_FLAG_ALLOW_LOCAL_READ
    NDK_MR_FLAG_ALLOW_LOCAL_WRITE
    NDK_MR_FLAG_ALLOW_REMOTE_READ
    NDK_MR_FLAG_ALLOW_REMOTE_WRITE
    NDK_MR_FLAG_RDMA_READ_SINK
    NDK_OP_FLAG_ALLOW_LOCAL_WRITE
    NDK_OP_FLAG_ALLOW_REMOTE_READ
    NDK_OP_FLAG_ALLOW_REMOTE_WRITE
    NDK_OP_FLAG_DEFER
    NDK_OP_FLAG_INLINE
    NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE
    NDK_OP_FLAG_RDMA_READ_SINK
    NDK_OP_FLAG_READ_FENCE
    NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT
    NDK_OP_FLAG_SILENT_SUCCESS
    NETWORK_DIRECT_GLOBAL_FLAGS_ALLOW_REMOTE_IP_SUBNET
    NETWORK_DIRECT_GLOBAL_FLAGS_KEYWORD
    NETWORK_DIRECT_KEYWORD
    NET_EVENT_FLAGS_VPORT_ID_VALID
    NET_PNP_EVENT_NOTIFICATION_REVISION_1
    NET_PNP_EVENT_NOTIFICATION_REVISION_2
    OID_NDK_CONNECTIONS
    OID_NDK_LOCAL_ENDPOINTS
    OID_NDK_SET_STATE
    OID_NDK_STATISTICS
    WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH
}

macro_rules! enumerations {
    ($($enumeration:ident)+) => {
        /// Every enumeration of the crate with the names and values of its enumerators.
        pub fn enumerations() -> Vec<(&'static str, Vec<(&'static str, i32)>)> {
            vec![$((
                stringify!($enumeration),
                ndkpi::$enumeration::NAMED.iter().map(|value| (value.name().expect("named"), value.0)).collect(),
            )),+]
        }
    };
}

enumerations! { NDK_OBJECT_TYPE NDK_OPERATION_TYPE NDK_RDMA_TECHNOLOGY NET_PNP_EVENT_CODE }

/// Every identifier of the crate that the facts know.
pub const fn guids() -> [(&'static str, ndkpi::GUID); 3] {
    [
        ("GUID_NDIS_NDK_CAPABILITIES", ndkpi::GUID_NDIS_NDK_CAPABILITIES),
        ("GUID_NDIS_NDK_STATE", ndkpi::GUID_NDIS_NDK_STATE),
        ("NDK_EXTENSION_ID_ADAPTER_RSS_DISPATCH", ndkpi::NDK_EXTENSION_ID_ADAPTER_RSS_DISPATCH),
    ]
}

/// How long a list of that many entries is.
pub type SizeFor = fn(u32) -> usize;

/// Every length of the crate that depends on a number of entries.
pub fn size_formulas() -> [(&'static str, SizeFor); 2] {
    [
        ("NDIS_SIZEOF_NDK_CONNECTIONS_REVISION_1(n)", ndkpi::NDIS_NDK_CONNECTIONS::size_for),
        ("NDIS_SIZEOF_NDK_LOCAL_ENDPOINTS_REVISION_1(n)", ndkpi::NDIS_NDK_LOCAL_ENDPOINTS::size_for),
    ]
}

//! The binary interface: identifiers and the order of the tables, as the public header has them.

use nd2::abi::{
    IClassFactoryVtbl, IID_IClassFactory, IID_IND2Adapter, IID_IND2CompletionQueue, IID_IND2Connector,
    IID_IND2Listener, IID_IND2MemoryRegion, IID_IND2MemoryWindow, IID_IND2Overlapped, IID_IND2Provider,
    IID_IND2QueuePair, IID_IND2SharedReceiveQueue, IID_INDAdapter, IID_INDCompletionQueue, IID_INDConnector,
    IID_INDEndpoint, IID_INDListen, IID_INDMemoryWindow, IID_INDOverlapped, IID_INDProvider, IID_IUnknown,
    IND2AdapterVtbl, IND2CompletionQueueVtbl, IND2ConnectorVtbl, IND2ListenerVtbl, IND2MemoryRegionVtbl,
    IND2MemoryWindowVtbl, IND2OverlappedVtbl, IND2ProviderVtbl, IND2QueuePairVtbl, IND2SharedReceiveQueueVtbl,
    INDAdapterVtbl, INDCompletionQueueVtbl, INDConnectorVtbl, INDEndpointVtbl, INDListenVtbl, INDOverlappedVtbl,
    INDProviderVtbl, ND_ADAPTER_INFO1, ND_MW_DESCRIPTOR, ND_RESULT, ND_SGE, ND2_ADAPTER_INFO, ND2_RESULT, ND2_SGE,
    OVERLAPPED, Table,
};

#[test]
fn identifiers_are_those_of_the_header() {
    let all = [
        (IID_IUnknown, "00000000-0000-0000-c000-000000000046"),
        (IID_IND2Overlapped, "abf72719-b016-4a40-a6f7-622791a7044c"),
        (IID_IND2CompletionQueue, "20cc445e-64a0-4cbb-aa75-f6a7251fda9e"),
        (IID_IND2SharedReceiveQueue, "aabd67dc-459a-4db1-826b-56cfcc278883"),
        (IID_IND2MemoryWindow, "070fe1f5-0ab5-4361-88db-974ba704d4b9"),
        (IID_IND2MemoryRegion, "55dfea2f-bc56-4982-8a45-0301be46c413"),
        (IID_IND2QueuePair, "eef2f332-b75d-4063-bce3-3a0bad2d02ce"),
        (IID_IND2Connector, "7dd615c4-6b4c-4866-950c-f3b1d25a5302"),
        (IID_IND2Listener, "65d23d83-3a57-4e02-86a4-350165c2d130"),
        (IID_IND2Adapter, "d89c798c-4823-4d69-846c-dfdccff9e5f3"),
        (IID_IND2Provider, "49eae6c1-76c4-46d0-8003-5c2eaa2c9a8e"),
        (IID_INDOverlapped, "c859e15e-75e2-4fe3-8d6d-0dff36f02442"),
        (IID_INDCompletionQueue, "1245a633-2a32-473a-830c-e05d1f869d02"),
        (IID_INDMemoryWindow, "070fe1f5-0ab5-4361-88db-974ba704d4b9"),
        (IID_INDEndpoint, "dbd00eab-b679-44a9-bd65-e82f3de12d1a"),
        (IID_INDConnector, "1bcaf2d1-e274-4aeb-ac57-cd5d4376e0b7"),
        (IID_INDListen, "bb902588-ba3f-4441-9fe1-3b6795e4e668"),
        (IID_INDAdapter, "a023c5a0-5b73-43bc-8d20-33aa07e9510f"),
        (IID_INDProvider, "0c5dd316-5fdf-47e6-b2d0-2a6eda8d39dd"),
        (IID_IClassFactory, "00000001-0000-0000-c000-000000000046"),
    ];
    for (iid, digits) in all {
        assert_eq!(iid.to_string(), digits);
    }
}

/// Checks the order of a table, and that nothing else is in it.
fn order<T: Table>(wanted: &str) {
    let wanted: Vec<_> = wanted.split_whitespace().collect();
    assert_eq!(T::slots().collect::<Vec<_>>(), wanted);
    assert_eq!(size_of::<T>(), wanted.len() * size_of::<usize>());
}

const UNKNOWN: &str = "QueryInterface AddRef Release";
const OVERLAPPED_2: &str = "QueryInterface AddRef Release CancelOverlappedRequests GetOverlappedResult";

#[test]
fn functions_have_the_order_of_the_header() {
    order::<IND2OverlappedVtbl>(OVERLAPPED_2);
    order::<IND2CompletionQueueVtbl>(&format!("{OVERLAPPED_2} GetNotifyAffinity Resize Notify GetResults"));
    order::<IND2SharedReceiveQueueVtbl>(&format!("{OVERLAPPED_2} GetNotifyAffinity Modify Notify Receive"));
    order::<IND2MemoryWindowVtbl>(&format!("{UNKNOWN} GetRemoteToken"));
    order::<IND2MemoryRegionVtbl>(&format!("{OVERLAPPED_2} Register Deregister GetLocalToken GetRemoteToken"));
    order::<IND2QueuePairVtbl>(&format!("{UNKNOWN} Flush Send Receive Bind Invalidate Read Write"));
    order::<IND2ConnectorVtbl>(&format!(
        "{OVERLAPPED_2} Bind Connect CompleteConnect Accept Reject GetReadLimits GetPrivateData GetLocalAddress \
         GetPeerAddress NotifyDisconnect Disconnect"
    ));
    order::<IND2ListenerVtbl>(&format!("{OVERLAPPED_2} Bind Listen GetLocalAddress GetConnectionRequest"));
    order::<IND2AdapterVtbl>(&format!(
        "{UNKNOWN} CreateOverlappedFile Query QueryAddressList CreateCompletionQueue CreateMemoryRegion \
         CreateMemoryWindow CreateSharedReceiveQueue CreateQueuePair CreateQueuePairWithSrq CreateConnector CreateListener"
    ));
    order::<IND2ProviderVtbl>(&format!("{UNKNOWN} QueryAddressList ResolveAddress OpenAdapter"));
    order::<INDOverlappedVtbl>(OVERLAPPED_2);
    order::<INDCompletionQueueVtbl>(&format!("{OVERLAPPED_2} Resize Notify GetResults"));
}

#[test]
fn functions_of_version_1_have_the_order_of_the_header() {
    order::<INDEndpointVtbl>(&format!(
        "{UNKNOWN} Flush StartRequestBatch SubmitRequestBatch Send SendAndInvalidate Receive Bind Invalidate Read Write"
    ));
    order::<INDConnectorVtbl>(&format!(
        "{OVERLAPPED_2} CreateEndpoint Connect CompleteConnect Accept Reject GetConnectionData GetLocalAddress \
         GetPeerAddress NotifyDisconnect Disconnect"
    ));
    order::<INDListenVtbl>(&format!("{OVERLAPPED_2} GetConnectionRequest"));
    order::<INDAdapterVtbl>(&format!(
        "{OVERLAPPED_2} GetFileHandle Query Control CreateCompletionQueue RegisterMemory DeregisterMemory \
         CreateMemoryWindow CreateConnector Listen"
    ));
    order::<INDProviderVtbl>(&format!("{UNKNOWN} QueryAddressList OpenAdapter"));
    order::<IClassFactoryVtbl>(&format!("{UNKNOWN} CreateInstance LockServer"));
    let sizes = [size_of::<ND_ADAPTER_INFO1>(), size_of::<ND_MW_DESCRIPTOR>(), size_of::<ND_SGE>()];
    assert_eq!(sizes, [0x80, 0x14, 0x18]);
}

#[test]
fn structures_have_the_sizes_of_the_header() {
    let sizes = [
        size_of::<ND2_RESULT>(),
        size_of::<ND2_SGE>(),
        size_of::<ND2_ADAPTER_INFO>(),
        size_of::<ND_RESULT>(),
        size_of::<OVERLAPPED>(),
    ];
    assert_eq!(sizes, [0x20, 0x10, 0x60, 0x10, 0x20]);
}

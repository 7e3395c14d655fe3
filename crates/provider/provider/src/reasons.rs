//! The reasons, by number. A number that was given is never given again.

use ndkpi::{NDK_OPERATION_TYPE as Kind, NtStatus};

use super::reason::{
    About::{self, Calls, Rejections, Requests, Wire},
    Reason,
};

const MOVING: &[Kind] = &[Kind::SEND, Kind::READ, Kind::WRITE];
const MOVES: About = Requests(MOVING);
const ALL: About = Requests(&[
    Kind::RECEIVE,
    Kind::RECEIVE_AND_INVALIDATE,
    Kind::SEND,
    Kind::FAST_REGISTER,
    Kind::BIND,
    Kind::INVALIDATE,
    Kind::READ,
    Kind::WRITE,
]);
const RECEIVES: About = Requests(&[Kind::RECEIVE, Kind::RECEIVE_AND_INVALIDATE]);

const INITIATOR: About =
    Calls(&["NdkSend", "NdkSendAndInvalidate", "NdkRead", "NdkWrite", "NdkBind", "NdkFastRegister", "NdkInvalidate"]);
const TRANSFERS: About = Calls(&["NdkSend", "NdkSendAndInvalidate", "NdkRead", "NdkWrite"]);
const RECEIVE_CALLS: About = Calls(&["NdkReceive", "NdkSrqReceive"]);
const CREATIONS: About = Calls(&[
    "NdkCreateCq",
    "NdkCreatePd",
    "NdkCreateMr",
    "NdkCreateMw",
    "NdkCreateSrq",
    "NdkCreateQp",
    "NdkCreateQpWithSrq",
    "NdkCreateConnector",
    "NdkCreateListener",
]);
const CONNECTS: About = Calls(&["NdkConnect", "NdkConnectWithSharedEndpoint"]);
const ESTABLISH: About = Calls(&["NdkAccept", "NdkAcceptEx", "NdkCompleteConnect", "NdkCompleteConnectEx"]);
const LOCAL_ENDS: About = Calls(&["NdkListen", "NdkCreateSharedEndpoint", "NdkConnect"]);
const ADDRESSES: About = Calls(&[
    "NdkGetLocalAddress",
    "NdkGetPeerAddress",
    "NdkGetLocalAddress (listener)",
    "NdkGetLocalAddress (shared endpoint)",
]);

macro_rules! reasons {
    ($($number:literal $about:expr, $status:ident, $section:literal, $what:literal, $fix:literal;)+) => {
        pub const REASONS: &[Reason] =
            &[$(Reason::new($number, $about, NtStatus::$status, $section, $what, $fix),)+];
    };
}

reasons! {
    1 ALL, CANCELLED, "NDKPI 7.2", "The request was flushed: the consumer has flushed, disconnected or closed, or an earlier request of the queue pair has failed.", "Look for the first completion of the queue pair that is not cancelled: it says what happened.";
    2 RECEIVES, BUFFER_OVERFLOW, "NDKPI 7.3", "The message is longer than the receive that it came for. The connection has ended.", "Post receives as long as the longest message that the peers have agreed on.";
    3 RECEIVES, ACCESS_VIOLATION, "NDKPI 7.4", "An element of the receive names no memory that may be written: its token stands for nothing, lies in another protection domain or has no local write, or the bytes lie outside of the registration.", "Look at token, address, length and flags of each element when the message comes, not when the receive was posted.";
    4 MOVES, ACCESS_VIOLATION, "NDKPI 7.4", "An element of the request names no memory of this side: its token stands for nothing, lies in another protection domain or lacks the right, or the bytes lie outside of the registration. The connection has ended.", "Look at token, address, length and flags of each element; a token must be valid until the completion.";
    5 Requests(&[Kind::SEND]), REMOTE_RESOURCES, "NDKPI 7.2", "The peer could not take the message: its receive is too short or names no memory that may be written, or the token that the send invalidates is none of the peer's. The connection has ended.", "Look at the peer's failed receive, which says which of these it was.";
    6 Requests(&[Kind::READ, Kind::WRITE]), REMOTE_RESOURCES, "NDKPI 7.4", "The peer's memory refused the access: the remote token stands for nothing or lacks the right, or the bytes lie outside of what it stands for. The connection has ended.", "Compare address, token and rights with what the peer has sent, and look that the peer has not invalidated it.";
    7 Requests(&[Kind::READ, Kind::WRITE]), IO_TIMEOUT, "NDKPI 7.2", "The connection was lost while this request was the first in the queue: if its bytes have arrived nobody knows. Over a wire: the peer has not answered, however often it was asked, or has disconnected.", "Treat the connection as broken; what was done must be found out by the consumers' protocol.";
    8 Requests(&[Kind::FAST_REGISTER]), INVALID_DEVICE_REQUEST, "NDKPI 7.4", "The region is registered: it was not invalidated since its last fast registration. The connection has ended.", "Post an invalidation, or wait for the peer's, before the next fast registration.";
    9 Requests(&[Kind::BIND]), INVALID_DEVICE_REQUEST, "NDKPI 7.6", "The window is bound: it was not invalidated since its last bind. The connection has ended.", "Invalidate the window before it is bound anew.";
    10 Requests(&[Kind::INVALIDATE, Kind::READ]), INVALID_DEVICE_REQUEST, "NDKPI 7.6", "There is nothing to be invalidated: the region or window was invalidated before, perhaps by the peer. The connection has ended.", "Invalidate once; a receive of the type ReceiveAndInvalidate says that the peer did.";
    11 Requests(&[Kind::BIND, Kind::FAST_REGISTER]), ACCESS_VIOLATION, "NDKPI 7.4", "What the post had checked did not hold any more when the request was carried out.", "Keep region and window as they are until the completion.";
    12 Requests(&[Kind::SEND]), IO_TIMEOUT, "NDKPI 7.2", "The connection was lost while this send was the first in the queue, or the peer had no receive for it: on RoCE none when it was sent for the last time, on iWARP none when it came. Over a wire also: the peer has not answered, however often it was asked, or has disconnected. The connection has ended.", "Post receives before the peer can send: count them as credits. If there were some, treat the connection as broken; what was done must be found out by the consumers' protocol.";
    13 Requests(&[Kind::INVALIDATE, Kind::READ]), DEVICE_BUSY, "NDKPI 7.6", "Windows are bound to the region that is to be invalidated. The connection has ended.", "Invalidate the windows first.";
    14 RECEIVES, INVALID_DEVICE_REQUEST, "NDKPI 7.6", "The message came over a wire, and the peer broke a rule with it: it named a token to invalidate that is none of this side's, or sent packets that make no message. The connection has ended.", "Look at the token that the peer invalidates: it must be that of a fast registration or a window in force.";
    15 Wire(MOVING), IO_TIMEOUT, "NDKPI 7.2", "Over a wire: the peer's adapter has not answered, however often the request was repeated. If it was carried out nobody knows. The connection has ended.", "Look whether the peer runs and is reachable; what was done must be found out by the consumers' protocol.";
    16 Wire(&[Kind::SEND]), IO_TIMEOUT, "NDKPI 7.2", "Over a wire: the peer's adapter has answered each time that there is no receive for the message. The connection has ended.", "Post receives before the peer can send: count them as credits.";
    17 Wire(MOVING), REMOTE_RESOURCES, "NDKPI 7.2", "Over a wire: the peer's adapter takes no such message (NAK 0x61). Mostly the receive is shorter than it, or the peer carries no reads. The connection has ended.", "Look at the peer's failed receive, and at the read limits of both sides.";
    18 Wire(MOVING), REMOTE_RESOURCES, "NDKPI 7.4", "Over a wire: the peer's memory refused the access (NAK 0x62): the remote token stands for nothing or lacks the right, or the bytes lie outside of what it stands for. The connection has ended.", "Compare address, token and rights with what the peer has sent, and look that the peer has not invalidated it.";
    19 Wire(MOVING), REMOTE_RESOURCES, "NDKPI 7.2", "Over a wire: the peer's adapter could not carry the request out (NAK 0x63): mostly the memory of its receive may not be written, and with Linux' rxe also if the receive is too short. The connection has ended.", "Look at the peer's failed receive, which says which of these it was.";

    20 INITIATOR, CONNECTION_INVALID, "NDKPI 5.7", "The queue pair is not connected: not yet, not any more, or one of its requests has failed.", "Post after the accept or the last step of the connect has completed, and stop at the first failed completion.";
    21 INITIATOR, NO_MORE_ENTRIES, "NDKPI 7.2", "The initiator queue is full. For NdkBind and NdkFastRegister also: 65,536 of them are posted for this window or region, on all queue pairs together.", "Count requests in flight, and wait for completions at the depth.";
    22 RECEIVE_CALLS, NO_MORE_ENTRIES, "NDKPI 7.2", "The receive queue is full.", "Count receives in flight, and post at most as many as the depth.";
    23 INITIATOR, INVALID_PARAMETER, "NDKPI 2.4", "Flags that the request does not have, a list that is not there, or an object of another type, adapter or protection domain.", "Look at the page of the function for its flags, and at the objects that are passed.";
    24 RECEIVE_CALLS, INVALID_PARAMETER, "NDKPI 7.3", "The number of elements is not zero, and the list is not there.", "Pass the list, or no elements.";
    25 TRANSFERS, DATA_OVERRUN, "NDKPI 7.3", "More elements than the queue pair was created for, or in a read than MaxReadRequestSge.", "Split the request, or create the queue pair with more elements.";
    26 RECEIVE_CALLS, DATA_OVERRUN, "NDKPI 7.3", "More elements than a receive of this queue may have.", "Post fewer, or create the queue with more.";
    27 TRANSFERS, BUFFER_OVERFLOW, "NDKPI 3.11", "More bytes than MaxTransferLength.", "Split the request.";
    28 RECEIVE_CALLS, BUFFER_OVERFLOW, "NDKPI 3.11", "The receive is longer than MaxTransferLength.", "Post shorter receives.";
    29 Calls(&["NdkSend", "NdkSendAndInvalidate", "NdkWrite"]), INVALID_BUFFER_SIZE, "NDKPI 7.3", "More inline bytes than the queue pair was created for.", "Send without the flag, or create the queue pair with a greater inline size.";
    30 Calls(&["NdkRead"]), INVALID_DEVICE_REQUEST, "NDKPI 7.7.3", "The connection carries no reads: the outbound read limit that both sides have agreed on is zero.", "Ask for reads at connect and accept, and look at NdkGetConnectionData.";
    31 Calls(&["NdkReceive"]), INVALID_DEVICE_REQUEST, "NDKPI 7.2", "The queue pair has a shared receive queue.", "Post receives to that.";
    32 Calls(&["NdkBind"]), ACCESS_VIOLATION, "NDKPI 7.6", "The window would be outside of its region, or have a right that the region lacks.", "Register with local write for a window that peers write, and keep the window inside.";
    33 Calls(&["NdkFastRegister"]), ACCESS_VIOLATION, "NDKPI 7.4", "A remote right without RemoteAccess at the initialisation, or pages that no mapping of this adapter has.", "Initialise with RemoteAccess, and take the pages from NdkBuildLAM.";
    34 Calls(&["NdkBind", "NdkFastRegister"]), INVALID_DEVICE_REQUEST, "NDKPI 7.4", "The region is of the other kind, or not registered or initialised.", "Look at how the region was created, and at what was done with it.";
    35 Calls(&["NdkFastRegister", "NdkBind"]), INVALID_DEVICE_STATE, "NDKPI 7.4", "The region is being registered, deregistered or closed by another call, or two posts on one queue overlap.", "Wait for that call's completion, and take a lock per queue around posts.";
    36 Calls(&["NdkInvalidate"]), INVALID_DEVICE_REQUEST, "NDKPI 7.6", "Only fast-registered regions and windows can be invalidated; this is a plain region, or nothing was registered.", "Deregister a plain region.";
    37 Calls(&["NdkSend", "NdkSendAndInvalidate", "NdkRead", "NdkWrite", "NdkInvalidate"]), INVALID_DEVICE_STATE, "NDKPI 7.3", "Two posts on one queue overlap.", "Take a lock per queue around posts.";
    38 RECEIVE_CALLS, INVALID_DEVICE_STATE, "NDKPI 7.3", "Two receives on one queue overlap.", "Take a lock per queue around receives.";
    40 Calls(&["NdkBind", "NdkFastRegister"]), INSUFFICIENT_RESOURCES, "NDKPI 7.4", "More of them are posted for this window or region than ever before, and there is no memory for one more.", "Wait for completions, and post again.";

    50 CREATIONS, INSUFFICIENT_RESOURCES, "NDKPI 5.2", "There is no memory, or there are as many objects of this kind as the driver's limits allow (MaxCqs, MaxQps, MaxPds, MaxTokens).", "Close what is not needed, or raise the limit in the registry.";
    51 Calls(&["NdkCreateSharedEndpoint", "NdkListen", "NdkConnect", "NdkConnectWithSharedEndpoint", "NdkAccept", "NdkAcceptEx", "NdkReject", "NdkBuildLAM", "NdkRegisterMr", "NdkInitializeFastRegisterMr", "NdkResizeCq", "NdkModifySrq", "NdkControlCqInterruptModeration"]), INSUFFICIENT_RESOURCES, "NDKPI 5", "There is no memory for what the call has to keep.", "Try again later.";
    52 Calls(&["NdkCreateCq"]), INVALID_PARAMETER, "NDKPI 5.2", "The depth is above MaxCqDepth, or the completion or the place for the queue is NULL.", "Ask NdkQueryAdapterInfo, and pass what is mandatory.";
    53 Calls(&["NdkCreatePd", "NdkCreateConnector", "NdkCreateListener", "NdkCreateMr", "NdkCreateMw"]), INVALID_PARAMETER, "NDKPI 5.2", "The completion, the event or the place for the object is NULL, or the object that it is called on is of another type.", "Pass what is mandatory.";
    54 Calls(&["NdkCreateQp", "NdkCreateQpWithSrq", "NdkCreateSrq"]), INVALID_PARAMETER, "NDKPI 5.3", "A size is above the adapter's limit, a queue is of another adapter or protection domain, or the completion or the place for the object is NULL.", "Compare the sizes with NdkQueryAdapterInfo, and the objects with their parents.";
    55 Calls(&["NdkResizeCq"]), INVALID_PARAMETER, "NDKPI 7.1.11", "The depth is zero or above MaxCqDepth, or the completion is NULL.", "Stay within MaxCqDepth.";
    56 Calls(&["NdkResizeCq"]), BUFFER_OVERFLOW, "NDKPI 7.1.11", "The queue holds more completions than the new depth.", "Take completions first.";
    57 Calls(&["NdkResizeCq", "NdkControlCqInterruptModeration"]), NOT_SUPPORTED, "NDKPI 7.1.6", "The adapter does not have the flag for it.", "Look at AdapterFlags.";
    58 Calls(&["NdkControlCqInterruptModeration"]), INVALID_PARAMETER_MIX, "NDKPI 7.1.6", "Neither interval nor count is limited: no notification would ever come.", "Pass 0 for no moderation, or one real limit.";
    59 Calls(&["NdkModifySrq"]), INVALID_PARAMETER, "NDKPI 7.12", "The depth is above MaxSrqDepth or cannot be had, the threshold is above the depth, or the completion is NULL.", "Stay within MaxSrqDepth.";
    60 Calls(&["NdkModifySrq"]), BUFFER_OVERFLOW, "NDKPI 7.12", "The queue holds more receives than the new depth.", "Let receives complete first.";
    61 Calls(&["NdkRegisterMr"]), INVALID_PARAMETER, "NDKPI 7.4", "The memory is shorter than the length or not virtually contiguous, the length is zero or above MaxRegistrationSize, the flags are unknown, or the completion is NULL.", "Look at the MDL chain, the length and the flags.";
    62 Calls(&["NdkRegisterMr", "NdkDeregisterMr", "NdkInitializeFastRegisterMr"]), INVALID_DEVICE_REQUEST, "NDKPI 5.3", "The region is of the other kind: plain and fast-registered ones have different calls.", "Look at FastRegister of NdkCreateMr.";
    63 Calls(&["NdkRegisterMr", "NdkDeregisterMr", "NdkInitializeFastRegisterMr"]), INVALID_DEVICE_STATE, "NDKPI 7.4", "The region is in another state: registered or initialised already, not registered, or in the middle of a call.", "Wait for the completion of the call before it.";
    64 Calls(&["NdkDeregisterMr"]), DEVICE_BUSY, "NDKPI 7.6", "A window is bound to the region.", "Invalidate or close the window first.";
    65 Calls(&["NdkInitializeFastRegisterMr"]), IMPLEMENTATION_LIMIT, "NDKPI 5.5", "No pages, or more than FRMRPageCount.", "Ask NdkQueryAdapterInfo.";
    66 Calls(&["NdkDeregisterMr", "NdkInitializeFastRegisterMr"]), INVALID_PARAMETER, "NDKPI 5.5", "The completion is NULL.", "Pass a completion, also where this provider has never pended.";
    67 Calls(&["NdkBuildLAM"]), INVALID_PARAMETER, "NDKPI 7.5", "The memory is shorter than the length or not virtually contiguous, or the completion or a place is NULL.", "Look at the MDL chain and the length.";
    68 Calls(&["NdkBuildLAM"]), BUFFER_TOO_SMALL, "NDKPI 7.5", "The mapping does not fit; the size that it needs was stored.", "Allocate as much, and call again.";
    69 Calls(&["NdkQueryAdapterInfo"]), BUFFER_TOO_SMALL, "NDKPI 5.2", "The information does not fit; the size that it needs was stored.", "Allocate as much, and call again.";
    70 Calls(&["NdkQueryAdapterInfo"]), INVALID_PARAMETER, "NDKPI 5.2", "There is no place for the size.", "Pass one.";
    71 Calls(&["NdkQueryExtension"]), NOT_SUPPORTED, "NDKPI 5.1", "There is no such extension, in this version or on this kind of object.", "Go on without it.";
    72 Calls(&["NdkQueryExtension"]), INVALID_PARAMETER, "NDKPI 5.1", "A place or the identifier is NULL.", "Pass both.";
    73 Calls(&["NdkSendAndInvalidate", "NdkAcceptEx", "NdkCompleteConnectEx"]), NOT_SUPPORTED, "NDKPI 4", "The function is not in the version in which the adapter was opened.", "Look at the version in the header of the object.";

    80 CONNECTS, INVALID_PARAMETER, "NDKPI 5.8", "An address is malformed or of the other family, an object is of another type or adapter, or the completion is NULL.", "Look at family, length and objects.";
    81 CONNECTS, INVALID_BUFFER_SIZE, "NDKPI 3.11", "More private data than MaxCallerData.", "Send less, and the rest when the connection is there.";
    82 CONNECTS, CONNECTION_REFUSED, "NDKPI 5.8", "Nobody listens there, the listener is paused or its backlog full, or its consumer has rejected.", "Try again later.";
    83 CONNECTS, NETWORK_UNREACHABLE, "NDKPI 5.8", "No address of the adapter is in the network of the peer.", "Look at addresses and prefixes.";
    84 CONNECTS, HOST_UNREACHABLE, "NDKPI 5.8", "The peer's network is there, and nobody has the address.", "Try again later.";
    85 CONNECTS, IO_TIMEOUT, "NDKPI 5.8", "The peer's consumer has neither accepted nor rejected in time, or over a wire the peer's machine has not answered.", "Try again later.";
    86 CONNECTS, CANCELLED, "NDKPI 7.9", "The connector was closed while the connect was on its way.", "Nothing: the close completes next.";
    87 CONNECTS, CONNECTION_INVALID, "NDKPI 7.2", "The connector or queue pair had a connection before.", "Create new ones: neither is used twice.";
    88 CONNECTS, CONNECTION_ACTIVE, "NDKPI 7.7.1", "The connector or queue pair has a connection, or is about to.", "Create new ones.";
    89 Calls(&["NdkConnectWithSharedEndpoint"]), ADDRESS_ALREADY_EXISTS, "NDKPI 7.8", "There is a connection from this endpoint to this peer.", "Connect to another address or from another endpoint.";
    90 LOCAL_ENDS, SHARING_VIOLATION, "NDKPI 7.8", "Somebody uses the local port: a listener, a shared endpoint or a connector, perhaps one whose close is not complete.", "Choose another port or 0, or wait for the close.";
    91 LOCAL_ENDS, INVALID_ADDRESS, "NDKPI 5.8", "The local address is none of the adapter's, or the remote one is none that a listener can have.", "Ask for the addresses of its interface; a wildcard, a multicast address or port 0 cannot be connected to.";
    92 LOCAL_ENDS, TOO_MANY_ADDRESSES, "NDKPI 5.8", "No ephemeral port is free, 49152 to 65535.", "Close connections, or use a shared endpoint.";
    93 Calls(&["NdkListen", "NdkCreateSharedEndpoint"]), INVALID_PARAMETER, "NDKPI 5.9", "The address is malformed or of another family, or the completion is NULL.", "Look at family and length.";
    94 Calls(&["NdkListen"]), INVALID_DEVICE_STATE, "NDKPI 5.9", "The listener listens already, or is being closed.", "Create another one.";
    95 ESTABLISH, CONNECTION_INVALID, "NDKPI 7.7", "The connector is not at this step: nothing came in, the connect has not completed, or the connection has ended.", "Connect, then complete; accept once what a connect event has brought.";
    96 Calls(&["NdkAccept", "NdkAcceptEx"]), CONNECTION_ACTIVE, "NDKPI 7.7.1", "The queue pair has a connection, or the connector was accepted already.", "Accept once, with a queue pair of its own.";
    97 ESTABLISH, CONNECTION_ABORTED, "NDKPI 5.8", "The other side gave up before the connection was established.", "Wait for the next connect, or connect anew.";
    98 ESTABLISH, IO_TIMEOUT, "NDKPI 5.8", "The other side did not take the last step in time.", "Final for this connector: close it.";
    99 Calls(&["NdkAccept", "NdkAcceptEx"]), CANCELLED, "NDKPI 7.9", "The connector was closed while the request was on its way.", "Nothing: the close completes next.";
    100 ESTABLISH, INVALID_PARAMETER, "NDKPI 5.8", "The queue pair is of another adapter or type, or the completion is NULL.", "Look at the objects.";
    101 Calls(&["NdkAccept", "NdkAcceptEx"]), INVALID_BUFFER_SIZE, "NDKPI 3.11", "More private data than MaxCalleeData.", "Send less.";
    102 Calls(&["NdkReject"]), CONNECTION_INVALID, "NDKPI 7.7", "There is nothing to be rejected: nothing came in, it was answered before, or the connection has ended.", "Close the connector.";
    103 Calls(&["NdkReject"]), INVALID_BUFFER_SIZE, "NDKPI 3.11", "More private data than MaxCalleeData.", "Send less.";
    104 Calls(&["NdkDisconnect"]), CONNECTION_INVALID, "NDKPI 7.7.5", "There is no connection: not yet, or it was disconnected before.", "Disconnect once.";
    105 Calls(&["NdkDisconnect"]), CONNECTION_ABORTED, "NDKPI 7.7.5", "The connection broke before the peer has answered.", "Close the connector; the connection is gone.";
    106 Calls(&["NdkDisconnect"]), IO_TIMEOUT, "NDKPI 7.7.5", "What was posted before the disconnect did not end in time: a send has met no receive of the peer. The connection is gone.", "Disconnect when all completions were seen, and close the connector.";
    107 Calls(&["NdkDisconnect"]), CANCELLED, "NDKPI 7.9", "The connector was closed while the disconnect was on its way.", "Nothing: the close completes next.";
    108 Calls(&["NdkDisconnect"]), INVALID_PARAMETER, "NDKPI 5.8", "The completion is NULL.", "Pass one.";
    109 ADDRESSES, BUFFER_TOO_SMALL, "NDKPI 5.8", "The address does not fit; its length was stored.", "Pass a SOCKADDR_INET.";
    110 Calls(&["NdkGetLocalAddress", "NdkGetPeerAddress"]), CONNECTION_INVALID, "NDKPI 5.8", "There is no such address yet: nothing was connected or accepted.", "Ask after that.";
    111 ADDRESSES, INVALID_PARAMETER, "NDKPI 5.8", "There is no place for the length.", "Pass one.";
    112 Calls(&["NdkGetConnectionData"]), BUFFER_TOO_SMALL, "NDKPI 7.7.4", "The private data does not fit; what fits was copied, and the length that it needs was stored.", "Ask for the length with no buffer first.";
    113 Calls(&["NdkGetConnectionData"]), CONNECTION_INVALID, "NDKPI 7.7.4", "The connector has no connection that could have data.", "Ask from the connect event or the completed connect on.";
    114 Calls(&["NdkGetConnectionData"]), INVALID_PARAMETER, "NDKPI 7.7.4", "A length without a buffer, or no place for the length.", "Pass NULL with 0, or a buffer with its length.";
    115 Calls(&["NdkConnect", "NdkConnectWithSharedEndpoint", "NdkAccept", "NdkAcceptEx"]), DEVICE_REMOVED, "NDIS-NDK 4", "The adapter has gone.", "Close everything, and the adapter.";
    116 Calls(&["NdkGetLocalAddress (listener)"]), INVALID_DEVICE_STATE, "NDKPI 5.9", "The listener does not listen yet.", "Ask after NdkListen has completed.";
    117 Calls(&["NdkReject"]), CONNECTION_ABORTED, "NDKPI 5.8", "The other side gave up before: it has closed its connector, rejected, or not taken the next step in time.", "Close the connector: there is nothing left to reject.";
    118 Calls(&["NdkReject"]), INVALID_PARAMETER, "NDKPI 5.8", "There is a length of private data, and no data.", "Pass NULL with 0, or data with its length.";
    119 CONNECTS, CONNECTION_ABORTED, "NDIS-NDK 4", "The adapter has gone while the connect was on its way.", "Close everything, and the adapter.";
    120 Calls(&["NdkConnectWithSharedEndpoint"]), INVALID_ADDRESS, "NDKPI 5.8", "The remote address is none that a listener can have: a wildcard, multicast or broadcast address, or port 0.", "Look at the remote address.";
    121 Calls(&["NdkDisconnect"]), CONNECTION_ACTIVE, "NDKPI 7.7.5", "A request of the connector has not completed yet.", "Wait for its completion, or close the connector.";

    130 Rejections(&[1]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 1: the peer has no queue pair for the connection, or this side has named one that cannot be.", "If it stays so one of the two adapters is wrong: look at a capture.";
    131 Rejections(&[3]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 3: the peer's adapter has no room for one more connection, or too many are half open there.", "Close connections there, or try again later.";
    132 Rejections(&[4]), IO_TIMEOUT, "RoCEv2 8.9", "REJ 4: the peer has waited for this side's answer for so long that it has given up.", "Accept and complete connects sooner, and look for losses on the way.";
    133 Rejections(&[5]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 5: the peer's connection manager does not know what it was asked, or not in this state.", "Look whether the peer speaks RDMA_CM over RoCEv2.";
    134 Rejections(&[6]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 6: the peer does not know the connection any more: it has given it up, or was started anew.", "Connect anew.";
    135 Rejections(&[8]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 8: nobody listens on the port there, or the listener is paused.", "Start the program that listens there, or name its port. On Linux: is it bound to another RDMA device that has the same address?";
    136 Rejections(&[9]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 9: the peer has no reliable connections, or was asked for another transport.", "NDK has reliable connections only: look at the peer's adapter.";
    137 Rejections(&[10]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 10: the peer still knows an earlier connection with the numbers of this one. It was asked again with others, and has refused those too.", "Try again in a few seconds.";
    138 Rejections(&[12]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 12: the peer does not have the address that it was asked by, or is in another partition.", "Look at the peer's addresses: has it one RDMA device only, with the address on it?";
    139 Rejections(&[13]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 13: the peer does not take the path's local identifier, which RoCE does not have.", "Look whether the peer's port is Ethernet, and whether it is the peer's machine that answers.";
    140 Rejections(&[14]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 14: the peer does not take the path's service level.", "Look at the priorities that the peer's port is set to.";
    141 Rejections(&[15]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 15: the peer does not take the path's traffic class.", "Look at the priorities that the peer's port is set to.";
    142 Rejections(&[16]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 16: the peer does not take the path's hop limit.", "Look at the way to the peer: it has more routers than its limit allows.";
    143 Rejections(&[17]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 17: the peer does not take the path's packet rate.", "Look at the speed of the peer's port.";
    144 Rejections(&[24, 25]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 24, 25: the peer sends this side to another connection manager or port, which RoCE does not do.", "Connect to the address where the service really is.";
    145 Rejections(&[26]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 26: the peer wants another MTU. If it has named a smaller one it was asked again with that, and has refused that too.", "Give both sides' networks the same MTU.";
    146 Rejections(&[27]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 27: the peer cannot serve as many reads at once as it was asked for.", "Ask for a smaller outbound read limit.";
    147 Rejections(&[28]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 28: the program there does not want the connection. Its private data, if it has sent some, say why.", "Look at NdkGetConnectionData, and at the log of the program there.";
    148 Rejections(&[29]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 29: the peer does not take the number of RNR retries.", "Set a smaller number of retries.";
    149 Rejections(&[30]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 30: another connection of this side has the same number at the peer.", "Connect anew. If it stays so two adapters of the network have the same identifier.";
    150 Rejections(&[31]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 31: the peer's connection manager has another version.", "Look at the peer's software: version 2 has been the only one for RoCE.";
    151 Rejections(&[32]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ 32: the peer does not take the path's flow label.", "Look at the peer's adapter: any label is right.";
    152 Rejections(&[]), CONNECTION_REFUSED, "RoCEv2 8.9", "REJ with another number: the peer has a reason that RoCEv2 8.9 does not name.", "Look at a capture, and at the peer's documentation.";
}

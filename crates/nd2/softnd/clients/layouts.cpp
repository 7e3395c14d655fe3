// What crates/nd2/nd2/src/abi says of structures, compared with the public headers by the compiler: on 64 bits, and on 32.

#include <ws2tcpip.h>
#include <windows.h>

#include <cstddef>

#include "ndspi.h"

#define SIZE(type, wide, narrow) static_assert(sizeof(type) == (sizeof(void *) == 8 ? wide : narrow), #type)
#define FIELD(type, field, wide, narrow) \
    static_assert(offsetof(type, field) == (sizeof(void *) == 8 ? wide : narrow), #type "::" #field)

SIZE(OVERLAPPED, 0x20, 0x14);
FIELD(OVERLAPPED, Internal, 0x00, 0x00);
FIELD(OVERLAPPED, InternalHigh, 0x08, 0x04);
FIELD(OVERLAPPED, Offset, 0x10, 0x08);
FIELD(OVERLAPPED, OffsetHigh, 0x14, 0x0C);
FIELD(OVERLAPPED, hEvent, 0x18, 0x10);

SIZE(ND2_RESULT, 0x20, 0x14);
FIELD(ND2_RESULT, Status, 0x00, 0x00);
FIELD(ND2_RESULT, BytesTransferred, 0x04, 0x04);
FIELD(ND2_RESULT, QueuePairContext, 0x08, 0x08);
FIELD(ND2_RESULT, RequestContext, 0x10, 0x0C);
FIELD(ND2_RESULT, RequestType, 0x18, 0x10);

SIZE(ND2_SGE, 0x10, 0x0C);
FIELD(ND2_SGE, Buffer, 0x00, 0x00);
FIELD(ND2_SGE, BufferLength, 0x08, 0x04);
FIELD(ND2_SGE, MemoryRegionToken, 0x0C, 0x08);

SIZE(ND2_ADAPTER_INFO, 0x60, 0x58);
FIELD(ND2_ADAPTER_INFO, InfoVersion, 0x00, 0x00);
FIELD(ND2_ADAPTER_INFO, VendorId, 0x04, 0x04);
FIELD(ND2_ADAPTER_INFO, DeviceId, 0x06, 0x06);
FIELD(ND2_ADAPTER_INFO, AdapterId, 0x08, 0x08);
FIELD(ND2_ADAPTER_INFO, MaxRegistrationSize, 0x10, 0x10);
FIELD(ND2_ADAPTER_INFO, MaxWindowSize, 0x18, 0x14);
FIELD(ND2_ADAPTER_INFO, MaxInitiatorSge, 0x20, 0x18);
FIELD(ND2_ADAPTER_INFO, MaxReceiveSge, 0x24, 0x1C);
FIELD(ND2_ADAPTER_INFO, MaxReadSge, 0x28, 0x20);
FIELD(ND2_ADAPTER_INFO, MaxTransferLength, 0x2C, 0x24);
FIELD(ND2_ADAPTER_INFO, MaxInlineDataSize, 0x30, 0x28);
FIELD(ND2_ADAPTER_INFO, MaxInboundReadLimit, 0x34, 0x2C);
FIELD(ND2_ADAPTER_INFO, MaxOutboundReadLimit, 0x38, 0x30);
FIELD(ND2_ADAPTER_INFO, MaxReceiveQueueDepth, 0x3C, 0x34);
FIELD(ND2_ADAPTER_INFO, MaxInitiatorQueueDepth, 0x40, 0x38);
FIELD(ND2_ADAPTER_INFO, MaxSharedReceiveQueueDepth, 0x44, 0x3C);
FIELD(ND2_ADAPTER_INFO, MaxCompletionQueueDepth, 0x48, 0x40);
FIELD(ND2_ADAPTER_INFO, InlineRequestThreshold, 0x4C, 0x44);
FIELD(ND2_ADAPTER_INFO, LargeRequestThreshold, 0x50, 0x48);
FIELD(ND2_ADAPTER_INFO, MaxCallerData, 0x54, 0x4C);
FIELD(ND2_ADAPTER_INFO, MaxCalleeData, 0x58, 0x50);
FIELD(ND2_ADAPTER_INFO, AdapterFlags, 0x5C, 0x54);

SIZE(ND_RESULT, 0x10, 0x08);
FIELD(ND_RESULT, Status, 0x00, 0x00);
FIELD(ND_RESULT, BytesTransferred, 0x08, 0x04);

SIZE(SOCKET_ADDRESS, 0x10, 0x08);
FIELD(SOCKET_ADDRESS, lpSockaddr, 0x00, 0x00);
FIELD(SOCKET_ADDRESS, iSockaddrLength, 0x08, 0x04);

SIZE(SOCKET_ADDRESS_LIST, 0x18, 0x0C);
FIELD(SOCKET_ADDRESS_LIST, iAddressCount, 0x00, 0x00);
FIELD(SOCKET_ADDRESS_LIST, Address, 0x08, 0x04);

SIZE(ND_SGE, 0x18, 0x0C);
FIELD(ND_SGE, pAddr, 0x00, 0x00);
FIELD(ND_SGE, Length, 0x08, 0x04);
FIELD(ND_SGE, hMr, 0x10, 0x08);

SIZE(ND_MW_DESCRIPTOR, 0x14, 0x14);
FIELD(ND_MW_DESCRIPTOR, Base, 0x00, 0x00);
FIELD(ND_MW_DESCRIPTOR, Length, 0x08, 0x08);
FIELD(ND_MW_DESCRIPTOR, Token, 0x10, 0x10);

SIZE(ND_ADAPTER_INFO1, 0x80, 0x44);
FIELD(ND_ADAPTER_INFO1, VendorId, 0x00, 0x00);
FIELD(ND_ADAPTER_INFO1, DeviceId, 0x04, 0x04);
FIELD(ND_ADAPTER_INFO1, MaxInboundSge, 0x08, 0x08);
FIELD(ND_ADAPTER_INFO1, MaxInboundRequests, 0x10, 0x0C);
FIELD(ND_ADAPTER_INFO1, MaxInboundLength, 0x18, 0x10);
FIELD(ND_ADAPTER_INFO1, MaxOutboundSge, 0x20, 0x14);
FIELD(ND_ADAPTER_INFO1, MaxOutboundRequests, 0x28, 0x18);
FIELD(ND_ADAPTER_INFO1, MaxOutboundLength, 0x30, 0x1C);
FIELD(ND_ADAPTER_INFO1, MaxInlineData, 0x38, 0x20);
FIELD(ND_ADAPTER_INFO1, MaxInboundReadLimit, 0x40, 0x24);
FIELD(ND_ADAPTER_INFO1, MaxOutboundReadLimit, 0x48, 0x28);
FIELD(ND_ADAPTER_INFO1, MaxCqEntries, 0x50, 0x2C);
FIELD(ND_ADAPTER_INFO1, MaxRegistrationSize, 0x58, 0x30);
FIELD(ND_ADAPTER_INFO1, MaxWindowSize, 0x60, 0x34);
FIELD(ND_ADAPTER_INFO1, LargeRequestThreshold, 0x68, 0x38);
FIELD(ND_ADAPTER_INFO1, MaxCallerData, 0x70, 0x3C);
FIELD(ND_ADAPTER_INFO1, MaxCalleeData, 0x78, 0x40);

// The interfaces as the test program uses them: the order of the functions, the identifiers and the structures.
// In C++ a class without data whose functions are all virtual is a pointer to a table, as COM has it.

#pragma once
#include <winsock2.h>
#include <ws2tcpip.h>
#include <windows.h>

#include <cstdint>

struct Result2 {
    HRESULT status;
    ULONG bytes;
    void *queue_pair;
    void *request;
    int type;
};

struct Result1 {
    HRESULT status;
    SIZE_T bytes;
};

struct Sge {
    void *buffer;
    ULONG length;
    UINT32 token;
};

struct AdapterInfo {
    ULONG version;
    UINT16 vendor, device;
    UINT64 id;
    SIZE_T max_registration, max_window;
    ULONG initiator_sge, receive_sge, read_sge, transfer, inline_size, inbound_reads, outbound_reads, receive_depth,
        initiator_depth, srq_depth, cq_depth, inline_threshold, large_threshold, caller_data, callee_data, flags;
};
#ifdef _WIN64
static_assert(sizeof(AdapterInfo) == 0x60 && sizeof(Result2) == 0x20 && sizeof(Sge) == 0x10 && sizeof(Result1) == 0x10);
#else
static_assert(sizeof(AdapterInfo) == 0x58 && sizeof(Result2) == 0x14 && sizeof(Sge) == 0x0C && sizeof(Result1) == 0x08);
#endif

#define METHOD(type) virtual type __stdcall

struct Unknown {
    METHOD(HRESULT) QueryInterface(const GUID &iid, void **object) = 0;
    METHOD(ULONG) AddRef() = 0;
    METHOD(ULONG) Release() = 0;
};

struct Overlapped2 : Unknown {
    METHOD(HRESULT) CancelOverlappedRequests() = 0;
    METHOD(HRESULT) GetOverlappedResult(OVERLAPPED *overlapped, BOOL wait) = 0;
};

struct CompletionQueue2 : Overlapped2 {
    METHOD(HRESULT) GetNotifyAffinity(USHORT *group, ULONG_PTR *affinity) = 0;
    METHOD(HRESULT) Resize(ULONG depth) = 0;
    METHOD(HRESULT) Notify(ULONG type, OVERLAPPED *overlapped) = 0;
    METHOD(ULONG) GetResults(Result2 *results, ULONG count) = 0;
};

struct MemoryRegion : Overlapped2 {
    METHOD(HRESULT) Register(const void *buffer, SIZE_T length, ULONG flags, OVERLAPPED *overlapped) = 0;
    METHOD(HRESULT) Deregister(OVERLAPPED *overlapped) = 0;
    METHOD(UINT32) GetLocalToken() = 0;
    METHOD(UINT32) GetRemoteToken() = 0;
};

struct QueuePair : Unknown {
    METHOD(HRESULT) Flush() = 0;
    METHOD(HRESULT) Send(void *context, const Sge *list, ULONG count, ULONG flags) = 0;
    METHOD(HRESULT) Receive(void *context, const Sge *list, ULONG count) = 0;
    METHOD(HRESULT) Bind(void *, Unknown *, Unknown *, const void *, SIZE_T, ULONG) = 0;
    METHOD(HRESULT) Invalidate(void *, Unknown *, ULONG) = 0;
    METHOD(HRESULT) Read(void *context, const Sge *list, ULONG count, UINT64 address, UINT32 token, ULONG flags) = 0;
    METHOD(HRESULT) Write(void *context, const Sge *list, ULONG count, UINT64 address, UINT32 token, ULONG flags) = 0;
};

struct Connector : Overlapped2 {
    METHOD(HRESULT) Bind(const sockaddr *address, ULONG length) = 0;
    METHOD(HRESULT) Connect(Unknown *qp, const sockaddr *to, ULONG length, ULONG inbound, ULONG outbound,
                            const void *data, ULONG data_length, OVERLAPPED *overlapped) = 0;
    METHOD(HRESULT) CompleteConnect(OVERLAPPED *overlapped) = 0;
    METHOD(HRESULT) Accept(Unknown *qp, ULONG inbound, ULONG outbound, const void *data, ULONG data_length,
                           OVERLAPPED *overlapped) = 0;
    METHOD(HRESULT) Reject(const void *data, ULONG length) = 0;
    METHOD(HRESULT) GetReadLimits(ULONG *inbound, ULONG *outbound) = 0;
    METHOD(HRESULT) GetPrivateData(void *data, ULONG *length) = 0;
    METHOD(HRESULT) GetLocalAddress(sockaddr *address, ULONG *length) = 0;
    METHOD(HRESULT) GetPeerAddress(sockaddr *address, ULONG *length) = 0;
    METHOD(HRESULT) NotifyDisconnect(OVERLAPPED *overlapped) = 0;
    METHOD(HRESULT) Disconnect(OVERLAPPED *overlapped) = 0;
};

struct Listener : Overlapped2 {
    METHOD(HRESULT) Bind(const sockaddr *address, ULONG length) = 0;
    METHOD(HRESULT) Listen(ULONG backlog) = 0;
    METHOD(HRESULT) GetLocalAddress(sockaddr *address, ULONG *length) = 0;
    METHOD(HRESULT) GetConnectionRequest(Unknown *connector, OVERLAPPED *overlapped) = 0;
};

struct Adapter : Unknown {
    METHOD(HRESULT) CreateOverlappedFile(HANDLE *file) = 0;
    METHOD(HRESULT) Query(AdapterInfo *info, ULONG *length) = 0;
    METHOD(HRESULT) QueryAddressList(SOCKET_ADDRESS_LIST *list, ULONG *length) = 0;
    METHOD(HRESULT) CreateCompletionQueue(const GUID &iid, HANDLE file, ULONG depth, USHORT group,
                                          ULONG_PTR affinity, void **queue) = 0;
    METHOD(HRESULT) CreateMemoryRegion(const GUID &iid, HANDLE file, void **region) = 0;
    METHOD(HRESULT) CreateMemoryWindow(const GUID &iid, void **window) = 0;
    METHOD(HRESULT) CreateSharedReceiveQueue(const GUID &iid, HANDLE file, ULONG depth, ULONG sge, ULONG threshold,
                                             USHORT group, ULONG_PTR affinity, void **queue) = 0;
    METHOD(HRESULT) CreateQueuePair(const GUID &iid, Unknown *receive, Unknown *initiator, void *context,
                                    ULONG receive_depth, ULONG initiator_depth, ULONG receive_sge,
                                    ULONG initiator_sge, ULONG inline_size, void **qp) = 0;
    METHOD(HRESULT) CreateQueuePairWithSrq(const GUID &iid, Unknown *receive, Unknown *initiator, Unknown *srq,
                                           void *context, ULONG initiator_depth, ULONG initiator_sge,
                                           ULONG inline_size, void **qp) = 0;
    METHOD(HRESULT) CreateConnector(const GUID &iid, HANDLE file, void **connector) = 0;
    METHOD(HRESULT) CreateListener(const GUID &iid, HANDLE file, void **listener) = 0;
};

struct Provider : Unknown {
    METHOD(HRESULT) QueryAddressList(SOCKET_ADDRESS_LIST *list, ULONG *length) = 0;
    METHOD(HRESULT) ResolveAddress(const sockaddr *address, ULONG length, UINT64 *adapter) = 0;
    METHOD(HRESULT) OpenAdapter(const GUID &iid, UINT64 adapter, void **object) = 0;
};

struct Overlapped1 : Unknown {
    METHOD(HRESULT) CancelOverlappedRequests() = 0;
    METHOD(HRESULT) GetOverlappedResult(OVERLAPPED *overlapped, SIZE_T *bytes, BOOL wait) = 0;
};

struct CompletionQueue1 : Overlapped1 {
    METHOD(HRESULT) Resize(SIZE_T entries) = 0;
    METHOD(HRESULT) Notify(DWORD type, OVERLAPPED *overlapped) = 0;
    METHOD(SIZE_T) GetResults(Result1 **results, SIZE_T count) = 0;
};

static const GUID iid_provider = {0x49EAE6C1, 0x76C4, 0x46D0, {0x80, 0x03, 0x5C, 0x2E, 0xAA, 0x2C, 0x9A, 0x8E}};
static const GUID iid_adapter = {0xD89C798C, 0x4823, 0x4D69, {0x84, 0x6C, 0xDF, 0xDC, 0xCF, 0xF9, 0xE5, 0xF3}};
static const GUID iid_queue = {0x20CC445E, 0x64A0, 0x4CBB, {0xAA, 0x75, 0xF6, 0xA7, 0x25, 0x1F, 0xDA, 0x9E}};
static const GUID iid_queue1 = {0x1245A633, 0x2A32, 0x473A, {0x83, 0x0C, 0xE0, 0x5D, 0x1F, 0x86, 0x9D, 0x02}};
static const GUID iid_region = {0x55DFEA2F, 0xBC56, 0x4982, {0x8A, 0x45, 0x03, 0x01, 0xBE, 0x46, 0xC4, 0x13}};
static const GUID iid_pair = {0xEEF2F332, 0xB75D, 0x4063, {0xBC, 0xE3, 0x3A, 0x0B, 0xAD, 0x2D, 0x02, 0xCE}};
static const GUID iid_connector = {0x7DD615C4, 0x6B4C, 0x4866, {0x95, 0x0C, 0xF3, 0xB1, 0xD2, 0x5A, 0x53, 0x02}};
static const GUID iid_listener = {0x65D23D83, 0x3A57, 0x4E02, {0x86, 0xA4, 0x35, 0x01, 0x65, 0xC2, 0xD1, 0x30}};

enum : ULONG {
    nd_success = 0,
    nd_pending = 0x103,
    nd_canceled = 0xC0000120,
    nd_access_violation = 0xC0000005,
    nd_buffer_overflow = 0x80000005,
    nd_invalid_handle = 0xC0000008,
    nd_connection_refused = 0xC0000236,
    nd_connection_invalid = 0xC000023A,
};

struct ClassFactory : Unknown {
    METHOD(HRESULT) CreateInstance(void *outer, const GUID &iid, void **object) = 0;
    METHOD(HRESULT) LockServer(BOOL lock) = 0;
};

struct Provider1 : Unknown {
    METHOD(HRESULT) QueryAddressList(SOCKET_ADDRESS_LIST *list, SIZE_T *length) = 0;
    METHOD(HRESULT) OpenAdapter(const sockaddr *address, SIZE_T length, void **adapter) = 0;
};

struct Adapter1 : Overlapped1 {
    METHOD(HANDLE) GetFileHandle() = 0;
    METHOD(HRESULT) Query(DWORD version, void *info, SIZE_T *length) = 0;
    METHOD(HRESULT) Control(DWORD, const void *, SIZE_T, void *, SIZE_T, SIZE_T *, OVERLAPPED *) = 0;
    METHOD(HRESULT) CreateCompletionQueue(SIZE_T entries, void **queue) = 0;
    METHOD(HRESULT) RegisterMemory(const void *bytes, SIZE_T length, OVERLAPPED *overlapped, void **region) = 0;
    METHOD(HRESULT) DeregisterMemory(void *region, OVERLAPPED *overlapped) = 0;
};

static const GUID iid_factory = {0x00000001, 0, 0, {0xC0, 0, 0, 0, 0, 0, 0, 0x46}};
static const GUID iid_provider_1 = {0x0C5DD316, 0x5FDF, 0x47E6, {0xB2, 0xD0, 0x2A, 0x6E, 0xDA, 0x8D, 0x39, 0xDD}};

// A client of softnd.dll as a program in C++ is one: loads the library, and calls through tables. Prints a line for every
// check and ends with 1 if one has failed.

#include "nd.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

static int failures;

static void check(const char *what, bool holds) {
    std::printf("%-72s %s\n", what, holds ? "passed" : "FAILED");
    std::fflush(stdout);
    failures += !holds;
}

static void is(const char *what, HRESULT found, ULONG wanted) {
    if (static_cast<ULONG>(found) != wanted) {
        std::printf("  0x%08lX instead of 0x%08lX\n", static_cast<ULONG>(found), wanted);
    }
    check(what, static_cast<ULONG>(found) == wanted);
}

// What the rest of the program cannot do without.
static void need(const char *what, HRESULT found) {
    is(what, found, nd_success);
    if (found != 0) {
        std::exit(1);
    }
}

// A request that waits for nothing: its method says that it pends, and its end is there.
template <class Object, class Overlapped>
static void ends(const char *what, Object *object, HRESULT found, Overlapped &request) {
    is(what, found, nd_pending);
    need(what, object->GetOverlappedResult(&request, TRUE));
}

struct Request : OVERLAPPED {
    Request() : OVERLAPPED{} { hEvent = CreateEventW(nullptr, TRUE, FALSE, nullptr); }
    ~Request() { CloseHandle(reinterpret_cast<HANDLE>(reinterpret_cast<ULONG_PTR>(hEvent) & ~ULONG_PTR{1})); }
    bool signalled() const { return WaitForSingleObject(hEvent, 0) == WAIT_OBJECT_0; }
};

// A packet of the port, or none. The error of a request that has failed.
struct Packet {
    OVERLAPPED *overlapped = nullptr;
    bool success = false;
    DWORD error = 0;
};

static Packet next_packet(HANDLE port, DWORD timeout) {
    Packet packet;
    DWORD bytes;
    ULONG_PTR key;
    packet.success = GetQueuedCompletionStatus(port, &bytes, &key, &packet.overlapped, timeout);
    packet.error = packet.success ? 0 : GetLastError();
    return packet;
}

struct Stream {
    QueuePair *sender, *receiver;
    CompletionQueue2 *sends;
    Sge out, in;

    void deliver(void *context) {
        need("Receive", receiver->Receive(context, &in, 1));
        need("Send", sender->Send(nullptr, &out, 1, 0));
        Result2 result;
        for (int tries = 0; sends->GetResults(&result, 1) == 0 && tries < 10000; ++tries) {
            Sleep(1);
        }
        is("the send's result", result.status, nd_success);
    }
};

static void cancellations(Adapter *adapter) {
    HANDLE file;
    need("CreateOverlappedFile", adapter->CreateOverlappedFile(&file));
    HANDLE port = CreateIoCompletionPort(file, nullptr, 7, 0);
    check("the file can be bound to a completion port", port != nullptr);
    CompletionQueue2 *queues[2];
    for (auto &queue : queues) {
        need("CreateCompletionQueue", adapter->CreateCompletionQueue(iid_queue, file, 16, 0, 0, (void **)&queue));
    }
    bool ordered = true, canceled = true, failed = true;
    for (int round = 0; round < 200; ++round) {
        OVERLAPPED requests[2] = {};
        for (int index = 0; index < 2; ++index) {
            canceled &= queues[index]->Notify(1, &requests[index]) == nd_pending;
        }
        for (int step = 0; step < 2; ++step) {
            canceled &= queues[step ^ (round & 1)]->CancelOverlappedRequests() == nd_success;
        }
        for (int step = 0; step < 2; ++step) {
            int index = step ^ (round & 1);
            Packet packet = next_packet(port, 0);
            ordered &= packet.overlapped == &requests[index];
            failed &= !packet.success && packet.error == ERROR_OPERATION_ABORTED;
            canceled &= queues[index]->GetOverlappedResult(&requests[index], FALSE) == (HRESULT)nd_canceled;
        }
    }
    check("200 rounds: packets come in the order of the cancellations", ordered);
    check("200 rounds: the packets are failures", failed);
    check("200 rounds: the results are ND_CANCELED", canceled);
    OVERLAPPED several[3] = {};
    for (auto &request : several) {
        is("several requests on one queue", queues[0]->Notify(1, &request), nd_pending);
    }
    is("CancelOverlappedRequests", queues[0]->CancelOverlappedRequests(), nd_success);
    for (auto &request : several) {
        check("a packet, in the order of the requests", next_packet(port, 0).overlapped == &request);
    }
    Request quiet;
    quiet.hEvent = reinterpret_cast<HANDLE>(reinterpret_cast<ULONG_PTR>(quiet.hEvent) | 1);
    is("a request that the port is not to see", queues[0]->Notify(1, &quiet), nd_pending);
    is("CancelOverlappedRequests", queues[0]->CancelOverlappedRequests(), nd_success);
    check("no packet for it", next_packet(port, 0).overlapped == nullptr);
    is("its result", queues[0]->GetOverlappedResult(&quiet, TRUE), nd_canceled);
    OVERLAPPED last = {};
    is("Notify", queues[1]->Notify(1, &last), nd_pending);
    check("the queue is gone", queues[1]->Release() == 0);
    check("a packet for its request", next_packet(port, 0).overlapped == &last);
    is("its result", queues[0]->GetOverlappedResult(&last, FALSE), nd_canceled);
    CloseHandle(file);
    OVERLAPPED late = {};
    is("Notify after the client has closed the handle", queues[0]->Notify(1, &late), nd_pending);
    is("CancelOverlappedRequests", queues[0]->CancelOverlappedRequests(), nd_success);
    check("the port is still told", next_packet(port, 0).overlapped == &late);
    queues[0]->Release();
    CloseHandle(port);
}

static void eleven_steps(CompletionQueue2 *queue, Stream &stream, HANDLE port) {
    Request request;
    Result2 results[4];
    for (int round = 0; round < 2; ++round) {
        void *context = (void *)(INT_PTR)(round + 1);
        is("steps 1, 6: Notify", queue->Notify(1, &request), nd_pending);
        check("the event is not set", !request.signalled() && !HasOverlappedIoCompleted(&request));
        stream.deliver(context);
        is("steps 3, 8: the request ends", queue->GetOverlappedResult(&request, TRUE), nd_success);
        Packet packet = next_packet(port, 10000);
        check("the port says so", packet.success && packet.overlapped == &request);
        DWORD bytes;
        check("so does Win32", GetOverlappedResult(nullptr, &request, &bytes, FALSE));
        bool one = queue->GetResults(results, 4) == 1;
        check("steps 4, 9: GetResults", one && results[0].request == context && results[0].type == 0);
        check("steps 5, 10: GetResults", queue->GetResults(results, 4) == 0);
    }
    is("step 11: Notify", queue->Notify(1, &request), nd_pending);
    Sleep(20);
    is("it pends", queue->GetOverlappedResult(&request, FALSE), nd_pending);
    is("CancelOverlappedRequests", queue->CancelOverlappedRequests(), nd_success);
    check("its packet", next_packet(port, 0).overlapped == &request);
    // Case 1: what is there already.
    stream.deliver(nullptr);
    is("case 1: Notify", queue->Notify(1, &request), nd_pending);
    is("case 1: it completes immediately", queue->GetOverlappedResult(&request, FALSE), nd_success);
    check("it is reported", next_packet(port, 10000).overlapped == &request);
    queue->GetResults(results, 4);
    // A thread that is woken by the event.
    is("Notify", queue->Notify(1, &request), nd_pending);
    need("Receive", stream.receiver->Receive(nullptr, &stream.in, 1));
    need("Send", stream.sender->Send(nullptr, &stream.out, 1, 1));
    check("the event is set", WaitForSingleObject(request.hEvent, 10000) == WAIT_OBJECT_0);
    is("the result", queue->GetOverlappedResult(&request, FALSE), nd_success);
    next_packet(port, 10000);
    queue->GetResults(results, 4);
}

static void overrun(CompletionQueue2 *queue, Stream &stream, HANDLE port) {
    Request request;
    is("Resize", queue->Resize(1), nd_success);
    is("Notify for errors", queue->Notify(0, &request), nd_pending);
    stream.deliver(nullptr);
    is("it pends", queue->GetOverlappedResult(&request, FALSE), nd_pending);
    need("Receive", stream.receiver->Receive(nullptr, &stream.in, 1));
    need("Send", stream.sender->Send(nullptr, &stream.out, 1, 1));
    Packet packet = next_packet(port, 10000);
    check("the port is told of a failure", packet.overlapped == &request && !packet.success);
    check("there is one packet", next_packet(port, 0).overlapped == nullptr);
    is("the result is the overrun", queue->GetOverlappedResult(&request, FALSE), nd_buffer_overflow);
    is("Notify on a dead queue", queue->Notify(1, &request), nd_buffer_overflow);
}

static void version_1(Adapter *adapter, HANDLE file) {
    CompletionQueue1 *queue;
    need("a queue of version 1", adapter->CreateCompletionQueue(iid_queue1, file, 8, 0, 0, (void **)&queue));
    Request request;
    SIZE_T bytes = 1;
    is("its Notify", queue->Notify(1, &request), nd_pending);
    is("its CancelOverlappedRequests", queue->CancelOverlappedRequests(), nd_success);
    is("its GetOverlappedResult", queue->GetOverlappedResult(&request, &bytes, TRUE), nd_canceled);
    check("no bytes", bytes == 0);
    is("its Resize", queue->Resize(64), nd_success);
    Result1 *results[2];
    check("its GetResults", queue->GetResults(results, 2) == 0);
    check("its Release", queue->Release() == 0);
}

static void traffic(Adapter *adapter) {
    HANDLE file;
    need("CreateOverlappedFile", adapter->CreateOverlappedFile(&file));
    CompletionQueue2 *queue, *sends;
    need("CreateCompletionQueue", adapter->CreateCompletionQueue(iid_queue, file, 16, 0, 1, (void **)&queue));
    need("CreateCompletionQueue", adapter->CreateCompletionQueue(iid_queue, file, 16, 0, 0, (void **)&sends));
    USHORT group = 9;
    ULONG_PTR affinity = 0;
    is("GetNotifyAffinity", queue->GetNotifyAffinity(&group, &affinity), nd_success);
    check("the processor that was asked for", group == 0 && affinity == 1);
    QueuePair *pairs[2];
    need("CreateQueuePair", adapter->CreateQueuePair(iid_pair, sends, sends, nullptr, 8, 8, 2, 2, 0, (void **)&pairs[0]));
    need("CreateQueuePair", adapter->CreateQueuePair(iid_pair, queue, sends, nullptr, 8, 8, 2, 2, 0, (void **)&pairs[1]));
    MemoryRegion *region;
    need("CreateMemoryRegion", adapter->CreateMemoryRegion(iid_region, file, (void **)&region));
    static char bytes[128] = "through the wire";
    Request request;
    is("Register nothing", region->Register(nullptr, 64, 1, &request), nd_access_violation);
    is("Register what cannot be written", region->Register((void *)&traffic, 64, 1, &request), nd_access_violation);
    ends("Register", region, region->Register(bytes, sizeof bytes, 1, &request), request);

    Listener *listener;
    Connector *active, *passive;
    need("CreateListener", adapter->CreateListener(iid_listener, file, (void **)&listener));
    need("CreateConnector", adapter->CreateConnector(iid_connector, file, (void **)&active));
    need("CreateConnector", adapter->CreateConnector(iid_connector, file, (void **)&passive));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    need("Listener::Bind", listener->Bind((sockaddr *)&address, sizeof address));
    need("Listen", listener->Listen(0));
    sockaddr_in at = {};
    ULONG length = sizeof at;
    need("GetLocalAddress", listener->GetLocalAddress((sockaddr *)&at, &length));
    check("a port", at.sin_port != 0 && length == sizeof at);
    Request arrives, connects, accepts;
    is("GetConnectionRequest", listener->GetConnectionRequest(passive, &arrives), nd_pending);
    need("Connector::Bind", active->Bind((sockaddr *)&address, sizeof address));
    is("Connect", active->Connect(pairs[0], (sockaddr *)&at, sizeof at, 1, 1, "hi", 2, &connects), nd_pending);
    is("the connection request", listener->GetOverlappedResult(&arrives, TRUE), nd_success);
    is("Accept", passive->Accept(pairs[1], 1, 1, nullptr, 0, &accepts), nd_pending);
    is("the connect", active->GetOverlappedResult(&connects, TRUE), nd_success);
    ends("CompleteConnect", active, active->CompleteConnect(&request), request);
    is("the accept", passive->GetOverlappedResult(&accepts, TRUE), nd_success);

    // From here on the port is told. A port may be bound at any time.
    HANDLE port = CreateIoCompletionPort(file, nullptr, 0, 0);
    UINT32 token = region->GetLocalToken();
    Stream stream = {pairs[0], pairs[1], sends, {bytes, 17, token}, {bytes + 64, 64, token}};
    eleven_steps(queue, stream, port);
    check("the bytes have moved", std::strcmp(bytes + 64, "through the wire") == 0);
    overrun(queue, stream, port);
    version_1(adapter, file);

    // A failure that is not a cancellation, and another request behind it.
    while (next_packet(port, 0).overlapped != nullptr) {
    }
    Request refused, waits;
    Connector *third;
    need("CreateConnector", adapter->CreateConnector(iid_connector, file, (void **)&third));
    QueuePair *pair;
    need("CreateQueuePair", adapter->CreateQueuePair(iid_pair, sends, sends, nullptr, 8, 8, 2, 2, 0, (void **)&pair));
    need("Connector::Bind", third->Bind((sockaddr *)&address, sizeof address));
    for (int round = 0; round < 3; ++round) {
        Connector *fourth;
        need("CreateConnector", adapter->CreateConnector(iid_connector, file, (void **)&fourth));
        is("GetConnectionRequest", listener->GetConnectionRequest(fourth, &waits), nd_pending);
        is("Connect", third->Connect(pair, (sockaddr *)&at, sizeof at, 0, 0, nullptr, 0, &refused), nd_pending);
        Packet arrived = next_packet(port, 10000);
        check("a request has arrived", arrived.success && arrived.overlapped == &waits);
        is("its result", listener->GetOverlappedResult(&waits, FALSE), nd_success);
        need("Reject", fourth->Reject(nullptr, 0));
        Packet failed = next_packet(port, 10000);
        check("the port is told of the failure", !failed.success && failed.overlapped == &refused);
        check("which is not a cancellation", failed.error != ERROR_OPERATION_ABORTED);
        is("the connect was refused", third->GetOverlappedResult(&refused, TRUE), nd_connection_refused);
        fourth->Release();
    }
    third->Release();
    pair->Release();

    // The dead queue took its queue pair with it, and that the connection.
    is("Disconnect", active->Disconnect(&request), nd_connection_invalid);
    active->Release();
    passive->Release();
    listener->Release();
    pairs[0]->Release();
    pairs[1]->Release();
    HRESULT result = region->Deregister(&request);
    is("Deregister", result == nd_pending ? region->GetOverlappedResult(&request, TRUE) : result, nd_success);
    region->Release();
    queue->Release();
    sends->Release();
    CloseHandle(file);
    CloseHandle(port);
}

// Version 1 from its class factory on.
static void version_1_whole(HRESULT(__stdcall *get_class_object)(const GUID &, const GUID &, void **)) {
    GUID any = {};
    ClassFactory *factory;
    need("DllGetClassObject for a class factory", get_class_object(any, iid_factory, (void **)&factory));
    Provider1 *provider;
    need("CreateInstance", factory->CreateInstance(nullptr, iid_provider_1, (void **)&provider));
    check("the factory is gone", factory->Release() == 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Adapter1 *adapter;
    need("OpenAdapter by its address", provider->OpenAdapter((sockaddr *)&address, sizeof address, (void **)&adapter));
    check("the provider is gone", provider->Release() == 0);
    HANDLE port = CreateIoCompletionPort(adapter->GetFileHandle(), nullptr, 0, 0);
    check("its file has a port", port != nullptr);
    static char bytes[4096];
    Request request;
    void *region = nullptr;
    is("RegisterMemory", adapter->RegisterMemory(bytes, sizeof bytes, &request, &region), nd_pending);
    Packet packet = next_packet(port, 10000);
    check("its packet", packet.success && packet.overlapped == &request);
    SIZE_T count = 1;
    is("its result", adapter->GetOverlappedResult(&request, &count, TRUE), nd_success);
    check("no bytes, and a handle", count == 0 && region != nullptr);
    is("DeregisterMemory", adapter->DeregisterMemory(region, &request), nd_pending);
    is("its end", adapter->GetOverlappedResult(&request, &count, TRUE), nd_success);
    void *queue;
    need("CreateCompletionQueue", adapter->CreateCompletionQueue(8, &queue));
    check("the queue is gone", ((struct Unknown *)queue)->Release() == 0);
    HANDLE file = adapter->GetFileHandle();
    check("the adapter is gone", adapter->Release() == 0);
    DWORD flags;
    check("and its file with it", !GetHandleInformation(file, &flags));
    CloseHandle(port);
}

int main(int, char **arguments) {
    HMODULE library = LoadLibraryA(arguments[1] ? arguments[1] : "softnd.dll");
    check("LoadLibrary", library != nullptr);
    if (!library) {
        return 1;
    }
    auto get_class_object =
        (HRESULT(__stdcall *)(const GUID &, const GUID &, void **))(void *)GetProcAddress(library, "DllGetClassObject");
    auto can_unload_now = (HRESULT(__stdcall *)())(void *)GetProcAddress(library, "DllCanUnloadNow");
    check("the exports", get_class_object && can_unload_now);
    if (!get_class_object || !can_unload_now) {
        return 1;
    }
    is("DllCanUnloadNow before anything", can_unload_now(), S_OK);
    version_1_whole(get_class_object);
    is("DllCanUnloadNow after version 1", can_unload_now(), S_OK);
    for (int round = 0; round < 2; ++round) {
        GUID any = {};
        Provider *provider = nullptr;
        need("DllGetClassObject", get_class_object(any, iid_provider, (void **)&provider));
        is("DllCanUnloadNow with a provider", can_unload_now(), S_FALSE);
        ULONG length = 0;
        is("QueryAddressList", provider->QueryAddressList(nullptr, &length), nd_buffer_overflow);
        alignas(8) char list[8192];
        need("QueryAddressList", provider->QueryAddressList((SOCKET_ADDRESS_LIST *)list, &(length = sizeof list)));
        check("the loopback addresses at least", ((SOCKET_ADDRESS_LIST *)list)->iAddressCount >= 2);
        auto *own = (sockaddr_in *)((SOCKET_ADDRESS_LIST *)list)->Address[0].lpSockaddr;
        check("127.0.0.1 first", own->sin_family == AF_INET && own->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
        UINT64 id = 0;
        SOCKET_ADDRESS &first = ((SOCKET_ADDRESS_LIST *)list)->Address[0];
        need("ResolveAddress", provider->ResolveAddress(first.lpSockaddr, first.iSockaddrLength, &id));
        Adapter *adapter;
        need("OpenAdapter", provider->OpenAdapter(iid_adapter, id, (void **)&adapter));
        check("the provider is gone", provider->Release() == 0);
        is("DllCanUnloadNow with an adapter", can_unload_now(), S_FALSE);
        AdapterInfo info = {};
        info.version = 1;
        need("Query", adapter->Query(&info, &(length = sizeof info)));
        check("its identifier", info.id == id && length == sizeof info);
        info.version = 0x20000;
        need("Query as the public clients do", adapter->Query(&info, &(length = sizeof info)));
        void *none = nullptr;
        is("a file that is none", adapter->CreateCompletionQueue(iid_queue, (HANDLE)0x12340, 8, 0, 0, &none),
           nd_invalid_handle);
        cancellations(adapter);
        traffic(adapter);
        check("the adapter is gone", adapter->Release() == 0);
        HRESULT unload = can_unload_now();
        for (int tries = 0; unload != S_OK && tries < 1000; ++tries) {
            Sleep(10);
            unload = can_unload_now();
        }
        is("DllCanUnloadNow when all is released", unload, S_OK);
    }
    check("FreeLibrary", FreeLibrary(library));
    std::printf("%s\n", failures ? "FAILED" : "passed");
    return failures != 0;
}

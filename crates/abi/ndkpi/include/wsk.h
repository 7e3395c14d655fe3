/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The part of Winsock Kernel that a consumer of NDKPI needs, in the spellings of the kit's header of this name: registration, capture,
 * and the addresses of sockets, which NDKPI borrows. Sockets themselves are not here: their functions are plain addresses in
 * WSK_PROVIDER_DISPATCH. Include ntddk.h (or wdm.h, ntifs.h) first. Layouts are compared by the test ndkpi_header.
 */
#ifndef WSK_H
#define WSK_H

#include <sal.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef ULONG NET_IFINDEX;
typedef USHORT ADDRESS_FAMILY;

#define AF_UNSPEC 0
#define AF_INET 2
#define AF_INET6 23

/* Ports and the addresses of IPv4 are in network byte order. */
typedef struct sockaddr {
    ADDRESS_FAMILY sa_family;
    CHAR sa_data[14];
} SOCKADDR, *PSOCKADDR;

typedef struct in_addr {
    union {
        struct { UCHAR s_b1, s_b2, s_b3, s_b4; } S_un_b;
        struct { USHORT s_w1, s_w2; } S_un_w;
        ULONG S_addr;
    } S_un;
} IN_ADDR;

typedef struct sockaddr_in {
    ADDRESS_FAMILY sin_family;
    USHORT sin_port;
    IN_ADDR sin_addr;
    CHAR sin_zero[8];
} SOCKADDR_IN, *PSOCKADDR_IN;

typedef struct in6_addr {
    union {
        UCHAR Byte[16];
        USHORT Word[8];
    } u;
} IN6_ADDR;

typedef struct {
    union {
        struct {
            ULONG Zone : 28;
            ULONG Level : 4;
        };
        ULONG Value;
    };
} SCOPE_ID;

typedef struct sockaddr_in6 {
    ADDRESS_FAMILY sin6_family;
    USHORT sin6_port;
    ULONG sin6_flowinfo;
    IN6_ADDR sin6_addr;
    union {
        ULONG sin6_scope_id;
        SCOPE_ID sin6_scope_struct;
    };
} SOCKADDR_IN6, *PSOCKADDR_IN6;

typedef union _SOCKADDR_INET {
    SOCKADDR_IN Ipv4;
    SOCKADDR_IN6 Ipv6;
    ADDRESS_FAMILY si_family;
} SOCKADDR_INET, *PSOCKADDR_INET;

#define MAKE_WSK_VERSION(Major, Minor) ((USHORT)((Major) << 8) | (USHORT)((Minor) & 0xFF))

/* How long WskCaptureProviderNPI waits, if not a number of milliseconds. */
#define WSK_NO_WAIT 0
#define WSK_INFINITE_WAIT 0xFFFFFFFF

/* A client, as Winsock Kernel knows it. */
typedef struct _WSK_CLIENT WSK_CLIENT, *PWSK_CLIENT;

/* Hears of events. */
typedef NTSTATUS (*PFN_WSK_CLIENT_EVENT)(
    _In_opt_ PVOID ClientContext,
    _In_ ULONG EventType,
    _In_opt_ PVOID Information,
    _In_ SIZE_T InformationLength);

/* Controls the client. The codes of NDK complete at once and take no IRP. */
typedef NTSTATUS (*PFN_WSK_CONTROL_CLIENT)(
    _In_ PWSK_CLIENT Client,
    _In_ ULONG ControlCode,
    _In_ SIZE_T InputSize,
    _In_opt_ PVOID InputBuffer,
    _In_ SIZE_T OutputSize,
    _Out_opt_ PVOID OutputBuffer,
    _Out_opt_ SIZE_T *OutputSizeReturned,
    _Inout_opt_ PIRP Irp);

/* What a client says of itself; stays in place until it has deregistered. */
typedef struct _WSK_CLIENT_DISPATCH {
    USHORT Version;
    USHORT Reserved;
    PFN_WSK_CLIENT_EVENT WskClientEvent;
} WSK_CLIENT_DISPATCH, *PWSK_CLIENT_DISPATCH;

typedef struct _WSK_CLIENT_NPI {
    PVOID ClientContext;
    const WSK_CLIENT_DISPATCH *Dispatch;
} WSK_CLIENT_NPI, *PWSK_CLIENT_NPI;

/* Memory of the client, which belongs to Winsock Kernel while it is registered. */
typedef struct _WSK_REGISTRATION {
    ULONGLONG ReservedRegistrationState;
    PVOID ReservedRegistrationContext;
    KSPIN_LOCK ReservedRegistrationLock;
} WSK_REGISTRATION, *PWSK_REGISTRATION;

typedef struct _WSK_PROVIDER_DISPATCH {
    USHORT Version;
    USHORT Reserved;
    PVOID WskSocket;
    PVOID WskSocketConnect;
    PFN_WSK_CONTROL_CLIENT WskControlClient;
    PVOID WskGetAddressInfo;
    PVOID WskFreeAddressInfo;
    PVOID WskGetNameInfo;
} WSK_PROVIDER_DISPATCH, *PWSK_PROVIDER_DISPATCH;

typedef struct _WSK_PROVIDER_NPI {
    PWSK_CLIENT Client;
    const WSK_PROVIDER_DISPATCH *Dispatch;
} WSK_PROVIDER_NPI, *PWSK_PROVIDER_NPI;

/* Registers a client. IRQL: PASSIVE_LEVEL. */
NTSTATUS NTAPI WskRegister(_In_ PWSK_CLIENT_NPI WskClientNpi, _Out_ PWSK_REGISTRATION WskRegistration);

/* Deregisters it, and waits until everything captured is released. IRQL: PASSIVE_LEVEL. */
VOID NTAPI WskDeregister(_In_ PWSK_REGISTRATION WskRegistration);

/* Captures Winsock Kernel. IRQL: PASSIVE_LEVEL if it may wait, <= DISPATCH_LEVEL if not. */
NTSTATUS NTAPI WskCaptureProviderNPI(
    _In_ PWSK_REGISTRATION WskRegistration,
    _In_ ULONG WaitTimeout,
    _Out_ PWSK_PROVIDER_NPI WskProviderNpi);

/* Releases it, when nothing opened through it is open any more. IRQL <= DISPATCH_LEVEL. */
VOID NTAPI WskReleaseProviderNPI(_In_ PWSK_REGISTRATION WskRegistration);

#ifdef __cplusplus
}
#endif

#endif

/*
 * In place of the kit's ndis.h, which mingw-w64's cannot be for NDIS 6.30: what softndk.h takes from it, and nothing that it
 * takes from ndisndk.h. Written from the facts of tests-host/facts and crates/abi/ndkpi.
 */
#ifndef STAND_IN_NDIS_H
#define STAND_IN_NDIS_H

#ifdef __cplusplus
/* mingw-w64 has these two as intrinsics, and wdm.h defines them again; C++ takes only one. */
#define __INTRINSIC_DEFINED_InterlockedBitTestAndSet
#define __INTRINSIC_DEFINED_InterlockedBitTestAndReset
#endif
#include <ntddk.h>
#include <sal.h>

#if defined(NDIS630) || defined(NDIS640) || defined(NDIS650) || defined(NDIS651) || defined(NDIS660) || defined(NDIS670) \
    || defined(NDIS680)
#define NDIS_SUPPORT_NDIS630 1
#else
#define NDIS_SUPPORT_NDIS630 0
#endif

typedef PVOID NDIS_HANDLE;
typedef LONG NDIS_STATUS;

#if NDIS_SUPPORT_NDIS630
/* For the entries of NDIS_NDK_CONNECTIONS, which ntddndis.h has from this version on. */
typedef struct sockaddr_in {
    USHORT sin_family;
    USHORT sin_port;
    union { UCHAR S_bytes[4]; ULONG S_addr; } sin_addr;
    CHAR sin_zero[8];
} SOCKADDR_IN;

typedef struct sockaddr_in6 {
    USHORT sin6_family;
    USHORT sin6_port;
    ULONG sin6_flowinfo;
    union { UCHAR Byte[16]; USHORT Word[8]; } sin6_addr;
    ULONG sin6_scope_id;
} SOCKADDR_IN6;

typedef union _SOCKADDR_INET {
    SOCKADDR_IN Ipv4;
    SOCKADDR_IN6 Ipv6;
    USHORT si_family;
} SOCKADDR_INET;
#endif

#endif

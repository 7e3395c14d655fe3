/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Included before everything (-include) with the headers of mingw-w64: what they lack of the kit's. */
#ifndef CONSUMER_MINGW_H
#define CONSUMER_MINGW_H

#include <ntddk.h>

#ifndef POOL_FLAG_NON_PAGED
#define POOL_FLAG_NON_PAGED 0x40ULL
PVOID NTAPI ExAllocatePool2(_In_ ULONG64 Flags, _In_ SIZE_T NumberOfBytes, _In_ ULONG Tag);
#endif

/* Tags of the pool are four letters. */
#pragma GCC diagnostic ignored "-Wmultichar"

#endif

// Included before every source file of the public programs (tools/nd2-clients.sh): what MinGW's headers lack, and what lets a
// client and a server be two libraries of one process.
//
// The annotations of Microsoft's compiler mean nothing to others. The C++ library uses some of their names for its own
// parameters, so its headers come first.

#pragma once

#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <new>
#include <string>

#include <winsock2.h>
#include <ws2spi.h>
#include <ws2tcpip.h>
#include <iphlpapi.h>
#include <unknwn.h>
#include <process.h>
#include <tchar.h>

#define __callback
#define __in
#define __in_opt
#define __out
#define __out_opt
#define __inout
#define __inout_opt
#define __deref_out
#define __in_bcount(count)
#define __in_bcount_opt(count)
#define __in_ecount_opt(count)
#define __out_bcount_opt(count)
#define __out_bcount_part_opt(count, part)
#define __out_ecount_part(count, part)
#define __out_ecount_part_opt(count, part)
#define __inout_bcount_opt(count)
#define _Analysis_noreturn_
#define _Deref_out_
#define _Deref_out_opt_
#define _Deref_out_bytecap_(count)
#undef _In_
#define _In_
#define _In_bytecount_(count)
#undef _Inout_
#define _Inout_
#undef _Out_
#define _Out_
#define _Out_bytecap_(count)
#define _Out_opt_bytecap_post_bytecount_(count, part)
#define _Out_writes_(count)
#define __analysis_assume(condition)
#define __fallthrough

// One source file asks for the offset of an element with an index that is no constant; the list, and all others, want a
// constant.
#ifdef OFFSET_BY_ADDRESS
#define ASSERT(condition)
#include "list.h"
#undef FIELD_OFFSET
#define FIELD_OFFSET(type, field) ((LONG)(LONG_PTR)&(((type *)0)->field))
#endif

// A program has a type of this name, and so has a header of MinGW.
#define PrivateData ClientPrivateData

#ifndef min
#define min(a, b) ((a) < (b) ? (a) : (b))
#endif
#ifndef max
#define max(a, b) ((a) > (b) ? (a) : (b))
#endif

// side.cpp: the catalogue of Winsock with one provider in it, the library that SOFTND_DLL names.
int WSPAPI catalogue_enumerate(int *protocols, WSAPROTOCOL_INFOW *buffer, DWORD *length, int *error);
int WSPAPI catalogue_path(GUID *provider, WCHAR *path, int *length, int *error);
int WSAAPI catalogue_change(HANDLE *handle, OVERLAPPED *overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE routine);
// What Wine does not know: that the way to an address of this machine begins at that address.
int WSAAPI catalogue_ioctl(SOCKET socket, DWORD code, void *in, DWORD in_length, void *out, DWORD out_length, DWORD *returned,
                           OVERLAPPED *overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE routine);
#define WSAIoctl catalogue_ioctl
#define WSCEnumProtocols catalogue_enumerate
#define WSCGetProviderPath catalogue_path
#define WSAProviderConfigChange catalogue_change

// Each side writes to a file of its own, and what ends the process ends that side only.
[[noreturn]] void side_exit(int code);
int side_printf(const char *format, ...);
int side_wprintf(const wchar_t *format, ...);
#define exit(code) side_exit(code)
#define printf(...) side_printf(__VA_ARGS__)
#define wprintf(...) side_wprintf(__VA_ARGS__)
#define _fcloseall() 0

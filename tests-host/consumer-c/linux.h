/* Included before everything when the sample is compiled for Linux with the headers of mingw-w64. */
#ifndef CONSUMER_LINUX_H
#define CONSUMER_LINUX_H

/* Functions have this machine's calling convention, and nothing is imported. */
#define _stdcall
#define __stdcall
#define __cdecl
#define __fastcall
#define __declspec(x)
#define _WIN64 1
#define _AMD64_ 1
#define _M_AMD64 1
#define __int8 char
#define __int16 short
#define __int32 int
#define __int64 long long
#define _NTOSKRNL_ 1
#define _WIN32 1
#define WIN32 1
/* stdlib.h and intrin.h of mingw-w64 disagree where long has 64 bits. */
#define _INC_STDLIB

#endif

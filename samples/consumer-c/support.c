/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the libraries of a Windows kit bring and what a build without one has to bring itself: the functions that compilers call, and with
 * clang the load configuration, in which the system finds the tables of Control Flow Guard.
 */
#include <stddef.h>

void *memcpy(void *to, const void *from, size_t count)
{
    void *start = to;

    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
    return start;
}

void *memset(void *to, int value, size_t count)
{
    void *start = to;

    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(value) : "memory");
    return start;
}

#ifdef __clang__
/* The cookie: 0x00002B992DDFA232 tells the loader to choose another one. */
unsigned long long __security_cookie = 0x00002B992DDFA232ULL;

/* Called at the end of a function with an array: ends the system if something was written beyond it. */
void __security_check_cookie(unsigned long long cookie)
{
    if (cookie != __security_cookie)
        __asm__ volatile("int $0x29" : : "c"(2)); /* FAST_FAIL_STACK_COOKIE_CHECK_FAILURE */
}

/*
 * The system puts its own functions into the two pointers, and every indirect call goes through them. Until then, and on systems without
 * Control Flow Guard, they lead here: nothing is checked, and the call is made (its target is in rax).
 */
__asm__(".text\n"
        "consumer_check_nothing:\n"
        "    ret\n"
        "consumer_dispatch_unchecked:\n"
        "    jmpq *%rax\n"
        ".section .rdata,\"dr\"\n"
        ".balign 8\n"
        ".globl __guard_check_icall_fptr\n"
        "__guard_check_icall_fptr:\n"
        "    .quad consumer_check_nothing\n"
        ".globl __guard_dispatch_icall_fptr\n"
        "__guard_dispatch_icall_fptr:\n"
        "    .quad consumer_dispatch_unchecked\n"
        ".globl _load_config_used\n"
        "_load_config_used:\n"
        "    .long 0x140\n"                      /* Size */
        "    .zero 0x54\n"
        "    .quad __security_cookie\n"          /* 0x58 SecurityCookie */
        "    .zero 0x10\n"
        "    .quad __guard_check_icall_fptr\n"   /* 0x70 GuardCFCheckFunctionPointer */
        "    .quad __guard_dispatch_icall_fptr\n"
        "    .quad __guard_fids_table\n"
        "    .quad __guard_fids_count\n"
        "    .long __guard_flags\n"              /* 0x90 */
        "    .zero 0x0C\n"
        "    .quad __guard_iat_table\n"          /* 0xA0 */
        "    .quad __guard_iat_count\n"
        "    .quad __guard_longjmp_table\n"
        "    .quad __guard_longjmp_count\n"
        "    .zero 0x80\n");
#endif

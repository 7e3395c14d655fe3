//! What Control Flow Guard needs in an image, which the kit has in a static library (`BufferOverflowFastFailK.lib`).
//!
//! Code compiled with `-Ccontrol-flow-guard` checks or makes every indirect call through two pointers. They lead to
//! routines that allow everything until a kernel with Control Flow Guard replaces them, which it finds by the load
//! configuration. That directory also names the table of valid call targets, which the linker makes.

use core::arch::global_asm;

// IMAGE_LOAD_CONFIG_DIRECTORY64 up to the table of exception continuations; the offsets are checked by the test
// `driver_pe`, which reads the finished image.
global_asm!(
    ".section .rdata,\"dr\"",
    ".p2align 3",
    ".globl _load_config_used",
    "_load_config_used:",
    ".long 0x118", // Size
    ".zero 0x70 - 4",
    ".quad __guard_check_icall_fptr",    // GuardCFCheckFunctionPointer
    ".quad __guard_dispatch_icall_fptr", // GuardCFDispatchFunctionPointer
    ".quad __guard_fids_table",
    ".quad __guard_fids_count",
    ".long __guard_flags",
    ".zero 12", // CodeIntegrity
    ".quad __guard_iat_table",
    ".quad __guard_iat_count",
    ".quad __guard_longjmp_table",
    ".quad __guard_longjmp_count",
    ".zero 0x108 - 0xc0",
    ".quad __guard_eh_cont_table",
    ".quad __guard_eh_cont_count",
    ".globl __guard_check_icall_fptr",
    "__guard_check_icall_fptr:",
    ".quad softndk_guard_check_nothing",
    ".globl __guard_dispatch_icall_fptr",
    "__guard_dispatch_icall_fptr:",
    ".quad softndk_guard_dispatch_unchecked",
    ".section .text,\"xr\"",
);

// The target of the call is in a register: rcx and rax on x86-64, x15 and x9 on AArch64.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".p2align 4",
    "softndk_guard_check_nothing:",
    "ret",
    ".p2align 4",
    "softndk_guard_dispatch_unchecked:",
    "jmp rax",
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".p2align 4",
    "softndk_guard_check_nothing:",
    "ret",
    ".p2align 4",
    "softndk_guard_dispatch_unchecked:",
    "br x9",
);

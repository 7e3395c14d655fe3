// A small driver for tests of the loader. What it does is chosen when it is compiled (PROBE). It is built with clang and lld, without any
// header of a kit: what it needs is declared here. DriverEntry returns a success if everything is as it should be, else the line.

typedef long NTSTATUS;
typedef unsigned char UCHAR;
typedef unsigned int ULONG;
typedef unsigned long long ULONG64;
typedef struct { unsigned short length, maximum; unsigned short *buffer; } UNICODE_STRING;
struct driver;
typedef void (*UNLOAD)(struct driver *);
struct driver {
    short type, size;
    void *device;
    ULONG flags;
    void *start;
    ULONG bytes;
    void *section, *extension;
    UNICODE_STRING name;
    void *database, *fast, *init, *start_io;
    UNLOAD unload;
    void *major[28];
};

extern UCHAR __ImageBase;
#define IMPORT __declspec(dllimport)
IMPORT void KeStallExecutionProcessor(ULONG);
IMPORT ULONG64 KeQueryUnbiasedInterruptTime(void);
IMPORT void *memset(void *, int, ULONG64);
IMPORT void RoutineThatNobodyHas(int);
IMPORT void *PsThreadType;
IMPORT void KeEnterCriticalRegion(void);
IMPORT void KeLeaveCriticalRegion(void);
IMPORT void ExRaiseStatus(NTSTATUS);
IMPORT void RtlInitUnicodeString(UNICODE_STRING *, const unsigned short *);
IMPORT void *MmGetSystemRoutineAddress(UNICODE_STRING *);
IMPORT void *ExAllocatePoolWithTag(ULONG, ULONG64, ULONG);
IMPORT void ExFreePoolWithTag(void *, ULONG);
struct lookaside;
IMPORT NTSTATUS ExInitializeLookasideListEx(struct lookaside *, void *, void *, ULONG, ULONG, ULONG64, ULONG, unsigned short);
IMPORT void ExDeleteLookasideListEx(struct lookaside *);
struct entry { struct entry *next; };
union list { ULONG64 words[2]; } __attribute__((aligned(16)));
IMPORT void InitializeSListHead(union list *);
IMPORT struct entry *ExpInterlockedPopEntrySList(union list *);
IMPORT struct entry *ExpInterlockedPushEntrySList(union list *, struct entry *);
IMPORT unsigned short ExQueryDepthSList(union list *);
struct mdl;
IMPORT struct mdl *IoAllocateMdl(void *, ULONG, UCHAR, UCHAR, void *);
IMPORT void MmBuildMdlForNonPagedPool(struct mdl *);
IMPORT void IoFreeMdl(struct mdl *);

// Structures of the kit, as far as its inline functions read them.
struct lookaside {
    union list list;
    unsigned short depth, most;
    ULONG allocations, misses, frees, more_misses, type, tag, size;
    void *(*allocate)(ULONG, ULONG64, ULONG, struct lookaside *);
    void (*free)(void *, struct lookaside *);
    ULONG64 rest[4];
};
struct mdl {
    struct mdl *next;
    short size, flags;
    void *process;
    UCHAR *mapped, *start;
    ULONG bytes, offset;
};

// What another image has: a routine by its name, by its number, by a name that leads on to the kernel, and one that is asked for late.
#define OTHER __declspec(dllimport)
OTHER int Doubled(int);
OTHER int Tripled(int);
OTHER ULONG64 Clock(void);

#define FAILED ((NTSTATUS)(0xE0000000u + __LINE__))
#define EXPECT(condition) do { if (!(condition)) return FAILED; } while (0)

// Not every probe uses everything.
#pragma clang diagnostic ignored "-Wunused-function"
#pragma clang diagnostic ignored "-Wunused-variable"

static ULONG64 read_cr8(void) { ULONG64 level; __asm__ volatile("mov %%cr8, %0" : "=r"(level)); return level; }
static void write_cr8(ULONG64 level) { __asm__ volatile("mov %0, %%cr8" : : "r"(level) : "memory"); }

#define SHARED 0xFFFFF78000000000ull
#define SHARED_AT(type, offset) (*(volatile type *)(SHARED + (offset)))

static int initialised = 7;
static int *pointer = &initialised;

static void unload(struct driver *driver) { (void)driver; }

// The compiler may not see through it.
static void *volatile nowhere;

// Compilers look for exceptions in calls.
static __attribute__((noinline)) void store(volatile int *place) { *place = 1; }

static NTSTATUS probe(void) {
#if PROBE == 1
    // Relocations, variables with their first values in each load, imported variables, plain functions.
    EXPECT(*pointer == 7);
    *pointer = 8;
    EXPECT(initialised == 8);
    EXPECT(PsThreadType != 0);
    UCHAR bytes[64];
    memset(bytes, 0xAB, sizeof bytes);
    EXPECT(bytes[63] == 0xAB);
#elif PROBE == 2
    // The IRQL by its register.
    EXPECT(read_cr8() == 0);
    write_cr8(2);
    EXPECT(read_cr8() == 2);
    write_cr8(0);
    EXPECT(read_cr8() == 0);
#elif PROBE == 3
    // The processor's block.
    ULONG64 thread, again, block;
    ULONG number;
    __asm__ volatile("mov %%gs:0x188, %0" : "=r"(thread));
    KeStallExecutionProcessor(1);
    __asm__ volatile("mov %%gs:0x188, %0" : "=r"(again));
    __asm__ volatile("mov %%gs:0x18, %0" : "=r"(block));
    __asm__ volatile("movl %%gs:0x184, %0" : "=r"(number));
    EXPECT(thread != 0 && thread == again);
    EXPECT(block != 0 && *(ULONG64 *)(block + 0x188) == thread);
    EXPECT(number < 64);
#elif PROBE == 4
    // The data that is shared with programs: by a whole address, by a register, and compared in memory.
    EXPECT(SHARED_AT(ULONG, 0x26C) == 10);
    ULONG64 base = SHARED;
    __asm__ volatile("" : "+r"(base));
    EXPECT(*(volatile ULONG *)(base + 0x3C0) != 0);
    ULONG64 before = *(volatile ULONG64 *)(base + 0x08);
    KeStallExecutionProcessor(50);
    ULONG64 after = KeQueryUnbiasedInterruptTime();
    EXPECT(before <= after);
    EXPECT(*(volatile ULONG *)(base + 0x0C) == *(volatile ULONG *)(base + 0x10));
    UCHAR equal;
    __asm__ volatile("cmpl $10, 0x26C(%1); sete %0" : "=r"(equal) : "r"(base) : "cc");
    EXPECT(equal);
    __asm__ volatile("movabs 0xFFFFF7800000026C, %%eax; cmpl $10, %%eax; sete %0" : "=r"(equal) : : "rax", "cc");
    EXPECT(equal);
#elif PROBE == 5
    // Structured exceptions: one that is caught, and a block that is left by one.
    int caught = 0, left = 0;
    __try {
        __try {
            store(nowhere);
        } __finally {
            left = 1;
        }
    } __except (1) {
        caught = 1;
    }
    EXPECT(caught && left);
    __try {
        ExRaiseStatus((NTSTATUS)0xC000009Au);
    } __except (1) {
        caught = 2;
    }
    EXPECT(caught == 2);
#elif PROBE == 6
    __asm__ volatile("hlt");
#elif PROBE == 7
    *(volatile int *)nowhere = 1;
#elif PROBE == 8
    RoutineThatNobodyHas(1);
#elif PROBE == 9
    // A routine below DISPATCH_LEVEL only, at DISPATCH_LEVEL: the level came by the register.
    write_cr8(2);
    KeEnterCriticalRegion();
    KeLeaveCriticalRegion();
#elif PROBE == 10
    // Returns at another level than it was called at.
    write_cr8(2);
#elif PROBE == 11
    ULONG64 value;
    __asm__ volatile("mov %%gs:0x900, %0" : "=r"(value));
#elif PROBE == 12
    // A leap into the void.
    ((void (*)(void))0x12340000)();
#elif PROBE == 13
    // A frame of several pages, which the compiler has a routine of the kernel for.
    volatile UCHAR large[3 * 4096];
    large[0] = 1;
    large[sizeof large - 1] = 2;
    EXPECT(large[0] + large[sizeof large - 1] == 3);
    // A routine by its name.
    UNICODE_STRING name;
    RtlInitUnicodeString(&name, (const unsigned short *)L"KeStallExecutionProcessor");
    void (*stall)(ULONG) = (void (*)(ULONG))MmGetSystemRoutineAddress(&name);
    EXPECT(stall);
    stall(1);
    RtlInitUnicodeString(&name, (const unsigned short *)L"RoutineThatNobodyHas");
    EXPECT(!MmGetSystemRoutineAddress(&name));
    // A lookaside list and an interlocked list, which inline functions use.
    const ULONG tag = 0x74736554, not_executable = 512;
    static struct lookaside lookaside;
    EXPECT(ExInitializeLookasideListEx(&lookaside, 0, 0, not_executable, 0, 40, tag, 0) == 0);
    EXPECT(!ExpInterlockedPopEntrySList(&lookaside.list));
    struct entry *entry = lookaside.allocate(lookaside.type, lookaside.size, lookaside.tag, &lookaside);
    EXPECT(entry);
    static union list list;
    InitializeSListHead(&list);
    ExpInterlockedPushEntrySList(&list, entry);
    EXPECT(ExQueryDepthSList(&list) == 1 && ExpInterlockedPopEntrySList(&list) == entry && ExQueryDepthSList(&list) == 0);
    lookaside.free(entry, &lookaside);
    ExDeleteLookasideListEx(&lookaside);
    // The fields of an MDL.
    UCHAR *block = ExAllocatePoolWithTag(not_executable, 5000, tag);
    EXPECT(block);
    struct mdl *mdl = IoAllocateMdl(block + 8, 4992, 0, 0, 0);
    EXPECT(mdl);
    MmBuildMdlForNonPagedPool(mdl);
    EXPECT(mdl->mapped == block + 8 && mdl->start + mdl->offset == block + 8 && mdl->bytes == 4992 && (mdl->flags & 4));
    IoFreeMdl(mdl);
    ExFreePoolWithTag(block, tag);
#elif PROBE == 14
    // Exports only: see below.
#elif PROBE == 15
    EXPECT(Doubled(4) == 8);
    EXPECT(Tripled(4) == 12);
    EXPECT(Clock() <= KeQueryUnbiasedInterruptTime());
#else
#error PROBE is a number from 1 to 15
#endif
    return 0;
}

#if PROBE == 14
int Double(int number) { return 2 * number; }
int Triple(int number) { return 3 * number; }
#elif PROBE == 15
// The loader of the kernel fills delayed imports in, so that nobody calls this.
void *__delayLoadHelper2(void *descriptor, void **place) { (void)descriptor; return *place; }
#endif

NTSTATUS DriverEntry(struct driver *driver, UNICODE_STRING *path) {
    (void)path;
    driver->unload = unload;
    // The image is where its driver object says: from its first byte, which the linker has a name for, as many as its header says.
    UCHAR *header = driver->start;
    EXPECT(header == (UCHAR *)&__ImageBase && header[0] == 'M' && header[1] == 'Z');
    UCHAR *signature = header + *(ULONG *)(header + 0x3C);
    EXPECT(driver->bytes == *(ULONG *)(signature + 0x50));
    return probe();
}

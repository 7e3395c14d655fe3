// Loads and unloads softnd.dll again and again, as programs do that start and end their network library, and looks for what
// is left: slots for threads, handles, threads. Prints a line for every check and ends with 1 if one has failed.
//
//   nd2-rounds.exe [softnd.dll] [rounds]
//   nd2-rounds.exe --bits                  says how wide it is, and no more: so its caller knows that it can be run

#include "nd.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tlhelp32.h>

static int failures;

static void check(const char *what, bool holds) {
    std::printf("%-72s %s\n", what, holds ? "passed" : "FAILED");
    std::fflush(stdout);
    failures += !holds;
}

static const char *path;

struct Library {
    HMODULE module = LoadLibraryA(path);
    HRESULT(__stdcall *get_class_object)(const GUID &, const GUID &, void **) = nullptr;
    HRESULT(__stdcall *can_unload_now)() = nullptr;

    Library() {
        if (module == nullptr) {
            std::printf("the library is not loaded: error %lu\n", GetLastError());
            std::exit(1);
        }
        get_class_object = reinterpret_cast<decltype(get_class_object)>((void *)GetProcAddress(module, "DllGetClassObject"));
        can_unload_now = reinterpret_cast<decltype(can_unload_now)>((void *)GetProcAddress(module, "DllCanUnloadNow"));
    }

    Adapter *open() {
        Provider *provider = nullptr;
        Adapter *adapter = nullptr;
        GUID any = {};
        if (get_class_object(any, iid_provider, (void **)&provider) != nd_success) {
            return nullptr;
        }
        provider->OpenAdapter(iid_adapter, 1, (void **)&adapter);
        provider->Release();
        return adapter;
    }
};

static bool is_loaded() { return GetModuleHandleA("softnd.dll") != nullptr; }

// Threads of this process, and slots of theirs that a program can still have.
static int threads() {
    int count = 0;
    HANDLE all = CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0);
    THREADENTRY32 entry = {};
    entry.dwSize = sizeof entry;
    for (BOOL more = Thread32First(all, &entry); more; more = Thread32Next(all, &entry)) {
        count += entry.th32OwnerProcessID == GetCurrentProcessId();
    }
    CloseHandle(all);
    return count;
}

static int free_slots() {
    static DWORD slots[2048];
    int count = 0;
    while (count < 2048 && (slots[count] = TlsAlloc()) != TLS_OUT_OF_INDEXES) {
        ++count;
    }
    for (int index = 0; index < count; ++index) {
        TlsFree(slots[index]);
    }
    return count;
}

static DWORD handles() {
    DWORD count = 0;
    GetProcessHandleCount(GetCurrentProcess(), &count);
    return count;
}

static void plain(int rounds) {
    bool gone = true;
    for (int round = 0; round < rounds; ++round) {
        Library library;
        FreeLibrary(library.module);
        gone &= !is_loaded();
    }
    check("loaded and unloaded: it is gone each time", gone);
}

static void used(int rounds) {
    bool opened = true, can = true, gone = true;
    for (int round = 0; round < rounds; ++round) {
        Library library;
        Adapter *adapter = library.open();
        opened &= adapter != nullptr;
        HANDLE file;
        opened &= adapter->CreateOverlappedFile(&file) == nd_success;
        CompletionQueue2 *queue;
        opened &= adapter->CreateCompletionQueue(iid_queue, file, 4, 0, 0, (void **)&queue) == nd_success;
        queue->Release();
        CloseHandle(file);
        adapter->Release();
        can &= library.can_unload_now() == S_OK;
        FreeLibrary(library.module);
        gone &= !is_loaded();
    }
    check("opened and closed: an adapter each time", opened);
    check("opened and closed: DllCanUnloadNow says S_OK at once", can);
    check("opened and closed: it is gone each time", gone);
}

// Two users of the library, of which one unloads it although it was told not to.
static DWORD WINAPI other_user(void *) {
    for (int round = 0; round < 50; ++round) {
        Library library;
        if (Adapter *adapter = library.open()) {
            adapter->Release();
        }
        library.can_unload_now();
        FreeLibrary(library.module);
    }
    return 0;
}

static void two_users() {
    HANDLE users[3];
    for (HANDLE &user : users) {
        user = CreateThread(nullptr, 0, other_user, nullptr, 0, nullptr);
    }
    check("three users, each with its own references, come to an end",
          WaitForMultipleObjects(3, users, TRUE, 120000) == WAIT_OBJECT_0);
    for (HANDLE user : users) {
        CloseHandle(user);
    }
    for (int round = 0; round < 20; ++round) {
        Library library;
        if (Adapter *adapter = library.open()) {
            adapter->Release();
        }
        // Nobody asks whether it can be unloaded.
        FreeLibrary(library.module);
        Sleep(1);
    }
    check("unloaded without a question while threads run: it stays", is_loaded());
    Library library;
    check("DllCanUnloadNow", library.can_unload_now() == S_OK);
    FreeLibrary(library.module);
    check("it is gone", !is_loaded());
}

static void files() {
    Library library;
    Adapter *adapter = library.open();
    HANDLE file;
    adapter->CreateOverlappedFile(&file);
    CloseHandle(file);
    DWORD before = handles();
    for (int round = 0; round < 200; ++round) {
        adapter->CreateOverlappedFile(&file);
        CloseHandle(file);
    }
    check("200 files made and closed: as many handles as before", handles() == before);
    for (int round = 0; round < 200; ++round) {
        adapter->CreateOverlappedFile(&file);
        CompletionQueue2 *queue;
        adapter->CreateCompletionQueue(iid_queue, file, 4, 0, 0, (void **)&queue);
        queue->Release();
        CloseHandle(file);
    }
    check("200 files with queues: the handles of one at most", handles() <= before + 2);
    void *none = nullptr;
    check("a closed file is none",
          adapter->CreateCompletionQueue(iid_queue, file, 4, 0, 0, &none) == (HRESULT)nd_invalid_handle);
    adapter->Release();
    check("DllCanUnloadNow", library.can_unload_now() == S_OK);
    FreeLibrary(library.module);
}

int main(int count, char **arguments) {
    if (count > 1 && std::strcmp(arguments[1], "--bits") == 0) {
        std::printf("%d\n", static_cast<int>(sizeof(void *) * 8));
        return 0;
    }
    path = count > 1 ? arguments[1] : "softnd.dll";
    int rounds = count > 2 ? std::atoi(arguments[2]) : 10000;
    files();
    // What is made once is made now.
    plain(1);
    used(1);
    int slots = free_slots(), running = threads();
    DWORD open = handles();
    plain(rounds);
    check("as many slots for threads as before", free_slots() == slots);
    used(rounds);
    check("as many slots for threads as before", free_slots() == slots);
    check("as many threads as before", threads() == running);
    check("as many handles as before", handles() == open);
    two_users();
    check("as many threads as before", threads() == running);
    std::printf("%s, %d rounds\n", failures ? "FAILED" : "passed", rounds);
    return failures != 0;
}

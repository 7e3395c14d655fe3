// Runs one side of a public program, or a server and a client of it in one process (tools/nd2-clients.sh).
//
//   nd2-run.exe SECONDS WALL LIBRARY ARGUMENT... [-- LIBRARY ARGUMENT...]
//
// Each side is a library that side.cpp is part of. The second is started when the first has nothing to do any more; the output of
// each goes to LIBRARY.txt. Prints "exit N" for each, or "hung"; ends with 0 if each ended with 0.
//
// A side hangs if the process has had nothing to do for half a minute, or has used SECONDS of processor time: how busy the machine
// is makes no difference. One that spins in Sleep(0) has never nothing to do and, on a busy machine, uses little: after WALL seconds
// that pass on the clock it hangs too.

#include <windows.h>

#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <string>
#include <vector>

using Side = std::vector<wchar_t *>;

// The processor time of this process, in milliseconds.
static ULONGLONG used() {
    FILETIME created, ended, kernel, user;
    GetProcessTimes(GetCurrentProcess(), &created, &ended, &kernel, &user);
    auto number = [](const FILETIME &time) { return static_cast<ULONGLONG>(time.dwHighDateTime) << 32 | time.dwLowDateTime; };
    return (number(kernel) + number(user)) / 10000;
}

// Waits until the events are set, or the process has used so many milliseconds, or has used none for so many seconds, or the clock
// says so.
static void wait(const std::vector<HANDLE> &events, ULONGLONG limit, ULONGLONG end, int idle) {
    int quiet = 0;
    for (ULONGLONG before = used(); quiet < idle && before < limit && GetTickCount64() < end;) {
        if (!events.empty() && WaitForMultipleObjects(static_cast<DWORD>(events.size()), events.data(), TRUE, 0) != WAIT_TIMEOUT) {
            return;
        }
        Sleep(1000);
        ULONGLONG now = used();
        // Looking takes some time itself.
        quiet = now - before <= 20 ? quiet + 1 : 0;
        before = now;
    }
}

static HANDLE start(Side &side, HMODULE &module) {
    module = LoadLibraryW(side[0]);
    if (module == nullptr) {
        std::printf("%ls is not loaded: error %lu\n", side[0], GetLastError());
        std::exit(2);
    }
    using Start = HANDLE (*)(int, wchar_t **, const wchar_t *);
    auto begin = reinterpret_cast<Start>(reinterpret_cast<void *>(GetProcAddress(module, "side_start")));
    std::wstring file = std::wstring(side[0]) + L".txt";
    HANDLE ended = begin == nullptr ? nullptr : begin(static_cast<int>(side.size()), side.data(), file.c_str());
    if (ended == nullptr) {
        std::printf("%ls does not start\n", side[0]);
        std::exit(2);
    }
    return ended;
}

extern "C" int wmain(int argc, wchar_t *argv[]) {
    std::vector<Side> sides(1);
    for (int i = 3; i < argc; i++) {
        if (std::wcscmp(argv[i], L"--") == 0) {
            sides.emplace_back();
        } else {
            sides.back().push_back(argv[i]);
        }
    }
    if (argc < 4 || sides.size() > 2) {
        std::printf("usage: nd2-run.exe SECONDS WALL LIBRARY ARGUMENT... [-- LIBRARY ARGUMENT...]\n");
        return 2;
    }
    ULONGLONG limit = std::wcstoul(argv[1], nullptr, 10) * 1000ULL;
    ULONGLONG end = GetTickCount64() + std::wcstoul(argv[2], nullptr, 10) * 1000ULL;
    std::vector<HMODULE> modules(sides.size());
    std::vector<HANDLE> events;
    for (size_t i = 0; i < sides.size(); i++) {
        if (i == 1) {
            wait({}, 60000, end, 2);
        }
        events.push_back(start(sides[i], modules[i]));
    }
    wait(events, limit, end, 30);
    int result = 0;
    for (size_t i = 0; i < sides.size(); i++) {
        if (WaitForSingleObject(events[i], 0) != WAIT_OBJECT_0) {
            std::printf("hung\n");
            result = 1;
            continue;
        }
        using Status = int (*)();
        int status = reinterpret_cast<Status>(reinterpret_cast<void *>(GetProcAddress(modules[i], "side_status")))();
        std::printf("exit %d\n", status);
        result |= status != 0;
    }
    std::fflush(stdout);
    // A side that hangs, or whose threads go on, must not keep the process.
    TerminateProcess(GetCurrentProcess(), static_cast<UINT>(result));
    return result;
}

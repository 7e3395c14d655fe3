// Runs one side of a public program, or a server and a client of it in one process (tools/nd2-clients.sh).
//
//   nd2-run.exe SECONDS LIBRARY ARGUMENT... [-- LIBRARY ARGUMENT...]
//
// Each side is a library that side.cpp is part of. The first is started half a second before the second, whose output goes
// to LIBRARY.txt as that of the first. Prints "exit N" for each, or "hung" after SECONDS; ends with 0 if each ended with 0.

#include <windows.h>

#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <string>
#include <vector>

using Side = std::vector<wchar_t *>;

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
    for (int i = 2; i < argc; i++) {
        if (std::wcscmp(argv[i], L"--") == 0) {
            sides.emplace_back();
        } else {
            sides.back().push_back(argv[i]);
        }
    }
    if (argc < 3 || sides.size() > 2) {
        std::printf("usage: nd2-run.exe SECONDS LIBRARY ARGUMENT... [-- LIBRARY ARGUMENT...]\n");
        return 2;
    }
    DWORD limit = std::wcstoul(argv[1], nullptr, 10) * 1000;
    std::vector<HMODULE> modules(sides.size());
    std::vector<HANDLE> events;
    for (size_t i = 0; i < sides.size(); i++) {
        if (i == 1) {
            Sleep(500);
        }
        events.push_back(start(sides[i], modules[i]));
    }
    WaitForMultipleObjects(static_cast<DWORD>(events.size()), events.data(), TRUE, limit);
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

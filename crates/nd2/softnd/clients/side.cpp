// One side, client or server, of a public program as a library: its entry, its output, and the Winsock catalogue that it sees.
// See tools/nd2-clients.sh.

// %s of wprintf is a wide string, as the programs expect.
#define __USE_MINGW_ANSI_STDIO 0

#include "compat.h"

#undef WSAIoctl
#undef exit
#undef printf
#undef wprintf

// The program's own.
extern "C" int __cdecl wmain(int argc, wchar_t *argv[]);

namespace {

FILE *output;
HANDLE ended;
int status = -1;

// The provider's identity in the catalogue: any.
const GUID provider_id = {0x5f7d0a51, 0x1c0e, 0x4b7e, {0x9a, 0x51, 0x0c, 0x8b, 0x7f, 0x2e, 0x66, 0x01}};

} // namespace

int WSPAPI catalogue_enumerate(int *, WSAPROTOCOL_INFOW *buffer, DWORD *length, int *error) {
    if (buffer == nullptr || *length < sizeof *buffer) {
        *length = sizeof *buffer;
        *error = WSAENOBUFS;
        return SOCKET_ERROR;
    }
    *length = sizeof *buffer;
    *buffer = {};
    buffer->dwServiceFlags1 = XP1_GUARANTEED_DELIVERY | XP1_GUARANTEED_ORDER | XP1_MESSAGE_ORIENTED | XP1_CONNECT_DATA;
    buffer->dwProviderFlags = PFL_HIDDEN | 0x10; // PFL_NETWORKDIRECT_PROVIDER
    buffer->ProviderId = provider_id;
    buffer->iVersion = 0x20000;
    buffer->iAddressFamily = AF_INET;
    buffer->iSocketType = -1;
    return 1;
}

int WSPAPI catalogue_path(GUID *, WCHAR *path, int *length, int *error) {
    DWORD count = GetEnvironmentVariableW(L"SOFTND_DLL", path, static_cast<DWORD>(*length));
    if (count == 0 || count >= static_cast<DWORD>(*length)) {
        *error = WSAEFAULT;
        return SOCKET_ERROR;
    }
    *length = static_cast<int>(count) + 1;
    return 0;
}

// The catalogue never changes: the handle is one that nothing signals.
int WSAAPI catalogue_change(HANDLE *handle, OVERLAPPED *overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE) {
    if (overlapped != nullptr) {
        WSASetLastError(WSA_IO_PENDING);
        return SOCKET_ERROR;
    }
    *handle = CreateFileW(L"NUL", GENERIC_READ, 0, nullptr, OPEN_EXISTING, FILE_FLAG_OVERLAPPED, nullptr);
    return *handle == INVALID_HANDLE_VALUE ? SOCKET_ERROR : 0;
}

int WSAAPI catalogue_ioctl(SOCKET socket, DWORD code, void *in, DWORD in_length, void *out, DWORD out_length, DWORD *returned,
                           OVERLAPPED *overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE routine) {
    if (code != SIO_ROUTING_INTERFACE_QUERY || out_length < in_length) {
        return WSAIoctl(socket, code, in, in_length, out, out_length, returned, overlapped, routine);
    }
    std::memcpy(out, in, in_length);
    if (static_cast<sockaddr *>(out)->sa_family == AF_INET) {
        static_cast<sockaddr_in *>(out)->sin_port = 0;
    }
    *returned = in_length;
    return 0;
}

int side_printf(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int count = std::vfprintf(output, format, arguments);
    va_end(arguments);
    std::fflush(output);
    return count;
}

int side_wprintf(const wchar_t *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int count = std::vfwprintf(output, format, arguments);
    va_end(arguments);
    std::fflush(output);
    return count;
}

// Any thread of this side may end it, the first wins. Its other threads go on until the process ends.
void side_exit(int code) {
    status = code;
    SetEvent(ended);
    ExitThread(static_cast<DWORD>(code));
}

namespace {

struct Start {
    int argc;
    wchar_t **argv;
} start;

unsigned __stdcall body(void *) {
    side_exit(wmain(start.argc, start.argv));
}

} // namespace

// Starts this side with its output in `file`. The event that comes back is set when it has ended.
extern "C" __declspec(dllexport) HANDLE side_start(int argc, wchar_t **argv, const wchar_t *file) {
    output = _wfopen(file, L"w");
    ended = CreateEventW(nullptr, TRUE, FALSE, nullptr);
    if (output == nullptr || ended == nullptr) {
        return nullptr;
    }
    start = {argc, argv};
    return _beginthreadex(nullptr, 0, body, nullptr, 0, nullptr) == 0 ? nullptr : ended;
}

// What the side ended with: the argument of exit, or what its main function returned.
extern "C" __declspec(dllexport) int side_status() { return status; }

//! Which Windows this is: build 19041, a workstation.

use wdk_bindings::{
    BOOLEAN, NTSTATUS, PRTL_OSVERSIONINFOW, PULONG, PUNICODE_STRING, RTL_OSVERSIONINFOEXW, STATUS_SUCCESS, ULONG,
};

use crate::routine::routine;

const MAJOR: ULONG = 10;
const MINOR: ULONG = 0;
pub const BUILD: ULONG = 19041;
/// `VER_PLATFORM_WIN32_NT`.
const PLATFORM: ULONG = 2;
/// `VER_NT_WORKSTATION`.
const WORKSTATION: u8 = 1;

#[unsafe(no_mangle)]
extern "C" fn RtlGetVersion(place: PRTL_OSVERSIONINFOW) -> NTSTATUS {
    routine!("RtlGetVersion", |_| {
        // SAFETY: the driver's structure, which lives until the call returns.
        let version = unsafe { &mut *place };
        version.dwMajorVersion = MAJOR;
        version.dwMinorVersion = MINOR;
        version.dwBuildNumber = BUILD;
        version.dwPlatformId = PLATFORM;
        version.szCSDVersion[0] = 0;
        if version.dwOSVersionInfoSize as usize == size_of::<RTL_OSVERSIONINFOEXW>() {
            let longer: *mut RTL_OSVERSIONINFOEXW = place.cast();
            // SAFETY: the driver says that it is the longer structure, which begins with the other one.
            let longer = unsafe { &mut *longer };
            (longer.wServicePackMajor, longer.wServicePackMinor) = (0, 0);
            (longer.wSuiteMask, longer.wProductType, longer.wReserved) = (0, WORKSTATION, 0);
        }
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn PsGetVersion(major: PULONG, minor: PULONG, build: PULONG, service_pack: PUNICODE_STRING) -> BOOLEAN {
    routine!("PsGetVersion", |_| {
        for (place, value) in [(major, MAJOR), (minor, MINOR), (build, BUILD)] {
            if !place.is_null() {
                // SAFETY: not null, so the driver's place, which lives until the call returns.
                unsafe { place.write(value) };
            }
        }
        // SAFETY: null, or the driver's string, which lives until the call returns.
        if let Some(service_pack) = unsafe { service_pack.as_mut() } {
            service_pack.Length = 0;
        }
        // A free build.
        0
    })
}

#[unsafe(no_mangle)]
extern "C" fn RtlIsNtDdiVersionAvailable(version: ULONG) -> BOOLEAN {
    routine!("RtlIsNtDdiVersionAvailable", |_| {
        // The upper half is the Windows, the lower one a service pack, which this routine does not answer for.
        BOOLEAN::from(version.trailing_zeros() >= 16 && version >> 24 <= MAJOR)
    })
}

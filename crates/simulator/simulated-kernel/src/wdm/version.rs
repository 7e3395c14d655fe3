//! Which Windows this is: build 19041, a workstation.

use std::cmp::Ordering;

use wdk_bindings::{
    BOOLEAN, NTSTATUS, PRTL_OSVERSIONINFOW, PULONG, PUNICODE_STRING, RTL_OSVERSIONINFOEXW, STATUS_INVALID_PARAMETER,
    STATUS_REVISION_MISMATCH, STATUS_SUCCESS, ULONG,
};

use crate::routine::routine;

const MAJOR: ULONG = 10;
const MINOR: ULONG = 0;
pub const BUILD: ULONG = 19041;
/// `VER_PLATFORM_WIN32_NT`.
const PLATFORM: ULONG = 2;
/// `VER_NT_WORKSTATION`.
const WORKSTATION: u8 = 1;

/// `MmLargeSystem`.
#[unsafe(no_mangle)]
extern "C" fn MmQuerySystemSize() -> i32 {
    routine!("MmQuerySystemSize", HIGH_LEVEL, |_| 2)
}

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

/// What a version is compared by, as the bits of a type mask (`VER_MINORVERSION` and so on), the lowest first.
const TYPES: u32 = 8;
/// Each has a condition of so many bits.
const CONDITION_BITS: u32 = 3;
/// The bits of the type mask that are compared one after the other: the first that differs decides.
const IN_SEQUENCE: [u32; 4] = [1, 0, 5, 4];
/// The others of which a number is compared: build, platform, product.
const ALONE: [u32; 3] = [2, 3, 7];
/// The bit of the suites.
const SUITES: u32 = 6;

/// Puts a condition into a mask: where that of the highest type in `types` is.
#[unsafe(no_mangle)]
extern "C" fn VerSetConditionMask(mask: u64, types: ULONG, condition: u8) -> u64 {
    routine!("VerSetConditionMask", HIGH_LEVEL, |_| {
        let highest = (0..TYPES).rev().find(|bit| types >> bit & 1 != 0);
        highest.map_or(mask, |bit| mask | u64::from(condition & 7) << (CONDITION_BITS * bit))
    })
}

/// The number of a version that a type stands for.
fn number(version: &RTL_OSVERSIONINFOEXW, bit: u32) -> u32 {
    match bit {
        0 => version.dwMinorVersion,
        1 => version.dwMajorVersion,
        2 => version.dwBuildNumber,
        3 => version.dwPlatformId,
        4 => version.wServicePackMinor.into(),
        5 => version.wServicePackMajor.into(),
        6 => version.wSuiteMask.into(),
        _ => version.wProductType.into(),
    }
}

/// Returns true if an order meets a condition, `VER_EQUAL` to `VER_LESS_EQUAL`. `None` if it is none of them.
const fn meets(order: Ordering, condition: u64) -> Option<bool> {
    Some(match condition {
        1 => order.is_eq(),
        2 => order.is_gt(),
        3 => order.is_ge(),
        4 => order.is_lt(),
        5 => order.is_le(),
        _ => return None,
    })
}

/// Returns true if this Windows is what a driver wants. `None` if the driver does not say what it wants.
fn is_wanted(wanted: &RTL_OSVERSIONINFOEXW, types: ULONG, conditions: u64) -> Option<bool> {
    let this = RTL_OSVERSIONINFOEXW {
        dwMajorVersion: MAJOR,
        dwMinorVersion: MINOR,
        dwBuildNumber: BUILD,
        dwPlatformId: PLATFORM,
        wProductType: WORKSTATION,
        ..RTL_OSVERSIONINFOEXW::default()
    };
    let is_asked = |bit: &u32| types >> bit & 1 != 0;
    let condition = |bit: u32| conditions >> (CONDITION_BITS * bit) & 7;
    let compare = |bit: u32| (number(&this, bit).cmp(&number(wanted, bit)), condition(bit));
    let mut all = true;
    for (order, condition) in ALONE.into_iter().filter(is_asked).map(compare) {
        all &= meets(order, condition)?;
    }
    if is_asked(&SUITES) {
        /// `VER_AND` and `VER_OR`.
        const EACH: u64 = 6;
        const ANY: u64 = 7;
        let (has, wants) = (number(&this, SUITES), number(wanted, SUITES));
        all &= match condition(SUITES) {
            EACH => has & wants == wants,
            ANY => has & wants != 0,
            _ => return None,
        };
    }
    let sequence: Vec<_> = IN_SEQUENCE.into_iter().filter(is_asked).map(compare).collect();
    let decides = sequence.iter().find(|(order, _)| order.is_ne()).or_else(|| sequence.last());
    if let Some(&(order, condition)) = decides {
        all &= meets(order, condition)?;
    }
    Some(all)
}

/// That of Windows Vista, which is the last one.
const WDM: (u8, u8) = (6, 0);

#[unsafe(no_mangle)]
extern "C" fn IoIsWdmVersionAvailable(major: u8, minor: u8) -> BOOLEAN {
    routine!("IoIsWdmVersionAvailable", PASSIVE_LEVEL, |_| BOOLEAN::from((major, minor) <= WDM))
}

#[unsafe(no_mangle)]
extern "C" fn RtlVerifyVersionInfo(wanted: *const RTL_OSVERSIONINFOEXW, types: ULONG, conditions: u64) -> NTSTATUS {
    routine!("RtlVerifyVersionInfo", PASSIVE_LEVEL, |_| {
        // SAFETY: the driver's structure, which lives until the call returns.
        let wanted = unsafe { wanted.read() };
        if types == 0 {
            return STATUS_INVALID_PARAMETER;
        }
        match is_wanted(&wanted, types, conditions) {
            Some(true) => STATUS_SUCCESS,
            Some(false) => STATUS_REVISION_MISMATCH,
            None => STATUS_INVALID_PARAMETER,
        }
    })
}

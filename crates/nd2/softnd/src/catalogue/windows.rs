//! The catalogue of Windows.

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::windows::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    ptr,
};

use ndkpi::GUID;
use windows_sys::{
    Win32::Networking::WinSock::{
        WSAENOBUFS, WSAPROTOCOL_INFOW, WSCDeinstallProvider, WSCDeinstallProvider32, WSCEnumProtocols,
        WSCEnumProtocols32, WSCGetProviderPath, WSCGetProviderPath32, WSCInstallProvider, WSCInstallProvider64_32,
    },
    core::GUID as RawGuid,
};

use crate::catalogue::{Entry, WinsockCatalogue, WinsockError};

const _: () = assert!(size_of::<Entry>() == size_of::<WSAPROTOCOL_INFOW>());
const _: () = assert!(align_of::<Entry>() >= align_of::<WSAPROTOCOL_INFOW>());

/// This machine. A program of 64 bits sees both catalogues.
pub struct Windows;

const fn raw(guid: &GUID) -> RawGuid {
    RawGuid { data1: guid.Data1, data2: guid.Data2, data3: guid.Data3, data4: guid.Data4 }
}

fn done(result: i32, error: i32) -> Result<(), WinsockError> {
    if result == 0 { Ok(()) } else { Err(WinsockError(error)) }
}

fn wide(path: &Path) -> Vec<u16> {
    path.as_os_str().encode_wide().chain([0]).collect()
}

fn root() -> PathBuf {
    env::var_os("SystemRoot").map_or_else(|| PathBuf::from(r"C:\Windows"), PathBuf::from)
}

/// Puts the values of variables in for `%NAME%`, as in paths of the catalogue.
fn expand(path: &str) -> String {
    let mut pieces = path.split('%');
    let mut expanded = pieces.next().unwrap_or_default().to_owned();
    while let Some(name) = pieces.next() {
        match (env::var(name), pieces.next()) {
            (Ok(value), Some(rest)) => expanded.extend([value.as_str(), rest]),
            (_, rest) => {
                expanded.extend(["%", name]);
                expanded.extend(rest.into_iter().flat_map(|rest| ["%", rest]));
            }
        }
    }
    expanded
}

impl WinsockCatalogue for Windows {
    fn entries(&self, bits: u8) -> Result<Vec<Entry>, WinsockError> {
        let all = if bits == 64 { WSCEnumProtocols } else { WSCEnumProtocols32 };
        let (mut length, mut entries) = (0, Vec::<Entry>::new());
        loop {
            let mut error = 0;
            let place = if entries.is_empty() { ptr::null_mut() } else { entries.as_mut_ptr().cast() };
            // SAFETY: no list of protocols, a buffer of the size that is said, or none, and places for both numbers.
            let found = unsafe { all(ptr::null(), place, &raw mut length, &raw mut error) };
            if let Ok(found) = usize::try_from(found) {
                entries.truncate(found);
                return Ok(entries);
            }
            let needed = (length as usize).div_ceil(size_of::<Entry>());
            if error != WSAENOBUFS || needed <= entries.len() {
                return Err(WinsockError(error));
            }
            entries.resize(needed, Entry::EMPTY);
        }
    }

    fn path(&self, bits: u8, provider: &GUID) -> Result<PathBuf, WinsockError> {
        let get = if bits == 64 { WSCGetProviderPath } else { WSCGetProviderPath32 };
        let (mut place, mut length, mut error) = ([0_u16; 1024], 1024, 0);
        // SAFETY: the provider is valid, and the buffer as long as is said.
        let result = unsafe { get(&raw(provider), place.as_mut_ptr(), &raw mut length, &raw mut error) };
        done(result, error)?;
        let end = place.iter().position(|unit| *unit == 0).unwrap_or(place.len());
        let path = OsString::from_wide(&place[..end]).to_string_lossy().into_owned();
        Ok(PathBuf::from(expand(&path)))
    }

    fn add(&self, provider: &GUID, path: &Path, entries: &[Entry], both: bool) -> Result<(), WinsockError> {
        let add = if both { WSCInstallProvider64_32 } else { WSCInstallProvider };
        let (path, mut error) = (wide(path), 0);
        let count = u32::try_from(entries.len()).unwrap_or(0);
        // SAFETY: the provider is valid, the path ends with zero, and there are as many entries.
        let result = unsafe { add(&raw(provider), path.as_ptr(), entries.as_ptr().cast(), count, &raw mut error) };
        done(result, error)
    }

    fn remove(&self, bits: u8, provider: &GUID) -> Result<(), WinsockError> {
        let remove = if bits == 64 { WSCDeinstallProvider } else { WSCDeinstallProvider32 };
        let mut error = 0;
        // SAFETY: the provider is valid, and the number has a place.
        let result = unsafe { remove(&raw(provider), &raw mut error) };
        done(result, error)
    }

    fn directory(&self, bits: u8) -> PathBuf {
        root().join(if bits == 64 { "System32" } else { "SysWOW64" })
    }

    fn copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::copy(from, to).map(drop)
    }

    fn delete(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

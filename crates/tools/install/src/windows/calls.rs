//! The calls of Windows, each with what makes it sound. Nothing else in this crate is unsafe.

use std::{
    ffi::c_void,
    net::{Ipv4Addr, SocketAddrV4},
    path::{Path, PathBuf},
    ptr, slice,
    sync::Arc,
};

use ::windows::{
    Wdk::System::{
        SystemInformation::{NtQuerySystemInformation, SystemCodeIntegrityInformation},
        SystemServices::RtlGetVersion,
    },
    Win32::{
        Devices::{
            DeviceAndDriverInstallation::{
                CM_DEVNODE_STATUS_FLAGS, CM_Get_DevNode_Status, CM_MapCrToWin32Err, CM_NOTIFY_ACTION,
                CM_NOTIFY_EVENT_DATA, CM_NOTIFY_FILTER, CM_NOTIFY_FILTER_TYPE_DEVICEINSTANCE, CM_PROB, CM_PROB_PHANTOM,
                CM_Register_Notification, CM_Unregister_Notification, CONFIGRET, CR_NO_SUCH_DEVNODE, CR_SUCCESS,
                DICD_GENERATE_ID, DICS_FLAG_GLOBAL, DIF_REGISTERDEVICE, DIGCF_ALLCLASSES, DIREG_DRV, DN_HAS_PROBLEM,
                DN_STARTED, DiUninstallDevice, HCMNOTIFICATION, HDEVINFO, INSTALLFLAG_FORCE,
                INSTALLFLAG_NONINTERACTIVE, SP_COPY_STYLE, SP_DEVINFO_DATA, SPDRP_HARDWAREID, SPOST_PATH,
                SetupCopyOEMInfW, SetupDiCallClassInstaller, SetupDiCreateDeviceInfoList, SetupDiCreateDeviceInfoW,
                SetupDiEnumDeviceInfo, SetupDiGetClassDevsW, SetupDiGetDeviceInstanceIdW, SetupDiGetDevicePropertyW,
                SetupDiGetDeviceRegistryPropertyW, SetupDiOpenDevRegKey, SetupDiOpenDeviceInfoW,
                SetupDiSetDeviceRegistryPropertyW, SetupGetInfDriverStoreLocationW, SetupSetNonInteractiveMode,
                SetupUninstallOEMInfW, UpdateDriverForPlugAndPlayDevicesW,
            },
            Properties::{DEVPKEY_Device_DriverInfPath, DEVPROPTYPE},
        },
        Foundation::{
            ERROR_FILE_NOT_FOUND, ERROR_INVALID_DATA, ERROR_INVALID_PARAMETER, ERROR_NO_MORE_ITEMS, ERROR_NOT_FOUND,
            ERROR_OBJECT_ALREADY_EXISTS, ERROR_SERVICE_DOES_NOT_EXIST, ERROR_SUCCESS, HANDLE, HWND, WIN32_ERROR,
        },
        NetworkManagement::{
            IpHelper::{
                CancelMibChangeNotify2, ConvertInterfaceAliasToLuid, ConvertInterfaceGuidToLuid,
                ConvertInterfaceLuidToGuid, CreateIpForwardEntry2, CreateIpNetEntry2, CreateUnicastIpAddressEntry,
                DeleteIpForwardEntry2, DeleteIpNetEntry2, DeleteUnicastIpAddressEntry, FreeMibTable, GetIfEntry2,
                GetIpForwardEntry2, GetIpInterfaceEntry, GetIpNetEntry2, GetUnicastIpAddressEntry,
                GetUnicastIpAddressTable, IP_ADDRESS_PREFIX, InitializeIpForwardEntry, InitializeIpInterfaceEntry,
                InitializeUnicastIpAddressEntry, MIB_IF_ROW2, MIB_IPFORWARD_ROW2, MIB_IPINTERFACE_ROW, MIB_IPNET_ROW2,
                MIB_NOTIFICATION_TYPE, MIB_UNICASTIPADDRESS_ROW, NotifyIpInterfaceChange, NotifyUnicastIpAddressChange,
                SetIpInterfaceEntry, SetIpNetEntry2,
            },
            Ndis::{IfOperStatusUp, NET_LUID_LH},
            WindowsFirewall::{
                INetConnection, INetConnectionManager, INetFwPolicy2, NCME_DEFAULT, NET_FW_PROFILE2_PUBLIC,
                NcFreeNetconProperties, NetFwPolicy2,
            },
        },
        Networking::WinSock::{
            AF_INET, IpDadStateDuplicate, IpDadStatePreferred, MIB_IPPROTO_NETMGMT, NlnsPermanent, SOCKADDR_INET,
        },
        Security::{
            Cryptography::{
                CERT_CONTEXT, CERT_FIND_EXISTING, CERT_OPEN_STORE_FLAGS, CERT_QUERY_ENCODING_TYPE,
                CERT_STORE_ADD_REPLACE_EXISTING, CERT_STORE_PROV_SYSTEM_W, CERT_STORE_READONLY_FLAG,
                CERT_SYSTEM_STORE_LOCAL_MACHINE, CertAddEncodedCertificateToStore, CertCloseStore,
                CertCreateCertificateContext, CertDeleteCertificateFromStore, CertFindCertificateInStore,
                CertFreeCertificateContext, CertOpenStore, HCERTSTORE, X509_ASN_ENCODING,
            },
            GetTokenInformation, TOKEN_ELEVATION, TOKEN_QUERY, TokenElevation,
        },
        System::{
            Com::{CLSCTX_INPROC_SERVER, CLSCTX_SERVER, COINIT_MULTITHREADED, CoCreateInstance, CoInitializeEx},
            Registry::{HKEY, HKEY_LOCAL_MACHINE, KEY_READ, RRF_RT_REG_DWORD, RRF_RT_REG_SZ, RegGetValueW},
            Services::{
                OpenSCManagerW, OpenServiceW, QueryServiceStatus, SC_MANAGER_CONNECT, SERVICE_QUERY_STATUS,
                SERVICE_STATUS, SERVICE_STOPPED,
            },
            SystemInformation::{
                GetSystemWindowsDirectoryW, IMAGE_FILE_MACHINE, IMAGE_FILE_MACHINE_AMD64, IMAGE_FILE_MACHINE_ARM64,
                OSVERSIONINFOW,
            },
            Threading::{GetCurrentProcess, IsWow64Process2, OpenProcessToken},
        },
    },
    core::{BOOL, Error, GUID, HRESULT, HSTRING, Owned, PCWSTR, w},
};

use super::wait::Bell;
use crate::{AddressState, Fault, Processor, Restart, Result};

/// `ERROR_KEY_DOES_NOT_EXIST` of `SetupAPI`: a device without a driver has no key for one.
const NO_DRIVER_KEY: u32 = 0xE000_0204;
/// `ERROR_NO_SUCH_DEVINST` of `SetupAPI`.
const NO_SUCH_DEVICE: u32 = 0xE000_020B;

/// The number of an error as Windows' headers have it: that of Win32, if it is one.
const fn number(code: HRESULT) -> u32 {
    let code = code.0.cast_unsigned();
    if code & 0xFFFF_0000 == 0x8007_0000 { code & 0xFFFF } else { code }
}

/// An error of a call.
fn fault(call: &'static str, error: &Error) -> Fault {
    Fault::new(call, number(error.code()), error.message())
}

/// What a call answers, with its name in the error.
fn named<T>(call: &'static str, result: ::windows::core::Result<T>) -> Result<T> {
    result.map_err(|error| fault(call, &error))
}

/// What a call of Win32 answers that returns its error.
fn done(call: &'static str, error: WIN32_ERROR) -> Result<()> {
    named(call, error.ok())
}

/// Like [`done`]; false for "there is none".
fn found(call: &'static str, error: WIN32_ERROR, none: &[WIN32_ERROR]) -> Result<bool> {
    if none.contains(&error) { Ok(false) } else { done(call, error).map(|()| true) }
}

/// The text in a buffer, up to its first zero.
fn text(units: &[u16]) -> String {
    let end = units.iter().position(|unit| *unit == 0).unwrap_or(units.len());
    String::from_utf16_lossy(&units[..end])
}

/// The 16-bit units in bytes.
fn units(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
}

fn size<T>() -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(u32::MAX)
}

// The machine.

/// Has `SetupAPI` fail where it would ask a person.
pub fn ask_nobody() {
    // SAFETY: it sets a flag of this process.
    let _before = unsafe { SetupSetNonInteractiveMode(true) };
}

/// Major version, minor version, build.
pub fn version() -> Result<(u32, u32, u32)> {
    let mut version = OSVERSIONINFOW { dwOSVersionInfoSize: size::<OSVERSIONINFOW>(), ..OSVERSIONINFOW::default() };
    // SAFETY: the structure has the size that it says.
    named("RtlGetVersion", unsafe { RtlGetVersion(&raw mut version) }.ok())?;
    Ok((version.dwMajorVersion, version.dwMinorVersion, version.dwBuildNumber))
}

/// The processor of the machine.
pub fn native_processor() -> Result<Option<Processor>> {
    let (mut emulated, mut native) = (IMAGE_FILE_MACHINE::default(), IMAGE_FILE_MACHINE::default());
    // SAFETY: it has no conditions: a handle that stands for this process.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: the handle is valid, and both places are.
    named("IsWow64Process2", unsafe { IsWow64Process2(process, &raw mut emulated, Some(&raw mut native)) })?;
    Ok(match native {
        IMAGE_FILE_MACHINE_AMD64 => Some(Processor::Amd64),
        IMAGE_FILE_MACHINE_ARM64 => Some(Processor::Arm64),
        _ => None,
    })
}

/// Returns true if this process runs elevated.
pub fn is_elevated() -> Result<bool> {
    // SAFETY: it has no conditions: a handle that stands for this process.
    let process = unsafe { GetCurrentProcess() };
    let mut token = HANDLE::default();
    // SAFETY: the process's handle is valid, and the place for the token's is.
    named("OpenProcessToken", unsafe { OpenProcessToken(process, TOKEN_QUERY, &raw mut token) })?;
    // SAFETY: the handle is ours, and nobody else closes it.
    let token = unsafe { Owned::new(token) };
    let (mut elevation, mut length) = (TOKEN_ELEVATION::default(), 0);
    let place = (&raw mut elevation).cast::<c_void>();
    // SAFETY: the token is open, and the place is as large as is said.
    let result =
        unsafe { GetTokenInformation(*token, TokenElevation, Some(place), size::<TOKEN_ELEVATION>(), &raw mut length) };
    named("GetTokenInformation", result)?;
    Ok(elevation.TokenIsElevated != 0)
}

/// `CODEINTEGRITY_OPTION_TESTSIGN`.
pub const TEST_SIGNING: u32 = 0x02;
/// `CODEINTEGRITY_OPTION_HVCI_KMCI_ENABLED`.
pub const HVCI: u32 = 0x400;

/// `SYSTEM_CODEINTEGRITY_INFORMATION`.
#[repr(C)]
struct CodeIntegrity {
    length: u32,
    options: u32,
}

/// What the kernel asks of the code that it loads; `None` if it does not say.
pub fn code_integrity() -> Option<u32> {
    let (mut place, mut length) = (CodeIntegrity { length: size::<CodeIntegrity>(), options: 0 }, 0);
    let bytes = size::<CodeIntegrity>();
    // SAFETY: the place has the layout of this class of information, and the size that is said here and in it.
    let status = unsafe {
        NtQuerySystemInformation(SystemCodeIntegrityInformation, (&raw mut place).cast(), bytes, &raw mut length)
    };
    status.is_ok().then_some(place.options)
}

/// Returns true if Secure Boot is on; `None` if Windows does not say. A machine without UEFI has none.
pub fn secure_boot() -> Option<bool> {
    let (mut value, mut length) = (0_u32, size::<u32>());
    // SAFETY: the key is predefined, the names end with zero, and the place has the size that is said.
    let result = unsafe {
        RegGetValueW(
            HKEY_LOCAL_MACHINE,
            w!(r"SYSTEM\CurrentControlSet\Control\SecureBoot\State"),
            w!("UEFISecureBootEnabled"),
            RRF_RT_REG_DWORD,
            None,
            Some((&raw mut value).cast()),
            Some(&raw mut length),
        )
    };
    match result {
        ERROR_SUCCESS => Some(value != 0),
        ERROR_FILE_NOT_FOUND => Some(false),
        _ => None,
    }
}

/// The folder of Windows.
pub fn windows_folder() -> Result<PathBuf> {
    let mut place = [0_u16; 512];
    // SAFETY: it writes at most as many units as the slice has.
    let length = unsafe { GetSystemWindowsDirectoryW(Some(&mut place)) } as usize;
    if length == 0 || length >= place.len() {
        return Err(fault("GetSystemWindowsDirectory", &Error::from_thread()));
    }
    Ok(PathBuf::from(text(&place)))
}

// Certificates.

/// An open store of certificates.
pub struct Certificates(HCERTSTORE);

impl Drop for Certificates {
    fn drop(&mut self) {
        // SAFETY: the store is open, and closed only here. Certificates from it keep it alive for as long as they need it.
        let _closed = unsafe { CertCloseStore(Some(self.0), 0) };
    }
}

/// Opens a store of the machine, to read or to change it.
pub fn certificates(name: &str, change: bool) -> Result<Certificates> {
    let name = HSTRING::from(name);
    let flags = CERT_OPEN_STORE_FLAGS(CERT_SYSTEM_STORE_LOCAL_MACHINE);
    let flags = if change { flags } else { flags | CERT_STORE_READONLY_FLAG };
    let parameter = name.as_ptr().cast::<c_void>();
    // SAFETY: this provider's parameter is a name that ends with zero, which lives until the call is over.
    let store = unsafe {
        CertOpenStore(CERT_STORE_PROV_SYSTEM_W, CERT_QUERY_ENCODING_TYPE::default(), None, flags, Some(parameter))
    };
    Ok(Certificates(named("CertOpenStore", store)?))
}

/// A certificate in memory.
pub struct Context(*const CERT_CONTEXT);

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and released only here.
        let _released = unsafe { CertFreeCertificateContext(Some(self.0)) };
    }
}

impl Context {
    fn new(call: &'static str, context: *const CERT_CONTEXT) -> Result<Self> {
        if context.is_null() { Err(fault(call, &Error::from_thread())) } else { Ok(Self(context)) }
    }
}

/// The certificate, if the store has it.
pub fn find_certificate(store: &Certificates, der: &[u8]) -> Result<Option<Context>> {
    // SAFETY: it reads the bytes of the slice.
    let wanted = unsafe { CertCreateCertificateContext(X509_ASN_ENCODING, der) };
    let wanted = Context::new("CertCreateCertificateContext", wanted)?;
    let parameter = Some(wanted.0.cast::<c_void>());
    // SAFETY: the store is open; the parameter of this kind of search is a certificate, which lives until it is over.
    let found =
        unsafe { CertFindCertificateInStore(store.0, X509_ASN_ENCODING, 0, CERT_FIND_EXISTING, parameter, None) };
    Ok(if found.is_null() { None } else { Some(Context(found)) })
}

/// Puts a certificate into the store.
pub fn add_certificate(store: &Certificates, der: &[u8]) -> Result<()> {
    // SAFETY: the store is open, and the bytes are those of the slice.
    let result = unsafe {
        CertAddEncodedCertificateToStore(Some(store.0), X509_ASN_ENCODING, der, CERT_STORE_ADD_REPLACE_EXISTING, None)
    };
    named("CertAddEncodedCertificateToStore", result)
}

/// Deletes a certificate from its store.
pub fn delete_certificate(found: Context) -> Result<()> {
    let context = found.0;
    // The call releases the reference, whatever becomes of it.
    std::mem::forget(found);
    // SAFETY: the reference is ours, and nobody uses it after the call.
    named("CertDeleteCertificateFromStore", unsafe { CertDeleteCertificateFromStore(context) })
}

// The driver store.

/// Adds the package of an INF.
pub fn stage(inf: &Path) -> Result<()> {
    // SAFETY: the path ends with zero, and nothing is written anywhere.
    let result = unsafe {
        SetupCopyOEMInfW(&HSTRING::from(inf), PCWSTR::null(), SPOST_PATH, SP_COPY_STYLE::default(), None, None, None)
    };
    named("SetupCopyOEMInf", result)
}

/// Deletes a package that no device uses.
pub fn unstage(name: &str) -> Result<()> {
    // SAFETY: the name ends with zero.
    named("SetupUninstallOEMInf", unsafe { SetupUninstallOEMInfW(&HSTRING::from(name), 0, None) }.ok())
}

/// The INF of a package in the driver store.
pub fn place_in_store(name: &str) -> Result<PathBuf> {
    let mut place = [0_u16; 1024];
    // SAFETY: the name ends with zero, and at most as many units are written as the slice has.
    let result =
        unsafe { SetupGetInfDriverStoreLocationW(&HSTRING::from(name), None, PCWSTR::null(), &mut place, None) };
    named("SetupGetInfDriverStoreLocation", result)?;
    Ok(PathBuf::from(text(&place)))
}

/// Gives all devices of the hardware identifier the driver of an INF.
pub fn update_driver(hardware_id: &str, inf: &Path) -> Result<Restart> {
    let mut restart = BOOL::default();
    let flags = INSTALLFLAG_FORCE | INSTALLFLAG_NONINTERACTIVE;
    // SAFETY: both texts end with zero, and the place is valid.
    let result = unsafe {
        UpdateDriverForPlugAndPlayDevicesW(
            None,
            &HSTRING::from(hardware_id),
            &HSTRING::from(inf),
            flags,
            Some(&raw mut restart),
        )
    };
    named("UpdateDriverForPlugAndPlayDevices", result)?;
    Ok(as_restart(restart))
}

const fn as_restart(needed: BOOL) -> Restart {
    if needed.0 == 0 { Restart::NotNeeded } else { Restart::Needed }
}

/// Returns true if the service of this name runs: of a driver, that its image is in the kernel.
pub fn is_service_running(name: &str) -> Result<bool> {
    // SAFETY: no names: this machine, and its only database.
    let manager = unsafe { OpenSCManagerW(PCWSTR::null(), PCWSTR::null(), SC_MANAGER_CONNECT) };
    // SAFETY: the handle is ours, and nobody else closes it.
    let manager = unsafe { Owned::new(named("OpenSCManager", manager)?) };
    // SAFETY: the manager is open, and the name ends with zero.
    let service = match unsafe { OpenServiceW(*manager, &HSTRING::from(name), SERVICE_QUERY_STATUS) } {
        Err(error) if error.code() == ERROR_SERVICE_DOES_NOT_EXIST.to_hresult() => return Ok(false),
        service => named("OpenService", service)?,
    };
    // SAFETY: the handle is ours, and nobody else closes it.
    let service = unsafe { Owned::new(service) };
    let mut status = SERVICE_STATUS::default();
    // SAFETY: the service is open, and the place is valid.
    named("QueryServiceStatus", unsafe { QueryServiceStatus(*service, &raw mut status) })?;
    Ok(status.dwCurrentState != SERVICE_STOPPED)
}

// Devices.

/// A list of devices.
pub struct Nodes(Owned<HDEVINFO>);

/// A device in a list.
pub struct Node<'a> {
    list: &'a Nodes,
    data: SP_DEVINFO_DATA,
}

fn no_data() -> SP_DEVINFO_DATA {
    SP_DEVINFO_DATA { cbSize: size::<SP_DEVINFO_DATA>(), ..SP_DEVINFO_DATA::default() }
}

/// All devices that somebody has made, those that do not run too.
pub fn root_devices() -> Result<Nodes> {
    // SAFETY: no class, and a name that ends with zero.
    let list = unsafe { SetupDiGetClassDevsW(None, w!("ROOT"), None, DIGCF_ALLCLASSES) };
    let list = named("SetupDiGetClassDevs", list)?;
    // SAFETY: the list is ours, and nobody else destroys it.
    Ok(Nodes(unsafe { Owned::new(list) }))
}

fn no_devices(class: Option<&GUID>) -> Result<Nodes> {
    // SAFETY: a class or none.
    let list = unsafe { SetupDiCreateDeviceInfoList(class.map(ptr::from_ref), None) };
    let list = named("SetupDiCreateDeviceInfoList", list)?;
    // SAFETY: the list is ours, and nobody else destroys it.
    Ok(Nodes(unsafe { Owned::new(list) }))
}

/// A list with this one device; `None` if there is none.
pub fn device(instance: &str) -> Result<Option<Nodes>> {
    let list = no_devices(None)?;
    // SAFETY: the list is there, and the name ends with zero.
    match unsafe { SetupDiOpenDeviceInfoW(*list.0, &HSTRING::from(instance), None, 0, None) } {
        Err(error) if number(error.code()) == NO_SUCH_DEVICE => Ok(None),
        result => named("SetupDiOpenDeviceInfo", result).map(|()| Some(list)),
    }
}

/// Makes a device with this hardware identifier and without a driver, and returns its name.
pub fn create_root_device(class: &str, guid: GUID, hardware_id: &str) -> Result<String> {
    let list = no_devices(Some(&guid))?;
    let mut data = no_data();
    // SAFETY: the list is there, the name ends with zero, and the class and the place are valid.
    let result = unsafe {
        SetupDiCreateDeviceInfoW(
            *list.0,
            &HSTRING::from(class),
            &raw const guid,
            PCWSTR::null(),
            None,
            DICD_GENERATE_ID,
            Some(&raw mut data),
        )
    };
    named("SetupDiCreateDeviceInfo", result)?;
    // A list of texts: each ends with zero, and so does the list.
    let ids: Vec<u8> = hardware_id.encode_utf16().chain([0, 0]).flat_map(u16::to_le_bytes).collect();
    // SAFETY: the device is of the list, and the property a list of texts with the slice's bytes.
    let result = unsafe { SetupDiSetDeviceRegistryPropertyW(*list.0, &raw mut data, SPDRP_HARDWAREID, Some(&ids)) };
    named("SetupDiSetDeviceRegistryProperty", result)?;
    // SAFETY: the device is of the list.
    let result = unsafe { SetupDiCallClassInstaller(DIF_REGISTERDEVICE, *list.0, Some(&raw const data)) };
    named("SetupDiCallClassInstaller(DIF_REGISTERDEVICE)", result)?;
    Node { list: &list, data }.instance()
}

impl Nodes {
    /// The devices.
    pub fn iter(&self) -> impl Iterator<Item = Result<Node<'_>>> {
        (0..).map_while(move |index| self.at(index).transpose())
    }

    fn at(&self, index: u32) -> Result<Option<Node<'_>>> {
        let mut data = no_data();
        // SAFETY: the list is there, and the place says its size.
        match unsafe { SetupDiEnumDeviceInfo(*self.0, index, &raw mut data) } {
            Err(error) if error.code() == ERROR_NO_MORE_ITEMS.to_hresult() => Ok(None),
            result => named("SetupDiEnumDeviceInfo", result).map(|()| Some(Node { list: self, data })),
        }
    }

    /// The device of a list with one.
    pub fn only(&self) -> Result<Node<'_>> {
        self.at(0)?.ok_or_else(|| Fault::new("SetupDiEnumDeviceInfo", 0, "the list is empty"))
    }
}

impl Node<'_> {
    /// Its name: `ROOT\NET\0000`.
    pub fn instance(&self) -> Result<String> {
        let mut place = [0_u16; 256];
        // SAFETY: the device is of the list, and at most as many units are written as the slice has.
        let result = unsafe { SetupDiGetDeviceInstanceIdW(*self.list.0, &raw const self.data, Some(&mut place), None) };
        named("SetupDiGetDeviceInstanceId", result)?;
        Ok(text(&place).to_uppercase())
    }

    /// Its hardware identifiers.
    pub fn hardware_ids(&self) -> Result<Vec<String>> {
        let (mut place, mut length) = ([0_u8; 4096], 0);
        // SAFETY: the device is of the list, and at most as many bytes are written as the slice has.
        let result = unsafe {
            SetupDiGetDeviceRegistryPropertyW(
                *self.list.0,
                &raw const self.data,
                SPDRP_HARDWAREID,
                None,
                Some(&mut place),
                Some(&raw mut length),
            )
        };
        match result {
            Err(error) if error.code() == ERROR_INVALID_DATA.to_hresult() => return Ok(Vec::new()),
            result => named("SetupDiGetDeviceRegistryProperty", result)?,
        }
        let units = units(place.get(..length as usize).unwrap_or(&place));
        Ok(units.split(|unit| *unit == 0).filter(|id| !id.is_empty()).map(String::from_utf16_lossy).collect())
    }

    /// Returns true if it runs, and its problem code or zero.
    pub fn status(&self) -> Result<(bool, u32)> {
        let (mut status, mut problem) = (CM_DEVNODE_STATUS_FLAGS::default(), CM_PROB::default());
        // SAFETY: both places are valid.
        let result = unsafe { CM_Get_DevNode_Status(&raw mut status, &raw mut problem, self.data.DevInst, 0) };
        if result == CR_NO_SUCH_DEVNODE {
            // In the registry only.
            return Ok((false, CM_PROB_PHANTOM.0));
        }
        configured("CM_Get_DevNode_Status", result)?;
        let has = |flag: CM_DEVNODE_STATUS_FLAGS| status.0 & flag.0 != 0;
        Ok((has(DN_STARTED), if has(DN_HAS_PROBLEM) { problem.0 } else { 0 }))
    }

    /// The package of its driver: `oem7.inf`; `None` if it has none.
    pub fn inf(&self) -> Result<Option<String>> {
        let (mut place, mut kind) = ([0_u8; 1024], DEVPROPTYPE::default());
        let key = DEVPKEY_Device_DriverInfPath;
        // SAFETY: the device is of the list, the key and the place for the type are valid, and at most as many bytes are written
        // as the slice has.
        let result = unsafe {
            SetupDiGetDevicePropertyW(
                *self.list.0,
                &raw const self.data,
                &raw const key,
                &raw mut kind,
                Some(&mut place),
                None,
                0,
            )
        };
        match result {
            Err(error) if error.code() == ERROR_NOT_FOUND.to_hresult() => Ok(None),
            result => named("SetupDiGetDeviceProperty", result).map(|()| Some(text(&units(&place)).to_lowercase())),
        }
    }

    /// A text in the key of its driver; `None` if there is no such key or no such value.
    pub fn driver_value(&self, name: &str) -> Result<Option<String>> {
        // SAFETY: the device is of the list.
        let key = unsafe {
            SetupDiOpenDevRegKey(*self.list.0, &raw const self.data, DICS_FLAG_GLOBAL.0, 0, DIREG_DRV, KEY_READ.0)
        };
        let key: HKEY = match key {
            Err(error) if number(error.code()) == NO_DRIVER_KEY => return Ok(None),
            Err(error) if error.code() == ERROR_FILE_NOT_FOUND.to_hresult() => return Ok(None),
            key => named("SetupDiOpenDevRegKey", key)?,
        };
        // SAFETY: the key is ours, and nobody else closes it.
        let key = unsafe { Owned::new(key) };
        let mut place = [0_u16; 256];
        let mut length = size::<[u16; 256]>();
        let name = HSTRING::from(name);
        // SAFETY: the key is open, the name ends with zero, and the place has the size that is said.
        let result = unsafe {
            RegGetValueW(
                *key,
                PCWSTR::null(),
                &name,
                RRF_RT_REG_SZ,
                None,
                Some(place.as_mut_ptr().cast()),
                Some(&raw mut length),
            )
        };
        Ok(found("RegGetValue", result, &[ERROR_FILE_NOT_FOUND])?.then(|| text(&place)))
    }

    /// Removes it.
    pub fn uninstall(&self) -> Result<Restart> {
        let mut restart = BOOL::default();
        // SAFETY: the device is of the list, and the place is valid.
        let result = unsafe {
            DiUninstallDevice(HWND::default(), *self.list.0, &raw const self.data, 0, Some(&raw mut restart))
        };
        named("DiUninstallDevice", result)?;
        Ok(as_restart(restart))
    }
}

/// What the configuration manager answers.
fn configured(call: &'static str, result: CONFIGRET) -> Result<()> {
    if result == CR_SUCCESS {
        return Ok(());
    }
    // SAFETY: it looks a number up.
    let error = unsafe { CM_MapCrToWin32Err(result, ERROR_INVALID_PARAMETER.0) };
    let error = Error::from(WIN32_ERROR(error));
    Err(Fault::new(call, result.0, format!("{} (CONFIGRET)", error.message())))
}

// Network interfaces.

/// An interface, as the IP Helper names it.
const fn luid(value: u64) -> NET_LUID_LH {
    NET_LUID_LH { Value: value }
}

/// The number of an interface.
fn value_of(luid: NET_LUID_LH) -> u64 {
    // SAFETY: both fields of the union are the same 64 bits.
    unsafe { luid.Value }
}

fn socket_address(address: Ipv4Addr) -> SOCKADDR_INET {
    SOCKADDR_INET::from(SocketAddrV4::new(address, 0))
}

/// The interface with this GUID.
pub fn luid_of(guid: GUID) -> Result<Option<u64>> {
    let mut place = NET_LUID_LH::default();
    // SAFETY: both places are valid.
    let result = unsafe { ConvertInterfaceGuidToLuid(&raw const guid, &raw mut place) };
    let none = [ERROR_INVALID_PARAMETER, ERROR_FILE_NOT_FOUND, ERROR_NOT_FOUND];
    Ok(found("ConvertInterfaceGuidToLuid", result, &none)?.then(|| value_of(place)))
}

/// The GUID of the interface with this alias.
pub fn guid_of_alias(alias: &str) -> Result<Option<GUID>> {
    let (mut place, mut guid) = (NET_LUID_LH::default(), GUID::zeroed());
    // SAFETY: the alias ends with zero, and the place is valid.
    let result = unsafe { ConvertInterfaceAliasToLuid(&HSTRING::from(alias), &raw mut place) };
    if !found("ConvertInterfaceAliasToLuid", result, &[ERROR_INVALID_PARAMETER, ERROR_NOT_FOUND])? {
        return Ok(None);
    }
    // SAFETY: both places are valid.
    done("ConvertInterfaceLuidToGuid", unsafe { ConvertInterfaceLuidToGuid(&raw const place, &raw mut guid) })?;
    Ok(Some(guid))
}

/// What the IP Helper says of an interface.
pub struct Row {
    pub index: u32,
    pub alias: String,
    pub mac: [u8; 6],
    pub up: bool,
}

/// What the IP Helper says of an interface; `None` if there is none.
pub fn interface_row(interface: u64) -> Result<Option<Row>> {
    let mut row = MIB_IF_ROW2 { InterfaceLuid: luid(interface), ..MIB_IF_ROW2::default() };
    // SAFETY: the row is valid and says which interface.
    let result = unsafe { GetIfEntry2(&raw mut row) };
    if !found("GetIfEntry2", result, &[ERROR_FILE_NOT_FOUND, ERROR_NOT_FOUND])? {
        return Ok(None);
    }
    let mut mac = [0; 6];
    mac.copy_from_slice(&row.PhysicalAddress[..6]);
    Ok(Some(Row { index: row.InterfaceIndex, alias: text(&row.Alias), mac, up: row.OperStatus == IfOperStatusUp }))
}

/// The IPv4 stack of an interface; `None` if it has none, or not yet.
fn ip_interface(interface: u64) -> Result<Option<MIB_IPINTERFACE_ROW>> {
    let mut row = MIB_IPINTERFACE_ROW::default();
    // SAFETY: the row is valid.
    unsafe { InitializeIpInterfaceEntry(&raw mut row) };
    (row.Family, row.InterfaceLuid) = (AF_INET, luid(interface));
    // SAFETY: the row is valid and says which interface.
    let result = unsafe { GetIpInterfaceEntry(&raw mut row) };
    Ok(found("GetIpInterfaceEntry", result, &[ERROR_FILE_NOT_FOUND, ERROR_NOT_FOUND])?.then_some(row))
}

/// How often the interface asks who else has a new address; `None` if it has no IPv4.
pub fn dad_transmits(interface: u64) -> Result<Option<u32>> {
    Ok(ip_interface(interface)?.map(|row| row.DadTransmits))
}

/// Sets it.
pub fn set_dad_transmits(interface: u64, count: u32) -> Result<()> {
    let row = ip_interface(interface)?;
    let mut row = row.ok_or_else(|| Fault::new("GetIpInterfaceEntry", ERROR_NOT_FOUND.0, "it has no IPv4"))?;
    // For IPv4 the length of a site's prefix has to be zero.
    (row.DadTransmits, row.SitePrefixLength) = (count, 0);
    // SAFETY: the row is one that Windows has given.
    done("SetIpInterfaceEntry", unsafe { SetIpInterfaceEntry(&raw mut row) })
}

/// An IPv4 address, and the interface that has it.
pub struct InterfaceAddress {
    pub luid: u64,
    pub address: Ipv4Addr,
}

/// All IPv4 addresses.
pub fn addresses() -> Result<Vec<InterfaceAddress>> {
    let mut table = ptr::null_mut();
    // SAFETY: the place is valid.
    done("GetUnicastIpAddressTable", unsafe { GetUnicastIpAddressTable(AF_INET, &raw mut table) })?;
    // SAFETY: the call has succeeded: the table is there.
    let count = unsafe { (*table).NumEntries } as usize;
    // SAFETY: as above; only the place of the rows is taken.
    let first = unsafe { &raw const (*table).Table }.cast::<MIB_UNICASTIPADDRESS_ROW>();
    // SAFETY: the table has so many rows one after the other, and is released after the last use of them.
    let rows = unsafe { slice::from_raw_parts(first, count) };
    let found = rows
        .iter()
        .map(|row| InterfaceAddress { luid: value_of(row.InterfaceLuid), address: ipv4(&row.Address) })
        .collect();
    // SAFETY: the table is Windows', and nobody uses it any more.
    unsafe { FreeMibTable(table.cast_const().cast()) };
    Ok(found)
}

/// The IPv4 address in a socket's address of this family.
fn ipv4(address: &SOCKADDR_INET) -> Ipv4Addr {
    // SAFETY: any bits are a valid address of this family.
    Ipv4Addr::from(unsafe { address.Ipv4 }.sin_addr)
}

fn address_row(interface: u64, address: Ipv4Addr) -> MIB_UNICASTIPADDRESS_ROW {
    let mut row = MIB_UNICASTIPADDRESS_ROW::default();
    // SAFETY: the row is valid.
    unsafe { InitializeUnicastIpAddressEntry(&raw mut row) };
    (row.InterfaceLuid, row.Address) = (luid(interface), socket_address(address));
    row
}

/// What has become of an address.
pub fn address_state(interface: u64, address: Ipv4Addr) -> Result<AddressState> {
    let mut row = address_row(interface, address);
    // SAFETY: the row is valid and says which address.
    let result = unsafe { GetUnicastIpAddressEntry(&raw mut row) };
    if !found("GetUnicastIpAddressEntry", result, &[ERROR_NOT_FOUND])? {
        return Ok(AddressState::Tentative);
    }
    Ok(if row.DadState == IpDadStatePreferred {
        AddressState::Preferred
    } else if row.DadState == IpDadStateDuplicate {
        AddressState::Duplicate
    } else {
        AddressState::Tentative
    })
}

/// Gives an interface an address.
pub fn add_address(interface: u64, address: Ipv4Addr, bits: u8) -> Result<()> {
    let mut row = address_row(interface, address);
    (row.OnLinkPrefixLength, row.DadState) = (bits, IpDadStatePreferred);
    // SAFETY: the row is valid.
    done("CreateUnicastIpAddressEntry", unsafe { CreateUnicastIpAddressEntry(&raw const row) })
}

/// Takes an address away.
pub fn remove_address(interface: u64, address: Ipv4Addr) -> Result<()> {
    let row = address_row(interface, address);
    // SAFETY: the row is valid.
    let result = unsafe { DeleteUnicastIpAddressEntry(&raw const row) };
    found("DeleteUnicastIpAddressEntry", result, &[ERROR_NOT_FOUND]).map(drop_it)
}

/// That something is gone is all that is asked for.
const fn drop_it(_: bool) {}

fn neighbour_row(interface: u64, address: Ipv4Addr) -> MIB_IPNET_ROW2 {
    MIB_IPNET_ROW2 { InterfaceLuid: luid(interface), Address: socket_address(address), ..MIB_IPNET_ROW2::default() }
}

/// The hardware address that the interface has for a neighbour for good.
pub fn neighbour(interface: u64, address: Ipv4Addr) -> Result<Option<[u8; 6]>> {
    let mut row = neighbour_row(interface, address);
    // SAFETY: the row is valid and says which neighbour.
    let result = unsafe { GetIpNetEntry2(&raw mut row) };
    if !found("GetIpNetEntry2", result, &[ERROR_NOT_FOUND])? || row.State != NlnsPermanent {
        return Ok(None);
    }
    let mut mac = [0; 6];
    mac.copy_from_slice(&row.PhysicalAddress[..6]);
    Ok(Some(mac))
}

/// Sets it.
pub fn set_neighbour(interface: u64, address: Ipv4Addr, mac: [u8; 6]) -> Result<()> {
    let mut row = neighbour_row(interface, address);
    row.PhysicalAddress[..6].copy_from_slice(&mac);
    (row.PhysicalAddressLength, row.State) = (6, NlnsPermanent);
    // SAFETY: the row is valid.
    match unsafe { CreateIpNetEntry2(&raw const row) } {
        // SAFETY: the row is valid.
        ERROR_OBJECT_ALREADY_EXISTS => done("SetIpNetEntry2", unsafe { SetIpNetEntry2(&raw const row) }),
        result => done("CreateIpNetEntry2", result),
    }
}

/// Forgets it.
pub fn remove_neighbour(interface: u64, address: Ipv4Addr) -> Result<()> {
    let row = neighbour_row(interface, address);
    // SAFETY: the row is valid.
    let result = unsafe { DeleteIpNetEntry2(&raw const row) };
    found("DeleteIpNetEntry2", result, &[ERROR_NOT_FOUND]).map(drop_it)
}

fn route_row(interface: u64, address: Ipv4Addr) -> MIB_IPFORWARD_ROW2 {
    let mut row = MIB_IPFORWARD_ROW2::default();
    // SAFETY: the row is valid.
    unsafe { InitializeIpForwardEntry(&raw mut row) };
    row.InterfaceLuid = luid(interface);
    row.DestinationPrefix = IP_ADDRESS_PREFIX { Prefix: socket_address(address), PrefixLength: 32 };
    // On the link: no gateway.
    row.NextHop = socket_address(Ipv4Addr::UNSPECIFIED);
    (row.Metric, row.Protocol) = (0, MIB_IPPROTO_NETMGMT);
    row
}

/// Returns true if there is a route to this one address through the interface.
pub fn routed(interface: u64, address: Ipv4Addr) -> Result<bool> {
    let mut row = route_row(interface, address);
    // SAFETY: the row is valid and says which route.
    found("GetIpForwardEntry2", unsafe { GetIpForwardEntry2(&raw mut row) }, &[ERROR_NOT_FOUND])
}

/// Adds it.
pub fn add_route(interface: u64, address: Ipv4Addr) -> Result<()> {
    let row = route_row(interface, address);
    // SAFETY: the row is valid.
    done("CreateIpForwardEntry2", unsafe { CreateIpForwardEntry2(&raw const row) })
}

/// Takes it away.
pub fn remove_route(interface: u64, address: Ipv4Addr) -> Result<()> {
    let row = route_row(interface, address);
    // SAFETY: the row is valid.
    let result = unsafe { DeleteIpForwardEntry2(&raw const row) };
    found("DeleteIpForwardEntry2", result, &[ERROR_NOT_FOUND]).map(drop_it)
}

// COM.

/// `CLSID_ConnectionManager`: the folder with the network connections.
const CONNECTION_MANAGER: GUID = GUID::from_u128(0xBA12_6AD1_2166_11D1_B1D0_0080_5FC1_270E);

/// Has this thread use COM; it does so until it ends. One that does so already, in whichever way, is fine.
fn with_com() {
    // SAFETY: no reserved parameter.
    let _already = unsafe { CoInitializeEx(None, COINIT_MULTITHREADED) };
}

/// Renames a network connection: the alias of an interface.
pub fn rename_connection(guid: GUID, name: &str) -> Result<()> {
    with_com();
    // SAFETY: the class and the interface are those of the folder with the network connections.
    let manager = unsafe { CoCreateInstance(&CONNECTION_MANAGER, None, CLSCTX_SERVER) };
    let manager: INetConnectionManager = named("CoCreateInstance(ConnectionManager)", manager)?;
    // SAFETY: the object is alive.
    let all = named("EnumConnections", unsafe { manager.EnumConnections(NCME_DEFAULT) })?;
    loop {
        let (mut place, mut count): ([Option<INetConnection>; 1], u32) = ([None], 0);
        // SAFETY: the object is alive, and the slice has room for what is asked for.
        named("IEnumNetConnection::Next", unsafe { all.Next(&mut place, &raw mut count) })?;
        let [Some(connection)] = place else {
            return Err(Fault::new("EnumConnections", ERROR_NOT_FOUND.0, "the interface is no network connection"));
        };
        // SAFETY: the object is alive.
        let properties = named("INetConnection::GetProperties", unsafe { connection.GetProperties() })?;
        // SAFETY: the call has succeeded: the properties are there.
        let own = unsafe { (*properties).guidId };
        // SAFETY: they are ours to release, and nobody uses them any more.
        unsafe { NcFreeNetconProperties(properties) };
        if own == guid {
            // SAFETY: the object is alive, and the name ends with zero.
            return named("INetConnection::Rename", unsafe { connection.Rename(&HSTRING::from(name)) });
        }
    }
}

/// Returns true if the firewall is on for public networks.
pub fn firewall_is_on() -> Result<bool> {
    with_com();
    // SAFETY: the class and the interface are those of the firewall's policy.
    let policy = unsafe { CoCreateInstance(&NetFwPolicy2, None, CLSCTX_INPROC_SERVER) };
    let policy: INetFwPolicy2 = named("CoCreateInstance(NetFwPolicy2)", policy)?;
    // SAFETY: the object is alive.
    let on = unsafe { policy.get_FirewallEnabled(NET_FW_PROFILE2_PUBLIC) };
    Ok(named("INetFwPolicy2::get_FirewallEnabled", on)?.as_bool())
}

// Notifications.

/// What rings a bell, until it is dropped. One that is forgotten rings it for ever, which keeps it alive.
pub struct Ringing {
    source: Source,
    /// A reference of the bell that the callback uses.
    bell: *const Bell,
}

enum Source {
    Device(HCMNOTIFICATION),
    Mib(HANDLE),
}

impl Drop for Ringing {
    fn drop(&mut self) {
        match self.source {
            // SAFETY: it is registered, and taken back only here, not in a callback; the call waits for one that runs.
            Source::Device(notification) => drop_it(unsafe { CM_Unregister_Notification(notification) } == CR_SUCCESS),
            // SAFETY: it is registered, and taken back only here, not in a callback; the call waits for one that runs.
            Source::Mib(handle) => drop_it(unsafe { CancelMibChangeNotify2(handle) } == ERROR_SUCCESS),
        }
        // SAFETY: the reference was made for the callback, which is not called any more.
        drop(unsafe { Arc::from_raw(self.bell) });
    }
}

/// Rings the bell of a callback.
///
/// # Safety
///
/// `context` is a bell whose reference lasts until the callback is not called any more.
unsafe fn ring(context: *const c_void) {
    // SAFETY: `context` is a bell whose reference lasts until the callback is not called any more (`# Safety`).
    unsafe { &*context.cast::<Bell>() }.ring();
}

/// A device has changed.
unsafe extern "system" fn device_changed(
    _: HCMNOTIFICATION,
    context: *const c_void,
    _: CM_NOTIFY_ACTION,
    _: *const CM_NOTIFY_EVENT_DATA,
    _: u32,
) -> u32 {
    // SAFETY: it was registered with a bell, whose reference goes after the registration.
    unsafe { ring(context) };
    ERROR_SUCCESS.0
}

/// An interface has changed.
unsafe extern "system" fn interface_changed(
    context: *const c_void,
    _: *const MIB_IPINTERFACE_ROW,
    _: MIB_NOTIFICATION_TYPE,
) {
    // SAFETY: it was registered with a bell, whose reference goes after the registration.
    unsafe { ring(context) };
}

/// An address has changed.
unsafe extern "system" fn address_changed(
    context: *const c_void,
    _: *const MIB_UNICASTIPADDRESS_ROW,
    _: MIB_NOTIFICATION_TYPE,
) {
    // SAFETY: it was registered with a bell, whose reference goes after the registration.
    unsafe { ring(context) };
}

/// A registration that has been tried.
fn registered(bell: *const Bell, source: Source, result: Result<()>) -> Result<Ringing> {
    match result {
        Ok(()) => Ok(Ringing { source, bell }),
        Err(fault) => {
            // SAFETY: the reference was made for the callback, which has not been registered.
            drop(unsafe { Arc::from_raw(bell) });
            Err(fault)
        }
    }
}

/// Has a bell rung for what happens to a device.
pub fn ring_for_device(bell: &Arc<Bell>, instance: &str) -> Result<Ringing> {
    let mut filter = CM_NOTIFY_FILTER {
        cbSize: size::<CM_NOTIFY_FILTER>(),
        FilterType: CM_NOTIFY_FILTER_TYPE_DEVICEINSTANCE,
        ..CM_NOTIFY_FILTER::default()
    };
    let mut id = [0_u16; 200];
    // The last one stays zero.
    for (place, unit) in id.iter_mut().take(199).zip(instance.encode_utf16()) {
        *place = unit;
    }
    filter.u.DeviceInstance.InstanceId = id;
    let (bell, mut notification) = (Arc::into_raw(Arc::clone(bell)), HCMNOTIFICATION::default());
    // SAFETY: the filter is of the kind that it says, and the context a bell with a reference for the callback.
    let result = unsafe {
        CM_Register_Notification(&raw const filter, Some(bell.cast()), Some(device_changed), &raw mut notification)
    };
    registered(bell, Source::Device(notification), configured("CM_Register_Notification", result))
}

/// Has a bell rung for what happens to interfaces with IPv4.
pub fn ring_for_interfaces(bell: &Arc<Bell>) -> Result<Ringing> {
    let (bell, mut handle) = (Arc::into_raw(Arc::clone(bell)), HANDLE::default());
    // SAFETY: the context is a bell with a reference for the callback, and the place is valid.
    let result =
        unsafe { NotifyIpInterfaceChange(AF_INET, Some(interface_changed), Some(bell.cast()), false, &raw mut handle) };
    registered(bell, Source::Mib(handle), done("NotifyIpInterfaceChange", result))
}

/// Has a bell rung for what happens to IPv4 addresses.
pub fn ring_for_addresses(bell: &Arc<Bell>) -> Result<Ringing> {
    let (bell, mut handle) = (Arc::into_raw(Arc::clone(bell)), HANDLE::default());
    // SAFETY: the context is a bell with a reference for the callback, and the place is valid.
    let result = unsafe {
        NotifyUnicastIpAddressChange(AF_INET, Some(address_changed), Some(bell.cast()), false, &raw mut handle)
    };
    registered(bell, Source::Mib(handle), done("NotifyUnicastIpAddressChange", result))
}

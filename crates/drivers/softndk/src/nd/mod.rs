//! The device `\\.\SoftNdkNd`: the NetworkDirect SPI for programs, between processes (`nd2_control`).
//!
//! It exists as long as the control device does. An adapter is one of NetworkDirect too, with the same addresses, NIC and port: a
//! program reaches kernel consumers and other programs, and they reach it.
//!
//! | the framework | a session |
//! |---|---|
//! | file opened | a file that has not said whose it is |
//! | control code | a call on an object of the session, at `PASSIVE_LEVEL` |
//! | request cancelled | what waits for it is told ([`nd2_control::Call::cancel`]) |
//! | last handle of a file closed, which a process's death is too | the session ends with its last file: every object is released |
//! | the last adapter goes | every session ends, and the device goes |

#[cfg(all(feature = "faults", not(windows)))]
pub mod access;
mod request;

use driver_common::{os::Kernel, trace};
use fallible::Arc;
use kernel::{
    Buffered, context,
    wdf::{ControlDevice, Files, Names, Request, attributes},
    wide,
};
use nd2::{CompletionPolicy, Config, Device, Quota};
use nd2_control::{
    Call, File, Server, Sessions, System,
    wire::{DEVICE_NAME, LINK_NAME, SDDL, SDDL_USERS},
};
use ndkpi::NtStatus;
use provider::CompletionMode;
use wdk_sys::{
    ULONG, WDF_FILEOBJECT_CONFIG, WDFDEVICE, WDFFILEOBJECT, WDFQUEUE, WDFREQUEST, call_unsafe_wdf_function_binding,
    ntddk::PsGetCurrentProcessId,
};

pub use self::request::NdRequest;
use crate::driver::Driver;

/// The most processes at a time, and the most sessions.
const MOST_PROCESSES: usize = 1024;

/// What a session asks of this driver.
#[derive(Clone)]
pub struct NdSystem(Arc<Driver>);

/// An adapter as programs have it.
pub type NdAdapter = Device<Server<NdSystem>>;

impl System for NdSystem {
    type Os = Kernel;
    type Request = NdRequest;

    fn os(&self) -> &Kernel {
        &Kernel
    }

    fn each_device(&self, each: &mut dyn FnMut(&Arc<NdAdapter>)) {
        for adapter in self.0.adapters().iter().flatten() {
            each(adapter.nd());
        }
    }

    fn limit_reached(&self, name: &'static str, most: u64) {
        trace::limit(name, most);
        #[cfg(all(feature = "faults", not(windows)))]
        access::limit_reached(name, most);
    }
}

/// Makes the adapter's NetworkDirect device.
///
/// # Errors
///
/// `STATUS_INSUFFICIENT_RESOURCES`.
pub fn adapter(
    driver: &Arc<Driver>,
    provider: &provider::Device<Kernel>,
    number: u8,
) -> Result<Arc<NdAdapter>, NtStatus> {
    /// A request's second buffer is not longer, wherever in a page it begins.
    const LONGEST: usize = u32::MAX as usize - 4096;
    let mut config = Config { max_tokens: provider.config().max_tokens, ..Config::default() };
    config.max_backlog = provider.config().backlog;
    config.policy = policy(provider.config().mode);
    config.take_limits(&provider.config().info);
    let info = &mut config.info;
    info.AdapterId = number.into();
    info.MaxRegistrationSize = info.MaxRegistrationSize.min(LONGEST);
    info.MaxWindowSize = info.MaxRegistrationSize;
    #[cfg(all(feature = "faults", not(windows)))]
    access::change(number, &mut config);
    let addresses = provider.config().addresses.iter().flatten().map(|one| one.address);
    let server = Server(NdSystem(driver.clone()));
    let adapter = Device::try_new_on(&server, (provider.nic(), provider.port()), addresses, config)?;
    #[cfg(all(feature = "faults", not(windows)))]
    access::made(number, &adapter);
    Ok(adapter)
}

/// How requests end that wait for nothing, by what the driver does with those of kernel consumers. A program sees no difference: the
/// framework has let the request pend.
const fn policy(mode: CompletionMode) -> CompletionPolicy {
    match mode {
        CompletionMode::Inline => CompletionPolicy::Inline,
        CompletionMode::Pending | CompletionMode::Early => CompletionPolicy::Pending,
        CompletionMode::Mixed => CompletionPolicy::Mixed,
    }
}

/// The device.
pub struct NdDevice {
    sessions: Arc<Sessions<NdSystem>>,
    #[expect(dead_code, reason = "deleted when it is dropped")]
    device: ControlDevice,
}

impl Drop for NdDevice {
    fn drop(&mut self) {
        // Files that are still open find nothing any more.
        self.sessions.end_all();
    }
}

context!(DEVICE: Sessions<NdSystem>, c"softndk nd");
context!(FILE: File<NdSystem>, c"softndk nd file");
context!(REQUEST: Call<NdSystem>, c"softndk nd request");

impl NdDevice {
    /// Makes the device.
    ///
    /// # Errors
    ///
    /// What the framework says; `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(driver: &Arc<Driver>) -> Result<Self, NtStatus> {
        const NAME: [u16; DEVICE_NAME.len()] = wide(DEVICE_NAME);
        const LINK: [u16; LINK_NAME.len()] = wide(LINK_NAME);
        const ADMINISTRATORS: [u16; SDDL.len()] = wide(SDDL);
        const USERS: [u16; SDDL_USERS.len()] = wide(SDDL_USERS);
        let access: &[u16] = if driver.controls().settings().nd_users() { &USERS } else { &ADMINISTRATORS };
        let names = Names { device: &NAME, link: &LINK, access };
        let sessions = Sessions::try_new(&NdSystem(driver.clone()), Quota::default(), MOST_PROCESSES)?;
        #[cfg(all(feature = "faults", not(windows)))]
        access::begun(&sessions);
        let config = WDF_FILEOBJECT_CONFIG {
            EvtDeviceFileCreate: Some(create),
            EvtFileCleanup: Some(cleanup),
            ..WDF_FILEOBJECT_CONFIG::default()
        };
        let (mut files, mut requests) = (attributes(), attributes());
        FILE.describe(&mut files);
        REQUEST.describe(&mut requests);
        let files = Files { config, files, requests };
        // SAFETY: the driver object is live as long as an adapter is; the routines complete each request that they are given, or
        // have a session do so.
        let device = unsafe {
            ControlDevice::try_new(
                driver.handle(),
                &names,
                &DEVICE,
                sessions.clone(),
                Some(device_control),
                Some(files),
            )
        }?;
        Ok(Self { sessions, device })
    }
}

unsafe extern "C" fn create(device: WDFDEVICE, request: WDFREQUEST, file: WDFFILEOBJECT) {
    // SAFETY: the framework hands the request over; it has no buffers.
    let request = unsafe { Request::new(request) };
    // SAFETY: the device was created with a context of this kind.
    let sessions = unsafe { DEVICE.get(device.cast()) };
    // The framework calls in the context of the thread that opens the file.
    // SAFETY: no precondition.
    let process = unsafe { PsGetCurrentProcessId() };
    // Numbers of processes have 32 bits.
    let process = u32::try_from(process.addr()).unwrap_or(0);
    let made = sessions.ok_or(NtStatus::DEVICE_NOT_READY).and_then(|sessions| File::try_new(&sessions, process));
    request.finish(made.map(|made| {
        // SAFETY: the file is live, and the device has said that files carry a context of this kind.
        unsafe { FILE.put(file.cast(), made) };
    }));
}

unsafe extern "C" fn cleanup(file: WDFFILEOBJECT) {
    // SAFETY: the framework's own argument, which carries a context of this kind.
    if let Some(file) = unsafe { FILE.get(file.cast()) } {
        file.close();
    }
}

unsafe extern "C" fn device_control(
    _queue: WDFQUEUE,
    request: WDFREQUEST,
    _output_length: usize,
    _input_length: usize,
    code: ULONG,
) {
    // SAFETY: the request is this routine's until it is handed on below.
    let file = unsafe { call_unsafe_wdf_function_binding!(WdfRequestGetFileObject, request) };
    let found = if file.is_null() {
        None
    } else {
        // SAFETY: the file of a request is open, and carries a context of this kind.
        unsafe { FILE.get(file.cast()) }
    };
    // SAFETY: the framework hands the request over; those of other methods than `METHOD_BUFFERED` are asked for their locked bytes
    // only.
    let request = unsafe { Request::new(request) };
    match found {
        Some(file) => file.serve(code, NdRequest::new(request)),
        None => request.finish(Err(NtStatus::INVALID_DEVICE_STATE)),
    }
}

unsafe extern "C" fn cancelled(request: WDFREQUEST) {
    // SAFETY: the framework's own argument; requests of the device carry a context of this kind.
    if let Some(call) = unsafe { REQUEST.get(request.cast()) } {
        Call::cancel(&call);
    }
}

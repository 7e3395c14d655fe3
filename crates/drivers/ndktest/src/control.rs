//! The control device: what `ndkctl` starts, watches and cancels (`control::test_device`).

use alloc::vec::Vec;

use control::{
    case::{START_CASE, StartCase},
    network::{Begun, QUERY_INTERFACE, START_ON, StartOn},
    test_device::{CANCEL, DEVICE_NAME, From, LINK_NAME, QUERY_PROGRESS, QUERY_REPORT, SDDL, START, Start},
};
use fallible::Arc;
use kernel::{
    Buffered, context,
    wdf::{ControlDevice, Names, Request},
    wide,
};
use ndkpi::NtStatus;
use wdk_sys::{ULONG, WDFQUEUE, WDFREQUEST};

use crate::{device::Tester, network};

context!(Tester, c"ndktest control");

/// Makes the control device.
///
/// # Errors
///
/// What the framework says; `STATUS_OBJECT_NAME_COLLISION` if the driver has a device already.
pub fn create(tester: &Arc<Tester>) -> Result<ControlDevice, NtStatus> {
    const DEVICE: [u16; DEVICE_NAME.len()] = wide(DEVICE_NAME);
    const LINK: [u16; LINK_NAME.len()] = wide(LINK_NAME);
    const ACCESS: [u16; SDDL.len()] = wide(SDDL);
    let names = Names { device: &DEVICE, link: &LINK, access: &ACCESS };
    // SAFETY: the driver object is live as long as its device, and `device_control` completes each request.
    unsafe { ControlDevice::try_new(tester.driver(), &names, &CONTEXT, tester.clone(), Some(device_control), None) }
}

unsafe extern "C" fn device_control(
    queue: WDFQUEUE,
    request: WDFREQUEST,
    _output_length: usize,
    _input_length: usize,
    code: ULONG,
) {
    // SAFETY: the framework hands the request over, and every code that is served is `METHOD_BUFFERED`; the queue's device is the
    // control device, which was created with a context of this kind.
    if let Some((tester, request)) = unsafe { Request::take(&CONTEXT, queue, request) } {
        serve(&tester, request, code);
    }
}

fn serve(tester: &Tester, mut request: Request, code: u32) {
    match code {
        START => {
            let begun = begin(tester, &request);
            request.finish(begun);
        }
        START_ON => match begin_on(tester, &mut request) {
            Ok(begun) => request.answer(&begun.to_bytes()),
            Err(status) => request.finish(Err(status)),
        },
        START_CASE => match begin_case(tester, &mut request) {
            Ok(begun) => request.answer(&begun.to_bytes()),
            Err(status) => request.finish(Err(status)),
        },
        QUERY_INTERFACE => match describe(&request) {
            Ok(bytes) => request.answer(&bytes),
            Err(status) => request.finish(Err(status)),
        },
        QUERY_PROGRESS => request.answer(&tester.runs().progress().to_bytes()),
        CANCEL => {
            tester.runs().cancel();
            request.finish(Ok(()));
        }
        QUERY_REPORT => {
            let part = request.input(From::BYTES).map(From::from_bytes).and_then(|from| {
                let offset = from.ok_or(NtStatus::INVALID_PARAMETER)?.offset;
                usize::try_from(offset).map_err(|_| NtStatus::INVALID_PARAMETER)
            });
            let most = request.output(1).map(|room| room.len());
            let report = part.and_then(|offset| tester.runs().report(offset, most?));
            match report {
                Ok((bytes, complete)) => request.answer_part(&bytes, complete),
                Err(status) => request.finish(Err(status)),
            }
        }
        _ => request.finish(Err(NtStatus::INVALID_DEVICE_REQUEST)),
    }
}

fn begin(tester: &Tester, request: &Request) -> Result<(), NtStatus> {
    let start = Start::from_bytes(request.input(Start::BYTES)?).ok_or(NtStatus::INVALID_PARAMETER)?;
    let links = tester.finder().links()?;
    // SAFETY: the device is live: no run begins when it goes, also if a program still has the control device open (`Runs::stop`).
    unsafe { tester.runs().start(tester.device(), &links, start) }
}

fn begin_on(tester: &Tester, request: &mut Request) -> Result<Begun, NtStatus> {
    // A run whose beginning cannot be told is none.
    request.output(Begun::BYTES)?;
    let (start, interface, peer) = StartOn::parse(request.input(StartOn::BYTES)?).ok_or(NtStatus::INVALID_PARAMETER)?;
    tester.runs().start_on(&start, interface, peer)
}

fn begin_case(tester: &Tester, request: &mut Request) -> Result<Begun, NtStatus> {
    // As for `begin_on`.
    request.output(Begun::BYTES)?;
    let (start, names) = StartCase::parse(request.input(StartCase::BYTES)?).ok_or(NtStatus::INVALID_PARAMETER)?;
    if !names.interface.is_empty() {
        return tester.runs().start_case_on(&start, names);
    }
    let links = tester.finder().links()?;
    // SAFETY: as in `begin`.
    unsafe { tester.runs().start_case(tester.device(), &links, &start, names.case) }
}

fn describe(request: &Request) -> Result<Vec<u8>, NtStatus> {
    let from = From::from_bytes(request.input(From::BYTES)?).ok_or(NtStatus::INVALID_PARAMETER)?;
    network::describe(from.offset)
}

//! What a driver asks a request for.

use std::{ptr, sync::atomic::Ordering::Acquire};

use wdk_bindings::{
    _WDF_REQUEST_TYPE, CCHAR, KPROCESSOR_MODE, NTSTATUS, PWDF_DRIVER_GLOBALS, PWDF_REQUEST_PARAMETERS, ULONG_PTR,
    WDF_REQUEST_PARAMETERS, WDFQUEUE, WDFREQUEST,
};

use super::{
    function::function,
    request::{Asks, owned},
};
use crate::{argument::check_size, report::bug_check, rule::Rule, state::lock};

/// Null for a request that creates a file and comes by no queue.
pub extern "C" fn WdfRequestGetIoQueue(_globals: PWDF_DRIVER_GLOBALS, handle: WDFREQUEST) -> WDFQUEUE {
    function!("WdfRequestGetIoQueue", |state| {
        let queue = lock(&owned(state, handle).progress).queue.clone();
        ptr::without_provenance_mut(queue.map_or(0, |queue| queue.handle.load(Acquire)))
    })
}

pub extern "C" fn WdfRequestGetInformation(_globals: PWDF_DRIVER_GLOBALS, handle: WDFREQUEST) -> ULONG_PTR {
    function!("WdfRequestGetInformation", |state| lock(&owned(state, handle).progress).information as ULONG_PTR)
}

/// All requests here are of programs.
pub extern "C" fn WdfRequestGetRequestorMode(_globals: PWDF_DRIVER_GLOBALS, handle: WDFREQUEST) -> KPROCESSOR_MODE {
    function!("WdfRequestGetRequestorMode", |state| {
        /// `UserMode`.
        const PROGRAM: KPROCESSOR_MODE = 1;
        owned(state, handle);
        PROGRAM
    })
}

/// What is in the upper byte of a creation's options: the file must be there.
const FILE_OPEN: u32 = 1;
/// Others may read and write it.
const FILE_SHARE: u16 = 3;

pub extern "C" fn WdfRequestGetParameters(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    place: PWDF_REQUEST_PARAMETERS,
) {
    function!("WdfRequestGetParameters", |state| {
        let request = owned(state, handle);
        // SAFETY: the driver's structure, which lives until the call returns.
        let parameters = unsafe { &mut *place };
        check_size::<WDF_REQUEST_PARAMETERS>(parameters.Size.into(), "WDF_REQUEST_PARAMETERS");
        parameters.MinorFunction = 0;
        match request.asks {
            Asks::Made => {
                bug_check(Rule::BadHandle, format_args!("the parameters of a request that its driver has made"))
            }
            Asks::Create => {
                parameters.Type = _WDF_REQUEST_TYPE::WdfRequestTypeCreate;
                // SAFETY: for this type the union holds this member.
                let create = unsafe { &mut parameters.Parameters.Create };
                // A program that opens what there is, and lets others have it open too.
                (create.SecurityContext, create.EaLength) = (ptr::null_mut(), 0);
                (create.Options, create.FileAttributes, create.ShareAccess) = (FILE_OPEN << 24, 0, FILE_SHARE);
                return;
            }
            Asks::Read => {
                parameters.Type = _WDF_REQUEST_TYPE::WdfRequestTypeRead;
                // SAFETY: for this type the union holds this member.
                let read = unsafe { &mut parameters.Parameters.Read };
                (read.Length, read.Key, read.DeviceOffset) = (request.output, 0, request.offset);
                return;
            }
            Asks::Write => {
                parameters.Type = _WDF_REQUEST_TYPE::WdfRequestTypeWrite;
                // SAFETY: for this type the union holds this member.
                let write = unsafe { &mut parameters.Parameters.Write };
                (write.Length, write.Key, write.DeviceOffset) = (request.input, 0, request.offset);
                return;
            }
            Asks::Control => parameters.Type = _WDF_REQUEST_TYPE::WdfRequestTypeDeviceControl,
            Asks::Internal => parameters.Type = _WDF_REQUEST_TYPE::WdfRequestTypeDeviceControlInternal,
        }
        if let Some([first, second, fourth]) = request.others.map(|others| others.map(ptr::with_exposed_provenance_mut))
        {
            // SAFETY: for this type the union holds this member, if the sender has put addresses there.
            let others = unsafe { &mut parameters.Parameters.Others };
            (others.Arg1, others.Arg2, others.IoControlCode, others.Arg4) = (first, second, request.code, fourth);
            return;
        }
        // SAFETY: for this type the union holds this member.
        let control = unsafe { &mut parameters.Parameters.DeviceIoControl };
        control.OutputBufferLength = request.output;
        control.InputBufferLength = request.input;
        control.IoControlCode = request.code;
        control.Type3InputBuffer = ptr::with_exposed_provenance_mut(request.own_buffer(true).0);
    });
}

/// The boost of the waiting thread's priority means nothing here.
pub extern "C" fn WdfRequestCompleteWithPriorityBoost(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    status: NTSTATUS,
    _boost: CCHAR,
) {
    function!("WdfRequestCompleteWithPriorityBoost", |state| {
        let request = owned(state, handle);
        let information = lock(&request.progress).information;
        state.complete_request(&request, status, information);
    });
}

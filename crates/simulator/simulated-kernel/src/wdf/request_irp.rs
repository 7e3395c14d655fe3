//! The IRP of a framework's request, for a driver that looks into it while it has the request.

use std::{
    ptr,
    sync::{Arc, atomic::Ordering::Acquire},
};

use wdk_bindings::{IO_STACK_LOCATION, LARGE_INTEGER, PIRP, PVOID, PWDF_DRIVER_GLOBALS, ULONG, WDFREQUEST};

use super::{
    device::DeviceObject,
    function::entry,
    request::{Asks, RequestObject, at_hand},
    sent::{Located, format_as},
};
use crate::{
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
    wdm::{
        io::{
            device::Device,
            request::{Maker, Request, set_current},
        },
        mdl,
    },
};

/// What a program reads and writes with: `UserMode`.
const PROGRAM: i8 = 1;

/// The address of a buffer; null of one without bytes.
fn pointer((address, length): (usize, usize)) -> PVOID {
    if length == 0 { ptr::null_mut() } else { ptr::with_exposed_provenance_mut(address) }
}

fn length(bytes: usize) -> ULONG {
    ULONG::try_from(bytes).unwrap_or(ULONG::MAX)
}

impl State {
    fn make_irp_of(&self, request: &RequestObject, device: &Arc<DeviceObject>) -> Arc<Request> {
        let made = self.fill_irp_of(request, &self.wdm_device_of(device), Maker::Framework);
        set_current(made.pointer(), made.next_location(), made.locations);
        made
    }

    /// The IRP of a request, for a device, which is yet to get it.
    pub fn fill_irp_of(&self, request: &RequestObject, wdm: &Device, maker: Maker) -> Arc<Request> {
        let made = self.make_irp(wdm.locations(), request.code, maker);
        let buffers = request.wdm_buffers();
        // SAFETY: a new IRP, which nobody else has yet.
        let irp = unsafe { &mut *made.pointer() };
        irp.RequestorMode = PROGRAM;
        irp.AssociatedIrp.SystemBuffer = pointer(buffers.system);
        irp.UserBuffer = pointer(buffers.user);
        if buffers.locked.1 > 0 {
            irp.MdlAddress = mdl::allocate_locked(self, buffers.locked.0, length(buffers.locked.1));
        }
        // SAFETY: the highest location of the new IRP.
        let location = unsafe { &mut *made.next_location() };
        location.MajorFunction = request.asks.major();
        location.DeviceObject = wdm.pointer();
        location.FileObject = request.file.as_ref().map_or(ptr::null_mut(), |file| self.wdm_file_of(file));
        match request.asks {
            Asks::Made | Asks::Create => {}
            Asks::Read | Asks::Write => {
                // Both arms have the same fields, and zeros are the key.
                location.Parameters.Read.Length = length(request.input.max(request.output));
                location.Parameters.Read.ByteOffset = LARGE_INTEGER { QuadPart: request.offset };
            }
            Asks::Control | Asks::Internal => {
                // SAFETY: the arm of these kinds of requests.
                let control = unsafe { &mut location.Parameters.DeviceIoControl };
                control.IoControlCode = request.code;
                control.InputBufferLength = length(request.input);
                control.OutputBufferLength = length(request.output);
                control.Type3InputBuffer = pointer(buffers.type_3);
                if let Some([first, second, fourth]) = request.others {
                    // SAFETY: the arm of a code with addresses, of which the third is the code.
                    let others = unsafe { &mut location.Parameters.Others };
                    others.Argument1 = ptr::with_exposed_provenance_mut(first);
                    others.Argument2 = ptr::with_exposed_provenance_mut(second);
                    others.Argument4 = ptr::with_exposed_provenance_mut(fourth);
                }
            }
        }
        made
    }
}

/// The IRP is the driver's to look at until it completes the request, and to change only by the framework.
pub extern "C" fn WdfRequestWdmGetIrp(_globals: PWDF_DRIVER_GLOBALS, handle: WDFREQUEST) -> PIRP {
    routine!("WdfRequestWdmGetIrp", DISPATCH_LEVEL, |state| {
        let request = at_hand(state, handle);
        if request.asks == Asks::Made {
            bug_check(Rule::NotSimulated, format_args!("the IRP of a request that its driver has made"));
        }
        let device = state.object(handle.addr()).parent.and_then(|parent| state.object(parent).part());
        let Some(device) = device else { bug_check(Rule::BadHandle, format_args!("a request without a device")) };
        let mut known = lock(&request.irp);
        let irp = known.get_or_insert_with(|| state.make_irp_of(&request, &device)).pointer();
        // SAFETY: an IRP that is not freed.
        unsafe { (*irp).Cancel = request.cancelled.load(Acquire).into() };
        irp
    })
}

/// The request goes down as a stack location of the driver's says, with its own buffers.
pub extern "C" fn WdfRequestWdmFormatUsingStackLocation(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    location: *const IO_STACK_LOCATION,
) {
    routine!("WdfRequestWdmFormatUsingStackLocation", DISPATCH_LEVEL, |state| {
        let request = at_hand(state, handle);
        // SAFETY: the driver's structure, which lives until the call returns.
        let location = unsafe { &*location };
        let is_same = location.MajorFunction == request.asks.major();
        if request.asks == Asks::Made || request.asks == Asks::Create || !is_same {
            let words = format_args!(
                "a stack location of another kind than the request is, or for one that the driver has made"
            );
            bug_check(Rule::NotSimulated, words);
        }
        let at = if matches!(request.asks, Asks::Read | Asks::Write) {
            // SAFETY: the arm of these kinds of requests: both have the same fields.
            let read = unsafe { location.Parameters.Read };
            let bytes = read.Length as usize;
            let (input, output) = if request.asks == Asks::Read { (0, bytes) } else { (bytes, 0) };
            // SAFETY: the arm that has the whole number.
            Located { code: request.code, offset: unsafe { read.ByteOffset.QuadPart }, input, output }
        } else {
            // SAFETY: the arm of these kinds of requests.
            let control = unsafe { location.Parameters.DeviceIoControl };
            if control.IoControlCode % 4 != request.code % 4 {
                bug_check(Rule::NotSimulated, format_args!("a stack location with another method than the request's"));
            }
            let (input, output) = (control.InputBufferLength as usize, control.OutputBufferLength as usize);
            Located { code: control.IoControlCode, offset: 0, input, output }
        };
        if request.others.is_none() && (at.input > request.input || at.output > request.output) {
            bug_check(Rule::BadArgument, format_args!("a stack location with more bytes than the request has"));
        }
        format_as(&request, at);
    });
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 2] {
    [entry!(WdfRequestWdmGetIrp), entry!(WdfRequestWdmFormatUsingStackLocation)]
}

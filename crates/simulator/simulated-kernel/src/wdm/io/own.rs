//! IRPs that drivers make, or have the system make for them.

use std::sync::Arc;

use wdk_bindings::{
    BOOLEAN, CCHAR, IRP_MJ_DEVICE_CONTROL, IRP_MJ_INTERNAL_DEVICE_CONTROL, IRP_MJ_READ, IRP_MJ_WRITE, METHOD_BUFFERED,
    NTSTATUS, PDEVICE_OBJECT, PIO_STATUS_BLOCK, PIRP, PKEVENT, PLARGE_INTEGER, PVOID, UCHAR, ULONG,
};

use super::{
    block,
    irp::METHOD,
    request::{Maker, Request, Requests, set_status, status_of},
};
use crate::{
    context::{self, DriverId},
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::State,
    wdm::event,
};

/// What a driver that waits for a request is given at its end.
struct Threaded {
    event: usize,
    block: usize,
    /// The copy of the buffers.
    buffer: usize,
    /// Where the output goes, and how much of it, if it is copied.
    output: Option<(usize, usize)>,
}

impl Threaded {
    /// The request is complete.
    fn tell(&self, state: &State, irp: PIRP) {
        // SAFETY: an IRP that is not freed yet.
        let outcome = unsafe { (*irp).IoStatus };
        if let Some((place, room)) = self.output.filter(|_| status_of(irp) >= 0) {
            let length = usize::try_from(outcome.Information).unwrap_or(usize::MAX).min(room);
            let (from, to): (*const u8, *mut u8) =
                (std::ptr::with_exposed_provenance(self.buffer), std::ptr::with_exposed_provenance_mut(place));
            // SAFETY: both have at least as many bytes, and the driver keeps its own until it has the event.
            unsafe { to.copy_from_nonoverlapping(from, length) };
        }
        block::free(self.buffer);
        let block: PIO_STATUS_BLOCK = std::ptr::with_exposed_provenance_mut(self.block);
        // SAFETY: the driver's structure, which it keeps until it has the event.
        unsafe { block.write(outcome) };
        if self.event != 0 {
            event::set(state, std::ptr::with_exposed_provenance_mut(self.event));
        }
    }
}

/// The caller waits for the request, and is told of its end.
fn threaded(waiter: Threaded, room: Option<usize>) -> Maker {
    let end = Box::new(move |state: &State, irp| waiter.tell(state, irp));
    Maker::Threaded { owner: context::caller(), room, end }
}

fn own(state: &State, irp: PIRP, what: &str) -> Arc<Request> {
    let Some(request) = state.irp(irp) else {
        bug_check(Rule::BadHandle, format_args!("{irp:p} is {what} and is no IRP, or was one"));
    };
    if !matches!(request.maker, Maker::Driver(_)) {
        bug_check(Rule::IrpFreed, format_args!("an IRP is {what} that the system frees"));
    }
    if request.is_on_its_way() {
        bug_check(Rule::IrpFreed, format_args!("an IRP is {what} while a driver has it"));
    }
    request
}

impl State {
    /// A driver is unloaded: it must have freed its own.
    pub fn has_own_irps(&self, owner: DriverId) -> bool {
        self.locked::<Requests>().all().any(|request| match &request.maker {
            Maker::Driver(maker) => *maker == owner,
            Maker::Threaded { owner: one, .. } => *one == owner,
            _ => false,
        })
    }
}

#[unsafe(no_mangle)]
extern "C" fn IoAllocateIrp(locations: CCHAR, _quota: BOOLEAN) -> PIRP {
    routine!("IoAllocateIrp", |state| {
        let Some(locations) = u8::try_from(locations).ok().filter(|&locations| locations > 0) else {
            bug_check(Rule::BadArgument, format_args!("an IRP with {locations} stack locations"));
        };
        if state.strikes() {
            return std::ptr::null_mut();
        }
        state.make_irp(locations, 0, Maker::Driver(context::caller())).pointer()
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoFreeIrp(irp: PIRP) {
    routine!("IoFreeIrp", |state| state.free_irp(&own(state, irp, "freed")));
}

#[unsafe(no_mangle)]
extern "C" fn IoReuseIrp(irp: PIRP, status: NTSTATUS) {
    routine!("IoReuseIrp", |state| {
        State::reset_irp(&own(state, irp, "used again"));
        set_status(irp, status);
    });
}

#[unsafe(no_mangle)]
extern "C" fn IoBuildDeviceIoControlRequest(
    code: ULONG,
    device: PDEVICE_OBJECT,
    input: PVOID,
    input_length: ULONG,
    output: PVOID,
    output_length: ULONG,
    internal: BOOLEAN,
    event: PKEVENT,
    status: PIO_STATUS_BLOCK,
) -> PIRP {
    routine!("IoBuildDeviceIoControlRequest", |state| {
        let device = state.device_at(device);
        let method = code & METHOD;
        let (copies, is_direct) = (method == METHOD_BUFFERED, matches!(method, 1 | 2));
        if (input.is_null() && input_length > 0) || (output.is_null() && output_length > 0) {
            let words = format_args!("a control code with {input_length} and {output_length} bytes that are not there");
            bug_check(Rule::BadArgument, words);
        }
        if state.strikes() {
            return std::ptr::null_mut();
        }
        let (room, length) = (output_length as usize, input_length as usize);
        let buffer = block::allocate(if copies { room.max(length) } else { length }, false);
        let start: *mut u8 = std::ptr::with_exposed_provenance_mut(buffer);
        if (copies || is_direct) && length > 0 {
            // SAFETY: a new block with room, and the driver's input.
            unsafe { start.copy_from_nonoverlapping(input.cast(), length) };
        }
        let request = state.make_irp(
            device.locations(),
            code,
            threaded(
                Threaded {
                    event: event.expose_provenance(),
                    block: status.expose_provenance(),
                    buffer,
                    output: copies.then(|| (output.expose_provenance(), room)),
                },
                (copies || is_direct).then_some(room),
            ),
        );
        // SAFETY: the request's own block, which nobody else has yet.
        let location = unsafe { &mut *request.next_location() };
        let major = if internal == 0 { IRP_MJ_DEVICE_CONTROL } else { IRP_MJ_INTERNAL_DEVICE_CONTROL };
        location.MajorFunction = UCHAR::try_from(major).unwrap_or(0);
        // SAFETY: the arm of this kind of request.
        let control = unsafe { &mut location.Parameters.DeviceIoControl };
        control.IoControlCode = code;
        (control.InputBufferLength, control.OutputBufferLength) = (input_length, output_length);
        let input = if copies || is_direct { buffer } else { input.expose_provenance() };
        let output = if copies { buffer } else { output.expose_provenance() };
        state.give_buffers(&request, method, (input, length), (output, room));
        request.pointer()
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoBuildAsynchronousFsdRequest(
    major: ULONG,
    device: PDEVICE_OBJECT,
    _buffer: PVOID,
    _length: ULONG,
    _offset: PLARGE_INTEGER,
    _status: PIO_STATUS_BLOCK,
) -> PIRP {
    routine!("IoBuildAsynchronousFsdRequest", |state| {
        build(state, major, device, || Maker::Driver(context::caller()))
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoBuildSynchronousFsdRequest(
    major: ULONG,
    device: PDEVICE_OBJECT,
    _buffer: PVOID,
    _length: ULONG,
    _offset: PLARGE_INTEGER,
    event: PKEVENT,
    status: PIO_STATUS_BLOCK,
) -> PIRP {
    routine!("IoBuildSynchronousFsdRequest", |state| {
        build(state, major, device, || {
            let waiter = Threaded {
                event: event.expose_provenance(),
                block: status.expose_provenance(),
                buffer: block::allocate(0, false),
                output: None,
            };
            threaded(waiter, None)
        })
    })
}

/// A request without a buffer: plug and play, power, shutdown, flush.
fn build(state: &Arc<State>, major: ULONG, device: PDEVICE_OBJECT, maker: impl FnOnce() -> Maker) -> PIRP {
    if [IRP_MJ_READ, IRP_MJ_WRITE].contains(&major) {
        bug_check(Rule::NotSimulated, format_args!("reads and writes of drivers"));
    }
    let device = state.device_at(device);
    if state.strikes() {
        return std::ptr::null_mut();
    }
    let request = state.make_irp(device.locations(), 0, maker());
    // SAFETY: the request's own block, which nobody else has yet.
    unsafe { (*request.next_location()).MajorFunction = UCHAR::try_from(major).unwrap_or(0) };
    request.pointer()
}

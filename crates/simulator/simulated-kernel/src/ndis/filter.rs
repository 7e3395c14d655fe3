//! What a filter driver registers with: its handlers, of which those for frames can be replaced for one module.

use std::{ffi::c_void, sync::Arc};

use ndis::{NDIS_OID_REQUEST, NDIS_STATUS, NDIS_STATUS_INDICATION, NET_BUFFER_LIST, NET_DEVICE_PNP_EVENT};
use ndkpi::{NDIS_HANDLE, NDIS_OBJECT_HEADER, NET_PNP_EVENT_NOTIFICATION, status::NDIS_STATUS_SUCCESS};

use super::structure::pointer;
use crate::{
    context::{self, DriverId},
    report::bug_check,
    rule::Rule,
};

/// `NDIS_OBJECT_TYPE_FILTER_PARTIAL_CHARACTERISTICS`.
const PARTIAL_TYPE: u8 = 0x8C;

type Send = unsafe extern "system" fn(NDIS_HANDLE, *mut NET_BUFFER_LIST, u32, u32);
type Complete = unsafe extern "system" fn(NDIS_HANDLE, *mut NET_BUFFER_LIST, u32);
type Receive = unsafe extern "system" fn(NDIS_HANDLE, *mut NET_BUFFER_LIST, u32, u32, u32);
type Cancel = unsafe extern "system" fn(NDIS_HANDLE, *mut c_void);
type Answer = unsafe extern "system" fn(NDIS_HANDLE, *mut NDIS_OID_REQUEST) -> NDIS_STATUS;
type Answered = unsafe extern "system" fn(NDIS_HANDLE, *mut NDIS_OID_REQUEST, NDIS_STATUS);

/// The handlers for frames. Who has none of a kind is passed by.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FrameHandlers {
    pub send: Option<Send>,
    pub sent: Option<Complete>,
    pub cancel: Option<Cancel>,
    pub receive: Option<Receive>,
    pub returned: Option<Complete>,
}

/// The handlers for requests of one kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RequestHandlers {
    pub ask: Option<Answer>,
    pub complete: Option<Answered>,
    pub cancel: Option<Cancel>,
}

/// `NDIS_FILTER_DRIVER_CHARACTERISTICS` of the second revision. The four that every filter owes were looked for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FilterHandlers {
    header: NDIS_OBJECT_HEADER,
    versions: [u8; 4],
    flags: u32,
    names: [[usize; 2]; 3],
    pub set_options: Option<unsafe extern "system" fn(NDIS_HANDLE, NDIS_HANDLE) -> NDIS_STATUS>,
    pub set_module_options: Option<unsafe extern "system" fn(NDIS_HANDLE) -> NDIS_STATUS>,
    pub attach: Option<unsafe extern "system" fn(NDIS_HANDLE, NDIS_HANDLE, *mut c_void) -> NDIS_STATUS>,
    pub detach: Option<unsafe extern "system" fn(NDIS_HANDLE)>,
    pub restart: Option<unsafe extern "system" fn(NDIS_HANDLE, *mut c_void) -> NDIS_STATUS>,
    pub pause: Option<unsafe extern "system" fn(NDIS_HANDLE, *mut c_void) -> NDIS_STATUS>,
    pub frames: FrameHandlers,
    pub requests: RequestHandlers,
    pub device_event: Option<unsafe extern "system" fn(NDIS_HANDLE, *mut NET_DEVICE_PNP_EVENT)>,
    pub net_event: Option<unsafe extern "system" fn(NDIS_HANDLE, *mut NET_PNP_EVENT_NOTIFICATION) -> NDIS_STATUS>,
    pub status: Option<unsafe extern "system" fn(NDIS_HANDLE, *const NDIS_STATUS_INDICATION)>,
    pub direct_requests: RequestHandlers,
}

const _: () = {
    // The sizes of the revisions are their fields in the order of the DDI reference: 200, 224 and 240 bytes.
    assert!(size_of::<FilterHandlers>() == 224, "as long as the second revision");
    assert!(std::mem::offset_of!(FilterHandlers, attach) == 80, "behind versions, flags, three names and two handlers");
    assert!(std::mem::offset_of!(FilterHandlers, frames) == 112, "behind the four that are owed");
    assert!(std::mem::offset_of!(FilterHandlers, direct_requests) == 200, "where the first revision ends");
};

/// `NDIS_FILTER_PARTIAL_CHARACTERISTICS`.
#[repr(C)]
struct Partial {
    header: NDIS_OBJECT_HEADER,
    flags: u32,
    frames: FrameHandlers,
}

const _: () = assert!(size_of::<Partial>() == 48, "a header, flags and five handlers");

/// A filter driver that is registered.
pub struct Filter {
    pub handle: usize,
    pub owner: DriverId,
    /// What it has registered with, which its attach handler gets.
    pub context: usize,
    pub handlers: FilterHandlers,
}

impl Filter {
    /// Reads what a filter driver registers with.
    ///
    /// # Safety
    ///
    /// `place` is `NDIS_FILTER_DRIVER_CHARACTERISTICS` of the revision that its header says, and at least as long.
    pub unsafe fn read(place: *const u8, handle: usize, owner: DriverId, context: usize) -> Arc<Self> {
        // SAFETY: the structure begins with a header (`# Safety`).
        let revision = unsafe { place.cast::<NDIS_OBJECT_HEADER>().read_unaligned() }.Revision;
        let mut words = [0_u64; size_of::<FilterHandlers>() / 8];
        let count =
            if revision == 1 { std::mem::offset_of!(FilterHandlers, direct_requests) } else { size_of_val(&words) };
        // SAFETY: the revision has as many bytes (`# Safety`), and so has the place.
        unsafe { place.copy_to_nonoverlapping(words.as_mut_ptr().cast(), count) };
        // SAFETY: the words are as long and as aligned, and every field may be zero.
        let handlers = unsafe { words.as_ptr().cast::<FilterHandlers>().read() };
        if revision > 2 {
            // SAFETY: the third revision has two more handlers (`# Safety`).
            let synchronous = unsafe { place.add(size_of::<FilterHandlers>()).cast::<[usize; 2]>().read_unaligned() };
            if synchronous != [0; 2] {
                bug_check(Rule::NotSimulated, format_args!("a filter with handlers for synchronous requests"));
            }
        }
        Arc::new(Self { handle, owner, context, handlers })
    }

    /// Has the driver set its options, if it wants to.
    pub fn set_options(&self) -> NDIS_STATUS {
        let Some(handler) = self.handlers.set_options else { return NDIS_STATUS_SUCCESS };
        context::call(self.owner, "FilterSetOptions", || {
            // SAFETY: the driver's own handler, with the handle and context of its registration.
            unsafe { handler(pointer(self.handle), std::ptr::with_exposed_provenance_mut(self.context)) }
        })
    }
}

/// The handlers that a driver wants for one module in place of those of its registration.
///
/// # Safety
///
/// `place` is a structure of as many bytes as its header says.
pub unsafe fn read_partial(place: *const NDIS_OBJECT_HEADER) -> FrameHandlers {
    // SAFETY: the driver's structure begins with a header (`# Safety`).
    let header = unsafe { place.read() };
    if header.Type != PARTIAL_TYPE {
        bug_check(Rule::NotSimulated, format_args!("optional handlers of a filter of the type {:#x}", header.Type));
    }
    if header.Revision != 1 || usize::from(header.Size) < size_of::<Partial>() {
        bug_check(Rule::NdisHeader, format_args!("NDIS_FILTER_PARTIAL_CHARACTERISTICS begins with {header:?}"));
    }
    // SAFETY: the header says that the structure is all there.
    unsafe { place.cast::<Partial>().read_unaligned() }.frames
}

//! The hardware resources of a device, as `EvtDevicePrepareHardware` gets them: what the bus of this kernel was told to give it
//! ([`Resources`]), memory first, then interrupts that are messages.

use std::{
    ptr,
    sync::atomic::Ordering::{Acquire, Release},
};

use wdk_bindings::{PVOID, PWDF_DRIVER_GLOBALS, ULONG, WDFCMRESLIST};

use super::{device::DeviceObject, function::entry};
use crate::{
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
    wdm::io_space::Range,
};

/// What a bus gives a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Ranges of physical memory, in bytes, zeroed when the device arrives.
    pub memory: Vec<u32>,
    /// How many messages are its interrupts.
    pub interrupts: u32,
}

/// Which of its two lists a device has.
#[derive(Clone, Copy)]
pub enum List {
    Raw = 1,
    Translated = 2,
}

/// How far the handles of objects are from each other: those of lists lie between.
const DISTANCE: usize = 16;

/// `CmResourceTypeInterrupt` and `CmResourceTypeMemory`.
const INTERRUPT: u8 = 2;
const MEMORY: u8 = 3;
/// `CmResourceShareDeviceExclusive`.
const EXCLUSIVE: u8 = 1;
/// `CM_RESOURCE_INTERRUPT_LATCHED` and `CM_RESOURCE_INTERRUPT_MESSAGE`.
const LATCHED_MESSAGE: u16 = 1 | 2;
/// The vector of the first interrupt, and how many levels interrupts of devices have, from which one on.
const FIRST_VECTOR: u32 = 0x60;
const FIRST_LEVEL: u8 = 3;
const LEVELS: u32 = 9;

/// A `CM_PARTIAL_RESOURCE_DESCRIPTOR`: behind its head there are 16 bytes, which are not aligned to more than four.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    kind: u8,
    share: u8,
    flags: u16,
    what: [u32; 4],
}

const _: () = assert!(size_of::<Descriptor>() == 20, "as the kit has it");

impl Descriptor {
    #[expect(clippy::cast_possible_truncation, reason = "the halves of the address")]
    const fn memory(range: Range) -> Self {
        let (low, high) = (range.start as u32, (range.start >> 32) as u32);
        Self { kind: MEMORY, share: EXCLUSIVE, flags: 0, what: [low, high, range.length, 0] }
    }

    /// Of a message: in the raw list how many there are, in the translated one the level; a vector and all processors in both.
    fn message(message: Message, list: List) -> Self {
        let first = match list {
            List::Raw => 1 << 16,
            List::Translated => message.level.into(),
        };
        Self { kind: INTERRUPT, share: EXCLUSIVE, flags: LATCHED_MESSAGE, what: [first, message.vector, u32::MAX, 0] }
    }
}

/// An interrupt of a device, which it sends as a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub number: u32,
    pub vector: u32,
    /// At which level its routine runs.
    pub level: u8,
}

impl Message {
    const fn new(number: u32) -> Self {
        Self { number, vector: FIRST_VECTOR + number, level: FIRST_LEVEL + (number % LEVELS) as u8 }
    }
}

/// What a device has got.
pub struct Hardware {
    pub memory: Vec<Range>,
    pub interrupts: u32,
    lists: [Box<[Descriptor]>; 2],
}

impl Hardware {
    /// What the bus gives a device that asks for these.
    pub fn new(state: &State, resources: &Resources) -> Self {
        let memory: Vec<Range> = resources.memory.iter().map(|&length| state.give_memory(length)).collect();
        let lists = [List::Raw, List::Translated].map(|list| {
            let messages = (0..resources.interrupts).map(|number| Descriptor::message(Message::new(number), list));
            memory.iter().copied().map(Descriptor::memory).chain(messages).collect()
        });
        Self { memory, interrupts: resources.interrupts, lists }
    }

    fn list(&self, list: usize) -> &[Descriptor] {
        &self.lists[list - List::Raw as usize]
    }

    /// The message with that number.
    pub fn message(&self, number: u32) -> Option<Message> {
        (number < self.interrupts).then(|| Message::new(number))
    }

    /// The message whose descriptors in the two lists these are.
    pub fn message_of(&self, raw: PVOID, translated: PVOID) -> Option<Message> {
        let place = |list: List, descriptor: PVOID| {
            let mut places = self.list(list as usize).iter();
            places.position(|one| ptr::from_ref(one).addr() == descriptor.addr())
        };
        let place = place(List::Raw, raw).filter(|&raw| place(List::Translated, translated) == Some(raw))?;
        self.message(u32::try_from(place.checked_sub(self.memory.len())?).ok()?)
    }
}

impl DeviceObject {
    /// The handle of a list, which is one from the start of the device until its hardware is released.
    pub fn resources(&self, list: List) -> WDFCMRESLIST {
        *lock(&self.prepared) = true;
        ptr::without_provenance_mut(self.handle.load(Acquire) + list as usize)
    }

    /// Its driver is being asked to prepare its hardware, or has been.
    pub fn prepares(&self, now: bool) {
        self.preparing.store(now, Release);
    }

    /// Its hardware is released: the lists are gone.
    pub fn release_resources(&self) {
        *lock(&self.prepared) = false;
    }
}

/// Looks at what is in a list. Ends the test if it is none of a device with hardware.
fn list_of<R>(state: &State, list: WDFCMRESLIST, look: impl FnOnce(&[Descriptor]) -> R) -> R {
    let (of_device, which) = (list.addr() / DISTANCE * DISTANCE, list.addr() % DISTANCE);
    let device = state.if_there::<DeviceObject>(of_device).map(|(_, device)| device);
    let device = device.filter(|device| *lock(&device.prepared));
    let device = device.filter(|_| [List::Raw as usize, List::Translated as usize].contains(&which));
    let Some(device) = device else {
        bug_check(Rule::BadHandle, format_args!("{list:p} is no resource list, or was one"))
    };
    look(device.hardware.get().map_or(&[], |hardware| hardware.list(which)))
}

pub extern "C" fn WdfCmResourceListGetCount(_globals: PWDF_DRIVER_GLOBALS, list: WDFCMRESLIST) -> ULONG {
    routine!("WdfCmResourceListGetCount", DISPATCH_LEVEL, |state| {
        list_of(state, list, |descriptors| ULONG::try_from(descriptors.len()).unwrap_or(ULONG::MAX))
    })
}

/// Null behind the last one.
pub extern "C" fn WdfCmResourceListGetDescriptor(
    _globals: PWDF_DRIVER_GLOBALS,
    list: WDFCMRESLIST,
    index: ULONG,
) -> PVOID {
    routine!("WdfCmResourceListGetDescriptor", DISPATCH_LEVEL, |state| {
        list_of(state, list, |descriptors| {
            let found = usize::try_from(index).ok().and_then(|index| descriptors.get(index));
            found.map_or(ptr::null_mut(), |found| ptr::from_ref(found).cast_mut().cast())
        })
    })
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 2] {
    [entry!(WdfCmResourceListGetCount), entry!(WdfCmResourceListGetDescriptor)]
}

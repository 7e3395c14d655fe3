//! What is registered, bound, and in each byte (`NDKPI 7.4`, `7.6`).

use ndkpi::{
    NDK_MR_FLAG_ALLOW_LOCAL_WRITE as LOCAL_WRITE, NDK_MR_FLAG_ALLOW_REMOTE_READ as REMOTE_READ,
    NDK_MR_FLAG_ALLOW_REMOTE_WRITE as REMOTE_WRITE, NDK_MR_FLAG_RDMA_READ_SINK as SINK,
    NDK_OP_FLAG_ALLOW_REMOTE_READ as OP_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE as OP_WRITE,
};

/// Buffers, two for each consumer.
pub const BUFFERS: usize = 4;

/// Bytes of each buffer. Behind what is registered there are some that nobody may touch.
pub const BUFFER_BYTES: usize = 384;

/// Bytes of each buffer that are registered.
pub const REGISTERED: [usize; 2] = [256, 64];

/// What is in a buffer at first.
pub const BACKGROUND: u8 = 0xEE;

/// The consumer that a buffer belongs to.
pub const fn owner(buffer: usize) -> usize {
    buffer / 2
}

/// An element of a request, or the peer's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Element {
    pub token: u32,
    pub address: u64,
    pub length: usize,
}

/// What is to be done with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    LocalRead,
    LocalWrite,
    ReadSink,
    RemoteRead,
    RemoteWrite,
}

/// The registration of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Registration {
    pub local: u32,
    pub remote: u32,
    pub rights: u32,
}

/// A window, of which each consumer has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    Free,
    /// A bind is posted.
    Posted(Binding),
    Bound(Binding),
    /// An invalidation is posted.
    Ending(Binding),
}

/// What a window shows to peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    pub token: u32,
    pub buffer: usize,
    pub offset: usize,
    pub length: usize,
    pub rights: u32,
}

impl Window {
    /// The binding, whatever is posted.
    pub const fn binding(self) -> Option<Binding> {
        match self {
            Self::Free => None,
            Self::Posted(binding) | Self::Bound(binding) | Self::Ending(binding) => Some(binding),
        }
    }
}

/// The bytes of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub buffer: usize,
    pub offset: usize,
    pub length: usize,
}

/// All memory of a program.
pub struct Memory {
    pub bytes: [[u8; BUFFER_BYTES]; BUFFERS],
    pub bases: [u64; BUFFERS],
    pub registrations: [Option<Registration>; BUFFERS],
    pub windows: [Window; 2],
    /// Bytes of which the oracle does not know if they were written.
    pub unknown: Vec<Extent>,
    /// Bytes that may be written at any time: a loose queue pair has them.
    pub loose: Vec<Extent>,
    /// A read's target needs no right of its own.
    pub sink_not_required: bool,
}

impl Memory {
    pub const fn new(bases: [u64; BUFFERS]) -> Self {
        Self {
            bytes: [[BACKGROUND; BUFFER_BYTES]; BUFFERS],
            bases,
            registrations: [None; BUFFERS],
            windows: [Window::Free; 2],
            unknown: Vec::new(),
            loose: Vec::new(),
            sink_not_required: false,
        }
    }

    /// The bytes of an element, if `consumer`'s memory may be used so.
    pub fn resolve(&self, consumer: usize, element: &Element, how: Use) -> Option<Extent> {
        (2 * consumer..2 * consumer + 2)
            .find_map(|buffer| self.in_registration(buffer, element, how))
            .or_else(|| self.in_window(consumer, element, how))
    }

    fn in_registration(&self, buffer: usize, element: &Element, how: Use) -> Option<Extent> {
        let registration = self.registrations[buffer]?;
        let (token, rights) = match how {
            Use::LocalRead => (registration.local, 0),
            Use::LocalWrite => (registration.local, LOCAL_WRITE),
            Use::ReadSink => {
                (registration.local, if self.sink_not_required { LOCAL_WRITE } else { LOCAL_WRITE | SINK })
            }
            Use::RemoteRead => (registration.remote, REMOTE_READ),
            Use::RemoteWrite => (registration.remote, REMOTE_WRITE),
        };
        if token != element.token || registration.rights & rights != rights {
            return None;
        }
        self.inside(buffer, 0, REGISTERED[buffer % 2], element)
    }

    fn in_window(&self, consumer: usize, element: &Element, how: Use) -> Option<Extent> {
        let (Window::Bound(binding) | Window::Ending(binding)) = self.windows[consumer] else { return None };
        let right = match how {
            Use::RemoteRead => OP_READ,
            Use::RemoteWrite => OP_WRITE,
            Use::LocalRead | Use::LocalWrite | Use::ReadSink => return None,
        };
        if binding.token != element.token || binding.rights & right != right {
            return None;
        }
        self.inside(binding.buffer, binding.offset, binding.length, element)
    }

    fn inside(&self, buffer: usize, from: usize, length: usize, element: &Element) -> Option<Extent> {
        let offset = usize::try_from(element.address.checked_sub(self.bases[buffer])?).ok()?;
        let end = offset.checked_add(element.length)?;
        (offset >= from && end <= from + length).then_some(Extent { buffer, offset, length: element.length })
    }

    /// As [`Memory::resolve`], for all elements of a list.
    pub fn resolve_all(&self, consumer: usize, list: &[Element], how: Use) -> Option<Vec<Extent>> {
        list.iter().map(|element| self.resolve(consumer, element, how)).collect()
    }

    /// A loose queue pair may write to these bytes from now on.
    pub fn loosen(&mut self, list: &[Element]) {
        for element in list {
            let inside = |buffer: &usize| self.inside(*buffer, 0, REGISTERED[*buffer % 2], element);
            self.loose.extend((0..BUFFERS).find_map(|buffer| inside(&buffer)));
        }
    }

    pub fn read(&self, extents: &[Extent]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for place in extents {
            bytes.extend_from_slice(&self.bytes[place.buffer][place.offset..place.offset + place.length]);
        }
        bytes
    }

    /// Puts bytes into the extents, one after the other, until there are no more.
    pub fn write(&mut self, extents: &[Extent], mut bytes: &[u8]) {
        for place in extents {
            let (now, later) = bytes.split_at(place.length.min(bytes.len()));
            self.bytes[place.buffer][place.offset..place.offset + now.len()].copy_from_slice(now);
            bytes = later;
        }
    }

    /// Compares a buffer with what it has to be, and takes over what may have changed.
    pub fn compare(&mut self, buffer: usize, found: &[u8]) -> Result<(), String> {
        for place in self.unknown.iter().chain(&self.loose).filter(|place| place.buffer == buffer) {
            let range = place.offset..place.offset + place.length;
            self.bytes[buffer][range.clone()].copy_from_slice(&found[range]);
        }
        let expected = &self.bytes[buffer];
        let Some(at) = expected.iter().zip(found).position(|(one, other)| one != other) else { return Ok(()) };
        Err(format!("byte {at} of buffer {buffer} is {:#04x}, and should be {:#04x}", found[at], expected[at]))
    }
}

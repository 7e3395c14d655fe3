//! What NVMe over RDMA sends: command and response capsules, the data that connections carry, and identify structures.
//!
//! Layouts of the NVM Express base and NVMe over Fabrics specifications, the RDMA transport. All numbers are little-endian.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U16, U32, U64},
};

/// Bytes of a command capsule without data.
pub const COMMAND: u32 = 64;
/// Bytes of a response capsule.
pub const RESPONSE: u32 = 16;

/// In `flags` of every command over a fabric: the data is described by one SGL descriptor, and not by pages.
const SGL: u8 = 1 << 6;

/// Opcodes.
pub mod opcode {
    /// Of the I/O queues.
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    /// Of the admin queue.
    pub const IDENTIFY: u8 = 0x06;
    /// Of every queue: the command is one of the fabric's, which `kind` names.
    pub const FABRICS: u8 = 0x7F;
}

/// The kinds of fabrics commands.
pub mod fabrics {
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
}

/// Properties of a controller: their offsets.
pub mod property {
    /// Controller capabilities, 8 bytes.
    pub const CAP: u32 = 0x00;
    /// Controller configuration, 4 bytes.
    pub const CC: u32 = 0x14;
    /// Controller status, 4 bytes.
    pub const CSTS: u32 = 0x1C;
}

/// A keyed SGL data block descriptor: memory of the host, which the controller reads or writes by RDMA.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Sgl {
    pub address: U64,
    length: [u8; 3],
    pub key: U32,
    pub kind: u8,
}

impl Sgl {
    /// A keyed data block.
    const KEYED: u8 = 0x40;
    /// The same, and the response invalidates the key.
    pub const KEYED_INVALIDATE: u8 = 0x4F;

    /// No data.
    pub fn none() -> Self {
        Self { kind: Self::KEYED, ..Self::default() }
    }

    /// Memory of the host, at most 16 MiB less one byte. The response shall invalidate the key.
    pub fn new(address: u64, length: u32, key: u32) -> Self {
        let [a, b, c, _] = length.to_le_bytes();
        Self { address: address.into(), length: [a, b, c], key: key.into(), kind: Self::KEYED_INVALIDATE }
    }

    /// Its bytes.
    pub fn length(&self) -> u32 {
        let [a, b, c] = self.length;
        u32::from_le_bytes([a, b, c, 0])
    }
}

/// A submission queue entry. What `specific` has depends on the command.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Command {
    pub opcode: u8,
    flags: u8,
    pub id: U16,
    /// The namespace; of a fabrics command, its kind.
    pub namespace: U32,
    reserved: [u8; 16],
    pub data: Sgl,
    pub specific: [U32; 6],
}

impl Command {
    /// A command without data.
    pub fn new(opcode: u8, namespace: u32, specific: [u32; 6]) -> Self {
        Self {
            opcode,
            flags: SGL,
            id: U16::ZERO,
            namespace: namespace.into(),
            reserved: [0; 16],
            data: Sgl::none(),
            specific: specific.map(U32::from),
        }
    }

    /// Opens a queue, which has room for `depth` commands. The data is [`ConnectData`]. No keep-alive time-out.
    pub fn connect(queue: u16, depth: u16) -> Self {
        let specific = [u32::from(queue) << 16, u32::from(depth) - 1, 0, 0, 0, 0];
        Self::new(opcode::FABRICS, fabrics::CONNECT.into(), specific)
    }

    /// Reads a property of 8 bytes, or of 4.
    pub fn property_get(offset: u32, is_long: bool) -> Self {
        Self::new(opcode::FABRICS, fabrics::PROPERTY_GET.into(), [is_long.into(), offset, 0, 0, 0, 0])
    }

    /// Writes a property of 4 bytes.
    pub fn property_set(offset: u32, value: u32) -> Self {
        Self::new(opcode::FABRICS, fabrics::PROPERTY_SET.into(), [0, offset, value, 0, 0, 0])
    }

    /// Asks for an identify structure of 4096 bytes.
    pub fn identify(what: Identify) -> Self {
        match what {
            Identify::Namespace(namespace) => Self::new(opcode::IDENTIFY, namespace, [0; 6]),
            Identify::Controller => Self::new(opcode::IDENTIFY, 0, [1, 0, 0, 0, 0, 0]),
        }
    }

    /// Reads or writes so many blocks from `first` on.
    pub fn transfer(opcode: u8, namespace: u32, first: u64, blocks: u16) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
        let (low, high) = (first as u32, (first >> 32) as u32);
        Self::new(opcode, namespace, [low, high, u32::from(blocks) - 1, 0, 0, 0])
    }
}

/// What [`Command::identify`] asks for.
#[derive(Clone, Copy)]
pub enum Identify {
    Controller,
    Namespace(u32),
}

/// A completion queue entry.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Response {
    pub result: U64,
    pub head: U16,
    pub queue: U16,
    pub id: U16,
    /// Bit 0 is not used over a fabric; the status above it is 0 for success.
    status: U16,
}

impl Response {
    /// The status code with its type: 0 for success.
    pub fn status(&self) -> u16 {
        self.status.get() >> 1
    }

    /// A response to a command.
    pub fn new(id: U16, result: u64, status: u16) -> Self {
        Self { result: result.into(), id, status: (status << 1).into(), ..Self::default() }
    }
}

/// Private data of the connection request: which queue it is, and how deep.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ConnectionRequest {
    format: U16,
    pub queue: U16,
    /// Responses that the host can take.
    receives: U16,
    /// Commands that the host has under way, less one.
    sends: U16,
    controller: U16,
    reserved: [u8; 22],
}

impl ConnectionRequest {
    /// A queue of so many commands.
    pub fn new(queue: u16, depth: u16) -> Self {
        Self {
            format: U16::ZERO,
            queue: queue.into(),
            receives: depth.into(),
            sends: (depth - 1).into(),
            controller: U16::ZERO,
            reserved: [0; 22],
        }
    }
}

/// Which controller a queue is of: the data of [`Command::connect`].
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ConnectData {
    host: [u8; 16],
    pub controller: U16,
    reserved: [u8; 238],
    subsystem: [u8; 256],
    host_name: [u8; 256],
    reserved_end: [u8; 256],
}

impl ConnectData {
    /// In `controller`: any, of the admin queue. Other queues name the one that was given.
    pub const ANY: u16 = 0xFFFF;

    /// A host's wish for a queue of a controller. Names are NVMe qualified names, of at most 223 bytes.
    pub fn new(controller: u16, subsystem: &str, host: &str) -> Self {
        let name = |text: &str| {
            let mut name = [0; 256];
            let length = text.len().min(223);
            name[..length].copy_from_slice(&text.as_bytes()[..length]);
            name
        };
        Self {
            host: *b"softndk nvmeread",
            controller: controller.into(),
            reserved: [0; 238],
            subsystem: name(subsystem),
            host_name: name(host),
            reserved_end: [0; 256],
        }
    }

    /// The subsystem's name.
    pub fn subsystem(&self) -> &[u8] {
        self.subsystem.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

/// What a controller says of itself, as far as it is used here.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyController {
    vendor: U32,
    pub serial: [u8; 20],
    pub model: [u8; 40],
    pub firmware: [u8; 8],
}

impl IdentifyController {
    /// A controller of no vendor. Texts are padded with spaces.
    pub const fn new(serial: [u8; 20], model: [u8; 40], firmware: [u8; 8]) -> Self {
        Self { vendor: U32::ZERO, serial, model, firmware }
    }
}

/// What a controller says of a namespace, as far as it is used here.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// Its blocks.
    pub size: U64,
    reserved: [u8; 18],
    /// Which of the formats it has: the lower four bits.
    format: u8,
    reserved_middle: [u8; 101],
    formats: [[u8; 4]; 16],
}

impl IdentifyNamespace {
    /// Bytes of a block, if that is a size that blocks have.
    pub fn block(&self) -> Option<u32> {
        let [_, _, exponent, _] = self.formats[usize::from(self.format & 15)];
        (9..=16).contains(&exponent).then(|| 1 << exponent)
    }

    /// A namespace.
    pub fn new(size: u64, exponent: u8) -> Self {
        let mut formats = [[0; 4]; 16];
        formats[0][2] = exponent;
        Self { size: size.into(), reserved: [0; 18], format: 0, reserved_middle: [0; 101], formats }
    }
}

const _: () = assert!(size_of::<Command>() == COMMAND as usize && size_of::<Response>() == RESPONSE as usize);
const _: () = assert!(size_of::<Sgl>() == 16);
const _: () = assert!(size_of::<ConnectionRequest>() == 32 && size_of::<ConnectData>() == 1024);
const _: () = assert!(core::mem::offset_of!(IdentifyNamespace, formats) == 128);

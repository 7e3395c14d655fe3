//! What crosses the boundary: control codes, and the numbers that go with them.
//!
//! An input is a row of little-endian numbers in the order of a verb's documentation, without padding, and then bytes for the
//! verbs that take some: the structures here. Every width is fixed, so a 32-bit program sends the same. An input that is shorter or longer than its
//! verb says is refused.

mod messages;

pub use messages::*;

/// What the device is called in the kernel.
pub const DEVICE_NAME: &str = r"\Device\SoftNdkNd";
/// What programs open: `\\.\SoftNdkNd`.
pub const LINK_NAME: &str = r"\DosDevices\Global\SoftNdkNd";
/// Who may open it: the system and administrators.
pub const SDDL: &str = "D:P(A;;GA;;;SY)(A;;GA;;;BA)";
/// Who may open it if the installer has let users in: they too, for reading and writing.
pub const SDDL_USERS: &str = "D:P(A;;GA;;;SY)(A;;GA;;;BA)(A;;GRGW;;;BU)";
/// The version of these codes. A driver refuses any other.
pub const VERSION: u32 = 1;
/// Bytes of the key by which the files of one process find each other.
pub const KEY: usize = 16;
/// The longest address, as `sockaddr` has it.
pub const ADDRESS: usize = 28;
/// Bytes of a result: status, bytes, context of the queue pair, context of the request, kind.
pub const RESULT: usize = 28;
/// Bytes of an element of a request: address, length, token.
pub const ELEMENT: usize = 16;
/// The most elements of one request.
pub const ELEMENTS: usize = 16;
/// The most bytes of private data, and of inline data.
pub const DATA: usize = 1024;

/// How the system passes the buffers of a control code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// It copies them.
    Buffered = 0,
    /// It copies the input, and locks the pages of the second buffer for reading.
    Readable = 1,
    /// It copies the input, and locks the pages of the second buffer for writing.
    Writable = 2,
}

macro_rules! verbs {
    ($($(#[$doc:meta])* $name:ident = $number:literal $method:ident;)+) => {
        /// What a program can ask for. `(in) -> out`; *pends*: ends when what is asked for has happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Verb {
            $($(#[$doc])* $name = $number,)+
        }

        impl Verb {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// How its buffers are passed.
            #[must_use]
            pub const fn method(self) -> Method {
                match self {
                    $(Self::$name => Method::$method,)+
                }
            }
        }
    };
}

verbs! {
    /// `(version: 32, key) ->`: a process begins, with a key that nobody guesses. Its file's first word.
    Begin = 0 Buffered;
    /// `(version: 32, key) ->`: another file of the process that has begun with that key. The file's first word.
    Join = 1 Buffered;
    /// `() -> (count: 32, then for each: adapter: 64, address)`: the adapters' addresses, each of 28 bytes.
    Addresses = 2 Buffered;
    /// `(adapter: 64) -> (object: 64)`: `IND2Provider::OpenAdapter`.
    Open = 3 Buffered;
    /// `(object: 64) ->`: gives an object back.
    Close = 4 Buffered;
    /// `(adapter object: 64) -> (the fields of ND2_ADAPTER_INFO in their order, sizes of 64 bits)`.
    Query = 5 Buffered;
    /// `(object: 64) ->`: `IND2Overlapped::CancelOverlappedRequests`.
    Cancel = 6 Buffered;

    /// `(adapter: 64, depth: 32, group: 32, affinity: 64) -> (queue: 64)`.
    CreateCompletionQueue = 8 Buffered;
    /// `(completion or shared receive queue: 64) -> (group: 32, affinity: 64)`.
    Affinity = 9 Buffered;
    /// `(queue: 64, depth: 32) ->`.
    Resize = 10 Buffered;
    /// `(queue: 64, type: 32) ->`, pends.
    Notify = 11 Buffered;
    /// `(queue: 64) -> (results)`: as many as there are and the output has room for.
    Results = 12 Buffered;

    /// `(adapter: 64) -> (region: 64)`.
    CreateRegion = 16 Buffered;
    /// `(region: 64, address: 64, flags: 32) ->`, pends as long as the bytes of the second buffer are registered, for reading.
    RegisterReadable = 17 Readable;
    /// `(region: 64, address: 64, flags: 32) ->`, pends as long as the bytes of the second buffer are registered.
    RegisterWritable = 18 Writable;
    /// `(region: 64) ->`, pends: ends with success if the region is registered, as `IND2MemoryRegion::Register` would.
    Registered = 19 Buffered;
    /// `(region: 64) ->`, pends.
    Deregister = 20 Buffered;
    /// `(region: 64) -> (local: 32, remote: 32)`: zeros if it is not registered.
    Tokens = 21 Buffered;
    /// `(adapter: 64) -> (window: 64)`.
    CreateWindow = 22 Buffered;
    /// `(window: 64) -> (remote: 32)`.
    WindowToken = 23 Buffered;

    /// `(adapter: 64, depth: 32, elements: 32, threshold: 32, group: 32, affinity: 64) -> (queue: 64)`.
    CreateSharedReceiveQueue = 24 Buffered;
    /// `(queue: 64, depth: 32, threshold: 32) ->`.
    Modify = 25 Buffered;
    /// `(queue: 64) ->`, pends.
    NotifyShared = 26 Buffered;
    /// `(queue: 64, context: 64, elements) ->`.
    ReceiveShared = 27 Buffered;

    /// `(adapter: 64, queue for receives: 64, queue for the others: 64, context: 64, receives: 32, requests: 32,
    /// elements of a receive: 32, elements of a request: 32, inline bytes: 32) -> (queue pair: 64)`.
    CreateQueuePair = 32 Buffered;
    /// `(adapter: 64, queue for receives: 64, queue for the others: 64, shared receive queue: 64, context: 64, requests: 32,
    /// elements: 32, inline bytes: 32) -> (queue pair: 64)`.
    CreateQueuePairWithShared = 33 Buffered;
    /// `(queue pair: 64) ->`.
    Flush = 34 Buffered;
    /// `(queue pair: 64, context: 64, flags: 32, elements, or inline bytes) ->`.
    Send = 35 Buffered;
    /// `(queue pair: 64, context: 64, elements) ->`.
    Receive = 36 Buffered;
    /// `(queue pair: 64, context: 64, region: 64, window: 64, address: 64, length: 64, flags: 32) -> (remote token: 32)`.
    Bind = 37 Buffered;
    /// `(queue pair: 64, context: 64, window: 64, flags: 32) ->`.
    Invalidate = 38 Buffered;
    /// `(queue pair: 64, context: 64, address: 64, token: 32, flags: 32, elements) ->`.
    Read = 39 Buffered;
    /// `(queue pair: 64, context: 64, address: 64, token: 32, flags: 32, elements, or inline bytes) ->`.
    Write = 40 Buffered;
    /// `(queue pair: 64, context: 64, token: 32, flags: 32, elements, or inline bytes) ->`: a send that ends the use of a window of
    /// the peer.
    SendAndInvalidate = 41 Buffered;

    /// `(adapter: 64) -> (connector: 64)`.
    CreateConnector = 48 Buffered;
    /// `(connector: 64, address) ->`.
    BindConnector = 49 Buffered;
    /// `(connector: 64, queue pair: 64, inbound: 32, outbound: 32, address, private data) ->`, pends.
    Connect = 50 Buffered;
    /// `(connector: 64) ->`, pends.
    CompleteConnect = 51 Buffered;
    /// `(connector: 64, queue pair: 64, inbound: 32, outbound: 32, private data) ->`, pends.
    Accept = 52 Buffered;
    /// `(connector: 64, private data) ->`.
    Reject = 53 Buffered;
    /// `(connector: 64) -> (inbound: 32, outbound: 32)`.
    ReadLimits = 54 Buffered;
    /// `(connector: 64) -> (private data)`.
    PrivateData = 55 Buffered;
    /// `(connector or listener: 64) -> (address)`, of 28 bytes.
    LocalAddress = 56 Buffered;
    /// `(connector: 64) -> (address)`, of 28 bytes.
    PeerAddress = 57 Buffered;
    /// `(connector: 64) ->`, pends.
    NotifyDisconnect = 58 Buffered;
    /// `(connector: 64) ->`, pends.
    Disconnect = 59 Buffered;

    /// `(adapter: 64) -> (listener: 64)`.
    CreateListener = 64 Buffered;
    /// `(listener: 64, address) ->`.
    BindListener = 65 Buffered;
    /// `(listener: 64, backlog: 32) ->`.
    Listen = 66 Buffered;
    /// `(listener: 64, connector: 64) ->`, pends.
    GetConnectionRequest = 67 Buffered;
}

/// The first function number of these codes.
const FIRST: u32 = 0xA00;

impl Verb {
    /// Its control code. The handle must be open for reading and writing.
    #[must_use]
    pub const fn code(self) -> u32 {
        /// `FILE_DEVICE_NETWORK`.
        const DEVICE: u32 = 0x12;
        /// `FILE_READ_DATA | FILE_WRITE_DATA`.
        const ACCESS: u32 = 3;
        DEVICE << 16 | ACCESS << 14 | (FIRST + self as u32) << 2 | self.method() as u32
    }

    /// The verb with this control code.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|verb| verb.code() == code)
    }
}

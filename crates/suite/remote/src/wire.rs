//! Calls and answers, as they travel: a head of fixed size and a tail. All numbers are little-endian.

use alloc::boxed::Box;

use fallible::try_slice;
use ndkpi::{NDK_RESULT_EX, NDK_SGE, NtStatus};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U32, U64},
};

use crate::MOST;

/// The version of the protocol, which the first call carries.
pub const VERSION: u64 = 1;

/// Numbers the functions, in the order of their names here.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// What a call asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Function {
            $($(#[$doc])* $name,)+
        }

        impl Function {
            const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The function of a number.
            pub fn from_number(number: u32) -> Option<Self> {
                Self::ALL.get(number as usize).copied()
            }
        }
    };
}

functions! {
    /// The first call: words are the version of the protocol. Answers the addresses of the adapter, and closes what there was before.
    Hello,
    /// Waits for events and takes them.
    Events,
    /// Ends the wait of [`Function::Events`].
    Wake,
    /// Waits until what was begun has ended, and answers the number of the last event.
    Settle,
    /// Allocates memory: how it is described, the bytes of a piece, the length.
    Allocate,
    /// Frees it.
    Free,
    /// Writes the tail there, from an offset on.
    Put,
    /// Reads from an offset on, so many bytes.
    Get,
    OpenAdapter,
    CloseAdapter,
    QueryAdapterInfo,
    QueryExtension,
    CreateCq,
    CreatePd,
    CreateSharedEndpoint,
    CreateConnector,
    CreateListener,
    BuildLam,
    /// The size, the offset and the pages of a mapping from a page on.
    LamPages,
    ReleaseLam,
    /// Closes any object but an adapter.
    Close,
    CreateMr,
    CreateMw,
    CreateSrq,
    CreateQp,
    CreateQpWithSrq,
    PrivilegedToken,
    ResizeCq,
    ArmCq,
    Poll,
    PollEx,
    Moderate,
    Register,
    Deregister,
    InitializeFastRegister,
    RemoteToken,
    LocalToken,
    ModifySrq,
    SrqReceive,
    Flush,
    Send,
    SendAndInvalidate,
    Receive,
    Bind,
    FastRegister,
    Invalidate,
    Read,
    Write,
    Connect,
    ConnectWithSharedEndpoint,
    CompleteConnect,
    CompleteConnectEx,
    Accept,
    AcceptEx,
    Reject,
    ConnectionData,
    LocalAddress,
    PeerAddress,
    Disconnect,
    Listen,
    ControlConnectEvents,
}

/// The words of a call.
pub const WORDS: usize = 9;

/// The head of a call.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CallHead {
    /// A [`Function`].
    pub function: U32,
    /// Bits for what may be left out, such as a callback: 1 if it is there.
    pub given: U32,
    /// The handle of the object whose function it is.
    pub object: U64,
    /// What the caller knows the new object or the request by, in events.
    pub cookie: U64,
    /// The other arguments.
    pub words: [U64; WORDS],
}

/// How a call was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Carried {
    /// It was made; the status is that of the function.
    Out,
    /// It makes no sense: it is too short, or a count does not fit.
    Malformed,
    /// A handle is not that of an open object of the right kind.
    Stale,
    /// The agent does not let the provider have it: a logical address outside every mapping.
    Withheld,
    /// The agent has no memory for it, or too much is open.
    NoMemory,
    /// The version of the protocol is another one.
    OtherVersion,
    /// It did not come to an end.
    Stuck,
}

impl Carried {
    const ALL: [Self; 7] =
        [Self::Out, Self::Malformed, Self::Stale, Self::Withheld, Self::NoMemory, Self::OtherVersion, Self::Stuck];

    fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

/// The words of an answer.
pub const ANSWER_WORDS: usize = 4;

/// The head of an answer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AnswerHead {
    /// A [`Carried`].
    pub carried: U32,
    /// The status that the function returned.
    pub status: U32,
    /// What it stored.
    pub words: [U64; ANSWER_WORDS],
}

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Happened {
    /// A creation has ended; the value is the handle.
    Created,
    /// A request has ended.
    Requested,
    /// A close has ended.
    Closed,
    /// A completion queue or a shared receive queue notifies.
    Notified,
    /// A connection came; the value is the handle of the connector.
    Connected,
    /// A connection ended; the value is the reason.
    Disconnected,
}

impl Happened {
    const ALL: [Self; 6] =
        [Self::Created, Self::Requested, Self::Closed, Self::Notified, Self::Connected, Self::Disconnected];

    /// The event of a number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

/// An event.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Event {
    /// A [`Happened`].
    pub happened: U32,
    /// Its status.
    pub status: U32,
    /// What the caller knows the object or the request by.
    pub cookie: U64,
    /// What goes with it.
    pub value: U64,
}

/// A scatter/gather entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Element {
    /// Its address, as the agent's machine knows it; of inline bytes nothing.
    pub address: U64,
    /// Its bytes.
    pub length: U32,
    /// Its token.
    pub token: U32,
}

impl Element {
    /// An entry for an address of the agent's machine.
    pub fn new(address: u64, entry: &NDK_SGE) -> Self {
        Self { address: address.into(), length: entry.Length.into(), token: entry.MemoryRegionToken.into() }
    }
}

/// Logical pages that follow each other.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Pages {
    /// The address of the first.
    pub first: U64,
    /// How many.
    pub count: U64,
}

/// A completion.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Completion {
    status: U32,
    bytes: U32,
    queue_pair: U64,
    request: U64,
    kind: U32,
    error: U32,
    output: U64,
}

impl From<&NDK_RESULT_EX> for Completion {
    fn from(result: &NDK_RESULT_EX) -> Self {
        Self {
            status: result.Status.to_bits().into(),
            bytes: result.BytesTransferred.into(),
            queue_pair: (result.QPContext.addr() as u64).into(),
            request: (result.RequestContext.addr() as u64).into(),
            kind: result.Type.0.cast_unsigned().into(),
            error: result.ProviderErrorCode.into(),
            output: (result.TypeSpecificCompletionOutput as u64).into(),
        }
    }
}

impl From<&Completion> for NDK_RESULT_EX {
    fn from(result: &Completion) -> Self {
        Self {
            Status: NtStatus::from_bits(result.status.get()),
            BytesTransferred: result.bytes.get(),
            QPContext: word_as_pointer(result.queue_pair.get()),
            RequestContext: word_as_pointer(result.request.get()),
            Type: ndkpi::NDK_OPERATION_TYPE(result.kind.get().cast_signed()),
            ProviderErrorCode: result.error.get(),
            TypeSpecificCompletionOutput: result.output.get() as usize,
        }
    }
}

/// A context: a word that nobody reads through here.
pub fn word_as_pointer<T>(word: u64) -> *mut T {
    core::ptr::without_provenance_mut(word as usize)
}

/// The bytes of the head of a call.
pub const CALL_HEAD: usize = size_of::<CallHead>();
/// The bytes of the head of an answer.
pub const ANSWER_HEAD: usize = size_of::<AnswerHead>();
/// The bytes of the tail of a call at most.
pub const CALL_TAIL: usize = MOST - CALL_HEAD;
/// The bytes of the tail of an answer at most.
pub const ANSWER_TAIL: usize = MOST - ANSWER_HEAD;

/// A call that is put together.
pub struct Call {
    bytes: Box<[u8]>,
    head: CallHead,
    length: usize,
}

impl Call {
    /// A call without arguments.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(function: Function, object: u64) -> Result<Self, NtStatus> {
        let head = CallHead { function: (function as u32).into(), object: object.into(), ..CallHead::default() };
        Ok(Self { bytes: try_slice(MOST, |_| 0)?, head, length: CALL_HEAD })
    }

    /// With what events will name it by.
    pub fn cookie(mut self, cookie: u64) -> Self {
        self.head.cookie = cookie.into();
        self
    }

    /// With an argument.
    pub fn word(mut self, index: usize, value: impl Into<u64>) -> Self {
        self.head.words[index] = U64::new(value.into());
        self
    }

    /// With a bit that says whether something is there.
    pub fn given(mut self, bit: u32, given: bool) -> Self {
        if given {
            self.head.given = (self.head.given.get() | 1 << bit).into();
        }
        self
    }

    /// How many more bytes fit.
    pub fn room(&self) -> usize {
        self.bytes.len() - self.length
    }

    /// With more bytes. `false` if there is no room.
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        let Some(place) = self.bytes.get_mut(self.length..self.length + bytes.len()) else { return false };
        place.copy_from_slice(bytes);
        self.length += bytes.len();
        true
    }

    /// The whole call.
    pub fn bytes(&mut self) -> &[u8] {
        self.bytes[..CALL_HEAD].copy_from_slice(self.head.as_bytes());
        &self.bytes[..self.length]
    }
}

/// An answer that came.
pub struct Answer {
    bytes: Box<[u8]>,
    head: AnswerHead,
    carried: Carried,
    length: usize,
}

impl Answer {
    /// The answer in the first `length` bytes; `None` if they are none.
    pub fn read(bytes: Box<[u8]>, length: usize) -> Option<Self> {
        let (head, _) = AnswerHead::read_from_prefix(bytes.get(..length)?).ok()?;
        let carried = Carried::from_number(head.carried.get())?;
        Some(Self { bytes, head, carried, length })
    }

    /// How the call was carried out.
    pub const fn carried(&self) -> Carried {
        self.carried
    }

    /// What the function returned.
    pub fn status(&self) -> NtStatus {
        NtStatus::from_bits(self.head.status.get())
    }

    /// What it stored.
    pub fn word(&self, index: usize) -> u64 {
        self.head.words[index].get()
    }

    /// The rest.
    pub fn tail(&self) -> &[u8] {
        &self.bytes[ANSWER_HEAD..self.length]
    }
}

//! What hooks are told: one event for each call, return, callback and return of a callback.

use core::{fmt, net::SocketAddr, slice};

use ndkpi::{
    GROUP_AFFINITY, GUID, NDK_ADAPTER_INFO, NDK_LOGICAL_ADDRESS, NDK_OBJECT_TYPE, NDK_RESULT, NDK_RESULT_EX, NDK_SGE,
    NDK_VERSION, NtStatus,
};

macro_rules! functions {
    ($($(#[$doc:meta])* $item:ident = $name:literal,)+) => {
        /// A function of a dispatch table, or an event callback of the consumer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Function {
            $($(#[$doc])* #[doc = concat!("`", $name, "`.")] $item,)+
        }

        impl Function {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$item),+];

            /// The name in C.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$item => $name,)+
                }
            }
        }
    };
}

functions! {
    Close = "NdkCloseObject",
    QueryExtension = "NdkQueryExtension",
    QueryAdapterInfo = "NdkQueryAdapterInfo",
    CreateCq = "NdkCreateCq",
    CreatePd = "NdkCreatePd",
    CreateSharedEndpoint = "NdkCreateSharedEndpoint",
    CreateConnector = "NdkCreateConnector",
    CreateListener = "NdkCreateListener",
    BuildLam = "NdkBuildLAM",
    ReleaseLam = "NdkReleaseLAM",
    ResizeCq = "NdkResizeCq",
    ArmCq = "NdkArmCq",
    GetCqResults = "NdkGetCqResults",
    ControlCqInterruptModeration = "NdkControlCqInterruptModeration",
    GetCqResultsEx = "NdkGetCqResultsEx",
    Flush = "NdkFlush",
    Send = "NdkSend",
    Receive = "NdkReceive",
    Bind = "NdkBind",
    FastRegister = "NdkFastRegister",
    Invalidate = "NdkInvalidate",
    Read = "NdkRead",
    Write = "NdkWrite",
    SendAndInvalidate = "NdkSendAndInvalidate",
    ModifySrq = "NdkModifySrq",
    SrqReceive = "NdkSrqReceive",
    CreateMr = "NdkCreateMr",
    CreateMw = "NdkCreateMw",
    CreateSrq = "NdkCreateSrq",
    CreateQp = "NdkCreateQp",
    CreateQpWithSrq = "NdkCreateQpWithSrq",
    GetPrivilegedMemoryRegionToken = "NdkGetPrivilegedMemoryRegionToken",
    RegisterMr = "NdkRegisterMr",
    DeregisterMr = "NdkDeregisterMr",
    InitializeFastRegisterMr = "NdkInitializeFastRegisterMr",
    GetRemoteTokenFromMr = "NdkGetRemoteTokenFromMr",
    GetLocalTokenFromMr = "NdkGetLocalTokenFromMr",
    GetRemoteTokenFromMw = "NdkGetRemoteTokenFromMw",
    GetSharedEndpointLocalAddress = "NdkGetLocalAddress (shared endpoint)",
    Connect = "NdkConnect",
    ConnectWithSharedEndpoint = "NdkConnectWithSharedEndpoint",
    CompleteConnect = "NdkCompleteConnect",
    Accept = "NdkAccept",
    Reject = "NdkReject",
    GetConnectionData = "NdkGetConnectionData",
    GetLocalAddress = "NdkGetLocalAddress",
    GetPeerAddress = "NdkGetPeerAddress",
    Disconnect = "NdkDisconnect",
    CompleteConnectEx = "NdkCompleteConnectEx",
    AcceptEx = "NdkAcceptEx",
    Listen = "NdkListen",
    GetListenerLocalAddress = "NdkGetLocalAddress (listener)",
    ControlConnectEvents = "NdkControlConnectEvents",
    /// The adapter is closed through the layer that opened it.
    CloseAdapter = "CloseNdkAdapter",
    /// An event callback.
    CqNotification = "NDK_FN_CQ_NOTIFICATION_CALLBACK",
    /// An event callback.
    SrqNotification = "NDK_FN_SRQ_NOTIFICATION_CALLBACK",
    /// An event callback.
    ConnectEvent = "NDK_FN_CONNECT_EVENT_CALLBACK",
    /// An event callback.
    DisconnectEvent = "NDK_FN_DISCONNECT_EVENT_CALLBACK",
    /// An event callback.
    DisconnectEventEx = "NDK_FN_DISCONNECT_EVENT_CALLBACK_EX",
}

impl Function {
    /// Returns true for a post of a work request.
    #[must_use]
    pub const fn is_post(self) -> bool {
        matches!(
            self,
            Self::Send
                | Self::Receive
                | Self::Bind
                | Self::FastRegister
                | Self::Invalidate
                | Self::Read
                | Self::Write
                | Self::SendAndInvalidate
                | Self::SrqReceive
        )
    }

    /// Returns true for a poll of a completion queue.
    #[must_use]
    pub const fn is_poll(self) -> bool {
        matches!(self, Self::GetCqResults | Self::GetCqResultsEx)
    }

    /// Returns true for what a consumer does for each transfer: posts, polls, arms.
    #[must_use]
    pub const fn is_of_data_path(self) -> bool {
        self.is_post() || self.is_poll() || matches!(self, Self::ArmCq)
    }
}

/// What an event is the beginning or the end of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The consumer calls; the provider has not been called yet.
    Call,
    /// The provider has returned; the consumer has not yet got the answer. [`Event::call`] is that of the call.
    Return,
    /// The provider calls the consumer: the completion of the call [`Event::call`], or an event callback with a number of its
    /// own. The consumer has not been called yet.
    Callback,
    /// The consumer has returned from the callback.
    CallbackReturn,
}

/// An object, for a record: the type, and a number that no other object of the same adapter has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The type.
    pub kind: NDK_OBJECT_TYPE,
    /// Counts from 1 for each adapter, which itself has the number 0, in the order of creation.
    pub number: u32,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.kind.name().and_then(|name| name.strip_prefix("NdkObjectType")).unwrap_or("object");
        write!(f, "{name} {}", self.number)
    }
}

/// When and where something happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// In units of 100 nanoseconds, since some moment in the past.
    pub time: u64,
    /// The processor. Below `DISPATCH_LEVEL` it may be out of date at once.
    pub processor: u32,
    /// The IRQL: 0 is `PASSIVE_LEVEL`, 2 is `DISPATCH_LEVEL`.
    pub irql: u8,
    /// The thread, as far as the platform knows threads: equal for equal threads.
    pub thread: usize,
}

/// An object that an event is about, with what the hooks keep of it.
#[derive(Debug)]
pub struct ObjectRef<'a, S> {
    /// Which one it is.
    pub id: ObjectId,
    /// What the hooks made of it when it was created.
    pub state: &'a S,
}

impl<S> Clone for ObjectRef<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for ObjectRef<'_, S> {}

/// The list of a request: a pointer and a number that a consumer may have got wrong.
#[derive(Clone, Copy)]
pub struct List<'a, T>(Result<&'a [T], u32>);

impl<'a, T> List<'a, T> {
    /// A list as the consumer gave it.
    ///
    /// # Safety
    ///
    /// `first` is null or unaligned, or points to `count` values that do not change as long as the list lives.
    pub(crate) unsafe fn new(first: *const T, count: u32) -> Self {
        if count == 0 {
            return Self(Ok(&[]));
        }
        let bytes = (count as usize).checked_mul(size_of::<T>());
        if first.is_null() || !first.is_aligned() || bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Self(Err(count));
        }
        // SAFETY: not null, aligned, not too long, and valid for reading (`# Safety`).
        Self(Ok(unsafe { slice::from_raw_parts(first, count as usize) }))
    }

    /// The elements; none if the list is not there.
    #[must_use]
    pub const fn elements(&self) -> &'a [T] {
        match self.0 {
            Ok(elements) => elements,
            Err(_) => &[],
        }
    }

    /// The number that the consumer gave.
    #[must_use]
    pub fn count(&self) -> u32 {
        match self.0 {
            Ok(elements) => u32::try_from(elements.len()).unwrap_or(u32::MAX),
            Err(count) => count,
        }
    }

    /// Returns true if the number is not 0, but there is no list (a null pointer, for example).
    #[must_use]
    pub const fn is_missing(&self) -> bool {
        self.0.is_err()
    }
}

impl<T: fmt::Debug> fmt::Debug for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ok(elements) => elements.fmt(f),
            Err(count) => write!(f, "{count} elements that are not there"),
        }
    }
}

/// What a request that may pend was given beside its arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestArgs {
    /// There is a completion callback.
    pub has_completion: bool,
    /// Its context: an address that is the consumer's.
    pub context: usize,
    /// It is a creation, and there is no place for the object.
    pub lacks_place: bool,
}

/// A buffer with an in/out length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutArgs {
    /// The address of the buffer; 0 if there is none.
    pub buffer: usize,
    /// The length in bytes: at the call what the consumer says, at the return what the provider says. `None` if there is no
    /// length.
    pub length: Option<u32>,
}

/// The two ends of a connection, as a connector says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Its own.
    pub local: SocketAddr,
    /// The peer's.
    pub peer: SocketAddr,
}

impl Endpoints {
    /// The same connection, seen from the other end.
    #[must_use]
    pub const fn turned(self) -> Self {
        Self { local: self.peer, peer: self.local }
    }
}

/// What a connect, an accept or a reject carries.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectArgs<'a> {
    /// The local address.
    pub local: &'a [u8],
    /// The remote address.
    pub remote: &'a [u8],
    /// Reads of the peer in progress at most.
    pub inbound_reads: u32,
    /// Own reads in progress at most.
    pub outbound_reads: u32,
    /// The private data.
    pub private_data: &'a [u8],
    /// The length of the private data that the consumer says.
    pub private_data_length: u32,
    /// There is a disconnect event.
    pub has_disconnect_event: bool,
    /// Of an accept, and of the last step of a connect: between whom, if the hooks ask for it ([`Hooks::PAIRS`](crate::Hooks::PAIRS)).
    pub ends: Option<Endpoints>,
}

/// What a queue pair is created with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of NDKPI's parameters")]
pub struct QpArgs {
    pub context: usize,
    pub receive_depth: u32,
    pub initiator_depth: u32,
    pub receive_sge: u32,
    pub initiator_sge: u32,
    pub inline_data: u32,
}

/// What a function is given, as far as it is not an object. Related objects are in [`Event::related`], in the order of the
/// function's parameters.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names of NDKPI's parameters")]
pub enum Args<'a> {
    /// Nothing, or objects only.
    None,
    QueryExtension {
        id: Option<GUID>,
        version: NDK_VERSION,
    },
    /// At the return: what the provider has stored.
    QueryAdapterInfo {
        out: OutArgs,
        info: Option<&'a NDK_ADAPTER_INFO>,
    },
    CreateCq {
        depth: u32,
        has_notification: bool,
        /// The address of the callback; 0 without one.
        notification: usize,
        context: usize,
        affinity: Option<GROUP_AFFINITY>,
    },
    CreateSharedEndpoint {
        address: &'a [u8],
    },
    CreateListener {
        has_event: bool,
        context: usize,
    },
    BuildLam {
        mdl: usize,
        length: usize,
        mapping: usize,
        size: Option<u32>,
    },
    /// `pages` is how many the mapping says that it has.
    ReleaseLam {
        mapping: usize,
        pages: u32,
    },
    ResizeCq {
        depth: u32,
    },
    ArmCq {
        kind: u32,
    },
    /// At the call without results, at the return with those that the provider has stored.
    GetCqResults {
        room: u32,
        results: &'a [NDK_RESULT],
    },
    /// As [`Args::GetCqResults`].
    GetCqResultsEx {
        room: u32,
        results: &'a [NDK_RESULT_EX],
    },
    Moderation {
        interval: u32,
        count: u32,
    },
    /// `NdkSend`, `NdkReceive`, `NdkSrqReceive`; also `NdkSendAndInvalidate`, whose token is `remote_token`, and `NdkRead` and
    /// `NdkWrite`.
    Transfer {
        context: usize,
        sgl: List<'a, NDK_SGE>,
        flags: u32,
        remote_address: u64,
        remote_token: u32,
    },
    Bind {
        context: usize,
        address: usize,
        length: usize,
        flags: u32,
    },
    FastRegister {
        context: usize,
        pages: List<'a, NDK_LOGICAL_ADDRESS>,
        first_byte: u32,
        length: usize,
        base: usize,
        flags: u32,
    },
    Invalidate {
        context: usize,
        flags: u32,
    },
    ModifySrq {
        depth: u32,
        threshold: u32,
    },
    CreateMr {
        fast_register: bool,
    },
    CreateSrq {
        depth: u32,
        max_sge: u32,
        threshold: u32,
        has_notification: bool,
        context: usize,
    },
    CreateQp(QpArgs),
    /// `base` is the address by which the consumer names the first byte, if the platform can tell.
    RegisterMr {
        mdl: usize,
        base: Option<u64>,
        length: usize,
        flags: u32,
    },
    InitializeFastRegisterMr {
        pages: u32,
        remote_access: bool,
    },
    /// `NdkGetLocalAddress` and `NdkGetPeerAddress` of any object.
    Address {
        out: OutArgs,
    },
    Connect(ConnectArgs<'a>),
    GetConnectionData {
        inbound: Option<u32>,
        outbound: Option<u32>,
        out: OutArgs,
    },
    Listen {
        address: &'a [u8],
    },
    ControlConnectEvents {
        pause: bool,
    },
    /// An event callback, with its context.
    Event {
        context: usize,
        reason: u32,
    },
}

/// How a call, or what it began, has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// It has not ended yet, or the function returns nothing.
    #[default]
    None,
    /// With a status.
    Status(NtStatus),
    /// With a number of results.
    Count(u32),
    /// With a token.
    Token(u32),
}

impl Outcome {
    /// The status; success where there is none.
    pub const fn status(self) -> NtStatus {
        match self {
            Self::Status(status) => status,
            _ => NtStatus::SUCCESS,
        }
    }
}

/// Something that happens between consumer and provider. `S` is what the hooks keep of an object.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a, S> {
    /// What it is the beginning or end of.
    pub phase: Phase,
    /// The function.
    pub function: Function,
    /// A number that the events of one call have in common, its completion included. Counts from 1 for each adapter. See
    /// [`Hooks::NUMBERS_ALL`](crate::Hooks::NUMBERS_ALL) for posts, arms and polls.
    pub call: u64,
    /// The object on which the function is called, or whose callback it is; the parent of an object that is created.
    pub object: ObjectRef<'a, S>,
    /// Other objects that the consumer gave, in the order of the function's parameters. `None` also for what is no object.
    pub related: [Option<ObjectRef<'a, S>>; 3],
    /// The object that was created, once it is; the connector of a connect event.
    pub created: Option<ObjectRef<'a, S>>,
    /// What the function was given.
    pub args: Args<'a>,
    /// The completion, of functions that have one.
    pub request: Option<RequestArgs>,
    /// The result, except in [`Phase::Call`].
    pub outcome: Outcome,
}

impl<'a, S> Event<'a, S> {
    /// The same event for hooks that keep a part of the state.
    #[must_use]
    pub fn map<T>(&self, part: impl Fn(&'a S) -> &'a T) -> Event<'a, T> {
        let map = |object: ObjectRef<'a, S>| ObjectRef { id: object.id, state: part(object.state) };
        Event {
            phase: self.phase,
            function: self.function,
            call: self.call,
            object: map(self.object),
            related: self.related.map(|related| related.map(map)),
            created: self.created.map(map),
            args: self.args,
            request: self.request,
            outcome: self.outcome,
        }
    }
}

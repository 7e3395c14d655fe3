//! The findings: what each is about, and the pages of `ndkctl explain` and `docs/findings.md`.

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// A duty that NDKPI puts on the consumer was broken.
    Duty,
    /// Allowed, or not certain; but it has no effect, or works on few adapters.
    Advice,
}

/// The page of a finding.
#[derive(Debug)]
pub struct Page {
    /// The name, in a few words.
    pub title: &'static str,
    /// The section of the description of NDKPI.
    pub section: &'static str,
    /// How sure it is.
    pub severity: Severity,
    /// The rule.
    pub rule: &'static str,
    /// Why there is such a rule, and what happens on an adapter.
    pub why: &'static str,
    /// What it usually comes from.
    pub cause: &'static str,
    /// What to do instead.
    pub fix: &'static str,
}

macro_rules! findings {
    ($($item:ident = $number:literal $severity:ident $section:literal $title:literal
        rule $rule:literal why $why:literal cause $cause:literal fix $fix:literal;)+) => {
        /// Something that a consumer does against the rules.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Finding {
            $(#[doc = concat!($title, " (", $section, ").")] $item = $number,)+
        }

        impl Finding {
            /// All of them, by number.
            pub const ALL: &'static [Self] = &[$(Self::$item),+];

            /// The page.
            #[must_use]
            pub const fn page(self) -> &'static Page {
                match self {
                    $(Self::$item => &Page {
                        title: $title,
                        section: $section,
                        severity: Severity::$severity,
                        rule: $rule,
                        why: $why,
                        cause: $cause,
                        fix: $fix,
                    },)+
                }
            }
        }
    };
}

impl Finding {
    /// The number: 1 for `SN0001`.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The finding with this number.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|finding| finding.number() == number)
    }
}

impl core::fmt::Display for Finding {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "SN{:04}", self.number())
    }
}

findings! {
    OverlappingCqCalls = 1 Duty "NDKPI 7.1.2" "Overlapping calls on a completion queue"
        rule "On one completion queue NdkGetCqResults, NdkGetCqResultsEx and NdkArmCq never run at the same time, in any combination."
        why "The provider takes no lock between the three. Results are lost or seen twice, or an arm is lost."
        cause "A worker polls while the notification callback polls, or a second thread arms."
        fix "Serialise the three calls of a queue with one lock, or let only the notification callback and what it starts make them.";
    OverlappingPosts = 2 Duty "NDKPI 7.3" "Overlapping posts on one queue"
        rule "Two posts on the same queue never run at the same time: sends, reads, writes, binds, registrations and invalidations of one queue pair share one queue; receives have another; a shared receive queue is one."
        why "The provider takes no lock in the post. Requests overwrite each other in the hardware's queue."
        cause "Several threads send on one connection without a lock."
        fix "Take a lock per queue around posts. Initiator requests and receives may run beside each other.";
    NotDrained = 3 Duty "NDKPI 7.1.5" "A notification that was not drained"
        rule "After a notification the consumer takes completions until a poll returns fewer than it has room for, before it relies on the next notification."
        why "Completions that were there at the last notification need not satisfy the next arm: the consumer sleeps for ever with work in its queue."
        cause "The callback polls once with a fixed array, arms, and returns."
        fix "Poll until the result is below the room. Arm, then poll once more.";
    WeakerArm = 4 Advice "NDKPI 7.1.4" "An arm for less than is armed already"
        rule "An arm can be strengthened (errors, solicited, any), not weakened or cancelled."
        why "The notification comes for the stronger type all the same."
        cause "The consumer switches to another type without waiting for the notification that it asked for."
        fix "Expect the notification of the stronger type, and arm for the weaker one in it.";
    UnknownArm = 5 Duty "NDKPI 2.3" "An arm of an unknown type"
        rule "The type of an arm is NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_ANY or NDK_CQ_NOTIFY_SOLICITED."
        why "NdkArmCq returns nothing, so it cannot refuse: no notification comes."
        cause "An uninitialised variable, or flags or-ed together."
        fix "Pass one of the three values.";
    ResizeUnsupported = 6 Duty "NDKPI 7.1.11" "A resize that the adapter does not support"
        rule "NdkResizeCq is only for adapters with NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED."
        why "An adapter without the flag may do anything."
        cause "The adapter's flags were not looked at."
        fix "Look at AdapterFlags; without the flag, create a queue that is deep enough.";
    ModerationUnsupported = 7 Duty "NDKPI 7.1.6" "Moderation that the adapter does not support"
        rule "NdkControlCqInterruptModeration is only for adapters with NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED."
        why "The adapter refuses it, or worse."
        cause "The adapter's flags were not looked at."
        fix "Look at AdapterFlags first.";
    ModerationUnlimited = 8 Duty "NDKPI 7.1.6" "Moderation without any limit"
        rule "Interval and count are not both unlimited (MAXULONG, or a count above the depth)."
        why "A notification would never come; the call fails with STATUS_INVALID_PARAMETER_MIX."
        cause "MAXULONG taken for 'off'."
        fix "Pass 0 to turn moderation off, or one real limit.";
    CqOverrun = 9 Duty "NDKPI 7.1.10" "More requests in flight than the completion queue has entries"
        rule "The requests in flight on all queues of a completion queue, silent ones included, never exceed its depth."
        why "A completion that finds the queue full breaks the queue and every queue pair on it. A silent request that fails needs an entry too."
        cause "The depth counts one direction or one queue pair only, or completions are polled too late."
        fix "Make the queue as deep as the sum of the queues that complete into it, or post less.";
    AboveLimit = 10 Duty "NDKPI 3.11" "More than the adapter can do"
        rule "Depths, entries and sizes of objects stay within NDK_ADAPTER_INFO."
        why "The call fails with STATUS_INVALID_PARAMETER, on this adapter or on the next smaller one."
        cause "Constants that fit one adapter."
        fix "Ask NdkQueryAdapterInfo and take the smaller of both.";
    MissingCallback = 11 Duty "NDKPI 5" "A callback that has to be there is NULL"
        rule "Creations, requests that may pend and closes have a completion; a completion queue that is armed has a notification, a listener a connect event."
        why "The provider may complete later whenever it likes, and then has nobody to call: a crash."
        cause "The consumer was tested on a provider that completes in the call."
        fix "Pass a callback always, also where this provider has never pended.";
    BadFlags = 12 Duty "NDKPI 2.4" "Flags that the request does not have"
        rule "Each request accepts its own flags only; remote write is two bits, of which local write is one."
        why "The post fails, or grants another right than was meant."
        cause "Flags of memory regions (NDK_MR_FLAG) and of requests (NDK_OP_FLAG) mixed up, or half of remote write."
        fix "Use the flags of the request's own page; convert the rights of regions explicitly.";
    QueueFull = 13 Duty "NDKPI 7.2" "More requests than the queue is deep"
        rule "Requests in flight never exceed the depth that the queue was created with."
        why "The post fails; on adapters that do not check, requests overwrite each other."
        cause "The consumer counts completions of another queue, or does not count."
        fix "Count requests and completions of each queue, and wait at the depth.";
    TooManySges = 14 Duty "NDKPI 7.3" "More elements than a request may have"
        rule "A request has at most as many elements as its queue pair was created with; a read also at most MaxReadRequestSge. Inline data lifts the limit."
        why "The post fails."
        cause "A scattered buffer, or a read treated like a send."
        fix "Split the request, or fast-register the buffer and use one element.";
    TooLong = 15 Duty "NDKPI 3.11" "A transfer longer than the adapter can carry"
        rule "The elements of one request together are at most MaxTransferLength bytes."
        why "The post or the transfer fails."
        cause "A large request that is not split."
        fix "Split it by MaxTransferLength.";
    InlineTooLong = 16 Duty "NDKPI 7.3" "More inline data than the queue pair has room for"
        rule "Inline data is at most InlineDataSize of the queue pair."
        why "The post fails."
        cause "NDK_OP_FLAG_INLINE set for every message."
        fix "Set the flag only up to the size that the queue pair was created with.";
    MissingList = 17 Duty "NDKPI 7.3" "A list that is not there"
        rule "A request of n elements has a list of n elements; a fast registration has its pages."
        why "The provider reads what is behind the null pointer, or fails the post."
        cause "A count that was not reset."
        fix "Pass a list, or a count of 0.";
    OpenDeferChain = 18 Duty "NDKPI 7.3" "A deferred chain that never ended"
        rule "Unless a post fails, every chain of requests with NDK_OP_FLAG_DEFER ends with one without."
        why "The adapter may keep the requests back for ever: no completion comes."
        cause "The last request of a batch is skipped or conditional."
        fix "Post the last request of each batch without the flag.";
    PostBeforeConnection = 19 Duty "NDKPI 5.7" "A request on a queue pair that was never connected"
        rule "Initiator requests, binds, fast registrations and invalidations included, need a connection. Receives do not."
        why "The post fails with STATUS_CONNECTION_INVALID."
        cause "Memory is registered while the connection is being set up."
        fix "Post them after NdkCompleteConnect or NdkAccept has completed.";
    ReceiveBesideSrq = 20 Duty "NDKPI 7.2" "A receive on a queue pair that has a shared receive queue"
        rule "A queue pair with a shared receive queue takes its receives from there."
        why "The post fails; the queue pair has no receive queue."
        cause "Code for both kinds of queue pairs."
        fix "Post with NdkSrqReceive.";
    ReadLimit = 21 Advice "NDKPI 7.7.3" "More reads than the connection carries at once"
        rule "Reads in progress are limited by OutboundReadLimit, the peer's InboundReadLimit and the adapters; with 0 there are none."
        why "Reads above the limit wait in the queue and hold up what is behind them; with a limit of 0 they never begin."
        cause "The limits of connect and accept are left at 0 or 1."
        fix "Ask for the reads that are needed, look at NdkGetConnectionData, and count reads in flight.";
    ReadSink = 22 Duty "NDKPI 7.4" "A read into memory without the right of a read sink"
        rule "The target of a read is registered with RDMA_READ_SINK, unless the adapter has NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED. The privileged token is then no sink either."
        why "On iWARP the target of a read is written by the peer; the read fails and the connection breaks."
        cause "Tested on an adapter that does not need the right."
        fix "Register with the flag, always: adapters that do not need it ignore it.";
    LocalInvalidate = 23 Advice "NDKPI 7.3" "A read that is to invalidate, on an adapter that cannot"
        rule "NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE works only with NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED."
        why "Without it the flag is ignored: the region stays registered."
        cause "The adapter's flags were not looked at."
        fix "Look at AdapterFlags; post an invalidation otherwise.";
    MemoryInFlight = 24 Duty "NDKPI 7.4" "Memory taken back while requests use it"
        rule "A region is deregistered, closed or registered anew only when every request that names it has completed."
        why "The adapter still reads or writes there: data of somebody else, or a protection error."
        cause "Buffers are released when the send returns, not when it completes; or at disconnect, before the queue was flushed and drained."
        fix "Release memory when the completion was taken. After a flush, drain first.";
    UnknownToken = 25 Duty "NDKPI 7.4" "A token that stands for nothing"
        rule "An element names a region that is registered, or the privileged token."
        why "The request fails, and the connection breaks."
        cause "The token was read before the registration completed, the region is deregistered, or the remote token was taken for the local one."
        fix "Read NdkGetLocalTokenFromMr after the registration, and drop it at the deregistration.";
    TokenAfterInvalidate = 26 Duty "NDKPI 7.6" "A token used after its invalidation"
        rule "After an invalidation (by NdkInvalidate, by a read that invalidates, or by the peer's send) the token stands for nothing until the next fast registration."
        why "The request fails, and the connection breaks."
        cause "An invalidation is posted before the last request that uses the region."
        fix "Post the invalidation last, and a fast registration before the next use.";
    OutsideRegistration = 27 Duty "NDKPI 7.4" "An element outside of its registration"
        rule "An element lies within the bytes that its region was registered with, by the addresses of the registration."
        why "The request fails, and the connection breaks."
        cause "Another base address, a length in pages, or an offset counted twice."
        fix "Address from the virtual address of the first MDL, or from BaseVirtualAddress of a fast registration.";
    NoLocalWrite = 28 Duty "NDKPI 7.4" "A receive or read into memory without local write"
        rule "What the adapter writes to, for receives and reads, is registered with local write."
        why "The request fails when data comes, and the connection breaks."
        cause "One set of flags for all buffers."
        fix "Register the targets of receives and reads with NDK_MR_FLAG_ALLOW_LOCAL_WRITE.";
    OtherDomain = 29 Duty "NDKPI 7.2" "Memory of another protection domain"
        rule "A queue pair uses regions and windows of its own protection domain."
        why "The request fails, and the connection breaks."
        cause "A region that is shared by connections with domains of their own."
        fix "Register the memory in each domain, or use one domain.";
    RegionState = 30 Duty "NDKPI 7.4" "A region that is in another state than the call needs"
        rule "A plain region: register, use, deregister. One for fast registration: initialise once, then fast-register, use, invalidate, over and over. The kind is for life."
        why "The call fails, or an adapter keeps the older registration."
        cause "Two paths that both register or both deregister, or the wrong kind of region."
        fix "Keep one owner of the region's state, and look at the kind it was created with.";
    FastRegister = 31 Duty "NDKPI 7.4" "A fast registration that does not add up"
        rule "Pages up to the number of the initialisation; FBO below a page; Length within pages less FBO; BaseVirtualAddress equal to FBO within a page; remote rights only if initialised with RemoteAccess."
        why "The post fails, or registers other bytes than were meant."
        cause "An unaligned base address, or a length that starts at the page instead of at FBO."
        fix "Take FBO and the pages from NdkBuildLAM, and a base with the same offset in its page.";
    BindRights = 32 Duty "NDKPI 7.6" "A window that its region does not allow"
        rule "A window lies within its region; remote write needs a region with local write; the region is registered."
        why "The bind fails with STATUS_ACCESS_VIOLATION, or later and with it the connection."
        cause "A region that was registered for reading only."
        fix "Register the region with the rights that its windows grant.";
    Mapping = 33 Duty "NDKPI 7.5" "A mapping released that there is not, or never released"
        rule "What NdkBuildLAM has mapped is released once by NdkReleaseLAM, and before the adapter is closed."
        why "The adapter keeps the pages mapped, or unmaps those of others."
        cause "Released on the error path of a build that failed, or twice."
        fix "Release exactly the mappings whose build has succeeded.";
    StackContext = 34 Duty "NDKPI 6" "A context on a stack frame that has gone"
        rule "A context is valid until its callback has run."
        why "The callback writes to a stack that others use by then."
        cause "A function that keeps the event on its stack, and returns on another path before it waits."
        fix "Wait for every pending request before the frame ends, or allocate the context.";
    UseAfterClose = 35 Duty "NDKPI 7.9" "An object used after its close"
        rule "After the call of close the object is not used any more, whatever close has returned."
        why "The provider may have freed it: a crash, or somebody else's object."
        cause "A completion or timer that still knows the object, or two closes."
        fix "Take the object away from all who know it, then close it. The adviser has not passed the call on.";
    WrongKind = 36 Duty "NDKPI 3.3" "An object of another kind"
        rule "A function is called with objects of the kinds of its parameters."
        why "The provider takes other memory for its object."
        cause "A wrong cast."
        fix "Look at the types. The adviser has not passed a call on the wrong object on.";
    CloseDuringCall = 37 Duty "NDKPI 7.9" "A close while a call on the object runs"
        rule "An object is closed only when no call of the consumer on it runs, but inside the completion of that very call."
        why "The call uses what the close frees."
        cause "Teardown does not wait for the data path."
        fix "Hold off posts and polls first, with a reference count or rundown protection; then close.";
    AdapterClosedInCallback = 38 Duty "NDKPI 7.9" "The adapter closed inside a callback"
        rule "The adapter is never closed from a callback."
        why "The close waits for the callback to return: it waits for itself."
        cause "The last completion of teardown closes the adapter."
        fix "Close the adapter from a work item.";
    CloseWaitsForItself = 39 Advice "NDKPI 7.9" "A close that waits for what is still open"
        rule "A consumer that waits for each close closes successors first: connector, queue pair, window, region, queues, domain."
        why "The close of an antecedent completes when its last successor is closed. Who waits for it, and then wants to close the successor, waits for ever."
        cause "Teardown in the order of creation, with an event on the stack for each close."
        fix "Close successors first, or begin all closes and wait at the end.";
    StillOpen = 40 Duty "NDKPI 7.9" "Objects left open when the adapter is closed"
        rule "Everything of an adapter is closed before the adapter is."
        why "The close of the adapter blocks until it is, and with it the driver's unload."
        cause "An error path that forgets an object."
        fix "Close it; the report says what it is and who created it.";
    LongCallback = 41 Duty "NDKPI 6" "A callback that takes too long at DISPATCH_LEVEL"
        rule "A callback at DISPATCH_LEVEL does little: at most a millisecond."
        why "The processor runs nothing else; others miss their deadlines, and the watchdog stops the machine (0x133)."
        cause "Work on the data itself inside the callback: copying, checksums, encryption."
        fix "Take completions, and leave the rest to a work item.";
    CallbackIrql = 42 Duty "NDKPI 6" "A callback that returns at another IRQL"
        rule "A callback returns at the IRQL at which it was called."
        why "The provider goes on at an IRQL that it does not know of."
        cause "A lock that is taken or released on one path only."
        fix "Pair KeAcquireSpinLock and KeReleaseSpinLock on every path.";
    WrongIrql = 43 Duty "NDKPI 5" "A call at too high an IRQL"
        rule "Calls are made at DISPATCH_LEVEL or below; NdkQueryAdapterInfo and the open and close of an adapter at PASSIVE_LEVEL."
        why "They may block or take locks: a deadlock or a crash."
        cause "The call is made inside a lock or a callback."
        fix "Move it to a thread or work item.";
    Length = 44 Duty "NDKPI 5.8" "An in/out length that was not set"
        rule "An in/out length says on entry how long the buffer is; without a buffer for the private data it is 0."
        why "The provider writes as much as the length says: over the end of the buffer."
        cause "The length variable was not initialised, or has the value of the last call."
        fix "Set the length to the size of the buffer before each call.";
    PrivateData = 45 Duty "NDKPI 3.11" "More private data than the adapter carries"
        rule "Private data of a connect is at most MaxCallerData, of an accept or reject at most MaxCalleeData."
        why "The call fails."
        cause "A constant that fits another adapter."
        fix "Look at NdkQueryAdapterInfo.";
    PrivateDataRoce = 46 Advice "NDKPI 3.11" "More private data than RoCE or InfiniBand carry"
        rule "The connection manager of InfiniBand and RoCE carries 56 bytes in a request, 196 in an accept and 148 in a reject; iWARP carries 512."
        why "It works here and not there."
        cause "A format that was laid out on iWARP or on this provider."
        fix "Keep private data within 56 bytes, and send the rest as the first message.";
    ConnectionOrder = 47 Duty "NDKPI 7.7" "A call that the connector is not ready for"
        rule "Active side: connect, then complete or reject. Passive side: accept or reject, once. Then disconnect, once."
        why "The call fails, or breaks the connection that is being set up."
        cause "Two paths that both answer a connection, or an answer before the completion of the step before."
        fix "Keep a state for each connector; take the next step in the completion of the one before.";
    QpReused = 48 Duty "NDKPI 7.2" "A queue pair or connector used for a second connection"
        rule "A disconnected queue pair or connector is never used again."
        why "The connect fails; state of the old connection is in the adapter."
        cause "A reconnect that keeps its objects."
        fix "Close both and create new ones.";
    DisconnectInFlight = 49 Advice "NDKPI 7.7.5" "A disconnect before the last completion"
        rule "A disconnect is graceful only after all initiator completions were seen."
        why "What is in flight may arrive or not; the peer may see an abort."
        cause "The consumer disconnects when the last send was posted."
        fix "Wait for the completions, then disconnect.";
    SilentQueue = 50 Advice "NDKPI 5.2" "A completion queue without a notification callback"
        rule "A completion queue is created with a notification callback."
        why "A queue that is never armed never calls it, so nothing goes wrong on most adapters; but the header asks for it, and a provider may refuse the creation."
        cause "A consumer that only polls."
        fix "Pass a callback that does nothing. Arming such a queue is SN0011: then somebody is to be called who is not there.";
    MappingInUse = 51 Duty "NDKPI 7.5" "A mapping released while a registration of its pages is in force"
        rule "NdkReleaseLAM comes after the last request that uses the mapping, and after the invalidation of what was fast-registered with its pages."
        why "The adapter unmaps the pages, and peers still read and write them by the token: other memory, by then."
        cause "The mapping is released when the fast registration has completed, like an argument of it."
        fix "Keep the mapping as long as the registration: invalidate, wait for that, release.";
    LateReceive = 52 Advice "NDKPI 7.2" "A message sent before its receive was posted"
        rule "Each message takes a receive of the peer, which is posted before the message is sent."
        why "On SoftNDK's own profile the message waits. RoCE sends it again a few times, and then ends the connection; iWARP ends it at once."
        cause "Receives are posted after the connection was established, or after the request to whose answer they belong was sent: mostly they come in time."
        fix "Post receives before the connect or accept, and the one for an answer before its request. Count those that the peer has as credits.";
}

//! Events for whoever collects traces: `TraceLogging`, so that the trace describes itself.
//!
//! There is one for each thing that happens seldom, and none on the data path. While nobody listens an event costs one
//! comparison: what it would say is not even computed.

use core::net::{IpAddr, SocketAddr};

use control::provider_device::Settings;
use engine::{connection::ConnectorRequest, cq::notify::CqFailure};
use interpose::{
    InterposeOs, ObjectId,
    adviser::{FRAMES, Report, Step},
    faults::Plan,
};
use ndkpi::{MDL, NDK_VERSION, NtStatus};
use provider::{Holder, Note, Reason};
use tracelogging::{Level, write_event};

use crate::socket;

kernel::trace_provider!("SoftNDK");

/// A consumer has opened an adapter.
pub fn opened(version: NDK_VERSION, open: u32) {
    write_event!(
        PROVIDER,
        "Opened",
        level(Level::Informational),
        u16("Major", &version.Major),
        u16("Minor", &version.Minor),
        u32("Open", &open),
    );
}

/// A consumer could not open an adapter.
pub fn refused(version: NDK_VERSION, status: NtStatus) {
    write_event!(
        PROVIDER,
        "Refused",
        level(Level::Warning),
        u16("Major", &version.Major),
        u16("Minor", &version.Minor),
        i32_hex("Status", &status.0),
    );
}

/// A consumer has closed an adapter.
pub fn closed(open: u32) {
    write_event!(PROVIDER, "Closed", level(Level::Informational), u32("Open", &open));
}

/// An adapter has gone without a word, and its connections with it.
pub fn gone(adapter: u8, open: u32) {
    write_event!(PROVIDER, "Gone", level(Level::Warning), u8("Adapter", &adapter), u32("Open", &open));
}

/// An adapter has gone to sleep, and its connections with it, or is awake.
pub fn power(adapter: u8, awake: bool) {
    write_event!(PROVIDER, "Power", level(Level::Informational), u8("Adapter", &adapter), bool8("Awake", &awake),);
}

/// The path MTU of RoCE that an adapter reports is not the one that its keyword asks for.
pub fn roce_frame(adapter: u8, wanted: u32, in_force: u32) {
    write_event!(
        PROVIDER,
        "RoCEFrameSize",
        level(Level::Warning),
        u8("Adapter", &adapter),
        u32("Wanted", &wanted),
        u32("InForce", &in_force),
    );
}

/// Something has happened on an adapter. `IRQL <= DISPATCH_LEVEL`.
pub fn note(note: Note) {
    match note {
        Note::Connected { local, remote } => write_event!(
            PROVIDER,
            "Connected",
            level(Level::Informational),
            socketaddress("Local", &socket::bytes(local)),
            socketaddress("Remote", &socket::bytes(remote)),
        ),
        Note::Accepted => write_event!(PROVIDER, "Accepted", level(Level::Informational)),
        Note::Failed { request, status } => write_event!(
            PROVIDER,
            "RequestFailed",
            level(Level::Warning),
            str8("Request", name(request)),
            i32_hex("Status", &status.0),
        ),
        Note::Rejected(reason) => {
            let why = Reason::of_rejection(reason);
            write_event!(
                PROVIDER,
                "Rejected",
                level(Level::Warning),
                u16("Rej", &reason.0),
                u16("Reason", &why.number()),
                str8("Why", why.what),
            )
        }
        Note::Disconnected => write_event!(PROVIDER, "Disconnected", level(Level::Informational)),
        Note::Lost(reason) => {
            write_event!(PROVIDER, "ConnectionLost", level(Level::Warning), u32("Reason", &reason.code()))
        }
        Note::QueueFailed(failure) => write_event!(
            PROVIDER,
            "CompletionQueueFailed",
            level(Level::Error),
            bool8("Overrun", &(failure == CqFailure::Overrun)),
            i32_hex("Status", &failure.status().0),
        ),
    };
}

const fn name(request: ConnectorRequest) -> &'static str {
    match request {
        ConnectorRequest::Connect => "connect",
        ConnectorRequest::Accept => "accept",
        ConnectorRequest::Disconnect => "disconnect",
    }
}

/// An adapter waits for consumers to close it.
pub fn waiting(open: u32) {
    write_event!(PROVIDER, "WaitingForClose", level(Level::Warning), u32("Open", &open));
}

/// A program was refused something because there is no more of it.
pub fn limit(name: &'static str, most: u64) {
    write_event!(PROVIDER, "LimitReached", level(Level::Warning), str8("Limit", name), u64("Most", &most));
}

/// The adviser has found something.
pub fn finding(report: &Report<'_>) {
    let [(_, creator), (_, caller)] = report.stacks();
    write_event!(
        PROVIDER,
        "Finding",
        level(Level::Warning),
        u16("Finding", &report.finding.number()),
        str8("Section", report.finding.page().section),
        str8("What", report.finding.page().title),
        i32("ObjectType", &report.object.kind.0),
        u32("Object", &report.object.number),
        str8("Function", report.function.name()),
        str8("Seen", report.seen),
        u8("Irql", &report.place.irql),
        u32("Processor", &report.place.processor),
        codepointer_slice("Creator", creator),
        codepointer_slice("Caller", caller),
    );
}

/// Returns true if somebody listens to the steps of consumers under the adviser: at the level `Verbose`.
#[must_use]
pub fn is_following() -> bool {
    PROVIDER.enabled(Level::Verbose, STEPS)
}

/// The keyword of those steps.
const STEPS: u64 = 2;

/// A step of a consumer towards something that it may wait for. Key: the object, among those of all adapters.
pub fn step(step: &Step<'_>) {
    match *step {
        Step::Opened { key, object, on, notification, creator } => write_event!(
            PROVIDER,
            "NdkOpened",
            level(Level::Verbose),
            keyword(STEPS),
            u64_hex("Key", &(key as u64)),
            i32("ObjectType", &object.kind.0),
            u32("Object", &object.number),
            codepointer_slice("On", on.as_slice()),
            codepointer("Notification", &notification),
            codepointer_slice("Creator", known(creator)),
        ),
        Step::Closing { key } => {
            write_event!(PROVIDER, "NdkClosing", level(Level::Verbose), keyword(STEPS), u64_hex("Key", &(key as u64)))
        }
        Step::Began { key, call, object, function, caller } => write_event!(
            PROVIDER,
            "NdkBegan",
            level(Level::Verbose),
            keyword(STEPS),
            u64_hex("Key", &(key as u64)),
            u64("Call", &call),
            i32("ObjectType", &object.kind.0),
            u32("Object", &object.number),
            str8("Function", function.name()),
            codepointer_slice("Caller", known(caller)),
        ),
        Step::Ended { key, call } => write_event!(
            PROVIDER,
            "NdkEnded",
            level(Level::Verbose),
            keyword(STEPS),
            u64_hex("Key", &(key as u64)),
            u64("Call", &call),
        ),
        Step::Unarmed { key } => {
            write_event!(PROVIDER, "NdkUnarmed", level(Level::Verbose), keyword(STEPS), u64_hex("Key", &(key as u64)))
        }
        Step::Polled { key, caller } => write_event!(
            PROVIDER,
            "NdkPolled",
            level(Level::Verbose),
            keyword(STEPS),
            u64_hex("Key", &(key as u64)),
            codepointer_slice("Caller", known(caller)),
        ),
        Step::Armed { key } => {
            write_event!(PROVIDER, "NdkArmed", level(Level::Verbose), keyword(STEPS), u64_hex("Key", &(key as u64)))
        }
    };
}

/// A consumer has lent memory, by a call that is on the stack. `IRQL <= DISPATCH_LEVEL`.
pub fn borrowed(os: &impl InterposeOs, holder: Holder, mdl: *mut MDL, length: usize) {
    let (object, mapping) = numbers(holder);
    if !is_following() {
        return;
    }
    let mut caller = [0; FRAMES];
    os.stack(&mut caller);
    write_event!(
        PROVIDER,
        "NdkBorrowed",
        level(Level::Verbose),
        keyword(STEPS),
        u64_hex("Key", &object),
        bool8("IsMapping", &matches!(holder, Holder::Mapping(..))),
        u64("Mapping", &mapping),
        u64_hex("Mdl", &(mdl.addr() as u64)),
        u64("Length", &(length as u64)),
        codepointer_slice("Caller", known(&caller)),
    );
}

/// The memory is the consumer's again. `IRQL <= DISPATCH_LEVEL`.
pub fn given_back(holder: Holder) {
    let (object, mapping) = numbers(holder);
    write_event!(
        PROVIDER,
        "NdkGivenBack",
        level(Level::Verbose),
        keyword(STEPS),
        u64_hex("Key", &object),
        u64("Mapping", &mapping),
    );
}

const fn numbers(holder: Holder) -> (u64, u64) {
    match holder {
        Holder::Region(object) => (object as u64, 0),
        Holder::Mapping(device, key) => (device as u64, key),
    }
}

/// The return addresses that are known.
fn known(frames: &[usize]) -> &[usize] {
    let known = frames.iter().position(|&frame| frame == 0).unwrap_or(frames.len());
    &frames[..known]
}

/// Something has failed on an adapter under the adviser, with the number of its reason; 0 for one that the provider does not have.
pub fn failure(what: &str, object: ObjectId, status: NtStatus, reason: Option<&Reason>) {
    write_event!(
        PROVIDER,
        "Failure",
        level(Level::Informational),
        str8("What", what),
        i32("ObjectType", &object.kind.0),
        u32("Object", &object.number),
        i32_hex("Status", &status.0),
        u16("Reason", &reason.map_or(0, Reason::number)),
        str8("Why", reason.map_or("", |reason| reason.what)),
    );
}

/// Faults were asked for, or none any more.
pub fn fault_plan(plan: &Plan) {
    write_event!(
        PROVIDER,
        "FaultPlan",
        level(Level::Warning),
        u32("Rules", &u32::try_from(plan.rules().count()).unwrap_or(0)),
        u64("Seed", &plan.seed),
    );
}

/// The settings were changed.
pub fn settings(settings: Settings) {
    write_event!(
        PROVIDER,
        "Settings",
        level(Level::Informational),
        u32("CompletionMode", &settings.completion_mode),
        u32("ModerationGranularity", &settings.moderation_granularity),
        u32("NicMode", &settings.nic_mode),
    );
}

/// NDK is enabled on an adapter of NDIS, or disabled.
pub fn ndk(adapter: u8, enabled: bool) {
    write_event!(PROVIDER, "Ndk", level(Level::Informational), u8("Adapter", &adapter), bool8("Enabled", &enabled),);
}

/// An adapter of NDIS does not have an address that its interface has: the other end of the cable has it, or there is no room.
pub fn address_left_out(adapter: u8, address: IpAddr, status: NtStatus) {
    write_event!(
        PROVIDER,
        "AddressLeftOut",
        level(Level::Warning),
        u8("Adapter", &adapter),
        socketaddress("Address", &socket::bytes(SocketAddr::new(address, 0))),
        i32_hex("Status", &status.0),
    );
}

/// An adapter of NDIS has a new address, or one less.
pub fn address(adapter: u8, address: IpAddr, is_new: bool) {
    write_event!(
        PROVIDER,
        "Address",
        level(Level::Informational),
        u8("Adapter", &adapter),
        socketaddress("Address", &socket::bytes(SocketAddr::new(address, 0))),
        bool8("New", &is_new),
    );
}

/// A keyword of an adapter of NDIS has a value that it cannot have.
pub fn keyword_refused(adapter: u8, keyword: &str, why: &str) {
    write_event!(
        PROVIDER,
        "KeywordRefused",
        level(Level::Error),
        u8("Adapter", &adapter),
        str8("Keyword", keyword),
        str8("Why", why),
    );
}

/// What a wire had to repeat, and what it was refused: how often in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Troubles {
    /// NAKs that went out, RNR NAKs among them.
    pub naks_sent: u64,
    /// NAKs that came in, without RNR NAKs.
    pub naks_received: u64,
    /// RNR NAKs that came in.
    pub rnr_naks_received: u64,
    /// Requests that were sent again after a NAK or an answer that shows a loss.
    pub retries: u64,
    /// Answers that were waited for in vain.
    pub timeouts: u64,
    /// Messages of the connection manager that were sent again.
    pub cm_retries: u64,
}

/// Connections of the wire of an adapter of NDIS had troubles: at most once a second for an adapter. `IRQL <= DISPATCH_LEVEL`.
pub fn wire_troubles(adapter: u8, troubles: &Troubles) {
    write_event!(
        PROVIDER,
        "WireTroubles",
        level(Level::Warning),
        u8("Adapter", &adapter),
        u64("NaksSent", &troubles.naks_sent),
        u64("NaksReceived", &troubles.naks_received),
        u64("RnrNaksReceived", &troubles.rnr_naks_received),
        u64("Retries", &troubles.retries),
        u64("TimeOuts", &troubles.timeouts),
        u64("CmRetries", &troubles.cm_retries),
    );
}

/// The wire of an adapter of NDIS has a socket at that address, or has none any more.
pub fn wire(adapter: u8, is_up: bool, local: SocketAddr) {
    write_event!(
        PROVIDER,
        "Wire",
        level(Level::Informational),
        u8("Adapter", &adapter),
        bool8("Up", &is_up),
        socketaddress("Local", &socket::bytes(local)),
    );
}

/// The wire of an adapter of NDIS has no socket, for this reason; it tries again.
pub fn wire_failed(adapter: u8, local: SocketAddr, status: NtStatus) {
    write_event!(
        PROVIDER,
        "WireFailed",
        level(Level::Warning),
        u8("Adapter", &adapter),
        socketaddress("Local", &socket::bytes(local)),
        i32_hex("Status", &status.0),
    );
}

/// The socket of a wire does not work any more. `IRQL <= DISPATCH_LEVEL`.
pub fn wire_broken(adapter: u8, status: NtStatus) {
    write_event!(PROVIDER, "WireBroken", level(Level::Warning), u8("Adapter", &adapter), i32_hex("Status", &status.0),);
}

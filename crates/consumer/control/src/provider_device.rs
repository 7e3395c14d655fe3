//! The control devices of the two providers, `softndk` and `softndknic`: each has one of its own, with the same control codes.
//!
//! Only administrators and the system can open it ([`SDDL`]). Every control code is `METHOD_BUFFERED`. An input shorter than
//! its structure and an output without room are `STATUS_BUFFER_TOO_SMALL`, a longer input is `STATUS_INVALID_PARAMETER`, an
//! unknown code is `STATUS_INVALID_DEVICE_REQUEST`, and a value out of range changes nothing and is
//! `STATUS_INVALID_PARAMETER`.

use crate::wire::{READ, WRITE, control_code, wire};

/// The name of `softndk`'s device in the kernel.
pub const DEVICE_NAME: &str = r"\Device\SoftNdkControl";
/// Its name for programs, in the kernel's spelling.
pub const LINK_NAME: &str = r"\DosDevices\Global\SoftNdkControl";
/// Its name for `CreateFile`.
pub const WIN32_NAME: &str = r"\\.\Global\SoftNdkControl";
/// The name of `softndknic`'s device in the kernel.
pub const NIC_DEVICE_NAME: &str = r"\Device\SoftNdkNicControl";
/// Its name for programs, in the kernel's spelling.
pub const NIC_LINK_NAME: &str = r"\DosDevices\Global\SoftNdkNicControl";
/// Its name for `CreateFile`.
pub const NIC_WIN32_NAME: &str = r"\\.\Global\SoftNdkNicControl";
/// Who may open it: the system and administrators, everything; nobody else, nothing.
pub const SDDL: &str = "D:P(A;;GA;;;SY)(A;;GA;;;BA)";

/// Answers with an [`Info`].
pub const QUERY_INFO: u32 = control_code(0, READ);
/// Answers with an `NDIS_NDK_PERFORMANCE_COUNTERS` (NDIS-NDK 3), the sum over all adapters.
pub const QUERY_COUNTERS: u32 = control_code(1, READ);
/// Answers with an `NDIS_NDK_CONNECTIONS` (NDIS-NDK 3). If not all fit: `STATUS_BUFFER_OVERFLOW`, as many as fit, and
/// the total number in `Count`.
pub const QUERY_CONNECTIONS: u32 = control_code(2, READ);
/// Answers with the [`Settings`] in force.
pub const QUERY_SETTINGS: u32 = control_code(3, READ);
/// Takes [`Settings`], for adapters opened from now on.
pub const SET_SETTINGS: u32 = control_code(4, WRITE);
/// Takes [`Faults`]. Only in test builds of the driver; others return `STATUS_NOT_SUPPORTED`.
pub const SET_FAULTS: u32 = control_code(5, WRITE);
/// Takes a [`Recording`]: starts one of all adapters opened from now on, or ends the running one.
pub const SET_RECORDING: u32 = control_code(8, WRITE);
/// Answers with a [`RecordingState`].
pub const QUERY_RECORDING: u32 = control_code(9, READ);
/// Takes a [`RecordingFrom`] and answers with a [`RecordingPart`] and slots of [`SLOT_BYTES`] behind it, as many as fit.
///
/// `STATUS_INVALID_PARAMETER` if the generation is not that of the recording.
pub const READ_RECORDING: u32 = control_code(10, READ);

/// Answers with a [`Wires`], and a [`Wire`] behind it for each adapter that has a wire. If not all fit: `STATUS_BUFFER_OVERFLOW`, as many
/// bytes as fit, and the total number in `count`.
pub const QUERY_WIRES: u32 = control_code(11, READ);

/// Takes an [`Adviser`]: what the adviser does with what consumers do that open an adapter from now on.
pub const SET_ADVISER: u32 = control_code(12, WRITE);
/// Answers with an [`Advice`], and behind it a number of four bytes for each finding.
///
/// It is how often that was made, the sum over all adapters; that of `SN0001` is first. If not all fit: `STATUS_BUFFER_OVERFLOW`, as many
/// bytes as fit, and the total number in `count`.
pub const QUERY_ADVICE: u32 = control_code(13, READ);

/// Takes the fault plan for adapters opened from now on: [`FAULT_PLAN_BYTES`] in the format of `interpose::faults::Plan`. A plan
/// without rules stops fault injection.
pub const SET_FAULT_PLAN: u32 = control_code(6, WRITE);
/// Answers with the plan in force, and for each of its eight rules two numbers of eight bytes: how many calls matched it, and how
/// many faults it injected. [`FAULT_PLAN_ANSWER_BYTES`].
pub const QUERY_FAULT_PLAN: u32 = control_code(7, READ);

/// The input of [`SET_FAULT_PLAN`], in bytes.
pub const FAULT_PLAN_BYTES: usize = 400;
/// The answer to [`QUERY_FAULT_PLAN`], in bytes.
pub const FAULT_PLAN_ANSWER_BYTES: usize = FAULT_PLAN_BYTES + 128;

wire! {
    /// The driver's version and load.
    Info {
        /// [`crate::SOFTNDK_INTERFACE_VERSION`].
        interface_version: u32,
        /// The driver's version: three numbers of ten bits, the first one highest.
        driver_version: u32,
        /// The highest version of NDKPI offered, with the major number in the upper half.
        ndk_version: u32,
        /// Bit 0: a test build, with [`SET_FAULTS`].
        flags: u32,
        /// Started adapters.
        adapters: u32,
        /// `NDK_ADAPTER`s that consumers have open.
        open_adapters: u32,
        /// Processors that DPCs run on.
        processors: u32,
        /// Zero.
        reserved: u32,
    }
}

/// The flag of [`Info`] for a test build.
pub const INFO_TEST_BUILD: u32 = 1;

wire! {
    /// The settings that can be changed while the driver runs. The registry has the initial values.
    Settings {
        /// How requests complete that could complete within the call: a [`CompletionMode`].
        completion_mode: u32,
        /// The timer granularity of moderated notifications, in microseconds: 1 to 100000.
        moderation_granularity: u32,
        /// Where requests of queue pairs created from now on are carried out: a [`NicMode`].
        nic_mode: u32,
    }
}

/// The range of [`Settings::moderation_granularity`].
pub const MODERATION_GRANULARITY: core::ops::RangeInclusive<u32> = 1..=100_000;

/// How requests complete that could complete within the call (NDKPI 5.0).
///
/// A consumer must handle all of these, but most providers only ever do one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CompletionMode {
    /// Within the call: its status is the result.
    Inline = 0,
    /// `STATUS_PENDING`, and a callback later.
    Pending = 1,
    /// A callback before the call returns `STATUS_PENDING`.
    Early = 2,
    /// Any of these, varying from call to call.
    Mixed = 3,
}

impl CompletionMode {
    /// The mode with that number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Inline),
            1 => Some(Self::Pending),
            2 => Some(Self::Early),
            3 => Some(Self::Mixed),
            _ => None,
        }
    }
}

/// Where work requests are carried out. A consumer sees no difference in behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum NicMode {
    /// In DPCs, as hardware would: concurrently with the consumer.
    Deferred = 0,
    /// In the consumer's post where possible, otherwise in DPCs.
    Direct = 1,
}

impl NicMode {
    /// The mode with that number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Deferred),
            1 => Some(Self::Direct),
            _ => None,
        }
    }
}

impl Settings {
    /// Returns true if every value is in its range.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        CompletionMode::from_number(self.completion_mode).is_some()
            && NicMode::from_number(self.nic_mode).is_some()
            && MODERATION_GRANULARITY.contains(&self.moderation_granularity)
    }
}

wire! {
    /// Failures to inject, for tests of consumers.
    Faults {
        /// Allocations of the driver are counted from this call on, and each multiple of this number fails; zero: none.
        fail_every_allocation: u32,
        /// Not zero: every existing connection breaks, as if a cable were pulled and plugged in again.
        lose_connections: u32,
    }
}

wire! {
    /// A request for a recording (`docs/recorder.md`).
    Recording {
        /// Slots of [`SLOT_BYTES`] in the non-paged pool: one of [`RECORDING_SLOTS`], rounded up to a power of two. 0 ends the
        /// running recording, which can be read until the next one starts.
        slots: u32,
        /// What to keep when the ring is full: 0 the oldest records, 1 the newest.
        keep: u32,
    }
}

/// The size of a slot of a recording, in bytes.
pub const SLOT_BYTES: usize = 64;
/// The range of [`Recording::slots`] besides 0: 16 KiB to 64 MiB.
pub const RECORDING_SLOTS: core::ops::RangeInclusive<u32> = 1 << 8..=1 << 20;

impl Recording {
    /// Returns true if every value is in its range.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        (self.slots == 0 || RECORDING_SLOTS.contains(&self.slots)) && self.keep <= 1
    }
}

wire! {
    /// The latest recording.
    RecordingState {
        /// Its number of slots; 0 if there has been no recording since the driver was loaded.
        slots: u32,
        /// Not zero while it is running.
        is_on: u32,
        /// The generation, which tells recordings apart.
        generation: u32,
        /// Processors of the machine.
        processors: u32,
        /// The ordinal of the first slot that may still exist.
        first: u64,
        /// The ordinal after the last one.
        end: u64,
        /// The number of slots dropped because the ring was full.
        lost: u64,
    }
}

wire! {
    /// The slots to read.
    RecordingFrom {
        /// The first ordinal.
        ordinal: u64,
        /// The generation from [`RecordingState`].
        generation: u32,
        /// Zero.
        reserved: u32,
    }
}

wire! {
    /// The adviser of a driver (`docs/adviser.md`).
    Adviser {
        /// As the registry's `Advise` has it: one of [`ADVISER_MODES`].
        mode: u32,
    }
}

/// The range of [`Adviser::mode`]: off, log, count, break, bugcheck.
pub const ADVISER_MODES: core::ops::RangeInclusive<u32> = 0..=4;

wire! {
    /// The header before the findings.
    Advice {
        /// [`Adviser::mode`] in force.
        mode: u32,
        /// How many findings the driver's adviser knows.
        count: u32,
    }
}

wire! {
    /// The header before the wires.
    Wires {
        /// How many adapters have a wire.
        count: u32,
        /// [`Wire::BYTES`] of the driver: a later one may have more at the end.
        bytes: u32,
    }
}

/// The most peers of one wire.
pub const WIRE_PEERS: usize = 16;

wire! {
    /// The wire of an adapter of `softndknic`: what its keywords say, and what it has counted since the adapter was started.
    Wire {
        /// The adapter, as the driver's trace events have it.
        adapter: u32,
        /// Not zero if there is a socket: the link is up.
        is_up: u32,
        /// `WireVni`.
        vni: u32,
        /// How many of `peers` are peers.
        peer_count: u32,
        /// `WireLocal` with `WirePort`: a `SOCKADDR_INET`, the wildcard address if none is given.
        local: [u8; 28],
        /// Zero.
        reserved: u32,
        /// `WirePeer`: a `SOCKADDR_INET` each.
        peers: [[u8; 28]; WIRE_PEERS],
        /// Ethernet frames of RDMA, ARP and neighbour discovery that came in.
        frames_received: u64,
        /// Those that went out.
        frames_sent: u64,
        /// Frames of any kind that were lost on their way out: there was no socket or no room, or Winsock Kernel did not take them.
        lost: u64,
        /// Packets that are no packets of RoCEv2, or not for this adapter.
        malformed: u64,
        /// Packets whose ICRC was wrong.
        wrong_icrc: u64,
        /// Packets that no queue pair takes: there is none, or it has another peer, partition or state.
        not_taken: u64,
        /// Requests of a peer that came a second time.
        duplicates: u64,
        /// Requests of a peer of which one before is missing.
        out_of_order: u64,
        /// NAKs that went out, RNR NAKs among them.
        naks_sent: u64,
        /// NAKs that came in, without RNR NAKs.
        naks_received: u64,
        /// RNR NAKs that came in.
        rnr_naks_received: u64,
        /// Times that requests were sent again because a NAK or an answer has shown a loss.
        retries: u64,
        /// Times that an answer was waited for in vain.
        timeouts: u64,
        /// Messages of the connection manager that were sent again.
        cm_retries: u64,
        /// Connections that were refused because there was no room for more.
        refused: u64,
    }
}

wire! {
    /// The header before the slots.
    RecordingPart {
        /// The ordinal to continue with.
        next: u64,
        /// The ordinal after the last slot, now.
        end: u64,
    }
}

//! The provider's control device.
//!
//! Only administrators and the system can open it ([`SDDL`]). Every control code is `METHOD_BUFFERED`. An input shorter than
//! its structure and an output without room are `STATUS_BUFFER_TOO_SMALL`, a longer input is `STATUS_INVALID_PARAMETER`, an
//! unknown code is `STATUS_INVALID_DEVICE_REQUEST`, and a value out of range changes nothing and is
//! `STATUS_INVALID_PARAMETER`.

use crate::wire::{READ, WRITE, control_code, wire};

/// The device's name in the kernel.
pub const DEVICE_NAME: &str = r"\Device\SoftNdkControl";
/// Its name for programs, in the kernel's spelling.
pub const LINK_NAME: &str = r"\DosDevices\Global\SoftNdkControl";
/// Its name for `CreateFile`.
pub const WIN32_NAME: &str = r"\\.\Global\SoftNdkControl";
/// Who may open it: the system and administrators, everything; nobody else, nothing.
pub const SDDL: &str = "D:P(A;;GA;;;SY)(A;;GA;;;BA)";

/// Answers with an [`Info`].
pub const QUERY_INFO: u32 = control_code(0, READ);
/// Answers with an `NDIS_NDK_PERFORMANCE_COUNTERS` (NDIS-NDK 3), the sum over all adapters.
pub const QUERY_COUNTERS: u32 = control_code(1, READ);
/// Answers with an `NDIS_NDK_CONNECTIONS` (NDIS-NDK 3). Too little room for all of them is `STATUS_BUFFER_OVERFLOW`, with as
/// many as there is room for and the true number in `Count`.
pub const QUERY_CONNECTIONS: u32 = control_code(2, READ);
/// Answers with the [`Settings`] in force.
pub const QUERY_SETTINGS: u32 = control_code(3, READ);
/// Takes [`Settings`], for what is opened from now on.
pub const SET_SETTINGS: u32 = control_code(4, WRITE);
/// Takes [`Faults`]. Only in test builds of the driver; others say `STATUS_NOT_SUPPORTED`.
pub const SET_FAULTS: u32 = control_code(5, WRITE);
/// Takes a [`Recording`]: begins one of all adapters that are opened from now on, or ends the one that goes on.
pub const SET_RECORDING: u32 = control_code(8, WRITE);
/// Answers with a [`RecordingState`].
pub const QUERY_RECORDING: u32 = control_code(9, READ);
/// Takes a [`RecordingFrom`] and answers with a [`RecordingPart`] and slots of [`SLOT_BYTES`] behind it, as many as fit.
///
/// A generation that is not that of the recording is `STATUS_INVALID_PARAMETER`.
pub const READ_RECORDING: u32 = control_code(10, READ);

/// Takes the faults for what is opened from now on: [`FAULT_PLAN_BYTES`], as `interpose::faults::Plan` has them. A plan without
/// rules ends them.
pub const SET_FAULT_PLAN: u32 = control_code(6, WRITE);
/// Answers with the plan in force, and for each of its eight rules two numbers of eight bytes: the calls that it was about, and how
/// often it has happened. [`FAULT_PLAN_ANSWER_BYTES`].
pub const QUERY_FAULT_PLAN: u32 = control_code(7, READ);

/// The input of [`SET_FAULT_PLAN`], in bytes.
pub const FAULT_PLAN_BYTES: usize = 400;
/// The answer to [`QUERY_FAULT_PLAN`], in bytes.
pub const FAULT_PLAN_ANSWER_BYTES: usize = FAULT_PLAN_BYTES + 128;

wire! {
    /// What the driver is and how busy.
    Info {
        /// [`crate::SOFTNDK_INTERFACE_VERSION`].
        interface_version: u32,
        /// The driver's version: three numbers of ten bits, the first one highest.
        driver_version: u32,
        /// The highest version of NDKPI that is offered: major number in the upper half.
        ndk_version: u32,
        /// Bit 0: a test build, with [`SET_FAULTS`].
        flags: u32,
        /// Adapters that are started.
        adapters: u32,
        /// `NDK_ADAPTER`s that consumers have open.
        open_adapters: u32,
        /// Processors that deferred calls run on.
        processors: u32,
        /// Zero.
        reserved: u32,
    }
}

/// The flag of [`Info`] for a test build.
pub const INFO_TEST_BUILD: u32 = 1;

wire! {
    /// What can be changed while the driver runs. The registry has the values it starts with.
    Settings {
        /// How requests that could complete at once do: a [`CompletionMode`].
        completion_mode: u32,
        /// Moderated notifications are not timed finer than this, in microseconds: 1 to 100000.
        moderation_granularity: u32,
        /// Where queue pairs that are made from now on carry requests out: a [`NicMode`].
        nic_mode: u32,
    }
}

/// The range of [`Settings::moderation_granularity`].
pub const MODERATION_GRANULARITY: core::ops::RangeInclusive<u32> = 1..=100_000;

/// How requests complete that could complete in the call (NDKPI 5.0).
///
/// A consumer must get along with all of them, and most providers only ever do one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CompletionMode {
    /// In the call: its status is the result.
    Inline = 0,
    /// `STATUS_PENDING`, and a callback later.
    Pending = 1,
    /// A callback before the call returns `STATUS_PENDING`.
    Early = 2,
    /// Any of these, changing from call to call.
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

/// Which engine carries work requests out. What a consumer can see is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum NicMode {
    /// Deferred calls, as hardware would: beside the consumer, after its call has returned or while it runs.
    Deferred = 0,
    /// The consumer's call that posts them, if that is possible; otherwise deferred calls.
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
    /// Failures to be shown to consumers, whose tests want some.
    Faults {
        /// Every allocation of the driver fails whose number, counted from this call on, is a multiple of this; zero: none.
        fail_every_allocation: u32,
        /// Not zero: every connection that there is now breaks, as if a cable were pulled and put back.
        lose_connections: u32,
    }
}

wire! {
    /// A recording that is wanted (`docs/recorder.md`).
    Recording {
        /// Slots of [`SLOT_BYTES`] in the non-paged pool: one of [`RECORDING_SLOTS`], rounded up to a power of two. 0 ends the
        /// recording that goes on, which can be read until the next one begins.
        slots: u32,
        /// What is kept when there is no more room: 0 what came first, 1 what came last.
        keep: u32,
    }
}

/// Bytes of a slot of a recording.
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
        /// Its slots; 0 if there has been none since the driver was loaded.
        slots: u32,
        /// Not zero: it goes on.
        is_on: u32,
        /// Tells it from others.
        generation: u32,
        /// Processors of the machine.
        processors: u32,
        /// The ordinal of the first slot that can be there.
        first: u64,
        /// The ordinal after the last one.
        end: u64,
        /// Slots that came when there was no room.
        lost: u64,
    }
}

wire! {
    /// Which slots are wanted.
    RecordingFrom {
        /// From this ordinal on.
        ordinal: u64,
        /// That of [`RecordingState`].
        generation: u32,
        /// Zero.
        reserved: u32,
    }
}

wire! {
    /// What stands in front of slots.
    RecordingPart {
        /// The ordinal to go on with.
        next: u64,
        /// The ordinal after the last slot, now.
        end: u64,
    }
}

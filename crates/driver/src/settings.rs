//! What can be set in the registry, with ranges and defaults (`docs/registry.md`).

use kernel::{wdf::Key, wide};
use ndk_interface::control::{self, CompletionMode, MODERATION_GRANULARITY};
use ndkpi::NtStatus;

/// A number in the registry.
struct Number<const N: usize> {
    name: [u16; N],
    range: core::ops::RangeInclusive<u32>,
    default: u32,
}

impl<const N: usize> Number<N> {
    /// The value; the default if there is none or it is out of range.
    fn read(&self, key: &Key) -> u32 {
        key.number(&self.name).filter(|value| self.range.contains(value)).unwrap_or(self.default)
    }
}

const COMPLETION_MODE: Number<14> = Number { name: wide("CompletionMode"), range: 0..=3, default: 0 };
const GRANULARITY: Number<21> =
    Number { name: wide("ModerationGranularity"), range: MODERATION_GRANULARITY, default: 1000 };
const MAX_CQ_DEPTH: Number<10> = Number { name: wide("MaxCqDepth"), range: 16..=1 << 22, default: 1 << 20 };
const MAX_QUEUE_DEPTH: Number<13> = Number { name: wide("MaxQueueDepth"), range: 16..=1 << 16, default: 1 << 14 };
const MAX_CQS: Number<6> = Number { name: wide("MaxCqs"), range: 1..=1 << 20, default: 1 << 16 };
const MAX_QPS: Number<6> = Number { name: wide("MaxQps"), range: 1..=1 << 20, default: 1 << 14 };
const MAX_PDS: Number<6> = Number { name: wide("MaxPds"), range: 1..=1 << 20, default: 1 << 14 };

/// The settings of the driver. Every value is in its range.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How requests complete that could complete in the call.
    pub completion_mode: CompletionMode,
    /// Delays are not timed finer than this, in microseconds.
    pub moderation_granularity: u32,
    max_cq_depth: u32,
    max_queue_depth: u32,
    max_cqs: u32,
    max_qps: u32,
    max_pds: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            completion_mode: CompletionMode::Inline,
            moderation_granularity: GRANULARITY.default,
            max_cq_depth: MAX_CQ_DEPTH.default,
            max_queue_depth: MAX_QUEUE_DEPTH.default,
            max_cqs: MAX_CQS.default,
            max_qps: MAX_QPS.default,
            max_pds: MAX_PDS.default,
        }
    }
}

impl Settings {
    /// Reads the settings; each that is missing or out of range has its default.
    #[must_use]
    pub fn read(key: &Key) -> Self {
        Self {
            completion_mode: CompletionMode::from_number(COMPLETION_MODE.read(key)).unwrap_or(CompletionMode::Inline),
            moderation_granularity: GRANULARITY.read(key),
            max_cq_depth: MAX_CQ_DEPTH.read(key),
            max_queue_depth: MAX_QUEUE_DEPTH.read(key),
            max_cqs: MAX_CQS.read(key),
            max_qps: MAX_QPS.read(key),
            max_pds: MAX_PDS.read(key),
        }
    }

    /// Changes what can be changed while the driver runs.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if a value is out of its range; then nothing has changed.
    pub fn change(&mut self, new: &control::Settings) -> Result<(), NtStatus> {
        let mode = CompletionMode::from_number(new.completion_mode).filter(|_| new.is_valid());
        self.completion_mode = mode.ok_or(NtStatus::INVALID_PARAMETER)?;
        self.moderation_granularity = new.moderation_granularity;
        Ok(())
    }

    /// What the control device says of them.
    #[must_use]
    pub const fn wire(&self) -> control::Settings {
        control::Settings {
            completion_mode: self.completion_mode as u32,
            moderation_granularity: self.moderation_granularity,
        }
    }

    /// What the provider is told.
    #[must_use]
    pub fn provider_config(&self) -> provider::Config {
        let mut config = provider::Config {
            max_cqs: self.max_cqs,
            max_qps: self.max_qps,
            max_pds: self.max_pds,
            mode: Self::provider_mode(self.completion_mode),
            ..provider::Config::default()
        };
        config.info.MaxCqDepth = self.max_cq_depth;
        config.info.MaxInitiatorQueueDepth = self.max_queue_depth;
        config.info.MaxReceiveQueueDepth = self.max_queue_depth;
        config.info.MaxSrqDepth = self.max_queue_depth;
        config
    }

    /// The provider's name for a mode.
    #[must_use]
    pub const fn provider_mode(mode: CompletionMode) -> provider::CompletionMode {
        match mode {
            CompletionMode::Inline => provider::CompletionMode::Inline,
            CompletionMode::Pending => provider::CompletionMode::Pending,
            CompletionMode::Early => provider::CompletionMode::Early,
            CompletionMode::Mixed => provider::CompletionMode::Mixed,
        }
    }
}

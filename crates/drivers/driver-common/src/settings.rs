//! What can be set in the registry, with ranges and defaults (`docs/registry.md`).

use core::net::IpAddr;

use control::provider_device::{self, CompletionMode, MODERATION_GRANULARITY, NicMode, RECORDING_SLOTS};
use engine::{
    connection::InterfaceAddress,
    memory::{FastTokens, MemoryLimits},
};
use kernel::{
    wdf::{Key, REGISTRY_LIST_BYTES},
    wide,
};
use ndkpi::NtStatus;
use provider::{
    Profile,
    device::{self, MAX_ADDRESSES},
};

use crate::advise::Advise;

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

const COMPLETION_MODE: Number<14> = Number { name: wide("CompletionMode"), range: 0..=3, default: 3 };
const PROFILE: Number<7> = Number { name: wide("Profile"), range: 0..=5, default: 0 };
const GRANULARITY: Number<21> =
    Number { name: wide("ModerationGranularity"), range: MODERATION_GRANULARITY, default: 1000 };
const NIC_MODE: Number<7> = Number { name: wide("NicMode"), range: 0..=1, default: 0 };
const MAX_CQ_DEPTH: Number<10> = Number { name: wide("MaxCqDepth"), range: 16..=1 << 22, default: 1 << 20 };
const MAX_QUEUE_DEPTH: Number<13> = Number { name: wide("MaxQueueDepth"), range: 16..=1 << 16, default: 1 << 14 };
const MAX_CQS: Number<6> = Number { name: wide("MaxCqs"), range: 1..=1 << 20, default: 1 << 16 };
const MAX_QPS: Number<6> = Number { name: wide("MaxQps"), range: 1..=1 << 20, default: 1 << 14 };
const MAX_TOKENS: Number<9> =
    Number { name: wide("MaxTokens"), range: 16..=MemoryLimits::MAX.tokens, default: 1 << 20 };
const ROTATE_TOKENS: Number<12> = Number { name: wide("RotateTokens"), range: 0..=1, default: 0 };
const BACKLOG: Number<7> = Number { name: wide("Backlog"), range: 1..=1 << 16, default: 128 };
const RNR_RETRIES: Number<10> = Number { name: wide("RnrRetries"), range: 0..=7, default: device::RNR_RETRIES };
const RNR_TIMER: Number<8> =
    Number { name: wide("RnrTimer"), range: 10..=device::RNR_TIMER, default: device::RNR_TIMER };
const ND_USERS: Number<7> = Number { name: wide("NdUsers"), range: 0..=1, default: 0 };
const ADVISE: Number<6> = Number { name: wide("Advise"), range: 0..=4, default: 0 };
const RECORD: Number<6> = Number { name: wide("Record"), range: 0..=*RECORDING_SLOTS.end(), default: 0 };
const MAX_PDS: Number<6> = Number { name: wide("MaxPds"), range: 1..=1 << 20, default: 1 << 14 };

/// The settings of the driver. Every value is in its range.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How requests complete that could complete in the call.
    pub completion_mode: CompletionMode,
    /// Delays are not timed finer than this, in microseconds.
    pub moderation_granularity: u32,
    /// Which engine carries work requests out.
    pub nic_mode: NicMode,
    /// What kind of adapter a device is like.
    pub profile: Profile,
    /// What the adviser does with what it finds of a consumer that opens an adapter from now on.
    pub advise: Advise,
    /// Slots of the recording that begins when the driver is loaded; 0 for none.
    pub record: u32,
    max_cq_depth: u32,
    max_queue_depth: u32,
    max_cqs: u32,
    max_qps: u32,
    max_pds: u32,
    max_tokens: u32,
    fast_tokens: FastTokens,
    backlog: u32,
    rnr_retries: u32,
    rnr_timer: u32,
    nd_users: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            completion_mode: CompletionMode::Mixed,
            moderation_granularity: GRANULARITY.default,
            nic_mode: NicMode::Deferred,
            advise: Advise::Off,
            record: RECORD.default,
            profile: Profile::Own,
            max_cq_depth: MAX_CQ_DEPTH.default,
            max_queue_depth: MAX_QUEUE_DEPTH.default,
            max_cqs: MAX_CQS.default,
            max_qps: MAX_QPS.default,
            max_pds: MAX_PDS.default,
            max_tokens: MAX_TOKENS.default,
            fast_tokens: FastTokens::Stable,
            backlog: BACKLOG.default,
            rnr_retries: RNR_RETRIES.default,
            rnr_timer: RNR_TIMER.default,
            nd_users: false,
        }
    }
}

impl Settings {
    /// Reads the settings; each that is missing or out of range has its default.
    #[must_use]
    pub fn read(key: &Key) -> Self {
        Self {
            completion_mode: CompletionMode::from_number(COMPLETION_MODE.read(key)).unwrap_or(CompletionMode::Mixed),
            moderation_granularity: GRANULARITY.read(key),
            nic_mode: NicMode::from_number(NIC_MODE.read(key)).unwrap_or(NicMode::Deferred),
            profile: Profile::from_number(PROFILE.read(key)).unwrap_or_default(),
            advise: Advise::from_number(ADVISE.read(key)),
            record: RECORD.read(key),
            max_cq_depth: MAX_CQ_DEPTH.read(key),
            max_queue_depth: MAX_QUEUE_DEPTH.read(key),
            max_cqs: MAX_CQS.read(key),
            max_qps: MAX_QPS.read(key),
            max_pds: MAX_PDS.read(key),
            max_tokens: MAX_TOKENS.read(key),
            fast_tokens: if ROTATE_TOKENS.read(key) == 1 { FastTokens::Rotating } else { FastTokens::Stable },
            backlog: BACKLOG.read(key),
            rnr_retries: RNR_RETRIES.read(key),
            rnr_timer: RNR_TIMER.read(key),
            nd_users: ND_USERS.read(key) == 1,
        }
    }

    /// Returns true if programs of all users may open the device for NetworkDirect, and not those of administrators only.
    #[must_use]
    pub const fn nd_users(&self) -> bool {
        self.nd_users
    }

    /// Changes what can be changed while the driver runs.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if a value is out of its range; then nothing has changed.
    pub fn change(&mut self, new: &provider_device::Settings) -> Result<(), NtStatus> {
        let modes = CompletionMode::from_number(new.completion_mode).zip(NicMode::from_number(new.nic_mode));
        let modes = modes.filter(|_| new.is_valid()).ok_or(NtStatus::INVALID_PARAMETER)?;
        (self.completion_mode, self.nic_mode) = modes;
        self.moderation_granularity = new.moderation_granularity;
        Ok(())
    }

    /// What the control device says of them.
    #[must_use]
    pub const fn to_control(&self) -> provider_device::Settings {
        provider_device::Settings {
            completion_mode: self.completion_mode as u32,
            moderation_granularity: self.moderation_granularity,
            nic_mode: self.nic_mode as u32,
        }
    }

    /// What the provider is told.
    #[must_use]
    pub fn provider_config(&self) -> provider::Config {
        let mut config = provider::Config {
            max_cqs: self.max_cqs,
            max_qps: self.max_qps,
            max_pds: self.max_pds,
            max_tokens: self.max_tokens,
            fast_tokens: self.fast_tokens,
            backlog: self.backlog,
            rnr_retries: self.rnr_retries,
            rnr_timer: self.rnr_timer,
            mode: Self::provider_mode(self.completion_mode),
            nic: Self::provider_nic(self.nic_mode),
            ..provider::Config::default()
        };
        config.info.MaxCqDepth = self.max_cq_depth;
        config.info.MaxInitiatorQueueDepth = self.max_queue_depth;
        config.info.MaxReceiveQueueDepth = self.max_queue_depth;
        config.info.MaxSrqDepth = self.max_queue_depth;
        self.profile.limit(&mut config);
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

    /// The provider's name for an engine.
    #[must_use]
    pub const fn provider_nic(mode: NicMode) -> provider::NicMode {
        match mode {
            NicMode::Deferred => provider::NicMode::Deferred,
            NicMode::Direct => provider::NicMode::Direct,
        }
    }
}

const ADDRESSES: [u16; 9] = wide("Addresses");

/// The addresses of an adapter: those that the registry lists for it, or if there is none its usual ones.
#[must_use]
pub fn addresses(key: &Key, number: u8) -> [Option<InterfaceAddress>; MAX_ADDRESSES] {
    let mut room = [0; REGISTRY_LIST_BYTES / 2];
    let list = key.list(&ADDRESSES, &mut room).unwrap_or_default();
    let listed = listed(list, number);
    if listed[0].is_some() { listed } else { provider::Config::addresses_of(number) }
}

/// The entries for an adapter in a list of strings, each with its terminator. An entry that is no address is left out.
fn listed(list: &[u16], number: u8) -> [Option<InterfaceAddress>; MAX_ADDRESSES] {
    let mut addresses = [None; MAX_ADDRESSES];
    let entries = list.split(|unit| *unit == 0).filter_map(parse);
    let own = entries.filter(|(of, _)| *of == number).map(|(_, address)| address);
    for (place, address) in addresses.iter_mut().zip(own) {
        *place = Some(address);
    }
    addresses
}

/// `NUMBER=ADDRESS/PREFIX`; an address of a link may have a scope id, as in `1=fe80::1%7/64`.
fn parse(units: &[u16]) -> Option<(u8, InterfaceAddress)> {
    /// No entry is longer.
    const MOST: usize = 64;
    let mut bytes = [0; MOST];
    let text = bytes.get_mut(..units.len())?;
    for (byte, unit) in text.iter_mut().zip(units) {
        *byte = u8::try_from(*unit).ok().filter(u8::is_ascii)?;
    }
    let (number, rest) = core::str::from_utf8(text).ok()?.split_once('=')?;
    let (address, prefix) = rest.split_once('/')?;
    let (address, scope) = match address.trim().split_once('%') {
        Some((address, scope)) => (address, scope.parse().ok()?),
        None => (address.trim(), 0),
    };
    let address: IpAddr = address.parse().ok()?;
    let prefix = prefix.trim().parse().ok()?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let address = InterfaceAddress::new(address, prefix).in_scope(scope);
    (prefix <= longest).then_some((number.trim().parse().ok()?, address))
}

#[cfg(test)]
mod tests {
    use std::{string::ToString, vec::Vec};

    use super::listed;

    fn list(entries: &[&str]) -> Vec<u16> {
        entries.iter().flat_map(|entry| entry.encode_utf16().chain([0])).chain([0]).collect()
    }

    #[test]
    fn addresses_go_to_their_adapter_and_nonsense_is_left_out() {
        let list = list(&["1=10.0.0.1/8", "2=fd00::2/64", "1=fd00::1/64", "1=300.0.0.1/8", "x", "1=10.0.0.2/33", "=/"]);
        let shown = |number| {
            let addresses = listed(&list, number);
            addresses.iter().flatten().map(|one| one.address.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(shown(1), ["10.0.0.1", "fd00::1"]);
        assert_eq!(shown(2), ["fd00::2"]);
        assert!(shown(3).is_empty());
    }
}

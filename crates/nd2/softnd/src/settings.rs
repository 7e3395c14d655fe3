//! Settings of an adapter: a file, and variables of the environment, which come after it.
//!
//! ```text
//! SOFTND_CONFIG=C:\softnd.conf      the file: a line `name = value` for each setting, and comments after `#`
//! SOFTND_QUEUE_PAIRS=64             a variable for each setting, named as it is
//! ```

use std::net::IpAddr;

use delay::Delay;
use engine::nic::NicMode;
use nd2::{Config, Resource};
use ndkpi::NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED;
use provider::Profile;

use crate::choice::Wanted;

/// The variable that names the file.
pub const FILE: &str = "SOFTND_CONFIG";

/// The setting that others come after.
const PROFILE: &str = "profile";

/// An adapter as somebody wants it.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// What it can do, and how it behaves.
    pub config: Config,
    /// The kind of adapter that it is like.
    pub profile: Profile,
    /// The addresses it has; those of the machine's interfaces if there are none.
    pub addresses: Vec<IpAddr>,
    /// Where it is. In the driver it is as the driver's settings say, and those here do not count.
    pub back_end: Wanted,
    /// What goes well is told too, and not only what goes wrong.
    pub verbose: bool,
}

/// A field of the adapter's description, or beside it, that is a number.
type Field = fn(&mut Config) -> &mut u32;

/// Numbers besides the limits of [`Resource`], with their names and what they can be.
const NUMBERS: [(&str, std::ops::RangeInclusive<u32>, Field); 17] = [
    ("backlog", 1..=1 << 20, |config| &mut config.max_backlog),
    ("notify_requests", 1..=1 << 20, |config| &mut config.max_notify_requests),
    ("receive_queue_depth", 1..=1 << 20, |config| &mut config.info.MaxReceiveQueueDepth),
    ("initiator_queue_depth", 1..=1 << 20, |config| &mut config.info.MaxInitiatorQueueDepth),
    ("shared_receive_queue_depth", 0..=1 << 20, |config| &mut config.info.MaxSharedReceiveQueueDepth),
    ("completion_queue_depth", 1..=1 << 24, |config| &mut config.info.MaxCompletionQueueDepth),
    ("initiator_elements", 1..=256, |config| &mut config.info.MaxInitiatorSge),
    ("receive_elements", 1..=256, |config| &mut config.info.MaxReceiveSge),
    ("read_elements", 1..=256, |config| &mut config.info.MaxReadSge),
    ("inline_bytes", 0..=1 << 16, |config| &mut config.info.MaxInlineDataSize),
    ("transfer_bytes", 1..=1 << 30, |config| &mut config.info.MaxTransferLength),
    ("inbound_reads", 1..=1 << 16, |config| &mut config.info.MaxInboundReadLimit),
    ("outbound_reads", 1..=1 << 16, |config| &mut config.info.MaxOutboundReadLimit),
    ("caller_data", 0..=1024, |config| &mut config.info.MaxCallerData),
    ("callee_data", 0..=1024, |config| &mut config.info.MaxCalleeData),
    // Zero: never.
    ("refuse_every", 0..=u32::MAX, |config| &mut config.faults.refuse_every),
    ("disconnect_after", 0..=u32::MAX, |config| &mut config.faults.disconnect_after),
];

/// A delay.
type DelayField = fn(&mut Config) -> &mut Delay;

/// Delays, with their names.
const DELAYS: [(&str, DelayField); 2] = [
    ("completion_delay", |config| &mut config.faults.completion_delay),
    ("request_delay", |config| &mut config.faults.request_delay),
];

impl Settings {
    /// The settings that the environment asks for: `variable` gives the value of a variable, `read` the text of a file.
    ///
    /// # Errors
    ///
    /// What is wrong, in one line: a file that cannot be read, a setting that there is not, a value it cannot have.
    pub fn load(
        variable: impl Fn(&str) -> Option<String>,
        read: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<Self, String> {
        let mut settings = Self::default();
        let file = variable(FILE);
        let text = file.as_ref().map(|path| read(path).map_err(|error| format!("{path}: {error}"))).transpose()?;
        // A profile is what the others begin with, wherever it stands.
        for is_wanted in [|name: &str| name == PROFILE, |name: &str| name != PROFILE] {
            for (path, text) in file.iter().zip(&text) {
                for (number, line) in (1..).zip(text.lines()) {
                    let set = settings.line(line, is_wanted);
                    set.map_err(|error| format!("{path}, line {number}: {error}"))?;
                }
            }
            for name in Self::names().filter(|name| is_wanted(name)) {
                let named = format!("SOFTND_{}", name.to_uppercase());
                if let Some(value) = variable(&named) {
                    settings.set(name, &value).map_err(|error| format!("{named}: {error}"))?;
                }
            }
        }
        Ok(settings)
    }

    /// The names of all settings, in the order in which they are shown.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ["backend", "log", "addresses", "completion", "nic", PROFILE]
            .into_iter()
            .chain(Resource::ALL.map(Resource::name))
            .chain(NUMBERS.map(|(name, ..)| name))
            .chain(DELAYS.map(|(name, _)| name))
    }

    /// The value of a setting, as [`Settings::set`] takes it. `None` if there is no such setting.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<String> {
        match name {
            "addresses" if self.addresses.is_empty() => return Some("auto".to_string()),
            "addresses" => {
                let addresses: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
                return Some(addresses.join(","));
            }
            "backend" => return Some(self.back_end.to_string()),
            "log" => return Some(if self.verbose { "all" } else { "errors" }.to_string()),
            PROFILE => return Some(self.profile.name().to_string()),
            "completion" => return Some(self.config.policy.to_string()),
            "nic" => return Some(if self.config.nic == NicMode::Direct { "direct" } else { "deferred" }.to_string()),
            _ => {}
        }
        if let Some(resource) = Resource::ALL.into_iter().find(|resource| resource.name() == name) {
            return Some(self.config.limits.get(resource).to_string());
        }
        let mut config = self.config;
        if let Some((_, field)) = DELAYS.iter().find(|(own, _)| *own == name) {
            return Some(field(&mut config).to_string());
        }
        let (.., field) = NUMBERS.iter().find(|(own, ..)| *own == name)?;
        Some(field(&mut config).to_string())
    }

    /// Gives a setting a value.
    ///
    /// # Errors
    ///
    /// What is wrong, with what is allowed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let wrong = |allowed: &dyn std::fmt::Display| format!("{name} cannot be `{value}`; allowed: {allowed}");
        match name {
            "addresses" if value == "auto" => {
                self.addresses.clear();
                return Ok(());
            }
            "addresses" => {
                let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
                let addresses = names.map(str::parse).collect::<Result<Vec<IpAddr>, _>>();
                self.addresses = addresses.map_err(|_| wrong(&"`auto`, or IP addresses, separated by commas"))?;
                return Ok(());
            }
            "nic" => {
                self.config.nic = match value {
                    "deferred" => NicMode::Deferred,
                    "direct" => NicMode::Direct,
                    _ => return Err(wrong(&"`deferred` or `direct`")),
                };
                return Ok(());
            }
            "backend" => {
                self.back_end = value.parse().map_err(|error| wrong(&error))?;
                return Ok(());
            }
            "log" => {
                self.verbose = match value {
                    "errors" => false,
                    "all" => true,
                    _ => return Err(wrong(&"`errors` or `all`")),
                };
                return Ok(());
            }
            PROFILE => {
                let profile = Profile::ALL.into_iter().find(|profile| profile.name() == value);
                let names = Profile::ALL.map(Profile::name).join(", ");
                self.take_profile(profile.ok_or_else(|| wrong(&names))?);
                return Ok(());
            }
            "completion" => {
                self.config.policy = value.parse().map_err(|error| wrong(&error))?;
                return Ok(());
            }
            _ => {}
        }
        if let Some(resource) = Resource::ALL.into_iter().find(|resource| resource.name() == name) {
            let most = value.parse().map_err(|_| wrong(&"a number"))?;
            self.config.limits.set(resource, most);
            return Ok(());
        }
        if let Some((_, field)) = DELAYS.iter().find(|(own, _)| *own == name) {
            let delay = value.parse::<Delay>().map_err(|error| wrong(&error))?;
            if !delay.is_valid() {
                let most = delay::LONGEST_DELAY / 1_000_000;
                return Err(wrong(&format!("at most {most} seconds, and the shorter end first")));
            }
            *field(&mut self.config) = delay;
            return Ok(());
        }
        let Some((_, range, field)) = NUMBERS.iter().find(|(own, ..)| *own == name) else {
            let names: Vec<_> = Self::names().collect();
            return Err(format!("there is no setting `{name}`; there are {}", names.join(", ")));
        };
        let number = value.parse().ok().filter(|number| range.contains(number));
        *field(&mut self.config) = number.ok_or_else(|| wrong(&format!("{} to {}", range.start(), range.end())))?;
        Ok(())
    }

    /// Begins with the limits of an adapter of this kind, whatever they were before, and with what its NIC does: messages that meet no
    /// receive, completions that come late.
    ///
    /// Connections of the adapter with itself stay: in a process there is no other one to connect with.
    fn take_profile(&mut self, profile: Profile) {
        let mut like = provider::Config::default();
        profile.limit(&mut like);
        like.info.AdapterFlags |= NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED;
        self.config.info = Config::default().info;
        self.config.take_limits(&like.info);
        (self.config.not_ready, self.config.initiator_delay) = (like.not_ready, like.initiator_delay);
        self.profile = profile;
    }

    /// A line of the file, if its setting is wanted.
    fn line(&mut self, line: &str, is_wanted: impl Fn(&str) -> bool) -> Result<(), String> {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            return Ok(());
        }
        let (name, value) = line.split_once('=').ok_or("a line is `name = value`")?;
        if is_wanted(name.trim()) { self.set(name.trim(), value.trim()) } else { Ok(()) }
    }
}

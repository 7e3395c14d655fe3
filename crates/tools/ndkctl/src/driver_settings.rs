//! `ndkctl driver settings`: what can be changed while a driver with adapters runs.

use control::provider_device::{CompletionMode, NicMode, Settings, Wire};
use host::{note, say};
use serde::Serialize;

use crate::{
    End,
    args::{Completion, DriverSettings, Nic},
    driver::{ELSEWHERE, open_provider},
    output::print_json,
};

/// The settings, for a program.
#[derive(Debug, Serialize)]
struct Shown {
    completion: &'static str,
    nic: &'static str,
    granularity: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    wires: Vec<ShownWire>,
}

/// The keywords of an adapter with a wire. They are changed as other advanced properties are, and need the adapter's restart.
#[derive(Debug, Serialize)]
struct ShownWire {
    adapter: u32,
    #[serde(rename = "WirePeer")]
    peers: Vec<String>,
    #[serde(rename = "WireVni")]
    vni: u32,
    #[serde(rename = "WireLocal", skip_serializing_if = "Option::is_none")]
    local: Option<String>,
    #[serde(rename = "WirePort", skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    up: bool,
}

/// Runs the command.
///
/// # Errors
///
/// The reason, in one line.
pub fn run(args: DriverSettings) -> Result<End, String> {
    if !cfg!(windows) {
        note!("ndkctl driver settings: {ELSEWHERE}");
        return Ok(End::Refused);
    }
    let opened = open_provider(args.of)?;
    let (driver, refused) = (&opened.driver, |refusal| opened.refused(refusal));
    let before = driver.settings().map_err(refused)?;
    let wanted = changed(before, args);
    if wanted != before {
        driver.set(&wanted).map_err(refused)?;
    }
    let shown = shown(driver.settings().map_err(refused)?, &driver.wires().map_err(refused)?);
    if args.json {
        print_json(&shown)?;
    } else {
        let Shown { completion, nic, granularity, wires } = shown;
        say!("completion {completion}\nnic {nic}\ngranularity {granularity} us");
        for wire in &wires {
            say!("{}", line(wire));
        }
    }
    Ok(End::Good)
}

/// The settings with what `args` name changed.
fn changed(before: Settings, args: DriverSettings) -> Settings {
    let completion = args.completion.map(|mode| match mode {
        Completion::Inline => CompletionMode::Inline,
        Completion::Pending => CompletionMode::Pending,
        Completion::Early => CompletionMode::Early,
        Completion::Mixed => CompletionMode::Mixed,
    });
    let nic = args.nic.map(|mode| match mode {
        Nic::Deferred => NicMode::Deferred,
        Nic::Direct => NicMode::Direct,
    });
    Settings {
        completion_mode: completion.map_or(before.completion_mode, |mode| mode as u32),
        nic_mode: nic.map_or(before.nic_mode, |mode| mode as u32),
        moderation_granularity: args.granularity.unwrap_or(before.moderation_granularity),
    }
}

/// A wire in a line.
fn line(wire: &ShownWire) -> String {
    let ShownWire { adapter, peers, vni, local, port, up } = wire;
    let local = local.as_deref().map_or_else(String::new, |local| format!(", WireLocal {local}"));
    let port = port.map_or_else(String::new, |port| format!(", WirePort {port}"));
    let link = if *up { "up" } else { "down: no socket" };
    format!("adapter {adapter}: WirePeer {}, WireVni {vni}{local}{port}, {link}", peers.join(", "))
}

fn shown_wire(wire: &Wire) -> ShownWire {
    let local = wire.local();
    ShownWire {
        adapter: wire.adapter,
        peers: wire.peers().map(|peer| peer.to_string()).collect(),
        vni: wire.vni,
        local: local.map(|local| local.ip().to_string()),
        port: local.map(|local| local.port()),
        up: wire.is_up != 0,
    }
}

/// The settings in the words of the command line, and the wires.
fn shown(settings: Settings, wires: &[Wire]) -> Shown {
    Shown {
        completion: match CompletionMode::from_number(settings.completion_mode) {
            Some(CompletionMode::Inline) => "inline",
            Some(CompletionMode::Pending) => "pending",
            Some(CompletionMode::Early) => "early",
            Some(CompletionMode::Mixed) => "mixed",
            None => "unknown",
        },
        nic: match NicMode::from_number(settings.nic_mode) {
            Some(NicMode::Deferred) => "deferred",
            Some(NicMode::Direct) => "direct",
            None => "unknown",
        },
        granularity: settings.moderation_granularity,
        wires: wires.iter().map(shown_wire).collect(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use control::provider_device::{NicMode, Settings, Wire};

    use super::{changed, line, shown};
    use crate::{
        args::{Cli, Command, DriverArgs, DriverCommand},
        schema,
    };

    fn after(words: &[&str], before: Settings) -> Settings {
        let line = ["ndkctl", "driver", "settings"].iter().chain(words);
        match Cli::try_parse_from(line).expect("a command line").command {
            Command::Driver(DriverArgs { command: DriverCommand::Settings(args) }) => changed(before, args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_what_is_named_changes() {
        let before = Settings { completion_mode: 3, moderation_granularity: 77, nic_mode: NicMode::Deferred as u32 };
        assert_eq!(after(&[], before), before);
        assert_eq!(after(&["--nic", "direct"], before), Settings { nic_mode: 1, ..before });
        assert_eq!(after(&["--completion", "early"], before), Settings { completion_mode: 2, ..before });
        assert_eq!(after(&["--granularity", "5"], before), Settings { moderation_granularity: 5, ..before });
        assert!(Cli::try_parse_from(["ndkctl", "driver", "settings", "--granularity", "0"]).is_err());
    }

    /// Scripts have it.
    #[test]
    fn the_former_names_of_the_commands_are_understood() {
        let parse = |words: [&str; 3]| Cli::try_parse_from(words).map(|cli| cli.command);
        assert!(matches!(parse(["ndkctl", "driver-settings", "--json"]), Ok(Command::DriverSettings(_))));
        assert!(matches!(parse(["ndkctl", "driver-run", "stress"]), Ok(Command::DriverRun(_))));
    }

    #[test]
    fn settings_are_shown_in_the_words_of_the_command_line() {
        let settings = Settings { completion_mode: 2, moderation_granularity: 5, nic_mode: 1 };
        let now = shown(settings, &[]);
        let granularity = now.granularity.to_string();
        let words = ["--completion", now.completion, "--nic", now.nic, "--granularity", &granularity];
        assert_eq!(after(&words, Settings::default()), settings);
        schema::check("driver settings", &serde_json::to_value(&now).expect("JSON"));
    }

    #[test]
    fn a_wire_is_shown_by_its_keywords() {
        let address = |last| [2, 0, 0x12, 0xB5, 192, 0, 2, last];
        let mut wire = Wire { adapter: 1, vni: 42, peer_count: 2, is_up: 1, ..Wire::default() };
        wire.local[..8].copy_from_slice(&address(9));
        wire.peers[0][..8].copy_from_slice(&address(1));
        wire.peers[1][..8].copy_from_slice(&address(2));
        let now = shown(Settings::default(), &[wire]);
        let expected =
            "adapter 1: WirePeer 192.0.2.1:4789, 192.0.2.2:4789, WireVni 42, WireLocal 192.0.2.9, WirePort 4789, up";
        assert_eq!(line(&now.wires[0]), expected);
        schema::check("driver settings", &serde_json::to_value(&now).expect("JSON"));
    }
}

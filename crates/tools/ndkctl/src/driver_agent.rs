//! `ndkctl driver agent`: the adapter of this machine is the second one of another machine's run.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use control::{
    client::Event,
    network::StartOn,
    test_device::{Kind, SECONDS},
};
use host::{note, say};

use crate::{
    End,
    args::DriverAgent,
    driver::{ELSEWHERE, begun, open, refused, watch},
    driver_interface::not_cancelled,
};

/// Runs the command.
///
/// # Errors
///
/// The reason, in one line.
pub fn run(args: &DriverAgent, interrupted: &AtomicBool) -> Result<End, String> {
    if !cfg!(windows) {
        note!("ndkctl driver agent: {ELSEWHERE}");
        return Ok(End::Refused);
    }
    let driver = open()?;
    let peer = format!("@{}", SocketAddr::new(args.calls_from, args.port));
    let how = StartOn {
        kind: Kind::Agent as u32,
        seconds: args.seconds.unwrap_or(*SECONDS.end()),
        hostile: 1,
        ..StartOn::default()
    };
    let answer = driver.start_on(&how, &args.interface, &peer).map_err(|refusal| refused(&refusal))?;
    begun(&driver, &answer, &args.interface, &peer)?;
    say!("`{}` is for {}, by UDP from port {} on; Ctrl-C ends it", args.interface, args.calls_from, args.port);
    let show = |event: Event<'_>| match event {
        Event::Step(line) => say!("{} {} {}", line.name, line.outcome, line.text),
        Event::Remark(line) => say!("{line}"),
        Event::Progress(_) => {}
    };
    let last = watch(&driver, interrupted, show)?;
    if interrupted.load(Relaxed) {
        return Ok(End::Interrupted);
    }
    not_cancelled(&last)?;
    Ok(End::Good)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::args::{Cli, Command, DriverCommand};

    #[test]
    fn an_agent_is_for_one_machine_and_has_the_port_that_runs_look_for() {
        let parse = |rest: &[&str]| {
            let words = ["ndkctl", "driver", "agent", "--interface", "Ethernet 3"];
            Cli::try_parse_from(words.iter().chain(rest)).map(|cli| match cli.command {
                Command::Driver(driver) => match driver.command {
                    DriverCommand::Agent(agent) => (agent.calls_from.to_string(), agent.port),
                    _ => unreachable!("the words say agent"),
                },
                _ => unreachable!("the words say driver"),
            })
        };
        assert_eq!(parse(&["--calls-from", "10.0.0.1"]).ok(), Some(("10.0.0.1".to_owned(), 4792)));
        assert_eq!(parse(&["--calls-from", "fd00::1", "--port", "5000"]).ok(), Some(("fd00::1".to_owned(), 5000)));
        assert!(parse(&[]).is_err(), "for anybody");
        assert!(parse(&["--calls-from", "beta"]).is_err(), "a name");
        assert!(parse(&["--calls-from", "10.0.0.1", "--port", "65535"]).is_err(), "there are eight ports");
    }
}

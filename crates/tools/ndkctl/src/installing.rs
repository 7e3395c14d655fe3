//! `ndkctl driver install`, `uninstall` and `status`, and `ndkctl nic pair`: what is to be done is shown or done by the crate
//! `install`.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use clap::{Args, Subcommand, ValueEnum};
use host::{note, say};
use install::{
    Certificate, Choice, Done, Driver, DriverStatus, Failed, Machine, NDKTEST, NIC, Options, PROVIDER, Package, Pair,
    Plan, Wanted,
};
use serde::Serialize;

use crate::{
    End,
    driver::ELSEWHERE,
    output::{print_json, print_table, table},
};

/// A driver, on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// The provider with a device interface of its own
    Softndk,
    /// The virtual NIC
    Softndknic,
    /// The consumer that runs the tests
    Ndktest,
}

impl Name {
    const fn driver(self) -> &'static Driver {
        match self {
            Self::Softndk => &PROVIDER,
            Self::Softndknic => &NIC,
            Self::Ndktest => &NDKTEST,
        }
    }
}

/// `ndkctl driver install`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Looks first, does only what is missing, and undoes it if a step fails. Exit code: 0 for success, also if a restart is needed, which it \
says; 1 if it failed or was refused; 2 for a wrong argument.")]
pub struct Install {
    /// Folder with the packages of the drivers; those in folders below it count
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    pub package: PathBuf,
    /// Install this driver, and with the option again another one; by default softndk and ndktest
    #[arg(long, value_enum, value_name = "DRIVER")]
    pub driver: Vec<Name>,
    /// Number of adapters of softndk, 1 to 8; more that are there already stay
    #[arg(long, default_value = "1", value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub adapters: u8,
    #[command(flatten)]
    pub signed: Signed,
    #[command(flatten)]
    pub how: How,
}

/// About the package.
#[derive(Clone, Debug, Args)]
pub struct Signed {
    /// Certificate that the packages are signed with; by default the one in their folder
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// Install packages that are older than those that are there
    #[arg(long)]
    pub downgrade: bool,
}

/// How to carry a plan out.
#[derive(Clone, Copy, Debug, Args)]
pub struct How {
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Undo nothing if a step fails
    #[arg(long)]
    pub keep: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `ndkctl driver uninstall`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Removes the devices and the packages. The settings in the registry stay. Exit code: 0 for success, 1 if it failed or something is left, \
2 for a wrong argument.")]
pub struct Uninstall {
    /// Uninstall this driver, and with the option again another one; by default all
    #[arg(long, value_enum, value_name = "DRIVER")]
    pub driver: Vec<Name>,
    /// Also no longer trust this certificate
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    #[command(flatten)]
    pub how: How,
}

/// `ndkctl driver status`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Status {
    /// Print the status as JSON
    #[arg(long)]
    pub json: bool,
}

/// `ndkctl nic`.
#[derive(Clone, Debug, Args)]
pub struct NicArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: NicCommand,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum NicCommand {
    /// Make two virtual NICs the ends of one cable, name them and give them addresses (Windows, elevated)
    Pair(PairArgs),
}

/// `ndkctl nic pair`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The addresses, neighbours and routes last until a NIC or the machine restarts: run it again then. `ndkctl driver uninstall --driver \
softndknic` removes the NICs. Exit codes as of `ndkctl driver install`.")]
pub struct PairArgs {
    /// Install the driver from the package in this folder or below it; by default it has to be installed
    #[arg(long, value_name = "FOLDER")]
    pub package: Option<PathBuf>,
    /// Names of the two ends
    #[arg(long, num_args = 2, value_names = ["NAME", "NAME"], default_values = ["SoftNDK 1", "SoftNDK 2"])]
    pub names: Vec<String>,
    /// IPv4 addresses of the two ends, in one network
    #[arg(long, num_args = 2, value_names = ["ADDRESS", "ADDRESS"], default_values = ["192.168.77.11", "192.168.77.12"])]
    pub addresses: Vec<Ipv4Addr>,
    /// Bits of that network, 8 to 30
    #[arg(long, default_value = "24", value_name = "BITS", value_parser = clap::value_parser!(u8).range(8..=30))]
    pub bits: u8,
    /// Do not route each address through the opposite end
    #[arg(long)]
    pub no_routes: bool,
    #[command(flatten)]
    pub signed: Signed,
    #[command(flatten)]
    pub how: How,
}

/// The output as JSON.
#[derive(Debug, Serialize)]
struct Report {
    dry_run: bool,
    plan: Plan,
    done: Option<Done>,
    failed: Option<Failed>,
}

/// The machine; a line and `None` where there is no Windows.
fn machine(command: &str) -> Option<install::This> {
    let machine = install::this();
    if machine.is_none() {
        note!("ndkctl {command}: {ELSEWHERE}");
    }
    machine
}

/// Runs `ndkctl driver install`.
///
/// # Errors
///
/// The reason, in one line.
pub fn install(args: &Install, interrupted: &AtomicBool) -> Result<End, String> {
    let Some(machine) = machine("driver install") else { return Ok(End::Refused) };
    let names = if args.driver.is_empty() { &[Name::Softndk, Name::Ndktest][..] } else { &args.driver };
    let choices = Driver::ALL.into_iter().filter(|driver| names.iter().any(|name| name.driver() == *driver));
    let choices = choices.map(|driver| match driver {
        driver if driver == &PROVIDER => Choice { driver, devices: args.adapters.into() },
        driver if driver == &NIC => Choice::PAIR,
        driver => Choice { driver, devices: 1 },
    });
    let wanted = wanted(&args.package, choices, &args.signed)?;
    let plan = install::install(&machine, &wanted).map_err(|fault| fault.to_string())?;
    carry_out(&machine, plan, args.how, interrupted)
}

/// The packages in a folder, with their certificate.
fn wanted(folder: &Path, choices: impl Iterator<Item = Choice>, signed: &Signed) -> Result<Wanted, String> {
    let packages = choices.map(|choice| Ok((choice, Package::find(folder, choice.driver)?)));
    let packages = packages.collect::<Result<_, String>>()?;
    let certificate = match &signed.certificate {
        Some(path) => Some(Certificate::read(path)?),
        None => Certificate::find(folder)?,
    };
    Ok(Wanted { packages, certificate, downgrade: signed.downgrade })
}

/// Runs `ndkctl driver uninstall`.
///
/// # Errors
///
/// The reason, in one line.
pub fn uninstall(args: &Uninstall, interrupted: &AtomicBool) -> Result<End, String> {
    let Some(machine) = machine("driver uninstall") else { return Ok(End::Refused) };
    let drivers: Vec<_> = if args.driver.is_empty() {
        Driver::ALL.to_vec()
    } else {
        args.driver.iter().map(|name| name.driver()).collect()
    };
    let certificate = args.certificate.as_deref().map(Certificate::read).transpose()?;
    let plan = install::uninstall(&machine, &drivers, certificate.as_ref()).map_err(|fault| fault.to_string())?;
    carry_out(&machine, plan, args.how, interrupted)
}

/// Runs `ndkctl nic`.
///
/// # Errors
///
/// The reason, in one line.
pub fn nic(args: &NicArgs, interrupted: &AtomicBool) -> Result<End, String> {
    let NicCommand::Pair(args) = &args.command;
    let Some(machine) = machine("nic pair") else { return Ok(End::Refused) };
    let wanted = args
        .package
        .as_deref()
        .map(|folder| wanted(folder, std::iter::once(Choice::PAIR), &args.signed))
        .transpose()?;
    let ends = ends(args)?;
    let plan = install::pair(&machine, wanted.as_ref(), &ends).map_err(|fault| fault.to_string())?;
    carry_out(&machine, plan, args.how, interrupted)
}

/// The two ends that the arguments name.
fn ends(args: &PairArgs) -> Result<Pair, String> {
    let two = || "two names and two addresses are needed".to_owned();
    Ok(Pair {
        names: args.names.clone().try_into().map_err(|_| two())?,
        addresses: args.addresses.clone().try_into().map_err(|_| two())?,
        bits: args.bits,
        routes: !args.no_routes,
    })
}

/// Shows a plan, or carries it out.
fn carry_out(machine: &impl Machine, plan: Plan, how: How, interrupted: &AtomicBool) -> Result<End, String> {
    let begin = !how.dry_run && plan.refusals.is_empty();
    let (mut done, mut failed) = (None, None);
    if begin {
        let options = Options { keep: how.keep, interrupted: Some(interrupted), ..Options::default() };
        let mut show = |step: &str| {
            if !how.json {
                say!("{step}");
            }
        };
        match plan.run(machine, options, &mut show) {
            Ok(all) => done = Some(all),
            Err(stopped) => failed = Some(stopped),
        }
    }
    let report = Report { dry_run: how.dry_run, plan, done, failed };
    if how.json {
        print_json(&report)?;
    } else {
        print(&report);
    }
    Ok(end(&report, interrupted.load(Relaxed)))
}

/// How the command ends.
fn end(report: &Report, interrupted: bool) -> End {
    match report {
        Report { failed: Some(_), .. } if interrupted => End::Interrupted,
        Report { done: Some(done), .. } if done.left.iter().any(|left| matches!(left, install::Left::Loaded(_))) => {
            End::Bad
        }
        Report { failed: None, plan, .. } if plan.refusals.is_empty() => End::Good,
        _ => End::Bad,
    }
}

/// The result, for people: what could not be done goes to the standard error.
fn print(report: &Report) {
    let Report { dry_run, plan, done, failed } = report;
    if *dry_run {
        for (number, step) in plan.steps.iter().enumerate() {
            say!("{}. {step}", number + 1);
        }
    }
    if plan.steps.is_empty() && plan.refusals.is_empty() {
        say!("nothing to do: everything is as it should be");
    }
    let notices = done.as_ref().map_or(&plan.notices, |done| &done.notices);
    for notice in notices {
        say!("note: {notice}");
    }
    for refusal in &plan.refusals {
        note!("ndkctl: {refusal}");
    }
    let (mut left, mut restart) = (&Vec::new(), false);
    if let Some(done) = done {
        (left, restart) = (&done.left, done.restart);
    }
    if let Some(failed) = failed {
        (left, restart) = (&failed.left, failed.restart);
        note!("ndkctl: {failed}");
        if failed.left.is_empty() {
            note!("ndkctl: the machine is as it was before");
        }
    }
    for left in left {
        note!("ndkctl: left: {left}");
    }
    if restart {
        say!("restart the machine: before that not all of it is in force");
    }
}

/// Runs `ndkctl driver status`.
///
/// # Errors
///
/// The reason, in one line.
pub fn status(args: Status) -> Result<End, String> {
    let Some(machine) = machine("driver status") else { return Ok(End::Refused) };
    let all = install::status(&machine).map_err(|fault| fault.to_string())?;
    if args.json {
        print_json(&all)?;
    } else {
        print_status(&all);
    }
    Ok(End::Good)
}

fn print_status(all: &[DriverStatus]) {
    let mut list = table(&["driver", "package", "device", "state"]);
    for driver in all {
        let packages: Vec<_> = driver.packages.iter().map(|one| format!("{} {}", one.name, one.version)).collect();
        let packages = if packages.is_empty() { "-".to_owned() } else { packages.join(", ") };
        if driver.devices.is_empty() {
            let state = if driver.loaded { "in the kernel" } else { "-" };
            list.add_row([driver.driver, &packages, "-", state]);
        }
        for device in &driver.devices {
            let state =
                device.remedy.map_or_else(|| device.state.clone(), |remedy| format!("{}: {remedy}", device.state));
            list.add_row([driver.driver, &packages, &device.device.instance, &state]);
        }
    }
    print_table(&list);
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use install::{Device, Done, DriverStatus, Failed, Left, Plan, Staged, Version, Why};

    use super::{Report, end, ends};
    use crate::{
        End,
        args::{Cli, Command},
        installing::NicCommand,
        schema,
    };

    fn report() -> Report {
        let refusals = vec![Why { what: "test signing is off".to_owned(), remedy: "turn it on".to_owned() }];
        let plan = Plan { refusals, notices: vec!["seen".to_owned()], ..Plan::default() };
        let left = vec![Left::Device(r"ROOT\SOFTNDK\0000".to_owned())];
        let failed = Failed {
            step: "make an adapter".to_owned(),
            reason: "no".to_owned(),
            remedy: None,
            restart: false,
            left: left.clone(),
        };
        let done = Done { steps: vec!["stage".to_owned()], notices: vec![], restart: true, left };
        Report { dry_run: false, plan, done: Some(done), failed: Some(failed) }
    }

    #[test]
    fn what_programs_get_is_as_documented() {
        for report in [report(), Report { done: None, failed: None, ..report() }] {
            let value = serde_json::to_value(&report).expect("JSON");
            for command in ["driver install", "driver uninstall", "nic pair"] {
                schema::check(command, &value);
            }
        }
        let version = Version { date: (2026, 11, 26), number: [0, 1, 0, 0] };
        let staged = Staged { name: "oem7.inf".to_owned(), version, path: "softndk.inf".into(), fingerprint: 7 };
        let device = Device { instance: r"ROOT\NET\0000".to_owned(), problem: 10, ..Device::default() };
        let status = vec![DriverStatus {
            driver: "softndknic",
            loaded: true,
            packages: vec![staged],
            devices: vec![device.into()],
        }];
        schema::check("driver status", &serde_json::to_value(&status).expect("JSON"));
    }

    #[test]
    fn a_restart_is_a_success_and_what_stays_in_the_kernel_is_none() {
        let none = || Report { plan: Plan::default(), ..report() };
        let done = |left| Some(Done { restart: true, left, ..Done::default() });
        let loaded = vec![Left::Loaded("softndk".to_owned())];
        let old = vec![Left::Package("oem1.inf".to_owned())];
        assert!(matches!(end(&Report { failed: None, done: done(vec![]), ..none() }, false), End::Good));
        assert!(matches!(end(&Report { failed: None, done: done(old), ..none() }, false), End::Good));
        assert!(matches!(end(&Report { failed: None, done: done(loaded), ..none() }, false), End::Bad));
        assert!(matches!(end(&Report { failed: None, done: None, ..report() }, false), End::Bad), "refused");
        assert!(matches!(end(&Report { done: None, ..none() }, false), End::Bad));
        assert!(matches!(end(&Report { done: None, ..none() }, true), End::Interrupted));
    }

    #[test]
    fn the_ends_are_those_of_the_command_line() {
        let ends_of = |words: &[&str]| {
            let line = ["ndkctl", "nic", "pair"].iter().chain(words);
            let Command::Nic(args) = Cli::try_parse_from(line).expect("a command line").command else {
                panic!("another command")
            };
            let NicCommand::Pair(args) = args.command;
            ends(&args).expect("two ends")
        };
        assert_eq!(ends_of(&[]), install::Pair::default());
        let other =
            ends_of(&["--names", "a", "b", "--addresses", "10.1.2.3", "10.1.2.4", "--bits", "29", "--no-routes"]);
        assert_eq!((other.names.join(" "), other.bits, other.routes), ("a b".to_owned(), 29, false));
        assert!(Cli::try_parse_from(["ndkctl", "nic", "pair", "--names", "a"]).is_err());
        assert!(Cli::try_parse_from(["ndkctl", "nic", "pair", "--bits", "31"]).is_err());
    }
}

//! The driver's wire before Linux' rxe: the images of softndknic and of the sample consumer in the simulated kernel, under Wine, whose
//! datagrams travel over this machine's loopback.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use xshell::cmd;

use super::{
    Network, PORTS, Ports, Running,
    guest::Guest,
    job::{Case, Job},
    judged_by,
};
use crate::context::{Context, absolute, expect_file, have};

const NIC: &str = "target/drivers/x86_64/softndknic.sys";
const SAMPLE: &str = "samples/consumer-c";
const CONSUMER: &str = "target/consumer-c-clang/consumer.sys";

/// The control code `IOCTL_CONSUMER_PING`, as consumer.h has it.
const PING: u32 = 0x22_E004;
/// Seconds that a peer has to come: the guest starts meanwhile, on a processor that is emulated.
const COMES: u32 = 200;

/// What a script begins with: the driver with a wire to the guest, and a program that has the consumer open.
const BEGIN: &str = r#"[[image]]
name = "softndknic"
file = "softndknic.sys"

[[image]]
name = "consumer"
file = "consumer.sys"

[[step]]
do = "load"
image = "softndknic"

[[step]]
do = "start"
device = "nic"

[[step]]
do = "load"
image = "consumer"

[[step]]
do = "open"
file = "program"
link = '\DosDevices\NdkConsumer'
"#;

/// The port of rping's own.
const RPING: u16 = 7174;

/// The script of a run, in which so many datagrams of a million are lost on their way in.
fn script(job: &Job, lost: u32) -> String {
    let Ports { here, there } = PORTS;
    let mut script = format!(
        "[kernel]\nprocessors = 2\nthreads = true\ndatagrams = \"host\"\n\n{BEGIN}\n[[device]]\nname = \"nic\"\nimage = \"softndknic\"\n\
         kind = \"nic\"\naddresses = [\"10.0.0.2/24\", \"fd00::2/64\"]\n\
         keywords = {{ WirePeer = \"127.0.0.1:{there}\", WireLocal = \"127.0.0.1:{here}\", CableLoss = {lost}, CableSeed = 1 }}\n"
    );
    for case in &job.cases {
        pings(&mut script, case, case.port, false, COMES, true);
    }
    // Nobody listens there.
    let refused = Case { family: 4, size: 64, count: 1, port: 9999 };
    pings(&mut script, &refused, refused.port, false, 0, false);
    for case in &job.cases {
        pings(&mut script, case, RPING, true, COMES, true);
    }
    script
}

/// The step of a case: a `CONSUMER_PING` and its `CONSUMER_RESULT`, or that the peer refuses.
fn pings(script: &mut String, case: &Case, port: u16, serves: bool, seconds: u32, is_taken: bool) {
    let Case { family, size, count, .. } = *case;
    let at = |end: u8, port: u16| {
        if family == 4 { format!("10.0.0.{end}:{port}") } else { format!("[fd00::{end}]:{port}") }
    };
    let (own, peer) = if serves { (at(2, port), at(1, 0)) } else { (at(2, 0), at(1, port)) };
    let outcome = if is_taken {
        let bytes = u64::from(size) * u64::from(count);
        format!("expect = [{{ u32 = {count} }}, {{ any = 4 }}, {{ u64 = {bytes} }}]")
    } else {
        "status = \"STATUS_CONNECTION_REFUSED\"".to_owned()
    };
    _ = write!(
        script,
        "\n[[step]]\ndo = \"ioctl\"\nfile = \"program\"\ncode = {PING:#x}\noutput = 16\n{outcome}\ninput = [\n    \
         {{ u32 = \"nic.index\" }},\n    {{ u32 = {} }},\n    {{ address = \"{own}\" }},\n    {{ address = \"{peer}\" }},\n    \
         {{ u32 = {size} }},\n    {{ u32 = {count} }},\n    {{ u32 = {seconds} }},\n]\n",
        u32::from(serves)
    );
}

/// What a run needs that is made before.
pub fn need(context: &Context) -> Result<()> {
    expect_file(NIC, "cargo xtask drivers --arch x86_64")?;
    expect_file("target/runner/worker.exe", "cargo xtask worker")?;
    ensure!(have("wine"), "Wine is not installed");
    let sh = &context.sh;
    Ok(cmd!(sh, "{SAMPLE}/build.sh --compiler clang --only right --out target/consumer-c-clang")
        .ignore_stdout()
        .run()?)
}

/// A run: the driver pings the guest, and the guest the driver.
pub fn judge(context: &Context, guest: &Guest, ndkctl: &Path, name: &str, job: &Job, lost: u32) -> Result<()> {
    let sh = &context.sh;
    let scratch = absolute("target/rxe").join(name);
    sh.remove_path(&scratch)?;
    sh.write_file(scratch.join("job/job.sh"), job.pings())?;
    let path = scratch.join("run.toml");
    sh.write_file(&path, script(job, lost))?;
    let log = scratch.join("guest.txt");
    let begun = Instant::now();
    let mut running = Running::start(context, guest, &scratch, Network::Vxlan, PORTS)?;
    let report = scratch.join("run.txt");
    let mut run = Command::new(ndkctl);
    run.args(["run", NIC, CONSUMER, "--seeds", "1", "--limit", "600", "--script"]).arg(&path);
    let output = run.current_dir(absolute(".")).output()?;
    sh.write_file(&report, [&output.stdout[..], &output.stderr].concat())?;
    if !output.status.success() {
        bail!("the driver: {} has what it says, {} what the guest says", report.display(), log.display());
    }
    let wrong = agreed(&log, job.pings_judged());
    running.stop();
    if let Some(wrong) = wrong {
        bail!("{wrong}");
    }
    let (cases, count) = (job.cases.len(), job.cases.iter().map(|case| u64::from(case.count)).sum::<u64>());
    println!(
        "{name}: rxe agrees with the driver, {cases} cases each way of {count} pings, {} s",
        begun.elapsed().as_secs()
    );
    Ok(())
}

/// Waits until the guest has said all its verdicts, and looks at them: its last one comes when the driver's run has ended.
fn agreed(log: &Path, cases: usize) -> Option<String> {
    let begun = Instant::now();
    loop {
        let said = fs::read(log).unwrap_or_default();
        let wrong = judged_by(&String::from_utf8_lossy(&said), log, cases)?;
        if begun.elapsed() > Duration::from_mins(2) {
            return Some(wrong);
        }
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_script_has_a_step_for_each_verdict_of_the_guest() {
    for short in [false, true] {
        let job = Job::new(short, 0, 0, false);
        let script = script(&job, 10_000);
        // The guest's own refused connection has none here: nobody listens.
        assert_eq!(script.matches("do = \"ioctl\"").count(), 2 * job.cases.len() + 1);
        assert_eq!(job.pings().matches("JUDGE").count(), job.pings_judged());
        let value: toml::Table = script.parse().expect("TOML");
        assert_eq!(value["device"].as_array().map(Vec::len), Some(1));
    }
}

//! What stands between a program and its adapters: the adviser, a recorder, faults; and the reason of a failed request.

use std::{
    env, fs,
    process::{Command, Output},
    sync::mpsc::{self, Sender},
};

use ndk::{
    Access, Adapter, Completion, Cq, Flags, Mr, Notified, Notify, NtStatus, Operation, Qp, QpSizes, RemoteToken,
    host::{
        Loopback,
        faults::{Kind, Plan, Rule, Which},
    },
};

use super::{Everything, connect, everything};

/// One side of a ping-pong, as in `examples/ping_pong.rs`.
struct Side {
    qp: Qp,
    mr: Mr,
}

impl Side {
    fn new(adapter: &Adapter) -> Result<(Self, Cq), NtStatus> {
        let pd = adapter.create_pd()?;
        let mr = pd.register(adapter.memory(4096)?, Access::LOCAL_WRITE)?;
        let cq = adapter.create_cq(32)?;
        let qp = pd.create_qp(&cq, &cq, QpSizes::default(), 0)?;
        Ok((Self { qp, mr }, cq))
    }

    fn post_receive(&mut self) -> Result<(), NtStatus> {
        self.qp.receiver.receive(1, &[self.mr.sge(2048, 64)?])
    }

    fn send(&mut self) -> Result<(), NtStatus> {
        self.qp.initiator.send(2, &[self.mr.sge(0, 64)?], Flags::empty())
    }

    /// Answers each message in the callback. Says so to `round`, and does not arm again unless that is wanted.
    fn start(mut self, cq: Cq, rearms: bool, round: Sender<()>) -> Result<Notified, NtStatus> {
        cq.notify(Notify::Any, move |poller, _| {
            let mut results = [Completion::EMPTY; 8];
            let done = poller.poll(&mut results);
            for one in done.iter().filter(|one| one.operation() == Some(Operation::Receive) && one.ok().is_ok()) {
                let _ = (one, self.post_receive(), self.send(), round.send(()));
            }
            if rearms {
                poller.arm(Notify::Any);
            }
        })
    }
}

fn ping_pong(rearms: bool) -> Result<(), NtStatus> {
    let machine = Loopback::start(1)?;
    let adapter = machine.open(0)?;
    let (mut near, near_cq) = Side::new(&adapter)?;
    let (mut far, far_cq) = Side::new(&adapter)?;
    let connections = connect(&machine, &adapter, &near.qp, &far.qp);
    near.post_receive()?;
    far.post_receive()?;
    near.send()?;
    let (round, rounds) = mpsc::channel();
    let sides = [far.start(far_cq, rearms, round.clone())?, near.start(near_cq, rearms, round)?];
    for _ in 0..50 {
        rounds.recv().map_err(|_| NtStatus::CANCELLED)?;
    }
    drop((connections, sides));
    Ok(())
}

/// A program of its own: a run of this test alone, which `work` is told of by the environment.
const PROGRAM: &str = "NDK_TEST_PROGRAM";

#[test]
fn program() {
    match env::var(PROGRAM).as_deref() {
        Ok("forgets") => ping_pong(false).expect("it ends otherwise"),
        Ok("rearms") => ping_pong(true).expect("it ends well"),
        _ => {}
    }
}

/// The program under the adviser, recorded to a file.
fn run(which: &str) -> (Output, String, Vec<u8>) {
    let file = env::temp_dir().join(format!("ndk-observed-{which}-{}", std::process::id()));
    let output = Command::new(env::current_exe().expect("this program"))
        .args(["observed::program", "--exact", "--nocapture", "--test-threads=1"])
        .envs([(PROGRAM, which), ("NDK_ADVISE", "1")])
        .env("NDK_RECORD", &file)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let recording = fs::read(&file).expect("the recording");
    fs::remove_file(&file).expect("it is there");
    (output, said, recording)
}

#[test]
fn a_ping_pong_without_its_re_arm_names_its_rule_instead_of_hanging() {
    let (output, said, recording) = run("forgets");
    assert_eq!(output.status.code(), Some(1), "{said}");
    let line = said.lines().find(|line| line.contains("NDKPI 7.1.3")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("Cq ") && line.contains("was not armed again after its callback"), "{line}");
    assert!(recording.len() > 1000, "{} bytes", recording.len());
}

#[test]
fn a_ping_pong_that_arms_is_left_alone() {
    let (output, said, recording) = run("rearms");
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("nothing has happened") && !said.contains("NDKPI 7.1.3"), "{said}");
    assert!(recording.len() > 1000, "{} bytes", recording.len());
}

#[test]
fn all_of_it_at_once_is_written_and_counted_and_leaves_nothing() -> Result<(), NtStatus> {
    let file = env::temp_dir().join(format!("ndk-recorded-{}", std::process::id()));
    // The second protection domain.
    let rule = Rule { function: Some(interpose::Function::CreatePd), ..Rule::new(Kind::Refuse, Which::Nth(2)) };
    let plan = Plan::new(1).with(rule).expect("a rule");
    let machine = Loopback::start(1)?.with_faults(plan)?.recorded(&file)?.advised()?;
    let adapter = machine.open(0)?;
    let Everything { pd, mr, cq, near, far, connections } = everything(&machine, &adapter);
    assert!(adapter.create_pd().is_err() && adapter.create_pd().is_ok());
    assert_eq!((machine.faults_made(), machine.findings(), machine.asleep()), (1, Vec::new(), Vec::new()));
    drop((connections, near, far, cq, mr, pd));
    assert!(!file.exists(), "an adapter is open");
    drop(adapter);
    machine.finish().expect("nothing is left");
    assert!(fs::read(&file).expect("the recording").len() > 1000);
    fs::remove_file(&file).expect("it is there");
    Ok(())
}

#[test]
fn a_machine_whose_adapter_is_open_is_not_changed() -> Result<(), NtStatus> {
    let machine = Loopback::start(1)?;
    let adapter = machine.open(0)?;
    assert_eq!(machine.advised().err(), Some(NtStatus::DEVICE_BUSY));
    drop(adapter);
    Ok(())
}

#[test]
fn a_failed_request_has_its_reason() -> Result<(), NtStatus> {
    let machine = Loopback::start(1)?;
    let adapter = machine.open(0)?;
    let mut all = everything(&machine, &adapter);
    let mut remote = all.mr.remote(0);
    remote.token = RemoteToken::from_bits(!remote.token.to_bits());
    all.near.initiator.write(7, &[all.mr.sge(0, 8)?], remote, Flags::empty())?;
    let mut results = [Completion::EMPTY; 4];
    let done = all.cq.wait(&mut results, Notify::Any)?;
    let failed = done.iter().find(|one| one.context() == 7).expect("it has completed");
    let reason = failed.reason().expect("a reason");
    assert_eq!((reason.status, u32::from(reason.number())), (failed.status(), failed.reason_code()));
    assert!(reason.to_string().starts_with("SR0") && !reason.what.is_empty(), "{reason}");
    assert_eq!((Completion::EMPTY.reason_code(), Completion::EMPTY.reason().is_none()), (0, true));
    drop(all);
    drop(adapter);
    machine.finish().expect("nothing is left");
    Ok(())
}

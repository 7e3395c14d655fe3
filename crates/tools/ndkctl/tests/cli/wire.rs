//! `ndkctl wire`: two of them talk over VXLAN on this machine, and what goes wrong is said.

use std::{
    net::UdpSocket,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{schema, text};

/// Two UDP ports that nobody has.
fn ports() -> [String; 2] {
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    sockets.map(|socket| socket.local_addr().expect("an address").to_string())
}

const SERVER: [&str; 4] = ["--local", "10.77.0.1/24", "--local", "fd77::1/64"];
const CLIENT: [&str; 4] = ["--local", "10.77.0.2/24", "--local", "fd77::2/64"];

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ndkctl"));
    command.arg("wire").args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(words: &[&str]) -> Output {
    command(words).output().expect("the program runs")
}

/// A server that ends with its test.
struct Server(Option<Child>);

impl Server {
    fn start(own: &str, peer: &str, more: &[&str]) -> Self {
        let words = [&["serve", "--json", "--bind", own, "--peer", peer], &SERVER[..], more].concat();
        Self(Some(command(&words).spawn().expect("the program starts")))
    }

    /// What it says when it has ended by itself.
    fn ended(mut self) -> Value {
        let output = self.0.take().expect("it runs").wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
        let value = serde_json::from_slice(&output.stdout).expect("JSON");
        schema::check("wire serve", &value);
        value
    }

    #[cfg(unix)]
    fn take(mut self) -> Child {
        self.0.take().expect("it runs")
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.0.take() {
            child.kill().expect("it runs");
            child.wait().expect("it ends");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A client's words. The server may begin later.
fn ping<'words>(own: &'words str, peer: &'words str, target: &'words str, more: &[&'words str]) -> Vec<&'words str> {
    [&["ping", target, "--json", "--wait", "60", "--bind", own, "--peer", peer], &CLIENT[..], more].concat()
}

/// What a client says that must end with this code.
fn client(words: &[&str], code: i32) -> (Value, String) {
    let output = run(words);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}{}", text(&output.stdout));
    let value = serde_json::from_slice(&output.stdout).expect("JSON");
    schema::check("wire ping", &value);
    (value, said)
}

#[test]
fn two_programs_ping_each_other_in_both_families_and_every_byte_is_compared() {
    let [near, far] = ports();
    let server = Server::start(&far, &near, &["--connections", "4"]);
    for (target, size) in
        [("10.77.0.1", "64"), ("fd77::1", "5000"), ("10.77.0.1:7174", "1"), ("[fd77::1]:7174", "100K")]
    {
        let (result, _) = client(&ping(&near, &far, target, &["--size", size, "--count", "5"]), 0);
        assert_eq!(
            (&result["mode"], &result["messages"], &result["connections"]),
            (&"rping".into(), &5.into(), &1.into())
        );
        assert_eq!(result["path_mtu"], 1024, "1450 bytes in VXLAN");
        assert!(result["microseconds"]["min"].as_f64().is_some_and(|least| least > 0.0), "{result}");
    }
    let served = server.ended();
    let connections = served["connections"].as_array().expect("a list");
    assert_eq!(connections.len(), 4);
    let bytes: u64 = connections.iter().map(|one| one["bytes"].as_u64().expect("a number")).sum();
    assert_eq!(bytes, 5 * (64 + 5000 + 1 + 102_400), "{served}");
}

#[test]
fn sends_writes_and_reads_are_measured() {
    let [near, far] = ports();
    let server = Server::start(&far, &near, &["--connections", "6"]);
    for (mode, target) in [("--send", "10.77.0.1"), ("--write", "fd77::1"), ("--read", "10.77.0.1")] {
        for size in ["1", "9000"] {
            let (result, _) = client(&ping(&near, &far, target, &[mode, "--size", size, "--count", "21"]), 0);
            assert_eq!((&result["mode"], &result["messages"]), (&mode[2..].into(), &21.into()), "{result}");
            assert!(result["messages_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{result}");
        }
    }
    let served = server.ended();
    assert_eq!(served["connections"].as_array().map(Vec::len), Some(6), "{served}");
}

#[test]
fn each_test_of_perftest_runs_between_two_programs() {
    let [near, far] = ports();
    for (test, mode, is_bandwidth) in [
        ("send-bw", "ib_send_bw", true),
        ("write-bw", "ib_write_bw", true),
        ("read-bw", "ib_read_bw", true),
        ("send-lat", "ib_send_lat", false),
        ("write-lat", "ib_write_lat", false),
        ("read-lat", "ib_read_lat", false),
    ] {
        // More messages than there are receives, and not a multiple of those that have a completion.
        let told = ["--perftest", test, "--size", "3000", "--count", "1234"];
        let server = Server::start(&far, &near, &[&["--connections", "1"], &told[..]].concat());
        let (result, _) = client(&ping(&near, &far, "10.77.0.1:18515", &told), 0);
        assert_eq!((&result["mode"], &result["messages"]), (&mode.into(), &1234.into()), "{result}");
        let (rate, time) = (&result["messages_per_second"], &result["microseconds"]["p50"]);
        assert_eq!((rate.is_number(), time.is_number()), (is_bandwidth, !is_bandwidth), "{result}");
        let served = server.ended();
        let one = &served["connections"][0];
        assert_eq!((&one["mode"], &one["messages"]), (&mode.into(), &1234.into()), "{served}");
    }
}

#[test]
fn a_peer_that_does_another_test_of_perftest_is_an_error_on_both_sides() {
    let [near, far] = ports();
    let told = |size: &'static str| ["--perftest", "send-bw", "--size", size, "--count", "10", "--patience", "3"];
    let words = [&["serve", "--json", "--bind", &far, "--peer", &near, "--connections", "1"], &SERVER[..], &told("64")];
    let server = command(&words.concat()).spawn().expect("the program starts");
    let output = run(&ping(&near, &far, "10.77.0.1:18515", &told("100")));
    assert_ne!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let output = server.wait_with_output().expect("it ends");
    let served: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(1), "{served}");
    assert!(served["connections"][0]["error"]["what"].is_string(), "{served}");
}

/// The frames of a capture in the format pcap.
fn pcap(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut rest, mut frames) = (&bytes[24..], Vec::new());
    while let Some((header, behind)) = rest.split_at_checked(16) {
        let length = u32::from_ne_bytes(header[8..12].try_into().expect("four bytes")) as usize;
        frames.push(behind[..length].to_vec());
        rest = &behind[length..];
    }
    frames
}

/// The packets of a capture in the format pcapng.
fn pcapng(bytes: &[u8]) -> Vec<Vec<u8>> {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
    let (mut at, mut frames) = (0, Vec::new());
    while at < bytes.len() {
        if number(at) == 6 {
            frames.push(bytes[at + 28..][..number(at + 20)].to_vec());
        }
        at += number(at + 4);
    }
    frames
}

#[test]
fn a_recording_has_the_frames_that_were_captured() {
    let [near, far] = ports();
    let place = |name: &str| std::env::temp_dir().join(format!("ndkctl-wire-{}-{name}", std::process::id()));
    let files = ["recorded.ndkrec", "captured.pcap", "written.pcapng", "page.html"].map(place);
    let [recorded, captured, written, page] = files.each_ref().map(|file| file.to_str().expect("a name"));
    let server = Server::start(&far, &near, &["--connections", "1"]);
    let more = ["--size", "5000", "--count", "5", "--lose", "2", "--record", recorded, "--timeline", page];
    let (result, _) = client(&ping(&near, &far, "10.77.0.1", &[&more[..], &["--pcap", captured]].concat()), 0);
    assert_eq!(result["messages"], 5);
    server.ended();
    let made =
        Command::new(env!("CARGO_BIN_EXE_ndkctl")).args(["packets", recorded, written]).output().expect("it runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let read = |path: &str| std::fs::read(path).expect("a file");
    // The two were taken at places one behind the other, by two threads: the same frames, perhaps in another order.
    let [mut ours, mut theirs] = [pcapng(&read(written)), pcap(&read(captured))];
    ours.sort();
    theirs.sort();
    assert!(ours.len() > 20 && ours == theirs, "{} and {} frames", ours.len(), theirs.len());
    let drawn = String::from_utf8(read(page)).expect("a page");
    assert!(drawn.contains("SEND ") && drawn.contains("of the connection manager"), "frames are not in the page");
    for file in files {
        std::fs::remove_file(file).expect("it goes away");
    }
}

#[test]
fn frames_that_are_lost_changed_doubled_and_late_do_no_harm() {
    let [near, far] = ports();
    let capture = std::env::temp_dir().join(format!("ndkctl-wire-{}.pcap", std::process::id()));
    let file = capture.to_str().expect("a name");
    let server = Server::start(&far, &near, &["--connections", "1"]);
    let harm = ["--lose", "3", "--change", "1", "--double", "5", "--late", "5", "--seed", "4", "--pcap", file];
    let more = [&harm[..], &["--size", "20000", "--count", "10"]].concat();
    let (result, _) = client(&ping(&near, &far, "10.77.0.1", &more), 0);
    assert_eq!(result["messages"], 10);
    let repaired = ["goes_back", "naks_received", "naks_sent", "timeouts", "duplicates"];
    assert!(repaired.iter().any(|name| result["wire"][name].as_u64() > Some(0)), "{result}");
    server.ended();
    let bytes = std::fs::read(&capture).expect("the capture");
    std::fs::remove_file(&capture).expect("it goes away");
    assert_eq!(bytes[..4], 0xA1B2_C3D4_u32.to_ne_bytes());
    assert!(bytes.len() > 10 * 40_000, "{} bytes", bytes.len());
}

#[test]
fn info_says_what_the_wire_uses_and_what_the_peer_answers() {
    let [near, far] = ports();
    let own = [&["info", "--json", "--bind", &near[..], "--peer", &far[..]], &CLIENT[..]].concat();
    let parse = |output: &Output| {
        let value = serde_json::from_slice(&output.stdout).expect("JSON");
        schema::check("wire info", &value);
        value
    };
    let alone: Value = parse(&run(&own));
    assert_eq!((&alone["network_mtu"], &alone["mac"]), (&1450.into(), &"02:53:0a:4d:00:02".into()), "{alone}");
    let _server = Server::start(&far, &near, &[]);
    for (target, says) in [("10.77.0.1", "accepts"), ("[fd77::1]:9", "refuses")] {
        let asked = [&own[..], &[target]].concat();
        let end = Instant::now() + Duration::from_mins(1);
        let mut output = run(&asked);
        // The server begins.
        while output.status.code() == Some(3) && Instant::now() < end {
            output = run(&asked);
        }
        let found: Value = parse(&output);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(found["peer"]["mac"], "02:53:0a:4d:00:01");
        assert_eq!(found["peer"]["connection_manager"], says, "{found}");
    }
}

#[test]
fn what_goes_wrong_has_a_code_and_says_what_to_do() {
    let [near, far] = ports();
    let once = |target: &'static str, more: &[&'static str]| {
        let mut words = ping(&near, &far, target, more);
        // Not asked again.
        words[4] = "0";
        words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    let fails = |words: &[String], code, part: &str| {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let (result, said) = client(&words, code);
        assert_eq!(result["error"]["code"], code, "{result}");
        assert!(said.contains(part) && said.lines().count() == 1, "{said}");
    };
    fails(&once("10.77.0.1", &[]), 3, "nobody answers to ARP for 10.77.0.1");
    fails(&once("fd77::1", &[]), 3, "neighbour discovery");
    fails(&once("10.78.0.1", &[]), 1, "--gateway");
    let _server = Server::start(&far, &near, &["--mtu", "700"]);
    // The peer's network takes less: it says how much, and gets that.
    let (smaller, _) = client(&ping(&near, &far, "10.77.0.1", &["--size", "3000", "--count", "3"]), 0);
    assert_eq!(smaller["messages"], 3);
    fails(&once("10.77.0.1:9999", &[]), 4, "REJ 8");
    fails(&once("[fd77::1]:9999", &["--mtu", "600"]), 4, "ndkctl wire serve");
    let (result, _) = client(&ping(&near, &far, "10.77.0.1", &["--mtu", "608", "--count", "3"]), 0);
    assert_eq!(result["path_mtu"], 512);
}

#[test]
fn what_cannot_be_opened_says_why() {
    let [near, far] = ports();
    let holder = UdpSocket::bind(&near).expect("the port");
    let opened = |words: &[&str]| {
        let output = run(&[&["ping", "10.77.0.1"], words, &CLIENT[..]].concat());
        let said = text(&output.stderr);
        assert_eq!(said.lines().count(), 1, "{said}");
        (output.status.code(), said)
    };
    let (code, said) = opened(&["--bind", &near, "--peer", &far]);
    assert!(code == Some(6) && said.contains("in use") && said.contains("another port"), "{code:?} {said}");
    drop(holder);
    for (words, part) in [
        (&["--network", "dgram"][..], "--peer"),
        (&["--network", "dgram", "--peer", &far], "--bind"),
        (&["--network", "tap"], "Linux"),
        (&["--peer", "no such host"], "HOST"),
        (&["--bind", &near, "--mtu", "100"], "352"),
        (&["--vni", "16777216"], "0..16777216"),
        (&["--lose", "200"], "0 to 100"),
        (&["--local", "10.0.0.1"], "10.0.0.2/24"),
        (&["--write", "--read"], "--read"),
        (&["--size", "17M"], "16M"),
    ] {
        if cfg!(target_os = "linux") && words.contains(&"tap") {
            continue;
        }
        let (code, said) = opened(words);
        assert!(code == Some(2) && said.contains(part), "{words:?}: {code:?} {said}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn without_the_privilege_the_error_names_it() {
    // As nobody, who has none; whoever runs the test may have it.
    let program = std::env::temp_dir().join(format!("ndkctl-wire-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_ndkctl"), &program).expect("a copy that everybody may run");
    let words = ["ping", "10.77.0.1", "--network", "interface", "--interface", "lo", "--local", "10.77.0.2/24"];
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let mut command = if is_root {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program);
        command
    } else {
        Command::new(&program)
    };
    let output = command.arg("wire").args(words).output().expect("it runs");
    std::fs::remove_file(&program).expect("it goes away");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("CAP_NET_RAW") && said.contains("VXLAN"), "{said}");
}

#[test]
fn a_peer_that_ends_in_the_middle_is_noticed_and_what_there_is_is_shown() {
    let [near, far] = ports();
    let mut server = Server::start(&far, &near, &[]);
    let words = ping(&near, &far, "10.77.0.1", &["--count", "100000000", "--patience", "3"]);
    let client = command(&words).spawn().expect("the program starts");
    std::thread::sleep(Duration::from_secs(3));
    server.kill();
    let output = client.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(8), "{}", text(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    schema::check("wire ping", &result);
    assert!(result["messages"].as_u64() > Some(0) && result["error"]["code"] == 8, "{result}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_shows_what_there_is() {
    let [near, far] = ports();
    let server = Server::start(&far, &near, &[]);
    let words = ping(&near, &far, "10.77.0.1", &["--count", "100000000"]);
    let client = command(&words).spawn().expect("the program starts");
    std::thread::sleep(Duration::from_secs(3));
    let server = server.take();
    for (child, definition) in [(client, "wire ping"), (server, "wire serve")] {
        let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
        let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        schema::check(definition, &value);
        assert!(value["messages"].as_u64().is_none_or(|messages| messages > 0), "{value}");
    }
}

//! Programs of a script that talk with a driver over Winsock Kernel, and two drivers that talk with each other.

use std::net::{TcpListener, UdpSocket};

use runner::{Faults, Results, parse::read, worker::Job};

use crate::{carry_out, file, run};

/// The control codes of `rigs::talker`.
const LISTEN: u32 = 0x22_2000;
const ACCEPT: u32 = 0x22_2004;
const CONNECT: u32 = 0x22_2008;
const SEND: u32 = 0x22_200c;
const RECEIVE: u32 = 0x22_2010;
const END: u32 = 0x22_2014;
const CLOSE: u32 = 0x22_2018;
const STOP: u32 = 0x22_201c;
const BIND: u32 = 0x22_2020;
const ANSWER: u32 = 0x22_2024;

/// A script in one line a step: `step` of each, and what is in front of all of them.
fn script(name: &str, kernel: &str, steps: &[String]) -> std::path::PathBuf {
    let begin = [r#"{ do = "load", image = "talker" }"#, r#"{ do = "open", file = "t", link = '\DosDevices\Talker' }"#];
    let steps: Vec<&str> = begin.into_iter().chain(steps.iter().map(String::as_str)).collect();
    let text = format!("step = [\n    {},\n]\n{kernel}[[image]]\nname = \"talker\"\n", steps.join(",\n    "));
    file(&format!("sockets-{name}.toml"), &text)
}

/// A step.
fn step(words: &str) -> String {
    format!("{{ {words} }}")
}

/// A control code of the driver, with what else the step has.
fn ask(code: u32, more: &str) -> String {
    let comma = if more.is_empty() { "" } else { ", " };
    step(&format!("do = \"ioctl\", file = \"t\", code = {code}{comma}{more}"))
}

/// A control code with an address.
fn at(code: u32, address: &str, more: &str) -> String {
    let comma = if more.is_empty() { "" } else { ", " };
    ask(code, &format!("input = [{{ address = \"{address}\" }}]{comma}{more}"))
}

fn passed(results: &Results) {
    assert_eq!(results.exit_code(), 0, "{results}\n{:?}", results.findings().next());
}

/// Each seed is a run of its own, and the same one twice.
fn repeats(script: &std::path::Path) {
    let once = run(script, "1..6", "");
    passed(&once);
    let hashes = |results: &Results| results.outcomes.iter().map(|outcome| outcome.hash).collect::<Vec<_>>();
    assert_eq!(hashes(&once), hashes(&run(script, "1..6", "")));
    assert!(hashes(&once).windows(2).any(|pair| pair[0] != pair[1]), "other seeds are other runs");
}

/// A program connects to a driver: bytes go both ways, and each ends its stream.
fn program_connects(address: &str) -> Vec<String> {
    vec![
        at(LISTEN, address, ""),
        step(&format!(r#"do = "connect", socket = "c", to = "{address}""#)),
        step(r#"do = "send", socket = "c", input = [{ text = "ques" }]"#),
        ask(ACCEPT, ""),
        step(r#"do = "send", socket = "c", input = [{ text = "tion" }, { zero = 70000 }]"#),
        ask(RECEIVE, r#"output = 70008, expect = [{ text = "question" }, { zero = 70000 }]"#),
        ask(SEND, r#"input = [{ text = "answer" }]"#),
        step(r#"do = "receive", socket = "c", expect = [{ text = "ans" }]"#),
        step(r#"do = "receive", socket = "c", expect = [{ any = 2 }, { text = "r" }]"#),
        step(r#"do = "end", socket = "c""#),
        ask(RECEIVE, "output = 4, expect = []"),
        ask(SEND, r#"input = [{ text = "bye" }]"#),
        ask(END, ""),
        step(r#"do = "receive", socket = "c", expect = [{ text = "bye" }]"#),
        step(r#"do = "receive", socket = "c", expect = []"#),
        step(r#"do = "close", socket = "c""#),
        ask(CLOSE, ""),
    ]
}

/// A driver connects to a program.
fn driver_connects(address: &str) -> Vec<String> {
    vec![
        step(&format!(r#"do = "listen", socket = "l", at = "{address}""#)),
        at(CONNECT, address, ""),
        ask(SEND, r#"input = [{ text = "hello" }]"#),
        step(r#"do = "accept", socket = "s", listener = "l""#),
        step(r#"do = "receive", socket = "s", expect = [{ text = "hello" }]"#),
        step(r#"do = "send", socket = "s", input = [{ u8 = 7 }]"#),
        ask(RECEIVE, "output = 1, expect = [{ u8 = 7 }]"),
        ask(END, ""),
        step(r#"do = "receive", socket = "s", expect = []"#),
    ]
}

/// A program and a driver send each other datagrams, which keep their bounds.
fn datagrams(driver: &str, program: &str) -> Vec<String> {
    vec![
        at(BIND, driver, ""),
        step(&format!(r#"do = "bind", socket = "d", at = "{program}""#)),
        step(&format!(r#"do = "send", socket = "d", to = "{driver}", input = [{{ text = "one" }}]"#)),
        step(&format!(r#"do = "send", socket = "d", to = "{driver}", input = [{{ text = "second" }}]"#)),
        ask(ANSWER, r#"output = 64, expect = [{ text = "one" }]"#),
        ask(ANSWER, r#"output = 64, expect = [{ text = "second" }]"#),
        step(&format!(r#"do = "receive", socket = "d", from = "{driver}", expect = [{{ text = "one" }}]"#)),
        step(r#"do = "receive", socket = "d", expect = [{ text = "second" }]"#),
    ]
}

#[test]
fn a_program_talks_with_a_driver_that_listens_and_a_seed_repeats() {
    repeats(&script("connects", "", &program_connects("127.0.0.1:7000")));
}

#[test]
fn a_driver_talks_with_a_program_that_listens_and_a_seed_repeats() {
    repeats(&script("listens", "", &driver_connects("[::1]:7000")));
}

#[test]
fn a_program_and_a_driver_send_each_other_datagrams() {
    repeats(&script("datagrams", "", &datagrams("127.0.0.1:7000", "127.0.0.1:7001")));
}

/// The ways in which a connection does not come to its end.
#[test]
fn connections_are_refused_reset_and_time_out() {
    const RESET: &str = r#"status = "STATUS_CONNECTION_RESET""#;
    let steps = [
        step(r#"do = "connect", socket = "none", to = "127.0.0.1:7000", status = "STATUS_CONNECTION_REFUSED""#),
        step(r#"do = "connect", socket = "none", to = "10.9.9.9:7000", status = "STATUS_IO_TIMEOUT""#),
        at(CONNECT, "127.0.0.1:7001", r#"status = "STATUS_CONNECTION_REFUSED""#),
        at(LISTEN, "127.0.0.1:7000", ""),
        // A port has one owner, whoever that is.
        step(r#"do = "listen", socket = "none", at = "0.0.0.0:7000", status = "STATUS_ADDRESS_ALREADY_EXISTS""#),
        step(r#"do = "listen", socket = "l", at = "0.0.0.0:7001""#),
        at(LISTEN, "127.0.0.1:7001", r#"status = "STATUS_ADDRESS_ALREADY_EXISTS""#),
        step(r#"do = "listen", socket = "none", at = "10.9.9.9:0", status = "STATUS_INVALID_ADDRESS_COMPONENT""#),
        // The program drops its end.
        step(r#"do = "connect", socket = "c", to = "127.0.0.1:7000", from = "127.0.0.1:7002""#),
        ask(ACCEPT, ""),
        step(r#"do = "abort", socket = "c""#),
        ask(RECEIVE, &format!("output = 1, {RESET}")),
        ask(CLOSE, ""),
        // The driver does: its close is abortive.
        step(r#"do = "connect", socket = "c", to = "127.0.0.1:7000""#),
        ask(ACCEPT, ""),
        ask(CLOSE, ""),
        step(&format!(r#"do = "receive", socket = "c", {RESET}"#)),
        step(&format!(r#"do = "send", socket = "c", input = [{{ u8 = 1 }}], {RESET}"#)),
        step(r#"do = "close", socket = "c""#),
        // A program that closes with bytes which it has not taken.
        step(r#"do = "connect", socket = "c", to = "127.0.0.1:7000""#),
        ask(ACCEPT, ""),
        ask(SEND, "input = [{ u8 = 1 }]"),
        step(r#"do = "sleep", microseconds = 1000"#),
        step(r#"do = "close", socket = "c""#),
        ask(RECEIVE, &format!("output = 1, {RESET}")),
        ask(CLOSE, ""),
        // Whoever waits at a port that is closed is told.
        at(CONNECT, "127.0.0.1:7001", ""),
        step(r#"do = "close", socket = "l""#),
        ask(RECEIVE, &format!("output = 1, {RESET}")),
        ask(STOP, ""),
    ];
    repeats(&script("ends", "", &steps));
}

/// What is found of a script, in words.
fn found(name: &str, steps: &[String]) -> String {
    let results = run(&script(name, "", steps), "1", "");
    let (_, finding) = results.findings().next().expect("a finding");
    format!("{}: {}", finding.rule, finding.words)
}

#[test]
fn what_did_not_come_off_is_said_with_what_there_is() {
    let connect = r#"do = "connect", socket = "c", to = "127.0.0.1:7000""#;
    let words = found("refused", &[at(LISTEN, "127.0.0.1:7007", ""), step(connect)]);
    assert!(
        words.starts_with("script: line 5, connect c: STATUS_CONNECTION_REFUSED (0xc0000236) instead of"),
        "{words}"
    );
    let advice = "nobody listens at 127.0.0.1:7000, and drivers of this machine listen at 127.0.0.1:7007";
    assert!(words.ends_with(advice), "{words}");
    let words = found("not-there", &[step(r#"do = "bind", socket = "d", at = "10.9.9.9:7""#)]);
    assert!(words.contains("STATUS_INVALID_ADDRESS_COMPONENT") && words.contains("none of this machine's"), "{words}");
    let other = [
        at(LISTEN, "127.0.0.1:7000", ""),
        step(connect),
        ask(ACCEPT, ""),
        ask(SEND, r#"input = [{ text = "b" }]"#),
        ask(END, ""),
        step(r#"do = "receive", socket = "c", expect = [{ text = "ab" }]"#),
    ];
    let words = found("other", &other);
    assert!(words.ends_with("receive c: 1 bytes instead of 2"), "{words}");
}

/// A wait for what never comes has the program's words.
#[test]
fn a_program_that_waits_in_vain_is_a_deadlock() {
    let steps = [
        at(LISTEN, "127.0.0.1:7000", ""),
        step(r#"do = "connect", socket = "c", to = "127.0.0.1:7000""#),
        step(r#"do = "receive", socket = "c", expect = [{ u64 = 0 }]"#),
    ];
    let words = found("waits", &steps);
    assert!(words.starts_with("deadlock: "), "{words}");
    assert!(words.contains("a program that waits for 8 bytes from 127.0.0.1:7000"), "{words}");
}

/// What fails of a driver's requests is not taken for a mistake of its program.
#[test]
fn each_thing_that_can_fail_does_once() {
    let script = script("faults", "", &program_connects("127.0.0.1:7000"));
    let results = crate::run_with(&script, "3", "", Faults::EachCall);
    passed(&results);
    assert!(results.outcomes.len() > 20, "{} runs", results.outcomes.len());
}

/// Ports of the host that nobody has.
fn ports() -> [u16; 4] {
    let streams = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let datagrams = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a port"));
    let [one, two] = streams.map(|socket| socket.local_addr().expect("an address").port());
    let [three, four] = datagrams.map(|socket| socket.local_addr().expect("an address").port());
    [one, two, three, four]
}

#[test]
fn programs_and_drivers_talk_over_the_loopback_of_the_host() {
    const HOST: &str = "[kernel]\nthreads = true\ndatagrams = \"host\"\n";
    let ports = ports().map(|port| format!("127.0.0.1:{port}"));
    let reset = [
        at(LISTEN, &ports[0], ""),
        step(&format!(r#"do = "connect", socket = "c", to = "{}""#, ports[0])),
        ask(ACCEPT, ""),
        step(r#"do = "abort", socket = "c""#),
        ask(RECEIVE, r#"output = 1, status = "STATUS_CONNECTION_RESET""#),
        ask(STOP, ""),
        step(&format!(r#"do = "connect", socket = "c", to = "{}", status = "STATUS_CONNECTION_REFUSED""#, ports[1])),
    ];
    for (name, steps) in [
        ("host-connects", program_connects(&ports[0])),
        ("host-listens", driver_connects(&ports[1])),
        ("host-datagrams", datagrams(&ports[2], &ports[3])),
        ("host-reset", reset.to_vec()),
    ] {
        let script = read(&script(name, HOST, &steps)).expect("a script");
        passed(&carry_out(&Job::new(script, Faults::None), "1", ""));
    }
}

/// A script of two machines, each with the driver: what is done there, behind its load.
fn two(name: &str, network: &str, steps: [&[String]; 2]) -> std::path::PathBuf {
    let machine = |(name, steps): (&str, &[String])| {
        let begin =
            [r#"{ do = "load", image = "talker" }"#, r#"{ do = "open", file = "t", link = '\DosDevices\Talker' }"#];
        let steps: Vec<&str> = begin.into_iter().chain(steps.iter().map(String::as_str)).collect();
        let number = if name == "a" { 1 } else { 2 };
        let steps = steps.join(",\n    ");
        format!("[[machine]]\nname = \"{name}\"\naddresses = [\"192.0.2.{number}/24\"]\nstep = [\n    {steps},\n]\n")
    };
    let machines = ["a", "b"].into_iter().zip(steps).map(machine).collect::<String>();
    file(&format!("sockets-{name}.toml"), &format!("[network]\n{network}\n[[image]]\nname = \"talker\"\n{machines}"))
}

const LISTENS: &str = r#"do = "barrier", name = "it listens""#;

/// The stream of a driver on one machine to a driver on the other, whatever the network does to it.
#[test]
fn drivers_on_two_machines_have_a_stream_over_any_network_and_a_seed_repeats() {
    let big = "[{ text = \"begin\" }, { zero = 90000 }, { text = \"end\" }]";
    let server = [
        at(LISTEN, "192.0.2.1:7000", ""),
        step(LISTENS),
        ask(ACCEPT, ""),
        ask(RECEIVE, &format!("output = 90008, expect = {big}")),
        ask(SEND, r#"input = [{ text = "thanks" }]"#),
        ask(RECEIVE, "output = 1, expect = []"),
        ask(END, ""),
    ];
    let client = [
        step(LISTENS),
        at(CONNECT, "192.0.2.1:7000", ""),
        ask(SEND, &format!("input = {big}")),
        ask(RECEIVE, r#"output = 6, expect = [{ text = "thanks" }]"#),
        ask(END, ""),
        ask(RECEIVE, "output = 1, expect = []"),
    ];
    let bad = "delay = 200\nloss = 5\ndouble = 5\nreorder = 10\ncorrupt = 2";
    for (name, network) in [("calm", "delay = 1000"), ("bad", bad)] {
        repeats(&two(name, network, [&server, &client]));
    }
}

/// A program of one machine talks with the driver of the other one.
#[test]
fn a_program_connects_to_a_driver_of_another_machine() {
    let server = [
        at(LISTEN, "0.0.0.0:7000", ""),
        step(LISTENS),
        ask(ACCEPT, ""),
        ask(RECEIVE, r#"output = 4, expect = [{ text = "ping" }]"#),
        ask(SEND, r#"input = [{ text = "pong" }]"#),
        ask(RECEIVE, "output = 1, expect = []"),
        ask(END, ""),
    ];
    let client = [
        step(LISTENS),
        step(r#"do = "connect", socket = "lost", to = "198.51.100.1:7000", status = "STATUS_NETWORK_UNREACHABLE""#),
        step(r#"do = "connect", socket = "none", to = "192.0.2.1:7001", status = "STATUS_CONNECTION_REFUSED""#),
        step(r#"do = "connect", socket = "c", to = "192.0.2.1:7000""#),
        step(r#"do = "send", socket = "c", input = [{ text = "ping" }]"#),
        step(r#"do = "receive", socket = "c", expect = [{ text = "pong" }]"#),
        step(r#"do = "end", socket = "c""#),
        step(r#"do = "receive", socket = "c", expect = []"#),
    ];
    repeats(&two("program", "delay = 300\nloss = 3", [&server, &client]));
}

/// A machine comes to its end with the connection open: its driver closes the socket, which resets the other end.
#[test]
fn a_machine_that_ends_resets_its_connections() {
    let server = [at(LISTEN, "192.0.2.1:7000", ""), step(LISTENS), ask(ACCEPT, "")];
    let client = [
        step(LISTENS),
        at(CONNECT, "192.0.2.1:7000", ""),
        ask(RECEIVE, r#"output = 1, status = "STATUS_CONNECTION_RESET""#),
        ask(SEND, r#"input = [{ u8 = 1 }], status = "STATUS_CONNECTION_RESET""#),
        // The machine is gone.
        at(CONNECT, "192.0.2.1:7000", r#"status = "STATUS_IO_TIMEOUT""#),
    ];
    repeats(&two("ends", "delay = 100", [&server, &client]));
}

/// The cable of a machine is pulled: both ends find that out by themselves, when the other one has not answered for 21 seconds.
#[test]
fn a_machine_without_a_cable_is_silent_and_connections_time_out() {
    let timed_out = r#"status = "STATUS_IO_TIMEOUT""#;
    let connected = r#"do = "barrier", name = "connected""#;
    let server = [
        at(LISTEN, "192.0.2.1:7000", ""),
        step(LISTENS),
        ask(ACCEPT, ""),
        step(connected),
        step(r#"do = "unplug""#),
        ask(SEND, "input = [{ zero = 70000 }], status = \"STATUS_IO_TIMEOUT\""),
    ];
    let client = [
        step(LISTENS),
        at(CONNECT, "192.0.2.1:7000", ""),
        step(r#"do = "connect", socket = "c", to = "192.0.2.1:7000""#),
        step(connected),
        step(r#"do = "sleep", microseconds = 1000"#),
        ask(SEND, &format!("input = [{{ zero = 70000 }}], {timed_out}")),
        ask(RECEIVE, &format!("output = 1, {timed_out}")),
        step(r#"do = "send", socket = "c", input = [{ u8 = 1 }]"#),
        step(&format!(r#"do = "receive", socket = "c", {timed_out}"#)),
    ];
    repeats(&two("silent", "delay = 100", [&server, &client]));
}

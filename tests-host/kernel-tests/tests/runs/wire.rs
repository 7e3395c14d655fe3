//! The sample consumer's pings over the host's loopback: two machines, each a run in a process of its own.

use std::{net::UdpSocket, thread};

use runner::{Faults, Results, parse::read, worker::Job};

use crate::{carry_out, file, path, sample::is_there};

/// Two UDP ports of the host that nobody has.
fn ports() -> [u16; 2] {
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    sockets.map(|socket| socket.local_addr().expect("an address").port())
}

/// A script of the sample, with the first end's port and the second's.
fn script(name: &str, [serves, pings]: [u16; 2], of: &str) -> std::path::PathBuf {
    let text = std::fs::read_to_string(path("samples/consumer-c").join(name)).expect("a script of the sample");
    let at = |port: u16| format!("127.0.0.1:{port}\"");
    let text = text.replace("127.0.0.1:5001\"", &at(serves)).replace("127.0.0.1:5002\"", &at(pings));
    assert!(text.contains(&at(serves)) && text.contains(&at(pings)), "both ports are in {name}");
    file(&format!("{of}-{name}"), &text)
}

/// A run of the right sample. Without the adviser, as `ndkctl run` does it with threads.
fn run(script: &std::path::Path) -> Results {
    carry_out(&Job::new(read(script).expect("a script"), Faults::None), "1", "right")
}

fn passed(results: &Results) {
    assert_eq!(results.exit_code(), 0, "{results}\n{:?}", results.findings().next());
}

#[test]
fn two_machines_ping_each_other_over_the_loopback_of_the_host() {
    if !is_there() {
        return;
    }
    let ports = ports();
    let (serve, ping) = (script("serve.toml", ports, "two"), script("ping.toml", ports, "two"));
    thread::scope(|scope| {
        let served = scope.spawn(|| run(&serve));
        passed(&run(&ping));
        passed(&served.join().expect("it does not panic"));
    });
}

/// Nobody is there: the client says so when its time is over, and everything is taken down.
#[test]
fn a_peer_that_never_comes_is_an_error_and_leaves_nothing() {
    if !is_there() {
        return;
    }
    let script = script("ping.toml", ports(), "alone");
    let text = std::fs::read_to_string(script).expect("a script");
    let first = text.find("expect = ").expect("a step with an answer");
    // The first ping only, without patience.
    let text =
        format!("{}status = \"STATUS_HOST_UNREACHABLE\"\n", &text[..first]).replace("{ u32 = 60 }", "{ u32 = 0 }");
    passed(&run(&file("alone.toml", &text)));
}

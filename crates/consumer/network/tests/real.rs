//! Segments of the system: what is allowed is done, and what is not is said.
#![cfg(target_os = "linux")]

use std::{
    io,
    net::{IpAddr, Ipv6Addr, UdpSocket},
    time::{Duration, Instant},
};

use network::{
    OpenError, Segment,
    real::{Packets, Tap},
};
use roce::wire::{Envelope, Ethernet, Ip, Udp, ethernet::ethertype, ip, udp};

/// Does what the system allows; otherwise the error must name the privilege.
fn allowed<S>(opened: Result<S, OpenError>, needs: &str) -> Option<S> {
    match opened {
        Ok(segment) => Some(segment),
        Err(error) => {
            let said = error.to_string();
            assert!(matches!(error, OpenError::NoPermission { .. } | OpenError::System(..)), "{said}");
            assert!(said.contains(needs) || !matches!(error, OpenError::NoPermission { .. }), "{said}");
            eprintln!("not tried: {said}");
            None
        }
    }
}

#[test]
fn a_frame_goes_over_an_interface() {
    let open = || allowed(Packets::open("lo"), "CAP_NET_RAW");
    let (Some(near), Some(far)) = (open(), open()) else { return };
    let frame = [&[0; 12][..], &[0x88, 0xB5], format!("softndk {}", std::process::id()).as_bytes()].concat();
    near.send(&frame).expect("it is sent");
    let end = Instant::now() + Duration::from_secs(10);
    let mut seen = 0;
    while seen == 0 && Instant::now() < end {
        let count = |bytes: &[u8]| seen += u32::from(bytes == frame);
        let mut count = count;
        far.receive(Duration::from_millis(100), &mut count).expect("it works");
    }
    assert_eq!(seen, 1, "once: the outgoing copy is not received");
    assert!(near.send(&vec![0; near.longest() + 1]).is_err(), "it does not fit");
}

/// Packets of one message, to this machine's own address: they can go as one.
fn message() -> Vec<Vec<u8>> {
    let local = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let envelope = Envelope {
        ethernet: Ethernet { destination: [0; 6], source: [0; 6], tag: None, ethertype: ethertype::IPV6 },
        ip: Ip {
            source: local,
            destination: local,
            traffic_class: 0,
            hop_limit: 64,
            protocol: ip::protocol::UDP,
            label: 0,
        },
        udp: Udp { source: 0xC123, destination: udp::ROCE },
    };
    let packet = |number| {
        let payload = if number == LAST { 70 } else { 1040 };
        let mut frame = vec![number; envelope.length() + payload];
        envelope.emit_headers(&mut frame, payload);
        frame
    };
    (0..=LAST).map(packet).collect()
}

/// The number of the last packet of a message. A batch has one less than so many.
const LAST: u8 = 40;

/// Those that come within a while, of this flow.
fn come(segment: &impl Segment, flow: &[u8], count: usize) -> Vec<Vec<u8>> {
    let end = Instant::now() + Duration::from_secs(10);
    let mut came = Vec::new();
    while came.len() < count && Instant::now() < end {
        let mut take = |bytes: &[u8]| {
            if bytes.len() > flow.len() && bytes[12..14] == flow[12..14] && bytes[54..58] == flow[54..58] {
                came.push(bytes.to_vec());
            }
        };
        segment.receive(Duration::from_millis(100), &mut take).expect("it works");
    }
    came
}

#[test]
fn packets_of_a_message_go_as_one_and_come_apart() {
    let open = || allowed(Packets::open("lo"), "CAP_NET_RAW");
    let (Some(near), Some(far)) = (open(), open()) else { return };
    let frames = message();
    let all: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    near.send_all(&all).expect("they are sent");
    assert!(come(&far, &frames[0][..58], frames.len()) == frames, "the same, in their order");
}

/// Linux takes them apart for a program that has not asked for datagrams that came together.
#[test]
fn what_goes_as_one_is_taken_apart_by_linux() {
    let Some(near) = allowed(Packets::open("lo"), "CAP_NET_RAW") else { return };
    let far = match UdpSocket::bind((Ipv6Addr::LOCALHOST, udp::ROCE)) {
        Ok(far) => far,
        Err(error) => {
            eprintln!("not tried: {error}");
            return;
        }
    };
    far.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
    let frames = message();
    let all: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    near.send_all(&all).expect("they are sent");
    let mut room = [0; 2000];
    let came: io::Result<Vec<_>> =
        all.iter().map(|_| far.recv(&mut room).map(|length| room[..length].to_vec())).collect();
    let headers = frames[0].len() - 1040;
    let payloads: Vec<_> = frames.iter().map(|frame| frame[headers..].to_vec()).collect();
    assert!(came.expect("as many") == payloads);
}

#[test]
fn a_tap_device_is_made_and_goes() {
    let name = format!("sndk{}", std::process::id());
    let Some(tap) = allowed(Tap::open(&name), "CAP_NET_ADMIN") else { return };
    let folder = format!("/sys/class/net/{name}");
    assert!(std::fs::exists(&folder).expect("sysfs"), "the device is there");
    tap.send(&[0xFF; 60]).expect("the device is down: it is lost");
    assert_eq!(tap.receive(Duration::from_millis(1), &mut |_| ()).expect("it works"), 0);
    drop(tap);
    assert!(!std::fs::exists(&folder).expect("sysfs"), "the device is gone");
}

#[test]
fn a_wrong_name_is_refused() {
    assert!(matches!(Packets::open("no-such-if0"), Err(OpenError::NoInterface(_))));
    for name in ["", "a name", "a/b", "a-name-that-is-too-long"] {
        assert!(matches!(Packets::open(name), Err(OpenError::Wrong(_))), "{name}");
        assert!(matches!(Tap::open(name), Err(OpenError::Wrong(_))), "{name}");
    }
}

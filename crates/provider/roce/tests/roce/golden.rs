//! Frames of rxe: each is read, written again to the same bytes, and its ICRC is right (RoCEv2 2).

use roce::{
    vxlan,
    wire::{
        Envelope, Ethernet, Ip, Kind, Udp, Unreadable,
        cm::{Attribute, Drep, Dreq, Mad, Rej, Rep, Req, Rtu},
        ethernet::ethertype,
        icrc, ip,
    },
};

use crate::common::pcap;

/// The frame in a frame of VXLAN; a frame that is none itself.
fn inner(frame: &[u8]) -> Vec<u8> {
    let (ethernet, rest) = Ethernet::parse(frame).expect("an Ethernet header");
    let Some((ip, rest)) = Ip::parse(ethernet.ethertype, rest) else { return frame.to_vec() };
    match Udp::parse(rest) {
        Some((Udp { destination: vxlan::PORT, .. }, datagram)) if ip.protocol == ip::protocol::UDP => {
            let (vni, frame) = vxlan::decapsulate(datagram).expect("a VXLAN header");
            let mut again = vec![0; datagram.len()];
            assert_eq!(vxlan::encapsulate(vni, frame, &mut again), Some(again.len()));
            assert_eq!(again, datagram);
            assert_eq!(vni, 42);
            frame.to_vec()
        }
        _ => frame.to_vec(),
    }
}

#[test]
fn every_frame_is_read_and_written_to_the_same_bytes() {
    let (mut count, mut kinds) = (0, Vec::new());
    for (name, frames) in pcap::captures() {
        for (index, frame) in frames.iter().enumerate() {
            let frame = inner(frame);
            let parsed = Envelope::parse(&frame);
            if matches!(parsed, Err(Unreadable::Other)) {
                let (ethernet, _) = Ethernet::parse(&frame).expect("an Ethernet header");
                let neighbours = [ethertype::ARP, ethertype::IPV6].contains(&ethernet.ethertype);
                assert!(neighbours, "{name} {index}: not of RoCE, not ARP, not IPv6");
                continue;
            }
            let (envelope, packet) = parsed.unwrap_or_else(|error| panic!("{name} {index}: {error:?}"));
            let mut again = vec![0xAA; frame.len()];
            assert_eq!(envelope.emit(&packet, &mut again), frame.len(), "{name} {index}");
            assert_eq!(again, frame, "{name} {index}");
            count += 1;
            let kind = packet.bth.opcode.kind();
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    assert!(count > 100, "{count} frames");
    for kind in [Kind::Send, Kind::Write, Kind::Read, Kind::ReadResponse, Kind::Acknowledge, Kind::Datagram] {
        assert!(kinds.contains(&kind), "{kind:?} in no capture");
    }
}

#[test]
fn every_message_of_the_connection_manager_is_read_and_written_to_the_same_bytes() {
    let mut seen = Vec::new();
    for (name, frames) in pcap::captures() {
        for frame in frames {
            let frame = inner(&frame);
            let Ok((_, packet)) = Envelope::parse(&frame) else { continue };
            let Some(mad) = (packet.bth.opcode.kind() == Kind::Datagram).then(|| Mad::parse(packet.payload)) else {
                continue;
            };
            let mad = mad.unwrap_or_else(|| panic!("{name}: a datagram that is no message"));
            let attribute = mad.attribute().unwrap_or_else(|| panic!("{name}: {:?}", mad.header));
            let transaction = mad.header.transaction.get();
            let again = match attribute {
                Attribute::Req => Mad::new(attribute, transaction, mad.message::<Req>().expect("a REQ")),
                Attribute::Rep => Mad::new(attribute, transaction, mad.message::<Rep>().expect("a REP")),
                Attribute::Rtu => Mad::new(attribute, transaction, mad.message::<Rtu>().expect("an RTU")),
                Attribute::Rej => Mad::new(attribute, transaction, mad.message::<Rej>().expect("a REJ")),
                Attribute::Dreq => Mad::new(attribute, transaction, mad.message::<Dreq>().expect("a DREQ")),
                Attribute::Drep => Mad::new(attribute, transaction, mad.message::<Drep>().expect("a DREP")),
                Attribute::Mra => panic!("{name}: an MRA, which no capture has"),
            };
            assert_eq!(&again, mad, "{name}: {attribute:?}");
            if !seen.contains(&attribute) {
                seen.push(attribute);
            }
        }
    }
    assert_eq!(seen.len(), 6, "{seen:?}");
}

/// The hexadecimal digits of `text`.
fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("digits");
    digits.chunks(2).map(byte).collect()
}

#[test]
fn the_icrc_of_the_worked_example_over_ipv4() {
    let frame = bytes(
        "02 00 00 00 00 02 02 00 00 00 00 01 08 00 45 00 00 30 6e eb 40 00 40 11 b7 cf 0a 00 00 01 0a 00 00 02
         fd 06 12 b7 00 1c 00 00 11 00 ff ff 00 00 00 12 00 2e 7e b7 1f 00 00 01 00 cb 3f 0e",
    );
    assert_eq!(frame.len(), 62);
    assert_eq!(icrc::of(&frame[14..58]), Some(0x0E3F_CB00_u32.to_le_bytes()));
    assert!(Envelope::parse(&frame).is_ok());
}

#[test]
fn the_icrc_of_the_worked_example_over_ipv6() {
    let (one, two) =
        ("fd 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01", "fd 00 00 00 00 00 00 00 00 00 00 00 00 00 00 02");
    let frame = bytes(&format!(
        "02 00 00 00 00 02 02 00 00 00 00 01 86 dd 60 00 00 00 00 1c 11 40 {one} {two}
         f3 38 12 b7 00 1c 00 00 11 00 ff ff 00 00 00 14 00 27 10 c1 1f 00 00 01 90 a9 96 da"
    ));
    assert_eq!(frame.len(), 82);
    assert_eq!(icrc::of(&frame[14..78]), Some(0xDA96_A990_u32.to_le_bytes()));
    assert!(Envelope::parse(&frame).is_ok());
}

#[test]
fn any_changed_bit_that_no_router_changes_is_noticed() {
    let frame = pcap::capture("rping-v4").into_iter().find(|frame| Envelope::parse(frame).is_ok()).expect("a packet");
    let routers = [15, 22, 24, 25, 40, 41, 46];
    for at in 14..frame.len() {
        let mut changed = frame.clone();
        changed[at] ^= 1 << (at % 8);
        let verdict = Envelope::parse(&changed);
        let ip_header = 14..34;
        if routers.contains(&at) {
            // A checksum of IPv4 that does not fit its header ends the matter before.
            assert!(ip_header.contains(&at) || verdict.is_ok(), "byte {at}");
        } else {
            assert!(verdict.is_err(), "byte {at}");
        }
    }
}

#[test]
fn a_tag_of_a_vlan_and_bytes_behind_the_packet_change_nothing() {
    let frame = pcap::capture("rping-v6").into_iter().find(|frame| Envelope::parse(frame).is_ok()).expect("a packet");
    let (mut envelope, packet) = Envelope::parse(&frame).expect("a packet");
    envelope.ethernet.tag = Some(0x6007);
    let mut tagged = vec![0x55; frame.len() + 4 + 13];
    assert_eq!(envelope.emit(&packet, &mut tagged), frame.len() + 4);
    assert_eq!(Envelope::parse(&tagged), Ok((envelope, packet)));
    assert_eq!(tagged[frame.len()..][..4], frame[frame.len() - 4..], "the same ICRC");
}

//! VXLAN against bytes, and between sockets.

use std::{
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use network::{OpenError, Segment, Vxlan, VxlanConfig};

const SOON: Duration = Duration::from_millis(200);
const BROADCAST: [u8; 6] = [0xFF; 6];

fn any(v6: bool) -> SocketAddr {
    if v6 { "[::1]:0" } else { "127.0.0.1:0" }.parse().expect("an address")
}

/// A socket that plays a peer.
fn peer(v6: bool) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(any(v6)).expect("a socket");
    socket.set_read_timeout(Some(SOON)).expect("a time");
    let address = socket.local_addr().expect("an address");
    (socket, address)
}

fn open(vni: u32, peers: &[SocketAddr]) -> Vxlan {
    let local = any(peers.first().is_some_and(SocketAddr::is_ipv6));
    Vxlan::open(&VxlanConfig { local, peers: peers.to_vec(), vni }).expect("a segment")
}

fn frame(to: [u8; 6], from: [u8; 6], payload: &[u8]) -> Vec<u8> {
    [&to[..], &from, &[0x88, 0xB5], payload].concat()
}

fn received(segment: &Vxlan) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    segment.receive(SOON, &mut |frame| frames.push(frame.to_vec())).expect("it works");
    frames
}

fn datagram(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 65_536];
    let (length, _) = socket.recv_from(&mut bytes).ok()?;
    bytes.truncate(length);
    Some(bytes)
}

#[test]
fn the_bytes_are_those_of_the_rfc() {
    for v6 in [false, true] {
        let (socket, address) = peer(v6);
        let segment = open(0x12_34_56, &[address]);
        let sent = frame([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], b"payload");
        segment.send(&sent).expect("it is sent");
        let mut golden = vec![0x08, 0, 0, 0, 0x12, 0x34, 0x56, 0];
        golden.extend(&sent);
        assert_eq!(datagram(&socket), Some(golden.clone()));
        socket.send_to(&golden, segment.local()).expect("it is sent");
        assert_eq!(received(&segment), [sent]);
    }
}

#[test]
fn other_networks_strangers_and_what_is_cut_off_do_not_get_in() {
    let (socket, address) = peer(false);
    let segment = open(42, &[address]);
    let whole = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &frame(BROADCAST, [2; 6], b"x")].concat();
    for length in 0..8 + 14 {
        socket.send_to(&whole[..length], segment.local()).expect("it is sent");
    }
    let mut other = whole.clone();
    other[6] = 43;
    socket.send_to(&other, segment.local()).expect("it is sent");
    let mut invalid = whole.clone();
    invalid[0] = 0;
    socket.send_to(&invalid, segment.local()).expect("it is sent");
    let stranger = UdpSocket::bind("127.0.0.2:0").expect("another address of this machine");
    stranger.send_to(&whole, segment.local()).expect("it is sent");
    socket.send_to(&whole, segment.local()).expect("it is sent");
    let mut frames = Vec::new();
    while frames.is_empty() {
        frames = received(&segment);
    }
    assert_eq!(frames, [&whole[8..]]);
    let counters = segment.counters();
    // A datagram without bytes is nothing to the socket.
    assert_eq!((counters.malformed, counters.other_network, counters.strangers), (8 + 14 - 1 + 1, 1, 1));
}

#[test]
fn a_station_that_was_heard_is_not_flooded() {
    let peers = [peer(false), peer(false), peer(false)];
    let segment = open(7, &peers.each_ref().map(|(_, address)| *address));
    let (mine, theirs) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9]);
    segment.send(&frame(theirs, mine, b"1")).expect("it is sent");
    assert_eq!(peers.iter().filter(|(socket, _)| datagram(socket).is_some()).count(), 3, "nobody knows where it is");
    let answer = [&[8, 0, 0, 0, 0, 0, 7, 0][..], &frame(mine, theirs, b"2")].concat();
    peers[1].0.send_to(&answer, segment.local()).expect("it is sent");
    assert_eq!(received(&segment).len(), 1);
    segment.send(&frame(theirs, mine, b"3")).expect("it is sent");
    let got: Vec<_> = peers.iter().map(|(socket, _)| datagram(socket).is_some()).collect();
    assert_eq!(got, [false, true, false]);
    segment.send(&frame(BROADCAST, mine, b"4")).expect("it is sent");
    assert_eq!(peers.iter().filter(|(socket, _)| datagram(socket).is_some()).count(), 3, "everybody gets it");
}

#[test]
fn linux_sends_from_any_port_and_listens_on_one() {
    let (listens, address) = peer(false);
    let segment = open(1, &[address]);
    let (sends, _) = peer(false);
    let (mine, theirs) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9]);
    sends
        .send_to(&[&[8, 0, 0, 0, 0, 0, 1, 0][..], &frame(mine, theirs, b"1")].concat(), segment.local())
        .expect("sent");
    assert_eq!(received(&segment).len(), 1);
    segment.send(&frame(theirs, mine, b"2")).expect("it is sent");
    assert!(datagram(&listens).is_some() && datagram(&sends).is_none());
}

#[test]
fn without_peers_whoever_sends_becomes_one_and_their_number_is_bounded() {
    let segment = Vxlan::open(&VxlanConfig { local: "0.0.0.0:0".parse().expect("any"), peers: Vec::new(), vni: 1 })
        .expect("a segment");
    let to: SocketAddr = ([127, 0, 0, 1], segment.local().port()).into();
    for host in 1..=100_u8 {
        let socket =
            UdpSocket::bind(SocketAddr::from(([127, 0, 1, host], 0))).expect("another address of this machine");
        let frame = frame(BROADCAST, [2, 0, 0, 0, 0, host], b"");
        socket.send_to(&[&[8, 0, 0, 0, 0, 0, 1, 0][..], &frame].concat(), to).expect("it is sent");
    }
    let mut frames = 0;
    while frames < 64 {
        frames += received(&segment).len();
    }
    while segment.counters().strangers < 36 {
        assert!(received(&segment).is_empty(), "the rest is dropped");
    }
    let peers = segment.peers();
    assert_eq!((peers.len(), peers[0]), (64, ([127, 0, 1, 1], to.port()).into()));
}

#[test]
fn many_frames_arrive_in_their_order_and_long_ones_whole() {
    for v6 in [false, true] {
        let (near, far) = (open(5, &[peer(v6).1]), open(5, &[peer(v6).1]));
        drop((near, far));
        let (socket, address) = peer(v6);
        drop(socket);
        let far = Vxlan::open(&VxlanConfig { local: address, peers: vec![any(v6)], vni: 5 }).expect("a segment");
        let near = open(5, &[far.local()]);
        let frames: Vec<_> =
            (0..100_u8).map(|number| frame(BROADCAST, [2; 6], &vec![number; 80 * usize::from(number)])).collect();
        near.send_all(&frames.iter().map(|frame| &frame[..]).collect::<Vec<_>>()).expect("they are sent");
        let mut seen = Vec::new();
        while seen.len() < frames.len() {
            let now = received(&far);
            assert!(!now.is_empty(), "{} of {} frames", seen.len(), frames.len());
            seen.extend(now);
        }
        assert!(seen == frames, "other frames");
        let longest = frame(BROADCAST, [2; 6], &vec![1; near.longest() - 14]);
        near.send(&longest).expect("it fits");
        assert!(received(&far) == [longest.clone()], "the longest frame");
        let error = near.send(&[&longest[..], &[0]].concat()).expect_err("it does not fit");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    }
}

#[test]
fn a_segment_that_cannot_be_says_why() {
    let first = open(1, &[any(false)]);
    let config = |local: SocketAddr, vni| VxlanConfig { local, peers: Vec::new(), vni };
    let used = Vxlan::open(&config(first.local(), 1)).err().expect("the port is in use");
    assert!(matches!(used, OpenError::InUse(at) if at == first.local()), "{used}");
    assert!(used.to_string().contains("another port"), "{used}");
    let nowhere =
        Vxlan::open(&config("192.0.2.77:0".parse().expect("an address"), 1)).err().expect("not of this machine");
    assert!(matches!(nowhere, OpenError::NotHere(_)), "{nowhere}");
    let large = Vxlan::open(&config(any(false), 1 << 24)).err().expect("25 bits");
    assert!(large.to_string().contains("16777215"), "{large}");
    let many = VxlanConfig { local: any(false), peers: vec![any(false); 65], vni: 1 };
    assert!(matches!(Vxlan::open(&many), Err(OpenError::Wrong(_))));
}

#[test]
fn one_socket_has_peers_of_both_families() {
    let (four, six) = (peer(false), peer(true));
    let any = VxlanConfig { local: "[::]:0".parse().expect("any"), peers: vec![four.1, six.1], vni: 3 };
    let segment = Vxlan::open(&any).expect("a segment");
    segment.send(&frame(BROADCAST, [2; 6], b"both")).expect("it is sent");
    assert!(datagram(&four.0).is_some() && datagram(&six.0).is_some());
    let answer = [&[8, 0, 0, 0, 0, 0, 3, 0][..], &frame([2; 6], [4; 6], b"four")].concat();
    four.0.send_to(&answer, ("127.0.0.1", segment.local().port())).expect("it is sent");
    assert_eq!(received(&segment).len(), 1);
    assert_eq!(segment.counters().strangers, 0, "the address is one of IPv4 in a socket of IPv6");
}

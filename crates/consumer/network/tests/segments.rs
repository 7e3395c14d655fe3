//! Datagrams, memory, and what stands before a segment.

use std::{
    io::Write,
    net::{SocketAddr, UdpSocket},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use network::{
    Captured, Datagrams, Impaired, Impairment, Pump, Segment,
    memory::{self, Hub},
};

const SOON: Duration = Duration::from_millis(200);

fn received(segment: &impl Segment) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    segment.receive(SOON, &mut |frame| frames.push(frame.to_vec())).expect("it works");
    frames
}

/// Receives until there has been nothing for a while.
fn all(segment: &impl Segment) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| Some(received(segment)).filter(|frames| !frames.is_empty())).flatten().collect()
}

fn frames(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|number| [&[0xFF; 14][..], &number.to_be_bytes()].concat()).collect()
}

#[test]
fn a_datagram_is_a_frame_and_only_the_peer_is_heard() {
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let peer = UdpSocket::bind(any).expect("a socket");
    let segment = Datagrams::open(any, peer.local_addr().expect("an address")).expect("a segment");
    peer.set_read_timeout(Some(SOON)).expect("a time");
    let sent: Vec<_> =
        (0..40_u8).map(|number| vec![number; 1 + 50 * usize::from(number)]).chain([vec![7; 9000]]).collect();
    segment.send_all(&sent.iter().map(|frame| &frame[..]).collect::<Vec<_>>()).expect("they are sent");
    let mut bytes = vec![0; 65_536];
    for frame in &sent {
        let length = peer.recv(&mut bytes).expect("a datagram");
        assert!(bytes[..length] == frame[..], "a frame of {} bytes", frame.len());
    }
    let stranger = UdpSocket::bind(any).expect("a socket");
    stranger.send_to(b"a stranger's frame", segment.local()).expect("it is sent");
    peer.send_to(b"the peer's frame", segment.local()).expect("it is sent");
    assert_eq!(all(&segment), [b"the peer's frame"]);
}

#[test]
fn nobody_at_the_other_end_is_a_frame_lost() {
    let gone = UdpSocket::bind("127.0.0.1:0").expect("a socket").local_addr().expect("an address");
    let segment = Datagrams::open("127.0.0.1:0".parse().expect("an address"), gone).expect("a segment");
    for _ in 0..3 {
        segment.send(&[0; 60]).expect("it is lost");
        assert!(received(&segment).is_empty());
    }
}

#[test]
fn waiting_ends_when_the_time_has_come() {
    let [near, _far] = memory::pair(Impairment::default(), 1);
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let datagrams = Datagrams::open(any, any).expect("a segment");
    for segment in [&near as &dyn Segment, &datagrams] {
        let begun = Instant::now();
        assert_eq!(segment.receive(Duration::from_millis(30), &mut |_| ()).expect("it works"), 0);
        assert!(
            (Duration::from_millis(25)..Duration::from_secs(5)).contains(&begun.elapsed()),
            "{:?}",
            begun.elapsed()
        );
    }
}

#[test]
fn what_one_end_of_memory_sends_all_others_get() {
    let ends = memory::segment(3, Impairment::default(), 1);
    let sent = frames(10);
    for frame in &sent {
        ends[0].send(frame).expect("it is sent");
    }
    assert_eq!(received(&ends[1]), sent);
    assert_eq!(received(&ends[2]), sent);
    assert!(received(&ends[0]).is_empty());
    assert!(ends[0].send(&vec![0; ends[0].longest() + 1]).is_err(), "it does not fit");
}

/// What two ends of a hub see in virtual time: one sends each 10 us, the other each 15.
fn seen(seed: u64) -> Vec<(u64, usize, Vec<u8>)> {
    let impairment = Impairment {
        lost: 50_000,
        doubled: 50_000,
        changed: 50_000,
        late: 100_000,
        lateness: Duration::from_micros(300),
        delay: Duration::from_micros(40),
    };
    let (mut hub, mut seen) = (Hub::new(2, impairment, seed), Vec::new());
    for now in 0..20_000 {
        for (end, step) in [(0, 10), (1, 15)] {
            if now % step == 0 {
                hub.send(now, end, &now.to_be_bytes());
            }
            while let Some(frame) = hub.receive(now, end) {
                seen.push((now, end, frame));
            }
        }
    }
    seen
}

#[test]
fn a_hub_in_virtual_time_repeats_with_its_seed() {
    let first = seen(1);
    assert!(first.len() > 3000 && first == seen(1) && first != seen(2));
    let mut hub = Hub::new(2, Impairment { delay: Duration::from_micros(7), ..Impairment::default() }, 1);
    assert_eq!(hub.next(1), None);
    hub.send(100, 0, b"frame");
    assert_eq!((hub.next(1), hub.next(0), hub.receive(106, 1)), (Some(107), None, None));
    assert_eq!(hub.receive(107, 1).as_deref(), Some(&b"frame"[..]));
}

/// Which frames arrive through an impaired segment, one way and the other.
fn fates(impairment: Impairment, seed: u64) -> [Vec<Vec<u8>>; 2] {
    let [near, far] = memory::pair(Impairment::default(), 1);
    let near = Impaired::new(near, impairment, seed).expect("a segment");
    for frame in frames(500) {
        near.send(&frame).expect("it is sent");
    }
    let there = all(&far);
    for frame in frames(500) {
        far.send(&frame).expect("it is sent");
    }
    [there, all(&near)]
}

#[test]
fn an_impaired_segment_loses_the_same_frames_with_the_same_seed() {
    let impairment = Impairment { lost: 100_000, doubled: 100_000, changed: 50_000, ..Impairment::default() };
    let first = fates(impairment, 9);
    assert!(first == fates(impairment, 9) && first != fates(impairment, 10));
    assert_ne!(first[0], first[1], "the directions are not the same");
    for seen in first {
        let whole = seen.iter().filter(|frame| frames(500).contains(frame)).count();
        assert!((400..500).contains(&whole) && seen.len() > whole, "{whole} of {}", seen.len());
    }
}

#[test]
fn delayed_frames_come_later_both_ways() {
    let delay = Duration::from_millis(40);
    let [near, far] = memory::pair(Impairment::default(), 1);
    let near = Impaired::new(near, Impairment { delay, ..Impairment::default() }, 1).expect("a segment");
    for (from, to) in [(&near as &dyn Segment, &far as &dyn Segment), (&far, &near)] {
        let begun = Instant::now();
        from.send(b"frame").expect("it is sent");
        let mut seen = Vec::new();
        to.receive(Duration::from_secs(10), &mut |frame| seen.push(frame.to_vec())).expect("it works");
        assert_eq!(seen, [b"frame"]);
        assert!(begun.elapsed() >= delay, "{:?}", begun.elapsed());
    }
}

/// Bytes that another can look at; no room after so many.
#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>, Option<usize>);

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut all = self.0.lock().expect("nobody has panicked");
        if self.1.is_some_and(|room| all.len() + bytes.len() > room) {
            return Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
        }
        all.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_capture_has_both_directions() {
    let [near, far] = memory::pair(Impairment::default(), 1);
    let bytes = Bytes::default();
    let near = Captured::new(near, Box::new(bytes.clone())).expect("a capture");
    near.send(b"frame there").expect("it is sent");
    far.send(b"back").expect("it is sent");
    assert_eq!(received(&near), [b"back"]);
    near.finish().expect("it is written");
    let file = bytes.0.lock().expect("nobody has panicked").clone();
    let word = |at: usize| u32::from_ne_bytes(file[at..at + 4].try_into().expect("four bytes"));
    assert_eq!((word(0), word(20)), (0xA1B2_C3D4, 1), "a pcap of Ethernet");
    assert_eq!((word(32), &file[40..51]), (11, &b"frame there"[..]));
    assert_eq!((word(59), word(63), &file[67..]), (4, 4, &b"back"[..]));
    assert!(word(24) > 1_600_000_000 && word(28) < 1_000_000, "a time");
}

#[test]
fn a_capture_without_room_is_said_and_frames_go_on() {
    let [near, far] = memory::pair(Impairment::default(), 1);
    let near = Captured::new(near, Box::new(Bytes(Arc::default(), Some(24)))).expect("a capture");
    near.send(b"frame").expect("it is sent");
    assert_eq!(received(&far), [b"frame"]);
    assert_eq!(near.finish().expect_err("no room").kind(), std::io::ErrorKind::StorageFull);
}

/// Frames come in until the pump is finished; a segment that fails is told then.
#[test]
fn a_pump_brings_frames_in_and_says_how_it_ended() {
    /// Fails, and says that it was looked at.
    struct Broken(Mutex<std::sync::mpsc::Sender<()>>);

    impl Segment for Broken {
        fn send(&self, _: &[u8]) -> std::io::Result<()> {
            Ok(())
        }

        fn receive(&self, _: Duration, _: &mut dyn FnMut(&[u8])) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").send(()).expect("somebody listens");
            Err(std::io::Error::other("unplugged"))
        }

        fn longest(&self) -> usize {
            60
        }

        fn describe(&self) -> String {
            "broken".to_owned()
        }
    }

    let [near, far] = memory::pair(Impairment::default(), 1);
    let (tell, heard) = std::sync::mpsc::channel();
    let pump = Pump::start(Arc::new(far), move |frame| drop(tell.send(frame.to_vec()))).expect("a thread");
    for frame in frames(3) {
        near.send(&frame).expect("it works");
    }
    let came: Vec<_> = heard.iter().take(3).collect();
    assert_eq!(came, frames(3));
    pump.finish().expect("the segment works");
    assert!(heard.recv().is_err(), "the pump is gone, and what it called");

    let (tell, looked) = std::sync::mpsc::channel();
    let pump = Pump::start(Arc::new(Broken(Mutex::new(tell))), |_| ()).expect("a thread");
    looked.recv().expect("the segment is looked at");
    assert_eq!(pump.finish().expect_err("it has failed").to_string(), "unplugged");
}

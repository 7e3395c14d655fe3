//! A peer outside of the machine: an ordinary program's adapter, over the loopback network of the host. What a script of
//! `ndkctl run` has with `datagrams = "host"`, against what `ndkctl wire serve` is made of.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use ndk::{
    Acceptor, Flags, NtStatus, Offer, Remote,
    host::{InterfaceAddress, Outlet, WireConfig, Wired},
};
use network::{Pump, Segment, Vxlan, VxlanConfig};
use simulated_kernel::{Kernel, Medium};

use crate::{
    machine::{ADDRESSES, IPV6_ADDRESSES, PACE, add, configure_end, load, wait_for_addresses},
    sides::{MEMORY, PATIENCE, Side, link, pattern},
};

/// A network that is not the default's.
const VNI: u32 = 4711;
/// What VXLAN leaves of Ethernet's 1500 bytes.
const NETWORK_MTU: u16 = 1450;
/// Bytes of the messages: nothing, less than a packet, several.
const LENGTHS: [usize; 4] = [0, 100, 1024, 20_000];

const HALF: usize = MEMORY / 2;

/// The program: its adapter, and what brings frames in. The order of the fields is that in which they go.
struct Program {
    pump: Pump,
    wired: Wired,
}

impl Program {
    /// Opens VXLAN at `local` with that peer, and an adapter on it.
    fn start(segment: Arc<Vxlan>) -> Self {
        let mut config = provider::Config { addresses: [None; _], ..Default::default() };
        for (place, (address, prefix)) in config.addresses.iter_mut().zip([(ADDRESSES[1], 24), (IPV6_ADDRESSES[1], 64)])
        {
            *place = Some(InterfaceAddress::new(address, prefix));
        }
        let wire = WireConfig { network_mtu: NETWORK_MTU, ..WireConfig::new([2, 0, 0, 0, 0, 0x77]) };
        let out = segment.clone();
        let cable = Outlet(move |frames: &[&[u8]]| drop(out.send_all(frames)));
        let wired = Wired::start(config, wire, Box::new(cable)).expect("an adapter");
        let plug = wired.plug();
        let pump = Pump::start(segment, move |frame| plug.receive(frame)).expect("a thread");
        Self { pump, wired }
    }

    fn finish(self) {
        self.wired.finish().expect("everything is closed");
        self.pump.finish().expect("the segment works");
    }
}

/// An address of the host's loopback network that nobody has.
fn free_address() -> io::Result<SocketAddr> {
    UdpSocket::bind("127.0.0.1:0")?.local_addr()
}

/// Takes one connection, sends back what comes, and hears of the end. Returns what the peer has written.
fn serve(far: &mut Side, acceptor: &Acceptor) -> Result<Vec<u8>, NtStatus> {
    let incoming = acceptor.wait_for(PATIENCE)?;
    let mut data = [0; 56];
    incoming.connection_data(&mut data)?;
    assert_eq!(&data[..15], b"from the driver");
    let most = u32::try_from(HALF).expect("a small memory");
    far.qp.receiver.receive(1, &[far.memory.sge(0, most)?])?;
    let offer = Offer { private_data: b"from the program", inbound_reads: 4, outbound_reads: 4 };
    far.connection = Some(incoming.accept(&far.qp, &offer, far.count_end())?.wait()?);
    for length in LENGTHS {
        far.complete()?;
        far.qp.initiator.send(
            2,
            &[far.memory.sge(0, u32::try_from(length).expect("a short message"))?],
            Flags::empty(),
        )?;
        far.complete()?;
        far.qp.receiver.receive(1, &[far.memory.sge(0, most)?])?;
    }
    // Until the peer disconnects; the test's runner ends what never comes to an end.
    while far.lost.load(SeqCst) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let mut written = vec![0; *LENGTHS.last().expect("some")];
    far.memory.read(HALF, &mut written)?;
    Ok(written)
}

/// Connects to the program, and does everything that there is. In the driver's context.
fn consume(near: &mut Side, from: IpAddr, to: SocketAddr, remote: Remote) -> Result<(), NtStatus> {
    let offer = Offer { private_data: b"from the driver", inbound_reads: 4, outbound_reads: 4 };
    let connector = near.adapter.create_connector()?;
    let connected = connector.connect(&near.qp, (from, 0).into(), to, &offer)?.wait()?;
    let mut data = [0; 196];
    connected.connection_data(&mut data)?;
    assert_eq!(&data[..16], b"from the program");
    near.connection = Some(connected.complete(near.count_end())?.wait()?);
    for (round, length) in (1..).zip(LENGTHS) {
        let (bytes, mut seen) = (pattern(round, length), vec![0; length]);
        let long = u32::try_from(length).expect("a short message");
        near.memory.write(0, &bytes)?;
        near.qp.receiver.receive(1, &[near.memory.sge(HALF, long)?])?;
        near.qp.initiator.send(2, &[near.memory.sge(0, long)?], Flags::empty())?;
        // The send, and its echo.
        near.complete()?;
        near.complete()?;
        near.memory.read(HALF, &mut seen)?;
        assert_eq!(seen, bytes, "an echo of {length} bytes");

        near.qp.initiator.write(3, &[near.memory.sge(0, long)?], remote, Flags::empty())?;
        near.complete()?;
        near.memory.write(HALF, &vec![0xEE; length])?;
        near.qp.initiator.read(4, &[near.memory.sge(HALF, long)?], remote, Flags::empty())?;
        near.complete()?;
        near.memory.read(HALF, &mut seen)?;
        assert_eq!(seen, bytes, "{length} bytes, written and read");
    }
    near.connection.take().expect("a connection").disconnect()?.wait()
}

#[test]
fn an_ordinary_program_is_a_peer_over_the_loopback_of_the_host() {
    let kernel = Kernel::threads().pace(PACE).start();
    kernel.network().set_medium(Medium::Host);
    let driver = load(&kernel).expect("the driver loads");
    let ours = free_address().expect("a port");
    let local = "127.0.0.1:0".parse().expect("an address");
    let segment = Arc::new(Vxlan::open(&VxlanConfig { local, peers: vec![ours], vni: VNI }).expect("a segment"));
    let (wire_local, wire_peer, vni) = (ours.to_string(), segment.local().to_string(), VNI.to_string());
    let keywords = [("WirePeer", wire_peer.as_str()), ("WireLocal", wire_local.as_str()), ("WireVni", vni.as_str())];
    let nic = add(&driver, &keywords);
    let mut last = None;
    kernel.wait_until(|| link(&nic, &mut last) == Some(true));
    configure_end(&kernel, &nic, 0);
    wait_for_addresses(&kernel);
    let program = Program::start(segment);
    for addresses in [ADDRESSES, IPV6_ADDRESSES] {
        let mut far = Side::of(program.wired.open().expect("it opens")).expect("objects of it");
        let acceptor = far.adapter.acceptor((addresses[1], 0).into()).expect("it listens");
        let (to, remote) = (acceptor.local_address().expect("an address"), far.memory.remote(HALF));
        let written = thread::scope(|scope| {
            let served = scope.spawn(|| serve(&mut far, &acceptor));
            driver.run(|| {
                let mut near = Side::open(&nic).expect("it opens");
                consume(&mut near, addresses[0], to, remote).expect("the program answers");
            });
            served.join().expect("it does not panic").expect("the driver connects")
        });
        let (round, length) = (1..).zip(LENGTHS).last().expect("some");
        assert_eq!(written, pattern(round, length), "what the peer has written last");
    }
    let counted = program.wired.counters();
    assert!(counted.frames_received > 100 && counted.frames_sent > 100, "{counted:?}");
    program.finish();
    nic.remove();
    driver.unload();
}

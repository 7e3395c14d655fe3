//! Two adapters with a wire between them, and consumers of each.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use kernel::KernelRuntime;
use ndk::{Access, Adapter, Completion, Connection, Cq, Flags, Mr, Notify, NtStatus, Offer, Pd, Qp, QpSizes};
use simulated_kernel::{Driver, Kernel, NewInterface, Nic};

use crate::machine::{ADDRESSES, VERSION, add, configure, load};

/// Addresses of the network that carries the datagrams.
pub const BELOW: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 11)), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 12))];

/// Gives the machine a network of its own for the datagrams.
pub fn add_network_below(kernel: &Kernel) {
    for (index, address) in BELOW.into_iter().enumerate() {
        let (interface, _) =
            kernel.network().add_interface(&NewInterface::ethernet(&format!("Ethernet {}", index + 3)));
        kernel.network().add_address(interface, address, 24);
    }
}

/// An adapter at that end of the wire.
pub fn add_end(driver: &Driver, end: usize, more: &[(&str, &str)]) -> Nic {
    add_end_by(driver, end, &BELOW[1 - end].to_string(), more)
}

/// The same with that address as its peer.
pub fn add_end_by(driver: &Driver, end: usize, peer: &str, more: &[(&str, &str)]) -> Nic {
    let local = BELOW[end].to_string();
    let mut keywords = vec![("WirePeer", peer), ("WireLocal", local.as_str())];
    keywords.extend(more);
    add(driver, &keywords)
}

/// Returns true if the link is up, as the adapter has told last; `None` if it has not.
pub fn link(nic: &Nic, last: &mut Option<bool>) -> Option<bool> {
    for status in nic.take_statuses() {
        if status.code == ndis::NDIS_STATUS_LINK_STATE {
            // `MediaConnectState`, which is 1 if it is connected.
            *last = Some(status.bytes[4] == 1);
        }
    }
    *last
}

/// Waits until the links of both are up.
pub fn wait_for_links(kernel: &Kernel, nics: [&Nic; 2]) {
    let mut last = [None; 2];
    kernel.wait_until(|| nics.iter().zip(&mut last).all(|(nic, last)| link(nic, last) == Some(true)));
}

/// Does something on a machine with the two ends of a wire, both with their addresses, and takes everything away.
pub fn with_wire<R>(kernel: &Kernel, keywords: &[(&str, &str)], work: impl FnOnce(&Driver, [&Nic; 2]) -> R) -> R {
    let peers = [1, 0].map(|end| BELOW[end].to_string());
    with_wire_by(kernel, peers.each_ref().map(String::as_str), keywords, work)
}

/// The same with these addresses as the peers of the two ends.
pub fn with_wire_by<R>(
    kernel: &Kernel,
    peers: [&str; 2],
    keywords: &[(&str, &str)],
    work: impl FnOnce(&Driver, [&Nic; 2]) -> R,
) -> R {
    add_network_below(kernel);
    let driver = load(kernel).expect("the driver loads");
    let nics = [0, 1].map(|end| add_end_by(&driver, end, peers[end], keywords));
    wait_for_links(kernel, nics.each_ref());
    configure(kernel, nics.each_ref());
    let result = work(&driver, nics.each_ref());
    for nic in nics {
        nic.remove();
    }
    driver.unload();
    result
}

/// Bytes of a side's memory.
pub const MEMORY: usize = 256 << 10;

/// What a consumer of one adapter has, in the order in which it has to end.
pub struct Side {
    pub connection: Option<Connection>,
    pub qp: Qp,
    pub memory: Mr,
    pub queue: Cq,
    pub domain: Pd,
    pub adapter: Adapter,
    /// How often it has heard of the end of its connection.
    pub lost: Arc<AtomicU32>,
}

impl Side {
    /// Opens an adapter. In the driver's context.
    pub fn open(nic: &Nic) -> Result<Self, NtStatus> {
        let provider = nic.ndk_provider();
        let raw = provider.open(VERSION)?;
        let os = Box::new(KernelRuntime::new(move |adapter| {
            // SAFETY: the adapter came from this provider, and is not used again.
            unsafe { provider.close(adapter) };
        }));
        // SAFETY: the adapter was just opened, and `os` closes such an adapter.
        Self::of(unsafe { Adapter::from_raw(raw, os) }?)
    }

    /// The objects of an adapter that was opened.
    pub fn of(adapter: Adapter) -> Result<Self, NtStatus> {
        let (domain, queue) = (adapter.create_pd()?, adapter.create_cq(256)?);
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let memory = domain.register(adapter.memory(MEMORY)?, access)?;
        let qp = domain.create_qp(&queue, &queue, QpSizes::default(), 1)?;
        let lost = Arc::new(AtomicU32::new(0));
        Ok(Self { connection: None, qp, memory, queue, domain, adapter, lost })
    }

    /// What is told of the end of the connection.
    pub fn count_end(&self) -> impl Fn() + Send + Sync + 'static {
        let lost = self.lost.clone();
        move || {
            lost.fetch_add(1, SeqCst);
        }
    }

    /// Waits for a completion, and returns its status.
    pub fn complete(&mut self) -> Result<(), NtStatus> {
        let mut results = [Completion::EMPTY; 1];
        match self.queue.wait(&mut results, Notify::Any)? {
            [one] => one.ok().map(drop),
            other => panic!("{} completions", other.len()),
        }
    }
}

/// How long somebody waits for a peer, in microseconds.
pub const PATIENCE: u64 = 20_000_000;

/// Connects two sides over the wire, with private data both ways.
pub fn connect(active: &mut Side, passive: &mut Side, addresses: [IpAddr; 2]) -> Result<(), NtStatus> {
    let at = |address| SocketAddr::new(address, 0);
    let acceptor = passive.adapter.acceptor(at(addresses[1]))?;
    let offer = Offer { private_data: b"to the far side", inbound_reads: 4, outbound_reads: 4 };
    let connector = active.adapter.create_connector()?;
    let connecting = connector.connect(&active.qp, at(addresses[0]), acceptor.local_address()?, &offer)?;
    let incoming = acceptor.wait_for(PATIENCE)?;
    let mut data = [0; 56];
    incoming.connection_data(&mut data)?;
    assert_eq!(&data[..15], b"to the far side");
    let answer = Offer { private_data: b"and back", inbound_reads: 4, outbound_reads: 4 };
    let accepting = incoming.accept(&passive.qp, &answer, passive.count_end())?;
    let connected = connecting.wait()?;
    let mut data = [0; 196];
    connected.connection_data(&mut data)?;
    assert_eq!(&data[..8], b"and back");
    active.connection = Some(connected.complete(active.count_end())?.wait()?);
    passive.connection = Some(accepting.wait()?);
    Ok(())
}

/// Bytes that differ from place to place, and from round to round.
pub fn pattern(round: u32, length: usize) -> Vec<u8> {
    let mut state = round.wrapping_mul(0x9E37_79B9) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    (0..length).map(next).collect()
}

/// Sends, writes and reads messages of that many bytes, and compares every byte. The lower half of each memory is the source.
pub fn exchange(near: &mut Side, far: &mut Side, round: u32, length: usize) -> Result<(), NtStatus> {
    let bytes = pattern(round, length);
    let long = u32::try_from(length).expect("a short message");
    let half = MEMORY / 2;
    let mut seen = vec![0; length];

    near.memory.write(0, &bytes)?;
    far.qp.receiver.receive(1, &[far.memory.sge(half, long)?])?;
    near.qp.initiator.send(2, &[near.memory.sge(0, long)?], Flags::empty())?;
    near.complete()?;
    far.complete()?;
    far.memory.read(half, &mut seen)?;
    assert_eq!(seen, bytes, "a send of {length} bytes");

    let bytes = pattern(round + 1, length);
    near.memory.write(0, &bytes)?;
    near.qp.initiator.write(3, &[near.memory.sge(0, long)?], far.memory.remote(half), Flags::empty())?;
    near.complete()?;
    // The peer has answered when the write is complete.
    far.memory.read(half, &mut seen)?;
    assert_eq!(seen, bytes, "a write of {length} bytes");

    let bytes = pattern(round + 2, length);
    far.memory.write(0, &bytes)?;
    near.qp.initiator.read(4, &[near.memory.sge(half, long)?], far.memory.remote(0), Flags::empty())?;
    near.complete()?;
    near.memory.read(half, &mut seen)?;
    assert_eq!(seen, bytes, "a read of {length} bytes");
    Ok(())
}

/// Opens both adapters, connects them over IPv4, and does something. In the driver's context.
pub fn connected<R>(driver: &Driver, nics: [&Nic; 2], work: impl FnOnce(&mut Side, &mut Side) -> R) -> R {
    driver.run(|| {
        let [mut near, mut far] = nics.map(|nic| Side::open(nic).expect("it opens"));
        connect(&mut near, &mut far, ADDRESSES).expect("a connection");
        work(&mut near, &mut far)
    })
}

//! Any bytes as datagrams at the port of a driver's wire, beside a live connection. `cargo xtask fuzz` has libFuzzer choose them.

use std::net::SocketAddr;

use control::{
    client::ProviderDriver,
    provider_device::{NIC_LINK_NAME, Wire},
};
use ndk::Access;
use roce::{vxlan, wire::icrc};
use simulated_kernel::Kernel;

use crate::{
    machine::ADDRESSES,
    sides::{BELOW, Side, connect, exchange, with_wire},
    transport::ToNic,
};

/// How far datagrams came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reached {
    pub datagrams: u64,
    /// Those that were frames for the engine.
    pub frames: u64,
    /// Those whose ICRC was right, and that were for this adapter.
    pub taken_apart: u64,
    /// Those that a queue pair looked at.
    pub for_the_connection: u64,
}

impl Reached {
    pub const fn add(&mut self, other: Self) {
        self.datagrams += other.datagrams;
        self.frames += other.frames;
        self.taken_apart += other.taken_apart;
        self.for_the_connection += other.for_the_connection;
    }
}

/// Bytes of the memory that peers may not write.
const LENGTH: usize = 4096;
/// What is in it.
const FILL: u8 = 0x3C;

/// Bytes of Ethernet's header, behind that of VXLAN.
const ETHERNET: usize = 14;
/// Bytes behind that, up to the transport's header: IPv4, UDP.
const UP_TO_TRANSPORT: usize = 28;

/// What the second adapter's wire has counted.
fn counted(driver: &ProviderDriver<ToNic>) -> Wire {
    let mut wires = driver.wires().expect("the driver answers");
    assert_eq!(wires.len(), 2, "both adapters have a wire");
    wires.sort_by_key(|wire| wire.adapter);
    wires[1]
}

/// A datagram as the first bytes say, and what is left of them. Most are the peer's last one with bytes changed, some with a right ICRC.
fn datagram<'bytes>(last: &[u8], kind: u8, bytes: &'bytes [u8]) -> (Vec<u8>, &'bytes [u8]) {
    let (now, later) = bytes.split_at(usize::from(kind >> 2).min(bytes.len()));
    let mut made = last.to_vec();
    let behind = made.len().saturating_sub(4);
    let frame = vxlan::HEADER + ETHERNET;
    match kind & 3 {
        // Bytes, and nothing else.
        0 => return (now.to_vec(), later),
        kind => {
            for change in now.chunks_exact(2) {
                // Some keep their addresses, so that they come further. A frame of ARP has no more than those.
                let transport = frame + UP_TO_TRANSPORT;
                let first = if kind > 1 && made.len() > transport { transport } else { 0 };
                let at = first + usize::from(change[0]) % (made.len() - first);
                made[at] = change[1];
            }
            if kind > 1
                && behind > frame
                && let Some(value) = icrc::of(&made[frame..behind])
            {
                made[behind..].copy_from_slice(&value);
            }
        }
    }
    (made, later)
}

/// Makes datagrams of `bytes`, has them come to the second adapter of a pair, of which the first one's consumer is connected to the second
/// one's, and takes everything down.
///
/// # Panics
///
/// If a byte has changed that no peer may write. A rule that the driver breaks, a leak among them, ends the process.
pub fn exercise(bytes: &[u8]) -> Reached {
    let kernel = Kernel::seeded(7).preemption(0).start();
    let mut reached = Reached::default();
    with_wire(&kernel, &[], |driver, nics| {
        let program = kernel.open_device(NIC_LINK_NAME).expect("the driver has a control device");
        let program = ProviderDriver::new(ToNic(program));
        let (near, far, nobodys) = driver.run(|| {
            let [mut near, mut far] = nics.map(|nic| Side::open(nic).expect("it opens"));
            connect(&mut near, &mut far, ADDRESSES).expect("a connection");
            exchange(&mut near, &mut far, 1, 64).expect("it arrives");
            let memory = far.adapter.memory(LENGTH).expect("memory");
            let mut nobodys = far.domain.register(memory, Access::LOCAL_WRITE).expect("a region");
            nobodys.write(0, &[FILL; LENGTH]).expect("its memory");
            (near, far, nobodys)
        });
        let [peer, own] = BELOW.map(|address| SocketAddr::new(address, vxlan::PORT));
        let before = counted(&program);
        let mut rest = bytes;
        while let [kind, more @ ..] = rest {
            let last = kernel.network().last_datagram(peer).expect("the peer has sent something");
            let (made, later) = datagram(&last, *kind, more);
            rest = later;
            kernel.network().inject(peer, own, &made);
            reached.datagrams += 1;
            // Else they would not all have room where they wait.
            kernel.sleep(200);
        }
        kernel.sleep(20_000);
        let after = counted(&program);
        let seen = |counter: fn(&Wire) -> u64| counter(&after) - counter(&before);
        reached.frames = seen(|wire| wire.frames_received);
        reached.taken_apart = reached.frames - seen(|wire| wire.wrong_icrc) - seen(|wire| wire.malformed);
        reached.for_the_connection = reached.taken_apart - seen(|wire| wire.not_taken);
        driver.run(|| {
            let mut seen = [0; LENGTH];
            nobodys.read(0, &mut seen).expect("its memory");
            assert!(seen.iter().all(|byte| *byte == FILL), "a peer has written where it may not");
            drop(nobodys);
            drop((near, far));
        });
        drop(program);
    });
    reached
}

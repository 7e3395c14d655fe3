//! Once stacks and queue pairs are made, nothing is allocated: neither for packets nor for connections.
//!
//! Counts allocations of the whole program, so nothing else may run in it.

#![allow(clippy::cast_possible_truncation, reason = "lengths and patterns of tests are small")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering},
};

use roce::{
    Config, FRAME, Network, Stack,
    adapter::{Access, Adapter, Completed, Receive, Received, Refused, Remote},
    cm::{Connect, EventKind, ReadLimits, Room, Times},
    qp::{Flags, Request, Sizes, Work},
};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: each call is the system allocator's, with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the same call of the system's allocator, with the same layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block is of this allocator, which is the system's.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LENGTH: usize = 1 << 16;

/// Memory that lets everything happen.
struct Fixed {
    bytes: Box<[u8]>,
    receives: u32,
    received: u32,
    completed: u32,
}

impl Adapter for Fixed {
    fn check(&mut self, _: u32, remote: Remote, _: Access) -> Result<(), Refused> {
        let end = remote.address.checked_add(remote.length.into()).ok_or(Refused)?;
        if end <= LENGTH as u64 { Ok(()) } else { Err(Refused) }
    }

    fn read(&mut self, _: u32, _: u32, address: u64, into: &mut [u8]) -> Result<(), Refused> {
        into.copy_from_slice(&self.bytes[address as usize..][..into.len()]);
        Ok(())
    }

    fn write(&mut self, _: u32, _: u32, address: u64, bytes: &[u8]) -> Result<(), Refused> {
        self.bytes[address as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn invalidate(&mut self, _: u32, _: u32) -> Result<(), Refused> {
        Ok(())
    }

    fn claim_receive(&mut self, _: u32) -> Option<Receive> {
        self.receives = self.receives.checked_sub(1)?;
        Some(Receive { context: 1, length: LENGTH as u32 })
    }

    fn fill_receive(&mut self, _: u32, _: &Receive, offset: u32, bytes: &[u8]) -> Result<(), Refused> {
        self.write(0, 0, offset.into(), bytes)
    }

    fn complete_receive(&mut self, _: u32, _: Received) {
        self.received += 1;
    }

    fn gather(&mut self, _: u32, _: u64, offset: u32, into: &mut [u8]) -> Result<(), Refused> {
        self.read(0, 0, offset.into(), into)
    }

    fn scatter(&mut self, _: u32, _: u64, offset: u32, bytes: &[u8]) -> Result<(), Refused> {
        self.write(0, 0, offset.into(), bytes)
    }

    fn complete(&mut self, _: u32, completed: Completed) {
        assert_eq!(completed.outcome, Ok(()));
        self.completed += 1;
    }
}

struct Pair {
    stacks: [Stack; 2],
    memories: [Fixed; 2],
    now: u64,
    lost: u32,
    frame: [u8; FRAME],
}

impl Pair {
    /// Frames go to and fro until none is left, and time passes. One in `lost` gets lost.
    fn run(&mut self, time: u64) {
        let end = self.now + time;
        let mut count = 0;
        while self.now < end {
            loop {
                let mut quiet = true;
                for from in 0..2 {
                    let Some(length) = self.stacks[from].transmit(self.now, &mut self.frame, &mut self.memories[from])
                    else {
                        continue;
                    };
                    quiet = false;
                    count += 1;
                    if self.lost == 0 || count % self.lost != 0 {
                        self.stacks[1 - from].receive(self.now, &self.frame[..length], &mut self.memories[1 - from]);
                    }
                }
                if quiet {
                    break;
                }
            }
            self.now += 10_000;
            for (stack, memory) in self.stacks.iter_mut().zip(&mut self.memories) {
                stack.tick(self.now, memory);
            }
        }
    }

    fn event(&mut self, side: usize) -> (u32, EventKind) {
        let event = self.stacks[side].event().expect("an event");
        (event.connection, event.kind)
    }
}

/// Nothing is allocated once stacks and queue pairs are made.
fn main() {
    let stack = |last: u8| {
        let config = Config {
            mac: [2, 0, 0, 0, 0, last],
            tag: None,
            networks: &[Network { address: [10, 0, 0, last].into(), prefix: 24 }],
            gateways: [None, None],
            network_mtu: 1500,
            guid: last.into(),
            queue_pairs: 4,
            room: Room { connections: 4, half_open: 2, listeners: 2 },
            neighbours: 4,
            times: Times::default(),
            seed: last.into(),
        };
        Stack::new(&config).expect("memory")
    };
    let memory = || Fixed { bytes: vec![0; LENGTH].into(), receives: 100, received: 0, completed: 0 };
    let mut pair =
        Pair { stacks: [stack(1), stack(2)], memories: [memory(), memory()], now: 0, lost: 0, frame: [0; FRAME] };
    let [active, passive] = [0, 1]
        .map(|side: usize| pair.stacks[side].create_queue_pair(Sizes::default()).expect("memory").expect("a place"));
    let (local, remote) = (([10, 0, 0, 1], 0).into(), ([10, 0, 0, 2], 7).into());
    let limits = ReadLimits { inbound: 4, outbound: 4 };

    let before = ALLOCATIONS.load(Ordering::Relaxed);
    pair.stacks[1].listen(None, 7).expect("free");
    let connect = Connect { qp: active, local, remote, private: b"hello", limits };
    let connection = pair.stacks[0].connect(0, &connect, &mut pair.memories[0]).expect("it begins");
    pair.run(20_000);
    let (asked, kind) = pair.event(1);
    assert_eq!(kind, EventKind::Requested);
    pair.stacks[1].accept(pair.now, asked, passive, limits, b"", &mut pair.memories[1]).expect("it begins");
    pair.run(20_000);
    assert_eq!(pair.event(0), (connection, EventKind::Connected(Ok(()))));
    pair.stacks[0].complete_connect(pair.now, connection, &mut pair.memories[0]).expect("a reply");
    pair.run(20_000);
    pair.lost = 40;
    let mut posted = 0;
    for round in 0..20_u32 {
        let works =
            [Work::Send { invalidate: None }, Work::Write { address: 0, key: 1 }, Work::Read { address: 0, key: 1 }];
        for (side, qp) in [active, passive].into_iter().enumerate() {
            for work in works {
                let request = Request { context: 1, work, flags: Flags::default(), length: round * 3000 };
                pair.stacks[side].post(pair.now, qp, request, None).expect("room");
                posted += 1;
            }
        }
        pair.run(5_000_000);
    }
    pair.lost = 0;
    pair.stacks[0].disconnect(pair.now, connection, &mut pair.memories[0]).expect("it begins");
    pair.run(20_000);
    let after = ALLOCATIONS.load(Ordering::Relaxed);

    let [one, two] = &pair.memories;
    assert_eq!((one.completed + two.completed, one.received + two.received), (posted, 40));
    assert!(pair.stacks[0].counters().goes_back + pair.stacks[0].counters().timeouts > 0, "something was lost");
    assert_eq!(pair.event(1).1, EventKind::Accepted(Ok(())));
    assert_eq!(after - before, 0, "allocations");
    println!("nothing was allocated: {posted} requests, one connection");
}

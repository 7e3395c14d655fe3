//! Who is told that its connection is at an end may take its memory back: nothing writes to it any more (`NDKPI 7.7.5`).

use std::sync::{Arc, Mutex};

use engine::{
    connection::{Answer, Connector, ConnectorRequest, Port, Timeouts},
    memory::{Region, RegionKind, Released, Rights},
    qp::{Flags, Sge, Work},
};
use host::{HostMemory, HostOs, PinnedBuffer, machine::Machine};
use ndkpi::NtStatus;

use crate::world::{LIMITS, Said, Server, Side, World, accept, answer, connect};

const LENGTH: usize = 1 << 20;
const WRITES: usize = 16;
const ROUNDS: usize = 200;

struct Nobody;

impl Released for Nobody {
    fn released(&self) {}
}

/// A registered buffer.
struct Registered {
    buffer: Arc<PinnedBuffer>,
    region: fallible::Arc<Region<HostOs>>,
}

impl Registered {
    fn new(world: &World, fill: u8) -> Self {
        let buffer = Arc::new(PinnedBuffer::new(LENGTH).expect("memory"));
        buffer.fill(fill);
        // SAFETY: the buffer lives as long as its registration, which ends before the buffer is dropped.
        let memory = unsafe { HostMemory::from_mdl(buffer.mdl(), LENGTH) }.expect("contiguous");
        let region = Region::try_new(&world.domain, RegionKind::Normal).expect("memory");
        let rights = Rights::LOCAL_WRITE.and(Rights::REMOTE_WRITE);
        region.register(memory, rights, Nobody).expect("not registered yet");
        Self { buffer, region }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let _ = self.region.deregister();
    }
}

/// A few bytes: quickly, before many more can move.
fn sample(buffer: &PinnedBuffer) -> Vec<u8> {
    let mut byte = [0];
    (0..LENGTH)
        .step_by(8192)
        .map(|offset| {
            buffer.read(offset, &mut byte);
            byte[0]
        })
        .collect()
}

/// A connection whose active side notes what is in its memory when it hears `last`.
fn connection(
    world: &World,
    adapter: &fallible::Arc<Port<HostOs>>,
    server: &Server,
    target: &Registered,
    last: Said,
) -> (Side, Side, Arc<Mutex<Option<Vec<u8>>>>) {
    let seen = Arc::new(Mutex::new(None));
    let (note, buffer) = (seen.clone(), target.buffer.clone());
    let node = world.node_that(
        adapter,
        Box::new(move |said| {
            if *said == last {
                *note.lock().expect("no panic") = Some(sample(&buffer));
            }
        }),
    );
    let active = Side { node, queues: world.queues() };
    connect(&active, "10.0.0.1", server.address, b"").expect("pending");
    world.machine.flush();
    let passive = Side { node: server.arrival(), queues: world.queues() };
    accept(&passive, b"").expect("pending");
    world.machine.flush();
    drop(Connector::complete_connect(&active.node.connector).expect("accepted"));
    (active, passive, seen)
}

/// Lets the passive side write, ends the connection with `end` in the middle of it, and checks that the memory stays as it
/// was when the active side heard `last`. What `end` gives back is closed later.
fn nothing_moves_after(last: Said, end: impl Fn(Side) -> Option<Side>) {
    let world = World::on(Machine::threads().processors(2).start());
    let timeouts = Timeouts { connect: 10_000_000, establish: 10_000_000, disconnect: 10_000_000 };
    let adapter = world.adapter_with(&["10.0.0.1"], LIMITS, timeouts);
    let server = world.server(&adapter, "10.0.0.1:1");
    let target = Registered::new(&world, 0);
    let sources = [0x11, 0x22].map(|fill| Registered::new(&world, fill));
    let mut interrupted = 0;
    for round in 0..ROUNDS {
        let (active, mut passive, seen) = connection(&world, &adapter, &server, &target, last);
        for index in 0..WRITES {
            let source = &sources[index % 2];
            let element = Sge {
                address: source.buffer.address(0),
                length: u32::try_from(LENGTH).expect("it fits"),
                token: source.region.local_token(),
            };
            let work = Work::Write { address: target.buffer.address(0), token: target.region.remote_token() };
            passive.queues.initiator.post(index, work, Flags::default(), std::iter::once(element)).expect("connected");
        }
        // Not always at the same moment.
        for _ in 0..round * 20 {
            std::hint::spin_loop();
        }
        let active = end(active);
        let mut before = None;
        while before.is_none() {
            before = seen.lock().expect("no panic").take();
            world.machine.yield_now();
        }
        std::thread::sleep(std::time::Duration::from_micros(300));
        assert!(Some(sample(&target.buffer)) == before, "bytes moved");
        let completed = passive.queues.completed();
        interrupted += usize::from(completed.iter().any(|(_, status)| *status != NtStatus::SUCCESS));
        if let Some(active) = active {
            active.close();
        }
        passive.close();
        world.machine.flush();
    }
    assert!(interrupted > 0, "no connection ended in the middle of a write");
    server.close();
    drop((adapter, target, sources));
    world.finish_threads();
}

//= NDKPI 7.7.5
#[test]
fn no_byte_moves_after_a_disconnect_is_answered() {
    nothing_moves_after(answer(ConnectorRequest::Disconnect, NtStatus::SUCCESS), |side| {
        Connector::disconnect(&side.node.connector).expect("connected");
        Some(side)
    });
}

#[test]
fn no_byte_moves_after_a_connector_is_closed() {
    nothing_moves_after(Said::Gone, |side| {
        side.close();
        None
    });
}

#[test]
fn two_disconnects_wait_for_the_bytes_that_move_and_for_nothing_else() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let (mut active, mut passive) = world.connected("10.0.0.1", &adapter, &server);
    let (source, target) = (Registered::new(&world, 1), Registered::new(&world, 0));
    passive.queues.send(1).expect("connected");
    let element = Sge {
        address: source.buffer.address(0),
        length: u32::try_from(LENGTH).expect("it fits"),
        token: source.region.local_token(),
    };
    let work = Work::Write { address: target.buffer.address(0), token: target.region.remote_token() };
    for context in 2..6 {
        active.queues.initiator.post(context, work, Flags::default(), std::iter::once(element)).expect("connected");
    }
    active.queues.send(6).expect("connected");
    for side in [&passive, &active] {
        assert_eq!(Connector::disconnect(&side.node.connector), Ok(Answer::Pending));
    }
    world.run();
    let (ok, cancelled) = (NtStatus::SUCCESS, NtStatus::CANCELLED);
    assert_eq!(active.queues.completed(), [(2, ok), (3, ok), (4, ok), (5, ok), (6, cancelled)]);
    assert_eq!(passive.queues.completed(), [(1, cancelled)]);
    for side in [&active, &passive] {
        assert_eq!(side.heard(), [answer(ConnectorRequest::Disconnect, ok)]);
    }
    active.close();
    passive.close();
    server.close();
    drop((adapter, source, target));
    world.finish();
}

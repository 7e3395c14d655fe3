//! A process and a consumer of NDKPI in the kernel, over the same adapter: either of them connects, and both ways there are sends,
//! reads and writes.

use std::sync::{
    Arc,
    mpsc::{self, Receiver},
};

use kernel::KernelRuntime;
use nd2_control::wire::Verb;
use ndk::{
    Access, Adapter, Completion, Connection, Cq, Flags, Incoming, Listener, Mr, Offer, Qp, QpSizes, Remote, RemoteToken,
};
use ndkpi::{NDK_VERSION, NtStatus};
use simulated_kernel::{Kernel, wdk::STATUS_SUCCESS};

use crate::{
    owners::connections,
    program::{Program, Region, Side, address, of},
    provider_interface::Interface,
    traffic::ALL,
    world::{SEEDS, World},
};

const OFFER: Offer<'static> = Offer { inbound_reads: 4, outbound_reads: 4, private_data: b"from the kernel" };

/// The consumer in the kernel. Its methods are called as code of its driver.
struct Consumer {
    mr: Mr,
    cq: Cq,
    qp: Qp,
    adapter: Adapter,
}

impl Consumer {
    fn open(world: &World) -> Result<Self, NtStatus> {
        let interface = Arc::new(Interface::of(&world.adapters[0]));
        let raw = interface.open(NDK_VERSION::V2_1)?;
        let os = Box::new(KernelRuntime::new(move |adapter| {
            // SAFETY: the adapter came from this interface, and is not used again.
            unsafe { interface.close(adapter) }
        }));
        // SAFETY: the adapter was just opened, and `os` closes such an adapter.
        let adapter = unsafe { Adapter::from_raw(raw, os) }?;
        let pd = adapter.create_pd()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::READ_SINK;
        let mr = pd.register(adapter.memory(8192)?, access)?;
        let cq = adapter.create_cq(64)?;
        let qp = pd.create_qp(&cq, &cq, QpSizes::default(), 9)?;
        Ok(Self { mr, cq, qp, adapter })
    }

    fn listen(&self, port: u16) -> Result<(Listener, Receiver<Incoming>), NtStatus> {
        let (send, incoming) = mpsc::channel();
        let at = (std::net::Ipv4Addr::new(192, 0, 2, 1), port).into();
        Ok((self.adapter.listen(at, move |incoming| drop(send.send(incoming)))?, incoming))
    }

    /// The bytes at the beginning of its memory.
    fn bytes<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.mr.read(offset, &mut bytes).expect("memory of its own");
        bytes
    }
}

/// Both ends of a connection.
struct Ends<'w> {
    world: &'w World,
    process: Side<'w>,
    region: Region,
    at: u64,
    kernel: Consumer,
}

impl Ends<'_> {
    /// Waits for the next completion of the consumer in the kernel, which has to be that of this request. Returns its bytes.
    fn completed(&mut self, request: usize) -> u32 {
        let mut results = [Completion::EMPTY; 1];
        let mut found = None;
        self.world.kernel.wait_until(|| {
            found =
                self.world.driver.run(|| self.kernel.cq.poll(&mut results).first().map(|one| (one.ok(), one.bytes())));
            found.is_some()
        });
        let (ended, bytes) = found.expect("a completion");
        assert_eq!(ended, Ok(request));
        bytes
    }

    fn process_completed(&self, request: u64) {
        let result = self.process.result(&self.world.kernel);
        assert_eq!((result.status, result.request), (STATUS_SUCCESS, request));
    }

    /// Sends, writes and reads from the process.
    fn process_initiates(&mut self) {
        let (program, at, token) = (self.process.program, self.at, self.region.local);
        let world = self.world;
        let mine = world.driver.run(|| {
            let element = self.kernel.mr.sge(100, 32)?;
            self.kernel.qp.receiver.receive(50, &[element])?;
            Ok::<_, NtStatus>(self.kernel.mr.remote(0))
        });
        let mine = mine.expect("a receive");
        program.process.write(at, b"up from a process");
        program.send(self.process.qp, 1, &[(at, 17, token)]);
        self.process_completed(1);
        assert_eq!(self.completed(50), 17);
        assert_eq!(&self.kernel.bytes::<17>(100), b"up from a process");

        let place = (mine.address + 200, mine.token.to_bits());
        program.rdma(Verb::Write, self.process.qp, 2, place, &[(at, 4, token)]);
        self.process_completed(2);
        assert_eq!(&self.kernel.bytes::<4>(200), b"up f");
        world.driver.run(|| self.kernel.mr.write(300, b"kernel bytes")).expect("memory of its own");
        let place = (mine.address + 300, mine.token.to_bits());
        program.rdma(Verb::Read, self.process.qp, 3, place, &[(at + 4096, 12, token)]);
        self.process_completed(3);
        assert_eq!(program.process.read(at + 4096, 12), b"kernel bytes");
    }

    /// Sends, writes and reads from the kernel, with a notification for the process.
    fn kernel_initiates(&mut self) {
        let (program, at, token) = (self.process.program, self.at, self.region.local);
        let world = self.world;
        program.receive(self.process.qp, 60, &[(at + 512, 64, token)]);
        let notify = of(self.process.queue).u32(nd2::abi::notify::ND_CQ_NOTIFY_ANY);
        let notified = program.begin(Verb::Notify, &notify, 0);
        let sent = world.driver.run(|| {
            self.kernel.mr.write(1000, b"down from the kernel")?;
            self.kernel.qp.initiator.send(51, &[self.kernel.mr.sge(1000, 20)?], Flags::empty())
        });
        assert_eq!(sent, Ok(()));
        assert_eq!(notified.wait().status, STATUS_SUCCESS);
        self.process_completed(60);
        assert_eq!(program.process.read(at + 512, 20), b"down from the kernel");
        self.completed(51);

        let theirs = Remote { address: at + 600, token: RemoteToken::from_bits(self.region.remote) };
        let written = world
            .driver
            .run(|| self.kernel.qp.initiator.write(52, &[self.kernel.mr.sge(1000, 4)?], theirs, Flags::empty()));
        assert_eq!(written, Ok(()));
        self.completed(52);
        assert_eq!(program.process.read(at + 600, 4), b"down");
        program.process.write(at + 604, b" and back");
        let read = world
            .driver
            .run(|| self.kernel.qp.initiator.read(53, &[self.kernel.mr.sge(2000, 13)?], theirs, Flags::empty()));
        assert_eq!(read, Ok(()));
        self.completed(53);
        assert_eq!(&self.kernel.bytes::<13>(2000), b"down and back");
    }
}

fn ends<'w>(world: &'w World, program: &'w Program) -> Ends<'w> {
    let process = Side::new(program, 3, 1);
    let at = program.process.allocate(8192, true);
    let region = program.region(process.adapter, at, 8192, ALL);
    let kernel = world.driver.run(|| Consumer::open(world)).expect("the adapter");
    Ends { world, process, region, at, kernel }
}

/// The consumer in the kernel listens, and the process connects.
fn connect_to_the_kernel(ends: &mut Ends<'_>) -> Connection {
    let (world, side) = (ends.world, &ends.process);
    let (listener, incoming) = world.driver.run(|| ends.kernel.listen(7001)).expect("a listener");
    let to = of(side.connector).u64(side.qp).u32(4).u32(4).bytes(&address(1, 7001)).bytes(b"from a process");
    let connects = side.program.begin(Verb::Connect, &to, 0);
    let mut arrived = None;
    world.kernel.wait_until(|| {
        arrived = incoming.try_recv().ok();
        arrived.is_some()
    });
    let accepting = world.driver.run(|| {
        let incoming = arrived.expect("a connection");
        let mut data = [0; 14];
        // The provider has room for more than the peer has sent.
        assert!(incoming.connection_data(&mut data).is_ok_and(|data| data.inbound_reads == 4));
        assert_eq!(&data, b"from a process");
        incoming.accept(&ends.kernel.qp, &OFFER, || ())
    });
    let accepting = accepting.expect("an accept");
    assert_eq!(connects.wait().status, STATUS_SUCCESS);
    let data = side.program.ask(Verb::PrivateData, &of(side.connector), 1024);
    assert_eq!(&data[..OFFER.private_data.len()], OFFER.private_data);
    side.program.ask(Verb::CompleteConnect, &of(side.connector), 0);
    world.driver.run(|| {
        let connection = accepting.wait();
        drop((listener, incoming));
        connection.expect("a connection")
    })
}

/// The process listens, and the consumer in the kernel connects.
fn connect_to_the_process(ends: &Ends<'_>) -> Connection {
    let (world, side) = (ends.world, &ends.process);
    let listener = side.program.make(Verb::CreateListener, &of(side.adapter));
    side.program.ask(Verb::BindListener, &of(listener).bytes(&address(1, 7002)), 0);
    side.program.ask(Verb::Listen, &of(listener).u32(0), 0);
    let arrives = side.program.begin(Verb::GetConnectionRequest, &of(listener).u64(side.connector), 0);
    let [from, to] = [0, 7002].map(|port| (std::net::Ipv4Addr::new(192, 0, 2, 1), port).into());
    let connecting =
        world.driver.run(|| ends.kernel.adapter.create_connector()?.connect(&ends.kernel.qp, from, to, &OFFER));
    let connecting = connecting.expect("a connect");
    assert_eq!(arrives.wait().status, STATUS_SUCCESS);
    let data = side.program.ask(Verb::PrivateData, &of(side.connector), 1024);
    assert_eq!(&data[..OFFER.private_data.len()], OFFER.private_data);
    let accepts = side.program.begin(Verb::Accept, &of(side.connector).u64(side.qp).u32(4).u32(4), 0);
    let connection = world.driver.run(|| connecting.wait()?.complete(|| ())?.wait()).expect("a connection");
    assert_eq!(accepts.wait().status, STATUS_SUCCESS);
    connection
}

fn exchange(kernel: Kernel, connect: impl Fn(&mut Ends<'_>) -> Connection) {
    let world = World::on(kernel, 1, &[]);
    let program = Program::start(&world.kernel, 1);
    let mut ends = ends(&world, &program);
    let connection = connect(&mut ends);
    let mut owners: Vec<_> = connections(&world).iter().map(|one| one.process).collect();
    owners.sort_unstable();
    assert_eq!(owners, [None, Some(program.process.number())], "one is the kernel's");
    // The active side sends first (`NDKPI 7.7`), and the active side may be either: each begins once.
    ends.process_initiates();
    ends.kernel_initiates();
    // Each hears of the other's end.
    let hears = program.begin(Verb::NotifyDisconnect, &of(ends.process.connector), 0);
    let ended = world.driver.run(|| connection.disconnect()?.wait());
    assert_eq!(ended, Ok(()));
    assert_eq!(hears.wait().status, STATUS_SUCCESS);
    let Ends { kernel, .. } = ends;
    world.driver.run(|| drop((connection, kernel)));
    drop(program);
    world.end();
}

#[test]
fn a_process_connects_to_a_consumer_in_the_kernel() {
    for seed in SEEDS {
        exchange(Kernel::seeded(seed).start(), connect_to_the_kernel);
    }
    exchange(Kernel::threads().processors(2).start(), connect_to_the_kernel);
}

#[test]
fn a_consumer_in_the_kernel_connects_to_a_process() {
    for seed in SEEDS {
        exchange(Kernel::seeded(seed).start(), |ends| connect_to_the_process(ends));
    }
    exchange(Kernel::threads().processors(2).start(), |ends| connect_to_the_process(ends));
}

/// The process ends while the consumer in the kernel is connected with it, reads and writes: it is told, and its requests fail.
#[test]
fn a_consumer_in_the_kernel_survives_the_end_of_its_peer() {
    for seed in SEEDS {
        let world = World::on(Kernel::seeded(seed).start(), 1, &[]);
        let program = Program::start(&world.kernel, 1);
        let ends = ends(&world, &program);
        let connection = connect_to_the_process(&ends);
        let theirs = Remote { address: ends.at, token: RemoteToken::from_bits(ends.region.remote) };
        let Ends { kernel: mut consumer, region, .. } = ends;
        drop(region);
        drop(program);
        // The queue pair may have heard of it already.
        let posted = world.driver.run(|| {
            let element = consumer.mr.sge(0, 64)?;
            consumer.qp.initiator.write(70, &[element], theirs, Flags::empty())
        });
        if posted.is_ok() {
            let mut results = [Completion::EMPTY; 1];
            let mut outcome = None;
            world.kernel.wait_until(|| {
                outcome = world.driver.run(|| consumer.cq.poll(&mut results).first().map(Completion::ok));
                outcome.is_some()
            });
            assert!(outcome.is_some_and(|outcome| outcome.is_err()), "the memory of the peer is gone");
        }
        world.driver.run(|| drop((connection, consumer)));
        world.end();
    }
}

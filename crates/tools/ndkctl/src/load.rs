//! Traffic to look at: connections of one adapter with itself and with another, and messages on all of them.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use ndk::{
    Acceptor, Access, Adapter, Completion, Connection, Cq, Flags, Mr, Notify, NtStatus, Offer, Qp, QpSizes,
    host::Loopback,
};

/// Connections between the two adapters, and of the first one with itself.
const CONNECTIONS: usize = 6;
/// The maximum size of a message, in bytes.
const BYTES: usize = 1 << 17;
/// How long to wait for what has to come, in microseconds.
const PATIENCE: u64 = 10_000_000;

/// One end of a connection.
struct Side {
    mr: Mr,
    cq: Cq,
    qp: Qp,
}

impl Side {
    fn new(adapter: &Adapter) -> Result<Self, NtStatus> {
        let rights = Access::LOCAL_WRITE | Access::READ_SINK | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let pd = adapter.create_pd()?;
        let mr = pd.register(adapter.memory(BYTES)?, rights)?;
        let cq = adapter.create_cq(32)?;
        let qp = pd.create_qp(&cq, &cq, QpSizes::default(), 0)?;
        Ok(Self { mr, cq, qp })
    }

    /// Waits for `count` successful requests.
    fn take(&mut self, count: usize) -> Result<(), NtStatus> {
        for _ in 0..count {
            match self.cq.wait_for(&mut [Completion::EMPTY], Notify::Any, PATIENCE)? {
                [done] => done.ok()?,
                _ => return Err(NtStatus::IO_TIMEOUT),
            };
        }
        Ok(())
    }
}

/// Two sides that exchange messages.
struct Pair {
    a: Side,
    b: Side,
    _connections: [Connection; 2],
}

impl Pair {
    /// A message and a write from `a` to `b`, and a read of `b` from `a`.
    fn exchange(&mut self, context: usize, length: u32) -> Result<(), NtStatus> {
        let Self { a, b, .. } = self;
        b.qp.receiver.receive(context, &[b.mr.sge(0, length)?])?;
        a.qp.initiator.send(context, &[a.mr.sge(0, length)?], Flags::empty())?;
        a.qp.initiator.write(context, &[a.mr.sge(0, length)?], b.mr.remote(0), Flags::empty())?;
        b.qp.initiator.read(context, &[b.mr.sge(0, length)?], a.mr.remote(0), Flags::empty())?;
        a.take(2)?;
        b.take(2)
    }
}

/// Runs traffic until `stop` is set. `ready` is set when all connections are made.
///
/// # Errors
///
/// What a provider said to one of the calls, or how a request failed.
fn run(machine: &Loopback, stop: &AtomicBool, ready: &AtomicBool) -> Result<(), NtStatus> {
    let adapters = [machine.open(0)?, machine.open(1)?];
    let acceptors = [adapters[0].acceptor(machine.address(0, 0))?, adapters[1].acceptor(machine.address(1, 0))?];
    let mut pairs = Vec::new();
    for number in 0..CONNECTIONS {
        let peer = usize::from(number % 2 == 0);
        pairs.push(connect(machine, [&adapters[0], &adapters[peer]], &acceptors[peer])?);
    }
    ready.store(true, Relaxed);
    let mut context = 0;
    while !stop.load(Relaxed) {
        for (number, pair) in pairs.iter_mut().enumerate() {
            context += 1;
            pair.exchange(context, 1 << (6 + 2 * number))?;
        }
    }
    Ok(())
}

/// Connects a queue pair of the first of these adapters with one of the second, which is that of the acceptor.
fn connect(machine: &Loopback, [near, far]: [&Adapter; 2], acceptor: &Acceptor) -> Result<Pair, NtStatus> {
    let (a, b) = (Side::new(near)?, Side::new(far)?);
    let offer = Offer { inbound_reads: 16, outbound_reads: 16, private_data: b"" };
    let connections = acceptor.connect((near, machine.address(0, 0)), &a.qp, &b.qp, &offer, PATIENCE)?;
    Ok(Pair { a, b, _connections: connections })
}

/// Runs `look` again and again beside the traffic, until it says that it has seen enough or somebody interrupts.
///
/// # Errors
///
/// The reason, in one line.
pub fn beside(interrupted: &AtomicBool, mut look: impl FnMut(&Loopback) -> Result<bool, String>) -> Result<(), String> {
    let machine = Loopback::start(2).map_err(|status| format!("no adapters: {status}"))?;
    let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    let result = thread::scope(|scope| {
        let traffic = scope.spawn(|| run(&machine, &stop, &ready));
        while !ready.load(Relaxed) && !traffic.is_finished() {
            thread::yield_now();
        }
        let mut seen = Ok(());
        while !traffic.is_finished() && !interrupted.load(Relaxed) {
            match look(&machine) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    seen = Err(error);
                    break;
                }
            }
        }
        stop.store(true, Relaxed);
        let traffic = traffic.join().unwrap_or(Err(NtStatus::INTERNAL_ERROR));
        let traffic = traffic.map_err(|status| format!("the traffic has failed: {status}"));
        seen.and(traffic)
    });
    machine.finish().map_err(|left| format!("left behind: {left}"))?;
    result
}

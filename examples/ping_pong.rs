//! A message to and fro, each side in the callback of its completion queue: how a driver does it.
//!
//! `cargo run --example ping_pong`

use std::sync::mpsc::{self, Sender};

use ndk::{
    Access, Adapter, Completion, Cq, Flags, Incoming, Mr, Notify, NtStatus, Offer, Operation, Poller, Qp, QpSizes,
    host::Loopback,
};

/// Round trips.
const ROUNDS: u32 = 1000;
/// Bytes of a message.
const SIZE: u32 = 64;
/// Where in its memory a side receives; it sends from the beginning.
const INBOX: usize = 2048;

/// What one side owns: registered memory and a queue pair. It moves into the callback of the side's completion queue.
struct Side {
    mr: Mr,
    qp: Qp,
}

impl Side {
    /// Makes a side and the completion queue for both of its queues.
    fn new(adapter: &Adapter) -> Result<(Self, Cq), NtStatus> {
        // A protection domain is what memory and queue pairs must have in common. They keep it open.
        let pd = adapter.create_pd()?;
        // The adapter reads and writes memory by itself, so it has to be registered, and stays where it is.
        let mr = pd.register(adapter.memory(4096)?, Access::LOCAL_WRITE)?;
        // Every request that ends leaves an entry here: as many as both queues of the queue pair can have on their way.
        let cq = adapter.create_cq(32)?;
        let qp = pd.create_qp(&cq, &cq, QpSizes::default(), 0)?;
        Ok((Self { mr, qp }, cq))
    }

    /// A receive has to be there before its message comes.
    fn post_receive(&mut self) -> Result<(), NtStatus> {
        self.qp.receiver.receive(1, &[self.mr.sge(INBOX, SIZE)?])
    }

    /// Sends the number.
    fn send(&mut self, number: u32) -> Result<(), NtStatus> {
        self.mr.write(0, &number.to_le_bytes())?;
        self.qp.initiator.send(2, &[self.mr.sge(0, SIZE)?], Flags::empty())
    }

    /// The number that was received last.
    fn received(&self) -> Result<u32, NtStatus> {
        let mut bytes = [0; 4];
        self.mr.read(INBOX, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

/// What a callback does: takes all completions, answers each message as `answer` says, and arms the queue again.
fn serve(
    poller: &mut Poller<'_>,
    status: NtStatus,
    side: &mut Side,
    answer: impl Fn(u32) -> Option<u32>,
) -> Result<(), NtStatus> {
    // The queue itself may have failed: overrun, or worse.
    status.ok()?;
    let mut results = [Completion::EMPTY; 8];
    loop {
        let done = poller.poll(&mut results);
        if done.is_empty() {
            break;
        }
        for one in done {
            one.ok()?;
            if one.operation() == Some(Operation::Receive)
                && let Some(number) = answer(side.received()?)
            {
                // First the receive for the answer to the answer.
                side.post_receive()?;
                side.send(number)?;
            }
        }
    }
    // An arm is for one callback. What has come since the last poll satisfies it at once.
    poller.arm(Notify::Any);
    Ok(())
}

/// Serves one side until its peer goes; the first failure is told to whoever waits.
fn start(
    cq: Cq,
    mut side: Side,
    end: Sender<Result<(), NtStatus>>,
    answer: impl Fn(u32) -> Option<u32> + Send + 'static,
) -> Result<ndk::Notified, NtStatus> {
    cq.notify(Notify::Any, move |poller, status| {
        if let Err(status) = serve(poller, status, &mut side, &answer) {
            let _ = end.send(Err(status));
        }
    })
}

fn main() -> Result<(), NtStatus> {
    // A machine with one adapter, which can connect to itself. In a driver: an adapter from WskOpenNdkAdapter.
    let machine = Loopback::start(1)?;
    let adapter = machine.open(0)?;
    let (mut near, near_cq) = Side::new(&adapter)?;
    let (mut far, far_cq) = Side::new(&adapter)?;

    // The passive side listens. A callback hands over what comes; port 0 lets the provider choose a port.
    let (send, incoming) = mpsc::channel::<Incoming>();
    let listener = adapter.listen(machine.address(0, 0), move |incoming| drop(send.send(incoming)))?;
    // The active side connects, the passive side accepts, the active side completes. Nobody may wait for a step before the
    // other side has done its own: connecting and accepting are pending here at the same time.
    let connector = adapter.create_connector()?;
    let connecting =
        connector.connect(&near.qp, machine.address(0, 0), listener.local_address()?, &Offer::default())?;
    let incoming = incoming.recv().map_err(|_| NtStatus::CONNECTION_REFUSED)?;
    let accepting = incoming.accept(&far.qp, &Offer::default(), || ())?;
    let active = connecting.wait()?.complete(|| ())?.wait()?;
    let passive = accepting.wait()?;

    // Receives first, then the callbacks, then the first message.
    near.post_receive()?;
    far.post_receive()?;
    near.send(0)?;
    let (end, ended) = mpsc::channel();
    let finished = end.clone();
    let far = start(far_cq, far, end.clone(), Some)?;
    let near = start(near_cq, near, end, move |number| {
        if number == ROUNDS {
            let _ = finished.send(Ok(()));
            return None;
        }
        Some(number + 1)
    })?;
    ended.recv().unwrap_or(Err(NtStatus::CANCELLED))?;
    println!("{ROUNDS} round trips of {SIZE} bytes");

    // In any order: what depends on something else keeps it open. Dropping the adapter, at the end, waits for everything.
    drop((active, passive, near, far, listener));
    Ok(())
}

#[test]
fn it_runs() -> Result<(), NtStatus> {
    main()
}

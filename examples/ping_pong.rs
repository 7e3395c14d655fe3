//! A ping-pong in which each side works in the callback of its completion queue, as a driver does.
//!
//! `cargo run --example ping_pong`

use std::sync::mpsc::{self, Sender};

use ndk::{
    Access, Adapter, Close, Completion, Cq, Flags, Incoming, Mr, Notify, NtStatus, Offer, Operation, Poller, Qp,
    QpSizes, host::Loopback,
};

/// Number of round trips.
const ROUNDS: u32 = 1000;
/// Size of a message.
const SIZE: u32 = 64;
/// The offset of the receive buffer in a side's memory. The send buffer is at 0.
const INBOX: usize = 2048;

/// What one side owns: a queue pair and registered memory. It moves into the callback of the side's completion queue.
///
/// Fields drop in this order: the queue pair ends its posted receives before their memory is taken back (`NDKPI 7.4`).
struct Side {
    qp: Qp,
    mr: Mr,
}

impl Side {
    /// Creates a side, and the completion queue for both of its queues.
    fn new(adapter: &Adapter) -> Result<(Self, Cq), NtStatus> {
        // Memory and queue pairs that work together must be in one protection domain. They keep it open.
        let pd = adapter.create_pd()?;
        // The adapter accesses memory by itself, so the memory must be registered, and it must not move.
        let mr = pd.register(adapter.memory(4096)?, Access::LOCAL_WRITE)?;
        // Every finished request leaves an entry here, so there must be room for all that both queues can have in flight.
        let cq = adapter.create_cq(32)?;
        let qp = pd.create_qp(&cq, &cq, QpSizes::default(), 0)?;
        Ok((Self { qp, mr }, cq))
    }

    /// Posts a receive. It must be there before its message arrives.
    fn post_receive(&mut self) -> Result<(), NtStatus> {
        self.qp.receiver.receive(1, &[self.mr.sge(INBOX, SIZE)?])
    }

    /// Sends the number.
    fn send(&mut self, number: u32) -> Result<(), NtStatus> {
        self.mr.write(0, &number.to_le_bytes())?;
        self.qp.initiator.send(2, &[self.mr.sge(0, SIZE)?], Flags::empty())
    }

    /// Returns the number that was received last.
    fn received(&self) -> Result<u32, NtStatus> {
        let mut bytes = [0; 4];
        self.mr.read(INBOX, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

/// The callback: takes all completions, answers each message with what `answer` returns, and arms the queue again.
fn serve(
    poller: &mut Poller<'_>,
    status: NtStatus,
    side: &mut Side,
    answer: impl Fn(u32) -> Option<u32>,
) -> Result<(), NtStatus> {
    // The queue itself may have failed, by an overrun or worse.
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
                // Post the receive for the next message before the peer can send it.
                side.post_receive()?;
                side.send(number)?;
            }
        }
    }
    // An arm is good for one callback. A completion that arrived since the last poll satisfies it at once.
    poller.arm(Notify::Any);
    Ok(())
}

/// Starts the callbacks of one side. A failure is sent to `end`.
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
    // A machine with one adapter, which can connect to itself. A driver would use WskOpenNdkAdapter instead.
    let machine = Loopback::start(1)?;
    let adapter = machine.open(0)?;
    let (mut near, near_cq) = Side::new(&adapter)?;
    let (mut far, far_cq) = Side::new(&adapter)?;

    // The passive side listens. Port 0 lets the provider choose a port; the callback passes connection requests on.
    let (send, incoming) = mpsc::channel::<Incoming>();
    let listener = adapter.listen(machine.address(0, 0), move |incoming| drop(send.send(incoming)))?;
    // The active side connects, the passive side accepts, the active side completes. The connect pends until the accept, and the
    // accept until the completion, so this thread starts both before it waits for either.
    let connector = adapter.create_connector()?;
    let connecting =
        connector.connect(&near.qp, machine.address(0, 0), listener.local_address()?, &Offer::default())?;
    let incoming = incoming.recv().map_err(|_| NtStatus::CONNECTION_REFUSED)?;
    let accepting = incoming.accept(&far.qp, &Offer::default(), || ())?;
    let active = connecting.wait()?.complete(|| ())?.wait()?;
    let passive = accepting.wait()?;

    // Post the receives, send the first message, then start the callbacks.
    near.post_receive()?;
    far.post_receive()?;
    near.send(0)?;
    let (end, ended) = mpsc::channel();
    let finished = end.clone();
    let _far = start(far_cq, far, end.clone(), Some)?;
    let _near = start(near_cq, near, end, move |number| {
        if number == ROUNDS {
            let _ = finished.send(Ok(()));
            return None;
        }
        Some(number + 1)
    })?;
    ended.recv().unwrap_or(Err(NtStatus::CANCELLED))?;
    println!("{ROUNDS} round trips of {SIZE} bytes");

    // Memory may go when no request uses it any more (NDKPI 7.4), so the connections end first. The rest closes by itself.
    [active, passive].into_iter().try_for_each(|one| one.close()?.wait())?;
    Ok(())
}

#[test]
fn it_runs() -> Result<(), NtStatus> {
    main()
}

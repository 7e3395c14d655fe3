//! A ping-pong on one thread that polls: the lowest latency, if the processor has nothing else to do.
//!
//! `cargo run --example ping_pong_polling`

use ndk::{Access, Completion, Cq, Flags, Mr, NtStatus, Qp, QpSizes, host::Loopback};

/// Number of round trips.
const ROUNDS: usize = 1000;
/// Size of a message.
const SIZE: u32 = 64;

/// Polls until the completion with this context arrives. In this example every receive has a context of its own.
fn await_done(cq: &mut Cq, context: usize) -> Result<(), NtStatus> {
    let mut results = [Completion::EMPTY; 1];
    loop {
        // A poll can ask for any number of results. The context tells which request one belongs to.
        if let [done] = cq.poll(&mut results)
            && done.ok()? == context
        {
            return Ok(());
        }
        // The processors of this machine are threads, and there may be fewer real ones.
        std::thread::yield_now();
    }
}

/// Sends from one side to the other and waits for the message.
///
/// The send is silent: if it succeeds there is no completion. Every fourth one is signalled, because only a later completion
/// tells that the queue slots of silent requests are free again.
fn pass(from: &mut Qp, mr: &Mr, to: (&mut Cq, &mut Qp), round: usize) -> Result<(), NtStatus> {
    let (cq, to) = to;
    to.receiver.receive(round, &[mr.sge(2048, SIZE)?])?;
    let flags = if round.is_multiple_of(4) { Flags::empty() } else { Flags::SILENT };
    from.initiator.send(usize::MAX, &[mr.sge(0, SIZE)?], flags)?;
    await_done(cq, round)
}

fn main() -> Result<(), NtStatus> {
    let machine = Loopback::start(1)?;
    let adapter = machine.open(0)?;
    let pd = adapter.create_pd()?;
    let mr = pd.register(adapter.memory(4096)?, Access::LOCAL_WRITE)?;
    // Receives and sends use different completion queues, so that waiting for a message only sees receives.
    let (mut near_cq, mut far_cq, mut sends) = (adapter.create_cq(16)?, adapter.create_cq(16)?, adapter.create_cq(32)?);
    let mut near = pd.create_qp(&near_cq, &sends, QpSizes::default(), 0)?;
    let mut far = pd.create_qp(&far_cq, &sends, QpSizes::default(), 1)?;
    let connections = examples::connect(&machine, &adapter, &near, &far)?;

    let mut results = [Completion::EMPTY; 8];
    for round in 0..ROUNDS {
        pass(&mut near, &mr, (&mut far_cq, &mut far), round)?;
        pass(&mut far, &mr, (&mut near_cq, &mut near), round)?;
        // This queue is never armed, so there are no callbacks. Poll it regularly, before it can overrun.
        for done in sends.poll(&mut results) {
            done.ok()?;
        }
    }
    println!("{ROUNDS} round trips of {SIZE} bytes, polled");
    drop(connections);
    Ok(())
}

#[test]
fn it_runs() -> Result<(), NtStatus> {
    main()
}

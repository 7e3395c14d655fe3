//! A consumer in the kernel that uses an adapter on which something goes wrong, as NDKPI allows.

use std::{
    net::{IpAddr, SocketAddr},
    sync::mpsc::{self, TryRecvError},
};

use interpose::{
    Function,
    faults::{Delay, Kind, Rule, Which},
};
use ndk::{Access, Adapter, Completion, Flags, Notify, NtStatus, Offer, QpSizes};

/// The messages that the consumer sends.
pub const MESSAGES: usize = 2;

/// The bytes of one of them.
pub const MESSAGE: &[u8] = b"message";

/// A consumer that connects two queue pairs and sends its messages, whatever becomes of them.
pub fn use_it(adapter: &Adapter, address: IpAddr) -> Result<(), NtStatus> {
    let pd = adapter.create_pd()?;
    let mut mr = pd.register(adapter.memory(8192)?, Access::LOCAL_WRITE)?;
    let mut cq = adapter.create_cq(64)?;
    let mut near = pd.create_qp(&cq, &cq, QpSizes::default(), 1)?;
    let mut far = pd.create_qp(&cq, &cq, QpSizes::default(), 2)?;
    let (send, incoming) = mpsc::channel();
    let here = SocketAddr::new(address, 0);
    let listener = adapter.listen(here, move |incoming| drop(send.send(incoming)))?;
    let connecting = adapter.create_connector()?.connect(&near, here, listener.local_address()?, &Offer::default())?;
    let event = kernel::Event::try_new()?;
    let incoming = loop {
        match incoming.try_recv() {
            Ok(incoming) => break incoming,
            Err(TryRecvError::Empty) => drop(event.wait_micros(100)),
            Err(TryRecvError::Disconnected) => return Err(NtStatus::CONNECTION_REFUSED),
        }
    };
    let accepting = incoming.accept(&far, &Offer::default(), || ())?;
    let active = connecting.wait()?.complete(|| ())?.wait()?;
    let passive = accepting.wait()?;
    mr.write(0, MESSAGE)?;
    let length = u32::try_from(MESSAGE.len()).expect("a short message");
    for message in 0..MESSAGES {
        far.receiver.receive(2 * message, &[mr.sge(4096, length)?])?;
        near.initiator.send(2 * message + 1, &[mr.sge(0, length)?], Flags::empty())?;
    }
    // One poll then finds a send with a receive behind it.
    let _ = event.wait_micros(5_000);
    let (mut results, mut seen) = ([Completion::EMPTY; 4], 0);
    while seen < 2 * MESSAGES {
        for done in cq.wait(&mut results, Notify::Any)? {
            done.ok()?;
            seen += 1;
        }
    }
    let _ = event.wait_micros(20_000);
    let ended = active.disconnect()?.wait();
    drop(passive);
    ended
}

/// Each fault, and what the consumer sees: success, or one of these failures.
pub fn faults() -> Vec<(Rule, &'static [NtStatus])> {
    const CANCELLED: &[NtStatus] =
        &[NtStatus::CANCELLED, NtStatus::IO_TIMEOUT, NtStatus::CONNECTION_INVALID, NtStatus::CONNECTION_ABORTED];
    let rule = |kind, function| Rule { function: Some(function), ..Rule::new(kind, Which::Nth(1)) };
    let delayed = |rule| Rule { delay: Delay::Uniform(100, 2_000), ..rule };
    let all: Vec<(Rule, &'static [NtStatus])> = vec![
        (rule(Kind::Refuse, Function::CreateCq), &[NtStatus::INSUFFICIENT_RESOURCES]),
        (delayed(rule(Kind::Fail, Function::CreateQp)), &[NtStatus::INSUFFICIENT_RESOURCES]),
        (delayed(Rule::new(Kind::Late, Which::Every(1))), &[]),
        (Rule::new(Kind::Early, Which::Every(1)), &[]),
        (delayed(Rule::new(Kind::Event, Which::Every(1))), &[]),
        (delayed(Rule::new(Kind::Hold, Which::Every(1))), &[]),
        (Rule::new(Kind::Result, Which::Nth(2)), CANCELLED),
        (delayed(Rule::new(Kind::Disconnect, Which::Nth(1))), CANCELLED),
        (Rule::new(Kind::CqError, Which::Nth(1)), &[NtStatus::INTERNAL_ERROR]),
        (Rule::new(Kind::Overrun, Which::Nth(1)), &[NtStatus::BUFFER_OVERFLOW]),
        (rule(Kind::Remove, Function::Send), CANCELLED),
        (Rule::new(Kind::NotReady, Which::Nth(1)), &[NtStatus::IO_TIMEOUT]),
        (Rule::new(Kind::Cross, Which::Nth(1)), &[]),
    ];
    assert!(Kind::ALL.iter().all(|kind| all.iter().any(|(rule, _)| rule.kind == *kind)), "one is missing");
    all
}

/// Checks that the fault has happened, and that the consumer has seen it.
pub fn check(rule: Rule, statuses: &[NtStatus], outcome: Result<(), NtStatus>, made: u64) {
    assert!(made > 0, "{rule:?} has not happened: {outcome:?}");
    match outcome {
        Ok(()) => assert!(statuses.is_empty() || rule.kind == Kind::Disconnect, "{rule:?} was not noticed"),
        Err(status) => assert!(statuses.contains(&status), "{rule:?}: {status}"),
    }
}

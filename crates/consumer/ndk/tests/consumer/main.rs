//! The wrapper against SoftNDK: requests that complete in each of the ways that NDKPI has, objects that go in any order, and
//! what it refuses.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    mpsc,
};

use host::machine::{Irql, Machine, lower, raise};
use ndk::{
    Access, Adapter, Completion, Connection, Cq, Flags, Mr, Notify, NtStatus, Offer, PinnedMemory, Qp, QpSizes,
    QueuePair, host::Loopback,
};
use provider::CompletionMode;

mod close;
mod driven;
mod notify;
mod observed;

const MODES: [CompletionMode; 4] =
    [CompletionMode::Inline, CompletionMode::Pending, CompletionMode::Early, CompletionMode::Mixed];

/// How long a connection may take to come, in microseconds.
const PATIENCE: u64 = 5_000_000;

/// Machines of both kinds, whose requests complete in each of the ways.
fn machines() -> impl Iterator<Item = Loopback> {
    MODES.into_iter().flat_map(|mode| {
        [Machine::threads().start(), Machine::seeded(7).start()]
            .map(|machine| Loopback::with(machine, 2, |config| config.mode = mode).expect("memory for a machine"))
    })
}

fn connect(machine: &Loopback, adapter: &Adapter, near: &impl QueuePair, far: &impl QueuePair) -> [Connection; 2] {
    let (send, incoming) = mpsc::channel();
    let listener =
        adapter.listen(machine.address(0, 0), move |incoming| drop(send.send(incoming))).expect("a listener");
    let connector = adapter.create_connector().expect("a connector");
    let to = listener.local_address().expect("its address");
    let offer = Offer { inbound_reads: 4, outbound_reads: 4, private_data: b"hello" };
    let connecting = connector.connect(near, machine.address(0, 0), to, &offer).expect("a request");
    // On a seeded machine nothing happens unless somebody waits.
    let incoming = loop {
        match incoming.try_recv() {
            Ok(incoming) => break incoming,
            Err(_) => machine.machine().sleep(100),
        }
    };
    let mut data = [0; 5];
    let known = incoming.connection_data(&mut data).expect("private data");
    assert_eq!((&data, known.required >= 5), (b"hello", true));
    let accepting = incoming.accept(far, &Offer { private_data: b"", ..offer }, || ()).expect("a request");
    let active = connecting.wait().expect("a peer").complete(|| ()).expect("a request").wait().expect("a connection");
    [active, accepting.wait().expect("the other side")]
}

struct Everything {
    pd: ndk::Pd,
    mr: Mr,
    cq: Cq,
    near: Qp,
    far: Qp,
    connections: [Connection; 2],
}

fn everything(machine: &Loopback, adapter: &Adapter) -> Everything {
    let pd = adapter.create_pd().expect("a domain");
    let memory = adapter.memory(8192).expect("memory");
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::READ_SINK;
    let mr = pd.register(memory, access).expect("a region");
    let cq = adapter.create_cq(64).expect("a queue");
    let sizes = QpSizes { inline: 64, ..QpSizes::default() };
    let near = pd.create_qp(&cq, &cq, sizes, 1).expect("a queue pair");
    let far = pd.create_qp(&cq, &cq, sizes, 2).expect("a queue pair");
    let connections = connect(machine, adapter, &near, &far);
    Everything { pd, mr, cq, near, far, connections }
}

/// Waits for as many completions: their contexts and outcomes, sorted.
fn completions(cq: &mut Cq, count: usize) -> Vec<(usize, NtStatus)> {
    let mut results = [Completion::EMPTY; 3];
    let mut seen = Vec::new();
    while seen.len() < count {
        let done = cq.wait(&mut results, Notify::Any).expect("the queue works");
        seen.extend(done.iter().map(|one| (one.context(), one.status())));
    }
    seen.sort_unstable();
    seen
}

#[test]
fn requests_complete_whichever_way_the_provider_takes() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let mut all = everything(&machine, &adapter);
        all.mr.write(0, b"0123456789")?;
        all.far.receiver.receive(1, &[all.mr.sge(100, 10)?])?;
        all.near.initiator.send(2, &[all.mr.sge(0, 5)?], Flags::empty())?;
        all.near.initiator.write_inline(3, b"inline", all.mr.remote(200), Flags::empty())?;
        all.near.initiator.read(4, &[all.mr.sge(300, 4)?], all.mr.remote(2), Flags::empty())?;
        let expected = [1, 2, 3, 4].map(|context| (context, NtStatus::SUCCESS));
        assert_eq!(completions(&mut all.cq, 4), expected);
        let mut bytes = [0; 300];
        all.mr.read(100, &mut bytes)?;
        assert_eq!((&bytes[..5], &bytes[100..106], &bytes[200..204]), (&b"01234"[..], &b"inline"[..], &b"2345"[..]));
        all.connections[0].disconnect()?.wait()?;
        drop(all);
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

#[test]
fn objects_go_in_any_order() -> Result<(), NtStatus> {
    for (round, machine) in machines().enumerate() {
        let adapter = machine.open(0)?;
        let Everything { pd, mr, cq, near, far, connections } = everything(&machine, &adapter);
        let objects: [Box<dyn FnOnce()>; 6] = [
            Box::new(|| drop(pd)),
            Box::new(|| drop(mr)),
            Box::new(|| drop(cq)),
            Box::new(|| drop(near)),
            Box::new(|| drop(far)),
            Box::new(|| drop(connections)),
        ];
        let mut objects = objects.map(Some);
        for step in 0..6 {
            let place = (step * 5 + round) % 6;
            objects[place].take().expect("each once")();
        }
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

#[test]
fn a_flush_gives_back_what_was_posted() -> Result<(), NtStatus> {
    let machine = Loopback::start(1)?;
    let adapter = machine.open(0)?;
    let mut all = everything(&machine, &adapter);
    for context in 0..4 {
        all.far.receiver.receive(context, &[all.mr.sge(0, 8)?])?;
    }
    all.far.flush();
    assert_eq!(completions(&mut all.cq, 4), [0, 1, 2, 3].map(|context| (context, NtStatus::CANCELLED)));
    Ok(())
}

/// Memory that tells when it is given back.
struct Watched(Box<dyn PinnedMemory>, Arc<AtomicBool>);

// SAFETY: it is the memory that it has.
unsafe impl PinnedMemory for Watched {
    fn mdl(&self) -> *mut ndkpi::MDL {
        self.0.mdl()
    }
    fn address(&self) -> *mut u8 {
        self.0.address()
    }
    fn length(&self) -> usize {
        self.0.length()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.1.store(true, Relaxed);
    }
}

#[test]
fn memory_is_given_back_when_the_adapter_cannot_reach_it_any_more() -> Result<(), NtStatus> {
    let machine = Loopback::start(1)?;
    let adapter = machine.open(0)?;
    let mut all = everything(&machine, &adapter);
    let gone = Arc::new(AtomicBool::new(false));
    let memory = Box::new(Watched(adapter.memory(4096)?, gone.clone()));
    let region = all.pd.register(memory, Access::LOCAL_WRITE)?;
    let window = all.pd.create_mw()?;
    all.near.initiator.bind(1, &window, &region, (0, 4096), Access::REMOTE_READ, Flags::empty())?;
    assert_eq!(completions(&mut all.cq, 1), [(1, NtStatus::SUCCESS)]);
    drop(region);
    assert!(!gone.load(Relaxed), "the window still leads to the memory");
    drop(window);
    drop(all);
    drop(adapter);
    assert!(gone.load(Relaxed), "nothing leads to the memory any more");
    Ok(())
}

#[test]
fn memory_that_is_not_registered_is_given_back() -> Result<(), NtStatus> {
    let machine = Loopback::with(Machine::threads().start(), 1, |config| config.info.MaxRegistrationSize = 4096)?;
    let adapter = machine.open(0)?;
    let gone = Arc::new(AtomicBool::new(false));
    let memory = Box::new(Watched(adapter.memory(8192)?, gone.clone()));
    assert!(adapter.create_pd()?.register(memory, Access::empty()).is_err());
    drop(adapter);
    assert!(gone.load(Relaxed));
    Ok(())
}

#[test]
fn what_goes_on_after_a_request_is_called_once_whenever_it_ends() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let all = everything(&machine, &adapter);
        let called = Arc::new(AtomicUsize::new(0));
        let count = called.clone();
        all.connections[0].disconnect()?.then(move |outcome| {
            // The close of the connection may come before it.
            let ended = [Ok(()), Err(NtStatus::CANCELLED)].contains(&outcome);
            count.fetch_add(if ended { 1 } else { 100 }, Relaxed);
        })?;
        drop(all);
        drop(adapter);
        assert_eq!(called.load(Relaxed), 1);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

#[test]
fn a_request_that_nobody_waits_for_lets_its_object_go() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(32)?);
        let qp = pd.create_qp(&cq, &cq, QpSizes::default(), 0)?;
        let (send, incoming) = mpsc::channel();
        let listener = adapter.listen(machine.address(0, 0), move |incoming| drop(send.send(incoming)))?;
        let connector = adapter.create_connector()?;
        let pending = connector.connect(&qp, machine.address(0, 0), listener.local_address()?, &Offer::default())?;
        drop(pending);
        drop(incoming);
        drop((listener, qp, cq, pd));
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

#[test]
fn an_acceptor_keeps_one_connection_and_refuses_the_others() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(64)?);
        let qp = || pd.create_qp(&cq, &cq, QpSizes::default(), 0);
        let acceptor = adapter.acceptor(machine.address(0, 0))?;
        assert_eq!(acceptor.wait_for(1000).err(), Some(NtStatus::IO_TIMEOUT));
        let to = acceptor.local_address()?;
        let connect = |qp: &Qp| adapter.create_connector()?.connect(qp, machine.address(0, 0), to, &Offer::default());
        let (first, second, third) = (qp()?, qp()?, qp()?);
        let one = connect(&first)?;
        // The first connection is there before the second is wanted: it is taken, and comes again with the next attempt.
        drop(acceptor.wait_for(PATIENCE)?);
        assert_eq!(one.wait().err(), Some(NtStatus::CONNECTION_REFUSED));
        let (two, three) = (connect(&second)?, connect(&third)?);
        // One is kept, the other one refused.
        while two.outcome().or_else(|| three.outcome()).is_none() {
            machine.machine().sleep(1000);
        }
        // A seeded machine may let the time of the one that is kept run out meanwhile.
        let refused = |outcome: &Option<NtStatus>| *outcome == Some(NtStatus::CONNECTION_REFUSED);
        assert_eq!([two.outcome(), three.outcome()].iter().filter(|outcome| refused(outcome)).count(), 1);
        // The one that nobody takes ends when the acceptor goes, and keeps nothing open.
        drop(acceptor);
        let ends = [NtStatus::CONNECTION_REFUSED, NtStatus::IO_TIMEOUT].map(Some);
        assert!([two.wait().err(), three.wait().err()].iter().all(|end| ends.contains(end)));
        drop((first, second, third, cq, pd));
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

#[test]
fn a_handler_ends_with_its_notified_also_from_inside() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let Everything { pd, mr, cq, near, mut far, connections } = everything(&machine, &adapter);
        let alive = Arc::new(());
        let witness = alive.clone();
        let (give, given) = mpsc::channel::<ndk::Notified>();
        let (tell, told) = mpsc::channel();
        far.receiver.receive(1, &[mr.sge(0, 8)?])?;
        let notified = cq.notify(Notify::Any, move |poller, status| {
            std::hint::black_box(&witness);
            // The handler owns queue pairs of its own queue, and ends itself.
            let Qp { initiator: _initiator, receiver: _receiver } = &far;
            let mut results = [Completion::EMPTY; 4];
            let count = poller.poll(&mut results).len();
            drop(given.try_recv());
            let _ = tell.send((count, status));
        })?;
        give.send(notified).expect("a handler");
        drop((pd, mr, near, connections));
        drop(adapter);
        assert_eq!(told.try_iter().next().map(|(count, status)| (count > 0, status)), Some((true, NtStatus::SUCCESS)));
        assert_eq!(Arc::strong_count(&alive), 1, "the handler and what it owned are gone");
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

#[test]
fn nothing_waits_at_dispatch_level() -> Result<(), NtStatus> {
    let machine = Loopback::start(1)?;
    let adapter = machine.open(0)?;
    let mut all = everything(&machine, &adapter);
    let before = raise(Irql::DISPATCH_LEVEL);
    let refused = Some(NtStatus::INVALID_DEVICE_STATE);
    let created = adapter.create_pd().err();
    let memory = adapter.memory(4096)?;
    let mapped = adapter.map(memory).err();
    let waited = all.cq.wait(&mut [Completion::EMPTY], Notify::Any).err();
    // What does not wait is allowed: posts, polls, and drops, also of the last reference.
    let posted = all.near.initiator.send_inline(1, b"", Flags::empty());
    drop((all.near, all.far, all.connections));
    lower(before);
    assert_eq!((created, mapped, waited, posted), (refused, refused, refused, Ok(())));
    Ok(())
}

#[test]
fn what_may_pend_is_refused_where_waiting_is_not_allowed_and_leaves_nothing() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let pd = adapter.create_pd()?;
        let mapping = adapter.map(adapter.memory(4096)?)?;
        let memory = [adapter.memory(4096)?, adapter.memory(4096)?];
        let before = raise(Irql::DISPATCH_LEVEL);
        let [first, second] = memory;
        let refused = [
            adapter.map(first).err(),
            pd.register(second, Access::LOCAL_WRITE).err(),
            pd.create_fast_mr(mapping, true).err(),
            adapter.listen(machine.address(0, 0), drop).err(),
            adapter.create_cq(8).err(),
            adapter.create_connector().err(),
            pd.create_mw().err(),
        ];
        lower(before);
        assert_eq!(refused, [Some(NtStatus::INVALID_DEVICE_STATE); 7]);
        drop(pd);
        machine.machine().flush();
        assert_eq!(adapter.open_objects(), 0, "nothing has begun");
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

#[test]
fn adapters_keep_their_machine() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let other = machine.open(1)?;
        let all = everything(&machine, &adapter);
        drop(machine);
        // The machine still runs: an object is created and closed, in whichever way the provider takes.
        drop(other.create_cq(8)?);
        drop((all, other));
        drop(adapter.create_pd()?);
        drop(adapter);
    }
    Ok(())
}

#[test]
fn a_pair_with_a_queue_that_has_overrun_fails_at_once() -> Result<(), NtStatus> {
    // Far more than anybody waits; a machine with a seed would say so.
    const HOURS: u64 = 10 * 3_600_000_000;
    for machine in machines() {
        let adapter = machine.open(0)?;
        let all = everything(&machine, &adapter);
        let small = adapter.create_cq(1)?;
        let sizes = QpSizes { inline: 8, ..QpSizes::default() };
        let mut overrun = all.pd.create_qp(&small, &small, sizes, 3)?;
        let sound = all.pd.create_qp(&all.cq, &all.cq, sizes, 4)?;
        for context in 0..4 {
            overrun.receiver.receive(context, &[all.mr.sge(0, 8)?])?;
        }
        overrun.flush();
        machine.machine().flush();
        let (at, started) = (machine.address(0, 0), machine.machine().now());
        let offer = Offer::default();
        let first = adapter.connect_pair(at, &overrun, &sound, &offer, HOURS).err();
        let second = adapter.connect_pair(at, &sound, &overrun, &offer, HOURS).err();
        assert!(first.is_some() && second.is_some(), "{first:?} {second:?}");
        assert!(machine.machine().now() - started < HOURS / 2);
        sound.flush();
        drop((all, overrun, sound, small));
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

#[test]
fn objects_of_another_adapter_are_refused() -> Result<(), NtStatus> {
    let machine = Loopback::start(2)?;
    let (one, other) = (machine.open(0)?, machine.open(1)?);
    let (mut all, foreign) = (everything(&machine, &one), other.create_pd()?);
    let refused = Some(NtStatus::INVALID_PARAMETER);
    assert_eq!(foreign.create_qp(&all.cq, &all.cq, QpSizes::default(), 0).err(), refused);
    assert_eq!(foreign.create_fast_mr(one.map(one.memory(4096)?)?, false).err(), refused);
    let (window, cq) = (foreign.create_mw()?, other.create_cq(32)?);
    let bind = all.near.initiator.bind(1, &window, &all.mr, (0, 1), Access::REMOTE_READ, Flags::empty());
    assert_eq!(bind.err(), refused);
    assert_eq!(all.near.initiator.invalidate(1, &window, Flags::empty()).err(), refused);
    let qp = foreign.create_qp(&cq, &cq, QpSizes::default(), 0)?;
    let connect = one.create_connector()?.connect(&qp, machine.address(0, 0), machine.address(0, 1), &Offer::default());
    assert_eq!(connect.err(), refused);
    Ok(())
}

#[test]
fn bytes_outside_of_a_region_are_refused() -> Result<(), NtStatus> {
    let machine = Loopback::start(1)?;
    let adapter = machine.open(0)?;
    let mut mr = adapter.create_pd()?.register(adapter.memory(100)?, Access::LOCAL_WRITE)?;
    let refused = Err(NtStatus::INVALID_PARAMETER);
    assert_eq!(mr.sge(100, 1).map(drop), refused);
    assert_eq!(mr.sge(usize::MAX, 2).map(drop), refused);
    assert_eq!(mr.read(99, &mut [0; 2]), refused);
    assert_eq!(mr.write(1, &[0; 100]), refused);
    assert_eq!((mr.sge(0, 100)?.length(), mr.write(99, b"!")), (100, Ok(())));
    Ok(())
}

#[test]
fn an_adapter_counts_what_keeps_it_open() -> Result<(), NtStatus> {
    let machine = Loopback::start(1)?;
    let adapter = machine.open(0)?;
    assert_eq!(adapter.open_objects(), 0);
    let (pd, mapping) = (adapter.create_pd()?, adapter.map(adapter.memory(4096)?)?);
    let region = pd.create_fast_mr(mapping, false)?;
    assert_eq!(adapter.open_objects(), 3);
    drop((pd, region));
    assert_eq!(adapter.open_objects(), 0);
    Ok(())
}

#[test]
fn waiting_for_completions_ends_when_the_time_is_over() -> Result<(), NtStatus> {
    let machine = Loopback::seeded(1, 1)?;
    let adapter = machine.open(0)?;
    let mut cq = adapter.create_cq(8)?;
    assert!(cq.wait_for(&mut [Completion::EMPTY], Notify::Any, 1000)?.is_empty());
    assert_eq!(cq.wait(&mut [], Notify::Any).err(), Some(NtStatus::INVALID_PARAMETER));
    Ok(())
}

#[test]
fn a_resize_keeps_what_is_queued_and_needs_the_adapters_flag() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let mut all = everything(&machine, &adapter);
        for context in 0..3 {
            all.far.receiver.receive(context, &[all.mr.sge(100, 10)?])?;
        }
        all.far.flush();
        machine.machine().flush();
        // Three completions: room for two is too little, and the queue stays as it was.
        assert_eq!(all.cq.resize(2)?.wait().err(), Some(NtStatus::BUFFER_OVERFLOW));
        all.cq.resize(3)?.wait()?;
        assert_eq!(completions(&mut all.cq, 3), [0, 1, 2].map(|context| (context, NtStatus::CANCELLED)));
        let notified = all.cq.notify(Notify::Errors, |_, _| ())?;
        notified.resize(64)?.wait()?;
    }
    let machine = Loopback::with(host::machine::Machine::threads().start(), 1, |config| {
        config.info.AdapterFlags &= !ndkpi::NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED;
    })?;
    let adapter = machine.open(0)?;
    assert_eq!(adapter.create_cq(4)?.resize(8).err(), Some(NtStatus::NOT_SUPPORTED));
    Ok(())
}

#[test]
fn an_overrun_ends_the_wait() -> Result<(), NtStatus> {
    let machine = Loopback::start(1)?;
    let adapter = machine.open(0)?;
    let mut all = everything(&machine, &adapter);
    let mut small = adapter.create_cq(2)?;
    let near = all.pd.create_qp(&all.cq, &all.cq, QpSizes { inline: 8, ..QpSizes::default() }, 3)?;
    let mut far = all.pd.create_qp(&small, &all.cq, QpSizes::default(), 4)?;
    let mut near = near;
    let connections = connect(&machine, &adapter, &near, &far);
    for context in 0..8 {
        far.receiver.receive(context, &[all.mr.sge(0, 8)?])?;
    }
    for context in 0..8 {
        // Some may find the connection broken already.
        let _ = near.initiator.send_inline(context, b"x", Flags::empty());
    }
    completions(&mut all.cq, 3);
    let mut results = [Completion::EMPTY; 8];
    let ended = loop {
        match small.wait(&mut results, Notify::Any) {
            Ok(_) => {}
            Err(status) => break status,
        }
    };
    assert_eq!(ended, NtStatus::BUFFER_OVERFLOW);
    drop(connections);
    Ok(())
}

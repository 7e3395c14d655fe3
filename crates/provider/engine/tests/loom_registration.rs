//! Every interleaving of a write or a message with the end of a registration that it uses, checked by loom: when the registration
//! has ended and nothing is pending, nobody copies its bytes any more, whichever way they were found.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p engine --test loom_registration --target-dir target/loom
//! ```

#![cfg(loom)]

mod loom_os;

use engine::{
    Nic,
    cq::{Cq, CqConsumer, CqParameters},
    memory::{Domain, MemoryLimits, MemoryTable, Region, RegionKind, Release, Rights},
    nic::NicMode,
    qp::{Flags, NewQp, Payload, Qp, QpParameters, RqProducer, Sge, SqProducer, Work},
};
use loom::{
    model::Builder,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Release as Released},
    },
    thread,
};
use loom_os::{Byte, LoomOs, Nobody, interleavings};
use ntstatus::NtStatus;

/// Runs `test` in every interleaving with at most so many pre-emptions.
fn model(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    let count = interleavings(&builder, test);
    assert!(count > 4, "loom has found only {count} interleavings");
}

const PARAMETERS: QpParameters = QpParameters {
    receive_depth: 2,
    initiator_depth: 2,
    max_receive_sge: 1,
    max_initiator_sge: 1,
    max_peer_sge: 1,
    inline_size: 1,
    max_transfer: 1,
    context: 0,
};

/// A registered byte.
#[derive(Clone)]
struct Registered {
    region: fallible::Arc<Region<LoomOs>>,
    address: u64,
    is_free: Arc<AtomicBool>,
}

impl Registered {
    fn new(domain: &fallible::Arc<Domain<LoomOs>>, address: u64) -> Self {
        let region = Region::try_new(domain, RegionKind::Normal).expect("memory");
        let is_free = Arc::new(AtomicBool::new(false));
        let byte = Byte { address, is_free: is_free.clone() };
        region.register(byte, Rights::REMOTE_WRITE, ()).expect("memory");
        Self { region, address, is_free }
    }

    /// Ends the registration, and frees the byte if nobody uses it any more.
    fn end(&self) {
        if self.region.deregister() == Ok(Release::Done) {
            self.is_free.store(true, Released);
        }
    }
}

/// What is posted: the bytes of an element, or an inline one.
#[derive(Clone, Copy)]
struct Request {
    element: Option<Sge>,
    work: Work,
}

/// Two joined queue pairs, of which one writes and sends, and the other has posted receives.
struct Pair {
    os: LoomOs,
    qps: [fallible::Arc<Qp<LoomOs>>; 2],
    send_queue: SqProducer,
    receive_queue: RqProducer,
    cqs: [fallible::Arc<Cq<LoomOs>>; 2],
    consumer: CqConsumer<LoomOs>,
    here: Registered,
    there: Registered,
}

impl Pair {
    fn new(mode: NicMode) -> Self {
        let os = LoomOs::new();
        let limits = MemoryLimits { tokens: 4, mappings: 1, registration: 1, fast_register_pages: 1 };
        let domain = Domain::try_new(&MemoryTable::try_new(&os, limits).expect("memory")).expect("memory");
        let nic = Nic::try_new_in(&os, mode).expect("memory");
        let parameters = CqParameters { depth: 4, max_depth: 4, processor: 0 };
        let [(cq, consumer), (receive_cq, _)] = [0, 1].map(|_| Cq::try_new(&os, parameters, Nobody).expect("memory"));
        let [a, b] =
            [0, 1].map(|_| Qp::try_new(&nic, &domain, &receive_cq, &cq, None, &PARAMETERS, ()).expect("memory"));
        Qp::link(&a.qp, &b.qp).expect("both are new");
        let (NewQp { qp, send_queue, .. }, NewQp { qp: peer, receive_queue, .. }) = (a, b);
        let (here, there) = (Registered::new(&domain, 0x1000), Registered::new(&domain, 0x2000));
        Self { os, qps: [qp, peer], send_queue, receive_queue, cqs: [cq, receive_cq], consumer, here, there }
    }

    /// Posts a request, and a receive if it needs one.
    fn post(&mut self, Request { element, work }: Request) -> Result<(), NtStatus> {
        if matches!(work, Work::Send { .. }) {
            let sink = Sge { address: self.there.address, length: 1, token: self.there.region.local_token() };
            let queue = &mut self.receive_queue;
            Qp::post_receive(&self.qps[1], 0, [sink].into_iter(), queue).expect("room");
        }
        let payload = match element {
            Some(element) => Payload::Elements([element].into_iter()),
            None => Payload::Inline([&[1_u8][..]].into_iter()),
        };
        let queue = &mut self.send_queue;
        Qp::post(&self.qps[0], 0, work, Flags::default(), payload, queue)
    }

    fn carry_out(&mut self, request: Request) -> NtStatus {
        self.post(request).expect("connected");
        self.os.run_all();
        let mut status = None;
        self.consumer.poll(1, |completion| status = Some(completion.outcome.status()));
        status.expect("it has completed")
    }

    fn element(&self) -> Sge {
        Sge { address: self.here.address, length: 1, token: self.here.region.local_token() }
    }

    fn write(&self) -> Request {
        let work = Work::Write { address: self.there.address, token: self.there.region.remote_token() };
        Request { element: Some(self.element()), work }
    }

    fn inline_write(&self) -> Request {
        Request { element: None, ..self.write() }
    }

    fn message(&self) -> Request {
        Request { element: Some(self.element()), work: Work::Send { invalidate: None } }
    }

    fn inline_message(&self) -> Request {
        Request { element: None, ..self.message() }
    }

    fn end(self) {
        self.qps.iter().for_each(Qp::close);
        self.cqs.iter().for_each(|cq| cq.close());
        self.os.run_all();
    }
}

/// Carries a request out so often, and then once more while the registration of one side ends.
fn race(mode: NicMode, request: fn(&Pair) -> Request, often: usize, is_here: bool) {
    model(6, move || {
        let mut pair = Pair::new(mode);
        let request = request(&pair);
        for _ in 0..often {
            assert_eq!(pair.carry_out(request), NtStatus::SUCCESS);
        }
        let ended = if is_here { &pair.here } else { &pair.there }.clone();
        let other = thread::spawn(move || ended.end());
        let status = pair.carry_out(request);
        other.join().expect("no panic");
        let refused = if is_here { NtStatus::ACCESS_VIOLATION } else { NtStatus::REMOTE_RESOURCES };
        assert!([NtStatus::SUCCESS, refused].contains(&status), "{status:?}");
        if status == NtStatus::SUCCESS {
            assert_eq!(pair.carry_out(request), refused, "its tokens are no good any more");
        }
        pair.end();
    });
}

#[test]
fn a_message() {
    race(NicMode::Direct, Pair::message, 0, true);
    race(NicMode::Direct, Pair::message, 0, false);
}

#[test]
fn inline_bytes() {
    race(NicMode::Direct, Pair::inline_message, 0, false);
    race(NicMode::Direct, Pair::inline_write, 0, false);
}

#[test]
fn a_write_by_the_table_of_tokens() {
    race(NicMode::Direct, Pair::write, 0, true);
    race(NicMode::Direct, Pair::write, 0, false);
}

//= NDKPI 7.4.3
#[test]
fn a_write_that_fills_the_cache() {
    race(NicMode::Direct, Pair::write, 1, true);
    race(NicMode::Direct, Pair::write, 1, false);
}

//= NDKPI 7.4.3
#[test]
fn a_write_by_the_cache() {
    race(NicMode::Direct, Pair::write, 2, true);
    race(NicMode::Direct, Pair::write, 2, false);
}

#[test]
fn a_write_of_the_engine_by_the_cache() {
    race(NicMode::Deferred, Pair::write, 2, true);
    race(NicMode::Deferred, Pair::write, 2, false);
}

#[test]
fn nothing_comes_after_the_end_of_the_connection() {
    let write: fn(&Pair) -> Request = Pair::write;
    for (request, often) in [(write, 0), (write, 1), (write, 2), (Pair::message, 0), (Pair::inline_message, 0)] {
        model(6, move || {
            let mut pair = Pair::new(NicMode::Direct);
            let request = request(&pair);
            for _ in 0..often {
                assert_eq!(pair.carry_out(request), NtStatus::SUCCESS);
            }
            let (qp, free) = (pair.qps[0].clone(), [&pair.here, &pair.there].map(|byte| byte.is_free.clone()));
            let other = thread::spawn(move || {
                Qp::unlink(&qp);
                qp.quiesce();
                free.iter().for_each(|is_free| is_free.store(true, Released));
            });
            let posted = pair.post(request);
            other.join().expect("no panic");
            assert!(matches!(posted, Ok(()) | Err(NtStatus::CONNECTION_INVALID)), "{posted:?}");
            assert_eq!(pair.post(request), Err(NtStatus::CONNECTION_INVALID));
            pair.end();
        });
    }
}

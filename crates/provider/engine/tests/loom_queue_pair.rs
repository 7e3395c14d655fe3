//! Every interleaving of posts with what a queue pair does at the same time, checked by loom: a sender that waits hears of
//! the receive, and nothing that was posted is forgotten by a failure, a flush or the end of the connection.
//!
//! Messages have no bytes, so no memory is registered.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p engine --test loom_queue_pair --target-dir target/loom
//! ```

#![cfg(loom)]

mod loom_os;

use std::iter;

use engine::{
    Nic,
    cq::{Cq, CqConsumer, CqParameters},
    memory::{Domain, MemoryLimits, MemoryTable},
    nic::NicMode,
    qp::{Flags, NewQp, Payload, Qp, QpParameters, RqProducer, SqProducer, Srq, SrqClient, SrqParameters, Work},
};
use loom::{
    model::Builder,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};
use loom_os::{LoomOs, Nobody, interleavings};
use ntstatus::NtStatus;

/// Runs `test` in every interleaving with at most so many pre-emptions.
fn model(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    let count = interleavings(&builder, test);
    assert!(count > 20, "loom has found only {count} interleavings");
}

const PARAMETERS: QpParameters = QpParameters {
    receive_depth: 2,
    initiator_depth: 2,
    max_receive_sge: 0,
    max_initiator_sge: 0,
    max_peer_sge: 0,
    inline_size: 0,
    max_transfer: 0,
    context: 0,
};

/// A queue pair whose requests of both kinds complete in one queue.
struct Side {
    qp: fallible::Arc<Qp<LoomOs>>,
    send_queue: SqProducer,
    receive_queue: RqProducer,
    cq: fallible::Arc<Cq<LoomOs>>,
    consumer: CqConsumer<LoomOs>,
    gone: Arc<AtomicBool>,
}

/// Says when the queue pair is gone.
struct Owner(Arc<AtomicBool>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

impl Side {
    fn new(
        nic: &fallible::Arc<Nic<LoomOs>>,
        domain: &fallible::Arc<Domain<LoomOs>>,
        srq: Option<&fallible::Arc<Srq<LoomOs>>>,
    ) -> Self {
        let parameters = CqParameters { depth: 4, max_depth: 4, processor: 0 };
        let (cq, consumer) = Cq::try_new(nic.os(), parameters, Nobody).expect("memory");
        let gone = Arc::new(AtomicBool::new(false));
        let owner = Owner(gone.clone());
        let NewQp { qp, send_queue, receive_queue } =
            Qp::try_new(nic, domain, &cq, &cq, srq, &PARAMETERS, owner).expect("memory");
        Self { qp, send_queue, receive_queue, cq, consumer, gone }
    }

    fn send(&mut self) -> Result<(), NtStatus> {
        let (send, queue) = (Work::Send { invalidate: None }, &mut self.send_queue);
        Qp::post(&self.qp, 0, send, Flags::default(), Payload::of_elements(iter::empty()), queue)
    }

    fn receive(&mut self) {
        let queue = &mut self.receive_queue;
        Qp::post_receive(&self.qp, 0, iter::empty(), queue).expect("room");
    }

    fn statuses(&mut self) -> Vec<NtStatus> {
        let mut statuses = Vec::new();
        self.consumer.poll(usize::MAX, |completion| statuses.push(completion.outcome.status()));
        statuses
    }

    /// Breaks the circles of references.
    fn close(self) {
        Qp::close(&self.qp);
        self.cq.close();
    }
}

impl SrqClient for Nobody {
    fn notify(&self, _: NtStatus) {}
}

/// An operating system with two joined queue pairs.
fn pair(mode: NicMode) -> (LoomOs, Side, Side) {
    let (os, nic, domain) = adapter(mode);
    let (a, b) = (Side::new(&nic, &domain, None), Side::new(&nic, &domain, None));
    Qp::link(&a.qp, &b.qp).expect("both are new");
    (os, a, b)
}

/// An operating system with a NIC.
fn adapter(mode: NicMode) -> (LoomOs, fallible::Arc<Nic<LoomOs>>, fallible::Arc<Domain<LoomOs>>) {
    let os = LoomOs::new();
    let limits = MemoryLimits { tokens: 4, mappings: 1, registration: 1, fast_register_pages: 1 };
    let table = MemoryTable::try_new(&os, limits).expect("memory");
    let domain = Domain::try_new(&table).expect("memory");
    let nic = Nic::try_new_in(&os, mode).expect("memory");
    (os, nic, domain)
}

fn end(os: &LoomOs, sides: [Side; 2]) {
    for side in sides {
        side.close();
    }
    os.run_all();
}

#[test]
fn a_sender_that_waits_hears_of_the_receive() {
    model(6, || {
        let (os, mut a, mut b) = pair(NicMode::Deferred);
        a.send().expect("connected");
        let engine = {
            let os = os.clone();
            thread::spawn(move || os.run_one())
        };
        b.receive();
        engine.join().expect("no panic");
        os.run_all();
        assert_eq!(a.statuses(), [NtStatus::SUCCESS]);
        assert_eq!(b.statuses(), [NtStatus::SUCCESS]);
        end(&os, [a, b]);
    });
}

#[test]
fn a_direct_sender_that_waits_hears_of_the_receive() {
    model(6, || {
        let (os, mut a, mut b) = pair(NicMode::Direct);
        let sender = thread::spawn(move || {
            a.send().expect("connected");
            a
        });
        b.receive();
        let mut a = sender.join().expect("no panic");
        os.run_all();
        assert_eq!(a.statuses(), [NtStatus::SUCCESS]);
        assert_eq!(b.statuses(), [NtStatus::SUCCESS]);
        end(&os, [a, b]);
    });
}

#[test]
fn a_request_posted_while_the_engine_runs_is_carried_out() {
    model(5, || {
        let (os, mut a, mut b) = pair(NicMode::Deferred);
        b.receive();
        b.receive();
        a.send().expect("connected");
        let engine = {
            let os = os.clone();
            thread::spawn(move || os.run_one())
        };
        a.send().expect("connected");
        engine.join().expect("no panic");
        os.run_all();
        assert_eq!(a.statuses(), [NtStatus::SUCCESS; 2]);
        end(&os, [a, b]);
    });
}

#[test]
fn a_receive_posted_while_the_queue_pair_fails_is_cancelled() {
    model(6, || {
        let (os, a, mut b) = pair(NicMode::Deferred);
        let failing = {
            let (qp, os) = (b.qp.clone(), os.clone());
            thread::spawn(move || {
                Qp::fail(&qp);
                drop(qp);
                os.run_one();
            })
        };
        b.receive();
        failing.join().expect("no panic");
        os.run_all();
        assert_eq!(b.statuses(), [NtStatus::CANCELLED]);
        end(&os, [a, b]);
    });
}

#[test]
fn a_send_posted_while_the_queue_pair_fails_is_refused_or_cancelled() {
    model(6, || {
        let (os, mut a, b) = pair(NicMode::Deferred);
        let failing = {
            let (qp, os) = (a.qp.clone(), os.clone());
            thread::spawn(move || {
                Qp::fail(&qp);
                drop(qp);
                os.run_one();
            })
        };
        let posted = a.send();
        failing.join().expect("no panic");
        os.run_all();
        let cancelled = a.statuses();
        match posted {
            Ok(()) => assert!(matches!(cancelled[..], [NtStatus::CANCELLED | NtStatus::IO_TIMEOUT]), "{cancelled:?}"),
            Err(status) => {
                assert_eq!(status, NtStatus::CONNECTION_INVALID);
                assert_eq!(cancelled, []);
            }
        }
        end(&os, [a, b]);
    });
}

//= NDKPI 7.2.5
#[test]
fn a_flush_at_the_same_time_as_a_post_cancels_all_before_it() {
    model(5, || {
        let (os, mut a, b) = pair(NicMode::Deferred);
        a.send().expect("connected");
        let flushing = {
            let (qp, os) = (a.qp.clone(), os.clone());
            thread::spawn(move || {
                Qp::flush(&qp);
                drop(qp);
                os.run_one();
            })
        };
        a.send().expect("connected");
        flushing.join().expect("no panic");
        os.run_all();
        let first = a.statuses();
        assert!(matches!(first.len(), 1 | 2) && first[0] == NtStatus::CANCELLED, "{first:?}");
        // The second one came before the flush or after it: if after, it waits for a receive.
        Qp::flush(&a.qp);
        os.run_all();
        assert_eq!(first.len() + a.statuses().len(), 2);
        end(&os, [a, b]);
    });
}

#[test]
fn two_flushes_at_the_same_time_cancel_all_before_the_later_one() {
    model(6, || {
        let (os, mut a, b) = pair(NicMode::Deferred);
        a.send().expect("connected");
        let flushing = {
            let qp = a.qp.clone();
            thread::spawn(move || Qp::flush(&qp))
        };
        a.send().expect("connected");
        Qp::flush(&a.qp);
        flushing.join().expect("no panic");
        os.run_all();
        assert_eq!(a.statuses(), [NtStatus::CANCELLED; 2]);
        end(&os, [a, b]);
    });
}

#[test]
fn the_end_of_the_connection_finishes_a_send_that_waits() {
    model(6, || {
        let (os, mut a, b) = pair(NicMode::Deferred);
        a.send().expect("connected");
        let engine = {
            let os = os.clone();
            thread::spawn(move || os.run_one())
        };
        Qp::unlink(&b.qp);
        engine.join().expect("no panic");
        os.run_all();
        assert_eq!(a.statuses(), [NtStatus::IO_TIMEOUT]);
        assert!(!a.qp.is_linked() && !b.qp.is_linked());
        end(&os, [a, b]);
    });
}

#[test]
fn a_failure_at_the_same_time_as_the_end_of_the_connection_cancels_receives() {
    for mode in [NicMode::Deferred, NicMode::Direct] {
        model(5, move || {
            let (os, mut a, b) = pair(mode);
            a.receive();
            a.send().expect("connected");
            Qp::unlink(&b.qp);
            let engine = {
                let os = os.clone();
                thread::spawn(move || {
                    // Those of both queue pairs.
                    os.run_one();
                    os.run_one();
                })
            };
            Qp::fail(&a.qp);
            engine.join().expect("no panic");
            os.run_all();
            let statuses = a.statuses();
            assert_eq!(statuses.len(), 2, "{statuses:?}");
            assert!(statuses.contains(&NtStatus::CANCELLED), "{statuses:?}");
            end(&os, [a, b]);
        });
    }
}

#[test]
fn a_link_at_the_same_time_as_a_failure_leaves_no_peer() {
    for fails_first in [true, false] {
        model(6, move || {
            let (os, nic, domain) = adapter(NicMode::Deferred);
            let (a, b) = (Side::new(&nic, &domain, None), Side::new(&nic, &domain, None));
            let failing = {
                let qp = if fails_first { &a.qp } else { &b.qp }.clone();
                thread::spawn(move || Qp::fail(&qp))
            };
            let linked = Qp::link(&a.qp, &b.qp);
            failing.join().expect("no panic");
            assert!(matches!(linked, Ok(()) | Err(NtStatus::CONNECTION_ACTIVE)), "{linked:?}");
            for side in [&a, &b] {
                assert!(!side.qp.is_linked() && side.qp.peer().is_none());
            }
            os.run_all();
            end(&os, [a, b]);
        });
    }
}

//= NDKPI 7.2.5
#[test]
fn a_turn_at_the_same_time_as_the_link_does_not_miss_the_peer() {
    for mode in [NicMode::Deferred, NicMode::Direct] {
        model(4, move || {
            let (os, nic, domain) = adapter(mode);
            let (mut a, mut b) = (Side::new(&nic, &domain, None), Side::new(&nic, &domain, None));
            b.receive();
            Qp::flush(&a.qp);
            let engine = {
                let os = os.clone();
                thread::spawn(move || os.run_one())
            };
            Qp::link(&a.qp, &b.qp).expect("both are new");
            a.send().expect("connected");
            engine.join().expect("no panic");
            os.run_all();
            assert_eq!(a.statuses(), [NtStatus::SUCCESS]);
            assert_eq!(b.statuses(), [NtStatus::SUCCESS]);
            end(&os, [a, b]);
        });
    }
}

#[test]
fn a_queue_pair_closed_while_its_peer_looks_for_a_shared_receive_goes_away() {
    model(3, || {
        let (os, nic, domain) = adapter(NicMode::Deferred);
        let parameters =
            SrqParameters { depth: 1, max_depth: 1, max_sge: 0, max_transfer: 0, threshold: 0, processor: 0 };
        let srq = Srq::try_new(&os, &domain, parameters, Nobody).expect("memory");
        let (mut a, b) = (Side::new(&nic, &domain, None), Side::new(&nic, &domain, Some(&srq)));
        Qp::link(&a.qp, &b.qp).expect("both are new");
        a.send().expect("connected");
        let engine = {
            let os = os.clone();
            thread::spawn(move || os.run_one())
        };
        let gone = b.gone.clone();
        b.close();
        engine.join().expect("no panic");
        os.run_all();
        assert!(gone.load(SeqCst), "the shared queue keeps it");
        assert_eq!(a.statuses(), [NtStatus::IO_TIMEOUT]);
        a.close();
        os.run_all();
    });
}

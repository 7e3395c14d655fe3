//! What the provider's objects keep, give back and say, through its dispatch tables.

use std::{cell::RefCell, net::SocketAddr};

use conformance::{
    HELD, Verdict,
    client::{ALL_RIGHTS, CompletionKind, Offer, OnDisconnect, Options, QpSizes, Region, Remote, Session},
    fixture::{Pair, Plan, listen, posted},
    host::{HostPlatform, Setup},
    platform::{Family, Platform},
};
use engine::nic::NicMode;
use host::{HostOs, machine::Machine};
use ndkpi::{
    NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED, NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED,
    NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NDK_OPERATION_TYPE, NDK_VERSION, NtStatus,
};
use provider::{CompletionMode, Config, Device, Reason, chain};

const SIZES: QpSizes = QpSizes { receive_depth: 4, initiator_depth: 4, receive_sge: 1, initiator_sge: 1, inline: 0 };
const OFFER: Offer<'_> = Offer { inbound: 1, outbound: 1, data: &[] };
const FULL: Option<NtStatus> = Some(NtStatus::INSUFFICIENT_RESOURCES);

/// Runs `work` on an adapter of a machine with this set-up.
fn on(setup: Setup, adjust: impl Fn(&mut Config), work: impl FnOnce(&Session<'_>, &HostPlatform) -> Verdict) {
    let platform = HostPlatform::start_with(setup, adjust).expect("a machine");
    let options = Options { name: "provider", version: NDK_VERSION::V2_1, seed: 1, hostile: false };
    let verdict = Session::with(&platform, &options, |session| work(session, &platform));
    assert_eq!(verdict, HELD);
    platform.finish().expect("nothing is left");
}

const MODES: [CompletionMode; 3] = [CompletionMode::Inline, CompletionMode::Pending, CompletionMode::Early];

fn in_each_mode(work: impl Fn(&Session<'_>, &HostPlatform) -> Verdict) {
    for completion in MODES {
        on(Setup { completion, ..Setup::default() }, |_| (), &work);
    }
}

//= invariant 9
#[test]
fn more_callbacks_than_one_dpc_makes_all_come() {
    let pending = Setup { completion: CompletionMode::Pending, ..Setup::default() };
    on(
        pending,
        |_| (),
        |session, platform| {
            let adapter = session.adapter()?;
            let pd = adapter.create_pd()?;
            let regions = (0..200).map(|_| pd.core().create_mr(false)).collect::<Result<Vec<_>, _>>()?;
            let closing = RefCell::new(Vec::new());
            // No DPC runs meanwhile.
            let mut regions = Some(regions);
            platform.raised(&mut || {
                for region in regions.take().into_iter().flatten() {
                    closing.borrow_mut().push(region.start_close().expect("an open region"));
                }
            });
            for closing in closing.take() {
                assert_ne!(closing.wait()?, CompletionKind::Inline);
            }
            HELD
        },
    );
}

#[test]
fn a_walk_ends_with_the_last_byte_that_is_wanted() {
    let chain = [(0x1000_u64, 16), (0x1010, 16), (0x1020, 0), (0x1020, 16)];
    for (length, expected) in [(16, &[16][..]), (17, &[16, 1]), (32, &[16, 16]), (48, &[16, 16, 16])] {
        let mut seen = Vec::new();
        let describe = |index: usize| {
            let (address, length) = chain[index];
            Ok(chain::Link { address, length, next: Some(index + 1).filter(|next| *next < chain.len()) })
        };
        let walk = chain::walk(Some(0), length, describe, |_, wanted| {
            seen.push(wanted);
            Ok(())
        });
        let walk = walk.expect("a chain");
        assert_eq!((walk.base, walk.pieces, &seen[..]), (0x1000, expected.len(), expected), "{length} bytes");
    }
}

#[test]
fn a_queue_pair_can_be_closed_when_its_connect_was_refused_at_once_or_later() {
    in_each_mode(|session, _| {
        let adapter = session.adapter()?;
        let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(16, None)?);
        let from = session.address(adapter.number(), Family::V4, 0)?;
        let nowhere = SocketAddr::from(([198, 51, 100, 77], 9));
        let (listener, address) = listen(session, Family::V4)?;
        listener.close()?;
        for (to, at_once) in
            [(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 9)), true), (nowhere, false), (address, false)]
        {
            let connector = adapter.create_connector()?;
            let qp = pd.core().create_qp(cq.core(), cq.core(), 1, SIZES)?;
            let connecting = connector.core().connect(qp.core(), from, to, &OFFER)?;
            assert!(!connecting.wait()?.is_success(), "{to}, at once: {at_once}");
            // It would wait for the connector if it were still bound to it.
            qp.close()?;
            connector.close()?;
        }
        HELD
    });
}

#[test]
fn a_queue_pair_can_be_closed_when_its_connect_was_rejected() {
    in_each_mode(|session, _| {
        let adapter = session.adapter()?;
        let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(16, None)?);
        let from = session.address(adapter.number(), Family::V4, 0)?;
        let (listener, address) = listen(session, Family::V4)?;
        let (connector, qp) = (adapter.create_connector()?, pd.core().create_qp(cq.core(), cq.core(), 1, SIZES)?);
        let connecting = connector.core().connect(qp.core(), from, address, &OFFER)?;
        assert_eq!(listener.take()?.reject(&[])?, NtStatus::SUCCESS);
        assert!(!connecting.wait()?.is_success());
        session.settle();
        qp.close()?;
        drop((connector, listener, cq, pd));
        HELD
    });
}

#[test]
fn an_accept_that_has_failed_indicates_no_end() {
    in_each_mode(|session, _| {
        let adapter = session.adapter()?;
        let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(16, None)?);
        let from = session.address(adapter.number(), Family::V4, 0)?;
        let (listener, address) = listen(session, Family::V4)?;
        let (active, a) = (adapter.create_connector()?, pd.core().create_qp(cq.core(), cq.core(), 1, SIZES)?);
        let connecting = active.core().connect(a.core(), from, address, &OFFER)?;
        let passive = listener.take()?;
        let b = pd.core().create_qp(cq.core(), cq.core(), 2, SIZES)?;
        let accepting = passive.core().accept(b.core(), &OFFER, OnDisconnect::Count)?;
        connecting.succeeds()?;
        // Instead of completing the connect.
        active.close()?;
        assert!(!accepting.wait()?.is_success());
        session.settle();
        assert_eq!(passive.core().disconnects(), 0, "there was no connection");
        let closing = b.start_close()?;
        session.settle();
        assert!(!closing.is_done(), "a queue pair closes after the connector that has accepted with it");
        passive.close()?;
        closing.wait()?;
        drop((a, listener, cq, pd));
        HELD
    });
}

#[test]
fn what_is_closed_can_be_made_again() {
    let few = |config: &mut Config| (config.max_cqs, config.max_qps, config.max_pds) = (1, 1, 1);
    for completion in MODES {
        on(Setup { completion, ..Setup::default() }, few, |session, _| {
            let adapter = session.adapter()?;
            for _ in 0..3 {
                let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(16, None)?);
                assert!(adapter.create_pd().is_err());
                assert_eq!(adapter.try_create_cq(16, None, None)?.err(), FULL);
                let qp = pd.core().create_qp(cq.core(), cq.core(), 1, SIZES)?;
                assert_eq!(pd.core().try_create_qp(cq.core(), cq.core(), 1, SIZES)?.err(), FULL);
                qp.close()?;
                cq.close()?;
                pd.close()?;
            }
            HELD
        });
    }
}

#[test]
fn a_failed_request_has_the_number_of_its_reason() {
    for nic in [NicMode::Deferred, NicMode::Direct] {
        on(
            Setup { nic, ..Setup::default() },
            |_| (),
            |session, _| {
                let pair = Pair::new(session)?;
                let wrong = Remote { token: 0x7777, ..pair.b.remote(0) };
                pair.a.write(1, 0, 16, wrong, 0)?;
                let done = pair.a.initiated().take_one()?;
                let reason = Reason::of_request(NDK_OPERATION_TYPE::WRITE, done.status).expect("a reason");
                assert_eq!(done.error, Some(u32::from(reason.number())));
                HELD
            },
        );
    }
}

#[test]
fn an_adapter_without_loopback_does_not_reach_itself() {
    for (without, expected) in [
        (0, NtStatus::CONNECTION_REFUSED),
        (NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED, NtStatus::HOST_UNREACHABLE),
    ] {
        on(
            Setup { without, ..Setup::default() },
            |_| (),
            |session, _| {
                let adapter = session.adapter()?;
                let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(16, None)?);
                let qp = pd.core().create_qp(cq.core(), cq.core(), 1, SIZES)?;
                let connector = adapter.create_connector()?;
                let own = session.address(adapter.number(), Family::V4, 9)?;
                let from = session.address(adapter.number(), Family::V4, 0)?;
                connector.core().connect(qp.core(), from, own, &OFFER)?.ends_with(expected)?;
                drop((connector, qp, cq, pd));
                HELD
            },
        );
    }
}

#[test]
fn a_read_needs_a_sink_on_adapters_that_say_so() {
    for (without, succeeds) in [(0, true), (NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED, false)] {
        on(
            Setup { without, ..Setup::default() },
            |_| (),
            |session, _| {
                let pair = Pair::with(session, &Plan::new(), &Plan { rights: ALL_RIGHTS, ..Plan::new() })?;
                let into = Region::new(pair.a.pd.core(), 64, NDK_MR_FLAG_ALLOW_LOCAL_WRITE)?;
                let sink = into.buffer.element(0, 16, into.local());
                posted("NdkRead", pair.a.qp.read(1, &[sink], pair.b.remote(0), 0)?)?;
                let done = pair.a.initiated().take_one()?;
                assert_eq!(done.status.is_success(), succeeds, "{done:?}");
                drop(into);
                HELD
            },
        );
    }
}

#[test]
fn addresses_are_free_when_the_adapter_is_gone_or_could_not_be_made() {
    let machine = Machine::threads().start();
    let os = HostOs::new(&machine);
    let fabric = engine::connection::Fabric::try_new(&os).expect("memory");
    let config = |number| Config { addresses: Config::addresses_of(number), ..Config::default() };
    let first = Device::try_new_on(&os, &fabric, config(1)).expect("an adapter");
    let mut both = config(2);
    both.addresses[1] = config(1).addresses[0];
    assert_eq!(Device::try_new_on(&os, &fabric, both).err(), Some(NtStatus::SHARING_VIOLATION));
    let second = Device::try_new_on(&os, &fabric, config(2)).expect("the address that was free is free again");
    assert_eq!(Device::try_new_on(&os, &fabric, config(1)).err(), Some(NtStatus::SHARING_VIOLATION));
    // Whoever still has the port has no addresses any more.
    let port = first.port().clone();
    drop(first);
    let again = Device::try_new_on(&os, &fabric, config(1)).expect("the addresses are free");
    drop((port, second, again, fabric));
    machine.shutdown();
}

#[test]
fn an_adapter_counts_connections_failures_and_traffic() {
    for nic in [NicMode::Deferred, NicMode::Direct] {
        on(
            Setup { nic, adapters: 1, ..Setup::default() },
            |_| (),
            |session, platform| {
                let counters = || platform.devices()[0].counters();
                let pair = Pair::new(session)?;
                pair.a.write(1, 0, 100, pair.b.remote(0), 0)?;
                pair.a.initiator_done(1)?;
                session.settle();
                let found = counters();
                assert_eq!((found.Connect, found.Accept, found.ActiveConnection), (1, 1, 2));
                assert_eq!((found.RDMAInOctets, found.RDMAOutOctets), (100, 100));
                assert_eq!((found.RDMAInFrames, found.RDMAOutFrames), (1, 1));
                assert_eq!((found.ConnectFailure, found.ConnectionError, found.CQError), (0, 0, 0));

                let adapter = session.adapter()?;
                let connector = adapter.create_connector()?;
                let qp = pair.a.pd.core().create_qp(pair.a.receive_cq.core(), pair.a.receive_cq.core(), 1, SIZES)?;
                let from = session.address(adapter.number(), Family::V4, 0)?;
                let closed = session.address(adapter.number(), Family::V4, 9)?;
                connector.core().connect(qp.core(), from, closed, &OFFER)?.ends_with(NtStatus::CONNECTION_REFUSED)?;
                assert_eq!(counters().ConnectFailure, 1);

                platform.devices()[0].port().lose_connections();
                pair.link.a.core().wait_disconnect()?;
                pair.link.b.core().wait_disconnect()?;
                let found = counters();
                assert_eq!((found.ConnectionError, found.ActiveConnection), (2, 0));
                drop((connector, qp));
                HELD
            },
        );
    }
}

#[test]
fn an_adapter_counts_queues_that_overrun() {
    on(
        Setup { adapters: 1, ..Setup::default() },
        |_| (),
        |session, platform| {
            let plan = Plan { depths: [64, 2], ..Plan::new() };
            let pair = Pair::with(session, &plan, &Plan::new())?;
            for context in 0..3 {
                pair.a.write(context, 0, 8, pair.b.remote(0), 0)?;
            }
            session.settle();
            assert_eq!(platform.devices()[0].counters().CQError, 1);
            HELD
        },
    );
}

//= NDKPI 7.2.8
#[test]
fn a_queue_pair_with_a_shared_queue_takes_no_receives_of_its_own() {
    on(
        Setup::default(),
        |_| (),
        |session, _| {
            let adapter = session.adapter()?;
            let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(16, None)?);
            let srq = pd.core().try_create_srq(4, 1, 0, None, true)?.expect("a shared queue");
            let sizes = QpSizes { receive_depth: 0, ..SIZES };
            let qp =
                pd.core().try_create_qp_with_srq(cq.core(), cq.core(), srq.core(), 1, sizes)?.expect("a queue pair");
            assert_eq!(qp.receive(1, &[])?, NtStatus::INVALID_DEVICE_REQUEST);
            drop((qp, srq, cq, pd));
            HELD
        },
    );
}

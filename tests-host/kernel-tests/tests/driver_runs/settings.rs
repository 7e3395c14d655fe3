//! What the registry sets, as a consumer meets it.

use std::cell::Cell;

use conformance::{
    HELD, Verdict,
    client::{CompletionKind, FastRegistration, Offer, Options, QpSizes, Session},
    fixture::{Link, Terms, listen},
    platform::{Family, Platform},
};
use ndkpi::{NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_VERSION, NtStatus};
use simulated_kernel::{Kernel, Value};

use crate::{consumer::InKernel, world::Provider};

const SIZES: QpSizes = QpSizes { receive_depth: 4, initiator_depth: 4, receive_sge: 1, initiator_sge: 1, inline: 0 };
const FULL: Option<NtStatus> = Some(NtStatus::INSUFFICIENT_RESOURCES);

/// Runs a consumer on an adapter with these values in the registry.
fn with(kernel: &Kernel, parameters: &[(&str, u32)], consume: impl FnOnce(&Session<'_>) -> Verdict) {
    let parameters: Vec<_> = parameters.iter().map(|&(name, number)| (name, Value::Number(number))).collect();
    let provider = Provider::load_with(kernel, &parameters).expect("the provider loads");
    let options = Options { name: "settings", version: NDK_VERSION::V2_1, seed: 1, hostile: false };
    let consumer = InKernel::query(kernel, &provider.device);
    let verdict = provider.driver.run(|| Session::with(&consumer, &options, consume));
    provider.driver.run(|| drop(consumer));
    provider.unload();
    assert_eq!(verdict, HELD);
}

#[test]
fn an_adapter_has_the_limits_of_the_registry() {
    let limits =
        [("MaxCqDepth", 100), ("MaxQueueDepth", 50), ("MaxCqs", 2), ("MaxQps", 1), ("MaxPds", 1), ("MaxTokens", 16)];
    with(&Kernel::threads().start(), &limits, |session| {
        let adapter = session.adapter()?;
        let info = adapter.info();
        let depths = (info.MaxCqDepth, info.MaxInitiatorQueueDepth, info.MaxReceiveQueueDepth, info.MaxSrqDepth);
        assert_eq!(depths, (100, 50, 50, 50));

        let cqs = [adapter.create_cq(8, None)?, adapter.create_cq(8, None)?];
        assert_eq!(adapter.try_create_polled_cq(8)?.err(), FULL, "a third queue");
        let pd = adapter.create_pd()?;
        assert!(adapter.create_pd().is_err(), "a second domain");
        let cq = cqs[0].core();
        let qp = pd.core().create_qp(cq, cq, 1, SIZES)?;
        assert_eq!(pd.core().try_create_qp(cq, cq, 1, SIZES)?.err(), FULL, "a second queue pair");

        let mut windows = Vec::new();
        while let Ok(window) = pd.core().create_mw() {
            windows.push(window);
            assert!(windows.len() < 16, "the domain has a token too");
        }
        assert!(windows.len() > 8, "{} windows", windows.len());
        drop((windows, qp, pd, cqs));
        HELD
    });
}

#[test]
fn a_listener_holds_as_many_requests_as_the_registry_says() {
    with(&Kernel::threads().start(), &[("Backlog", 1)], |session| {
        let adapter = session.adapter()?;
        let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(16, None)?);
        let (listener, address) = listen(session, Family::V4)?;
        let offer = Offer { data: &[], inbound: 1, outbound: 1 };
        let from = session.address(adapter.number(), Family::V4, 0)?;
        let sides = [adapter.create_connector()?, adapter.create_connector()?];
        let qps = [
            pd.core().create_qp(cq.core(), cq.core(), 1, SIZES)?,
            pd.core().create_qp(cq.core(), cq.core(), 2, SIZES)?,
        ];
        let first = sides[0].core().connect(qps[0].core(), from, address, &offer)?;
        let arrived = listener.take()?;
        sides[1].core().connect(qps[1].core(), from, address, &offer)?.ends_with(NtStatus::CONNECTION_REFUSED)?;
        assert_eq!(arrived.reject(&[])?, NtStatus::SUCCESS);
        first.ends_with(NtStatus::CONNECTION_REFUSED)?;
        drop((arrived, sides, listener, qps, cq, pd));
        HELD
    });
}

#[test]
fn requests_complete_as_the_registry_says() {
    use CompletionKind::{Early, Inline, Later};
    // A callback that comes later may have come when a slow caller looks: it counts as early then.
    for (mode, others) in [(0, &[Early, Later][..]), (1, &[Inline]), (2, &[Inline, Later])] {
        with(&Kernel::threads().start(), &[("CompletionMode", mode)], |session| {
            let adapter = session.adapter()?;
            for _ in 0..8 {
                drop(adapter.create_pd()?);
            }
            let seen = [Inline, Early, Later].map(|kind| session.completions_of(kind));
            assert!(seen.iter().sum::<u32>() >= 16, "{seen:?}");
            assert!(others.iter().all(|kind| seen[*kind as usize] == 0), "mode {mode}: {seen:?}");
            HELD
        });
    }
}

#[test]
fn the_engine_of_the_registry_carries_requests_out() {
    for (nic, has_calls) in [(0, true), (1, false)] {
        let kernel = Kernel::threads().start();
        let calls = Cell::new(0);
        with(&kernel, &[("NicMode", nic), ("CompletionMode", 0)], |session| {
            let adapter = session.adapter()?;
            let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(16, None)?);
            let a = pd.core().create_qp(cq.core(), cq.core(), 1, SIZES)?;
            let b = pd.core().create_qp(cq.core(), cq.core(), 2, SIZES)?;
            let link = Link::between(session, a.core(), b.core(), &Terms::new())?;
            session.settle();
            let before = kernel.dpcs_run();
            assert_eq!(b.receive(1, &[])?, NtStatus::SUCCESS);
            assert_eq!(a.send(2, &[], 0)?, NtStatus::SUCCESS);
            let completed = Cell::new(0);
            session.wait("both completions", || {
                let polled = cq.poll_each(4, |_| {}).expect("nobody else polls");
                completed.set(completed.get() + polled);
                completed.get() == 2
            })?;
            calls.set(kernel.dpcs_run() - before);
            drop((link, a, b, cq, pd));
            HELD
        });
        assert_eq!(calls.get() > 0, has_calls, "engine {nic}: {} DPCs", calls.get());
    }
}

#[test]
fn tokens_of_fast_registrations_change_if_the_registry_says_so() {
    for rotate in [0, 1] {
        with(&Kernel::threads().start(), &[("RotateTokens", rotate)], |session| {
            let adapter = session.adapter()?;
            let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(16, None)?);
            let a = pd.core().create_qp(cq.core(), cq.core(), 1, SIZES)?;
            let b = pd.core().create_qp(cq.core(), cq.core(), 2, SIZES)?;
            let link = Link::between(session, a.core(), b.core(), &Terms::new())?;
            let mr = pd.core().create_mr(true)?;
            mr.core().initialize(1, true)?.succeeds()?;
            let before = mr.remote_token()?;
            let flags = NDK_OP_FLAG_ALLOW_REMOTE_READ;
            let new = FastRegistration { pages: &[], offset: 0, length: 0, base: 0x1000, flags };
            assert_eq!(a.fast_register(1, mr.core(), &new)?, NtStatus::SUCCESS);
            assert_eq!(mr.remote_token()? != before, rotate == 1, "RotateTokens {rotate}");
            drop((link, mr, a, b, cq, pd));
            HELD
        });
    }
}

#[test]
fn an_adapter_has_the_addresses_of_the_registry() {
    let kernel = Kernel::threads().start();
    for (entries, first) in [
        (&["1=10.1.2.3/8", "1=fd00::7/64"][..], ["10.1.2.3", "fd00::7"]),
        (&["2=10.1.2.3/8"], ["192.0.2.1", "2001:db8::1"]),
    ] {
        let others = ["3=10.200.200.200/8"; 20];
        let list = others.iter().chain(entries).flat_map(|entry| entry.encode_utf16().chain([0])).chain([0]).collect();
        let provider = Provider::load_with(&kernel, &[("Addresses", Value::List(list))]).expect("the provider loads");
        let consumer = InKernel::query(&kernel, &provider.device);
        let found =
            [Family::V4, Family::V6].map(|family| consumer.address(0, family).map(|address| address.to_string()));
        assert_eq!(found.map(Option::unwrap_or_default), first, "{entries:?}");
        provider.driver.run(|| drop(consumer));
        provider.unload();
    }
}

//! The provider's device goes without a word while a consumer has a connection.

use conformance::{
    HELD, Verdict,
    client::{OnDisconnect, Options, QpSizes, Session},
    fixture::{Link, Terms},
    platform::Family,
};
use ndkpi::{NDK_VERSION, NtStatus};
use simulated_kernel::{Device, Kernel};

use crate::{consumer::InKernel, world::Provider};

const SIZES: QpSizes = QpSizes { receive_depth: 4, initiator_depth: 4, receive_sge: 1, initiator_sge: 1, inline: 0 };

/// Connects the adapter with itself, has it go, and looks at what the consumer is told.
fn see_it_go<'s>(session: &'s Session<'s>, go: impl FnOnce()) -> Verdict {
    let adapter = session.adapter()?;
    let address = session.address(0, Family::V4, 0)?;
    let pd = adapter.create_pd()?;
    let (queue_a, queue_b) = (adapter.create_cq(16, None)?, adapter.create_cq(16, None)?);
    let a = pd.core().create_qp(queue_a.core(), queue_a.core(), 1, SIZES)?;
    let b = pd.core().create_qp(queue_b.core(), queue_b.core(), 2, SIZES)?;
    let terms = Terms { on_a: OnDisconnect::CountEx, on_b: OnDisconnect::CountEx, ..Terms::new() };
    let Link { a: active, b: passive, listener } = Link::between(session, a.core(), b.core(), &terms)?;
    for (qp, context) in [(&a, 10), (&b, 20)] {
        assert_eq!(qp.core().receive(context, &[])?, NtStatus::SUCCESS);
    }

    go();
    for connector in [&active, &passive] {
        connector.core().wait_disconnect()?;
        assert_eq!(connector.core().reason(), 5, "DisconnectReason::Removed");
    }
    for (qp, queue, context) in [(&a, &queue_a, 10), (&b, &queue_b, 20)] {
        let done = queue.core().take_one()?;
        assert_eq!((done.request, done.status), (context, NtStatus::CANCELLED), "both are flushed");
        assert_eq!(qp.core().send(30, &[], 0)?, NtStatus::CONNECTION_INVALID);
    }
    let late = adapter.create_connector()?;
    let fresh = pd.core().create_qp(queue_a.core(), queue_a.core(), 3, SIZES)?;
    let status = late.core().connect(fresh.core(), address, listener.address()?, &terms.a)?.wait()?;
    assert_eq!(status, NtStatus::INVALID_ADDRESS, "nothing begins on an adapter that has gone");
    // Another consumer cannot open it any more.
    let opened = session.platform().open(0, NDK_VERSION::V2_1);
    assert_eq!(opened, Err(NtStatus::NDIS_ADAPTER_NOT_READY));
    HELD
}

#[test]
fn a_surprise_removal_ends_connections_and_waits_for_the_consumer_to_close() {
    let kernel = Kernel::threads().start();
    let Provider { driver, device } = Provider::load(&kernel).expect("the provider loads");
    let verdict = std::thread::scope(|scope| {
        let options = Options { name: "removal", version: NDK_VERSION::V2_1, seed: 1, hostile: false };
        let consumer = InKernel::query(&kernel, &device);
        let mut removal = None;
        // The consumer's code runs as the provider's, whose heap is then the one that everything comes from.
        let verdict = driver.run(|| {
            Session::with(&consumer, &options, |session| {
                see_it_go(session, || removal = Some(scope.spawn(move || device.surprise_remove())))
            })
        });
        driver.run(|| drop(consumer));
        removal.expect("it was begun").join().expect("it comes to its end");
        verdict
    });
    driver.unload();
    if let Err(stop) = verdict {
        panic!("{}", stop.text());
    }
}

#[test]
fn a_removal_is_refused_while_a_consumer_has_the_adapter_open() {
    let kernel = Kernel::threads().start();
    let Provider { driver, device } = Provider::load(&kernel).expect("the provider loads");
    let consumer = InKernel::query(&kernel, &device);
    let mut place: Option<Device> = Some(device);
    let options = Options { name: "removal", version: NDK_VERSION::V2_1, seed: 1, hostile: false };
    let verdict = driver.run(|| {
        Session::with(&consumer, &options, |session| {
            session.adapter()?;
            let device = place.take().expect("it was not removed");
            let Err((device, status)) = device.remove() else { panic!("a consumer has it open") };
            assert_eq!(status, simulated_kernel::wdk::STATUS_DEVICE_BUSY);
            place = Some(device);
            HELD
        })
    });
    assert_eq!(verdict, HELD);
    driver.run(|| drop(consumer));
    assert!(place.expect("it is still there").remove().is_ok(), "nobody has it open any more");
    driver.unload();
}

//! Load that never ends: consumers whose callbacks post what leads to the next callback.

use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use conformance::{
    Check, HELD, Verdict,
    client::{CqCore, Later, Options, QpCore, QpSizes, Session},
    fixture::{Link, Terms},
};
use ndkpi::{NDK_CQ_NOTIFY_ANY, NDK_OP_FLAG_SILENT_SUCCESS, NDK_VERSION, NtStatus};
use simulated_kernel::Kernel;

use crate::{consumer::InKernel, world::Provider};

const SIZES: QpSizes = QpSizes { receive_depth: 4, initiator_depth: 4, receive_sge: 1, initiator_sge: 1, inline: 0 };

/// Callbacks. To each belong a quantum and a run of the completion queue's call.
const ROUNDS: u32 = 8_000;
/// How long DPCs may keep the processor, in a kernel that counts 100 microseconds for each: 5,000 of them.
const LIMIT: Duration = Duration::from_millis(500);

/// What the callback works with.
#[derive(Default)]
struct Stage<'s> {
    sender: Later<'s, QpCore<'s>>,
    receiver: Later<'s, QpCore<'s>>,
    rounds: AtomicU32,
}

impl Stage<'_> {
    /// Has the sender send nothing to the receiver.
    fn deliver(&self) -> Check {
        let (Some(sender), Some(receiver)) = (self.sender.get(), self.receiver.get()) else { return Ok(()) };
        assert_eq!(receiver.receive(1, &[])?, NtStatus::SUCCESS);
        assert_eq!(sender.send(2, &[], NDK_OP_FLAG_SILENT_SUCCESS)?, NtStatus::SUCCESS);
        Ok(())
    }
}

fn callbacks_that_post<'s>(session: &'s Session<'s>) -> Verdict {
    let stage = session.keep(Stage::default())?;
    let hook = session.hook(move |queue: &'s CqCore<'s>, _| {
        assert_eq!(queue.poll_each(4, |_| {})?, 1);
        if stage.rounds.fetch_add(1, Relaxed) + 1 < ROUNDS {
            stage.deliver()?;
            queue.arm(NDK_CQ_NOTIFY_ANY)?;
        }
        Ok(())
    })?;
    let adapter = session.adapter()?;
    let pd = adapter.create_pd()?;
    let (sent, received) = (adapter.create_cq(16, None)?, adapter.create_cq(16, Some(hook))?);
    let a = pd.core().create_qp(sent.core(), sent.core(), 1, SIZES)?;
    let b = pd.core().create_qp(received.core(), received.core(), 2, SIZES)?;
    let _link = Link::between(session, a.core(), b.core(), &Terms::new())?;

    assert!(stage.sender.set(a.core()) && stage.receiver.set(b.core()));
    stage.deliver()?;
    // The last call, so that those of the callback overlap with none.
    received.core().arm(NDK_CQ_NOTIFY_ANY)?;
    session.wait("the last callback", || stage.rounds.load(Relaxed) == ROUNDS)?;
    HELD
}

#[test]
fn callbacks_that_post_without_end_give_their_processor_back() {
    let kernels = [Kernel::threads(), Kernel::seeded(1).preemption(2), Kernel::seeded(2).preemption(2)];
    for kernel in kernels {
        let kernel = kernel.processors(1).dispatch_limit(LIMIT).start();
        let provider = Provider::load(&kernel).expect("the provider loads");
        let options = Options { name: "load", version: NDK_VERSION::V2_1, seed: 1, hostile: false };
        let consumer = InKernel::query(&kernel, &provider.device);
        let verdict = provider.driver.run(|| Session::with(&consumer, &options, callbacks_that_post));
        provider.driver.run(|| drop(consumer));
        provider.unload();
        if let Err(stop) = verdict {
            panic!("{}", stop.text());
        }
        assert!(kernel.dpcs_run() > 5_000, "all on the one processor: {} DPCs", kernel.dpcs_run());
    }
}

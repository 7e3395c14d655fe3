//! A handler hears of everything, and nobody polls or arms beside it (`NDKPI 7.1.2`, `NDKPI 7.1.5`).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::{Duration, Instant},
};

use host::HostOs;
use interpose::{Event, Function, Hooks, ObjectId, Phase, Verdict};
use ndk::{Adapter, Completion, Flags, Notify, NtStatus, QpSizes, QueuePair, host::Loopback};
use ndkpi::{NDK_ADAPTER_INFO, NDK_VERSION};
use provider::Device;

use crate::{everything, machines};

/// Takes everything, tells what it was, and arms again.
fn drains(tell: mpsc::Sender<usize>) -> impl FnMut(&mut ndk::Poller<'_>, NtStatus) + Send {
    move |poller, _status| {
        let mut results = [Completion::EMPTY; 2];
        loop {
            let done = poller.poll(&mut results);
            for one in done {
                let _ = tell.send(one.context());
            }
            if done.len() < 2 {
                break;
            }
        }
        poller.arm(Notify::Any);
    }
}

#[test]
fn a_handler_gets_what_an_arm_that_was_left_behind_announced() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let mut all = everything(&machine, &adapter);
        let mut results = [Completion::EMPTY; 4];
        assert!(all.cq.wait_for(&mut results, Notify::Any, 100)?.is_empty(), "the arm is left");
        assert!(all.cq.poll(&mut results).is_empty());
        all.far.receiver.receive(7, &[all.mr.sge(0, 8)?])?;
        all.near.initiator.send_inline(8, b"x", Flags::SILENT)?;
        machine.machine().flush();
        let (tell, told) = mpsc::channel();
        let notified = all.cq.notify(Notify::Any, drains(tell))?;
        machine.machine().flush();
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [7]);
        drop((notified, all.near, all.far, all.connections, all.mr, all.pd));
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

#[test]
fn a_handler_gets_what_a_wait_has_left_in_the_queue() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let mut all = everything(&machine, &adapter);
        for context in 0..5 {
            all.far.receiver.receive(context, &[all.mr.sge(0, 8)?])?;
        }
        let mut one = [Completion::EMPTY];
        assert!(all.cq.wait_for(&mut one, Notify::Any, 100)?.is_empty());
        for context in 0..5 {
            all.near.initiator.send_inline(context, b"x", Flags::SILENT)?;
        }
        machine.machine().flush();
        // All five were there at the last callback, and one is taken.
        assert_eq!(all.cq.wait(&mut one, Notify::Any)?[0].context(), 0);
        let (tell, told) = mpsc::channel();
        let notified = all.cq.notify(Notify::Any, drains(tell))?;
        machine.machine().flush();
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
        drop((notified, all.near, all.far, all.connections, all.mr, all.pd));
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

#[test]
fn a_handler_is_not_called_for_a_queue_that_was_seen_empty() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let mut all = everything(&machine, &adapter);
        all.far.receiver.receive(1, &[all.mr.sge(0, 8)?])?;
        all.near.initiator.send_inline(2, b"x", Flags::SILENT)?;
        let mut results = [Completion::EMPTY; 4];
        while all.cq.wait(&mut results, Notify::Any)?.is_empty() {}
        assert!(all.cq.poll(&mut results).is_empty());
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        machine.machine().flush();
        assert!(all.cq.poll(&mut results).is_empty());
        let notified = all.cq.notify(Notify::Any, move |_, _| {
            counted.fetch_add(1, SeqCst);
        })?;
        machine.machine().flush();
        assert_eq!(calls.load(SeqCst), 0);
        drop((notified, all.near, all.far, all.connections, all.mr, all.pd));
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

#[test]
fn a_handler_hears_of_a_failure_that_was_told_before() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let all = everything(&machine, &adapter);
        let mut small = adapter.create_cq(1)?;
        let mut overruns = all.pd.create_qp(&small, &small, QpSizes::default(), 3)?;
        for context in 0..4 {
            overruns.receiver.receive(context, &[])?;
        }
        overruns.flush();
        machine.machine().flush();
        let mut results = [Completion::EMPTY; 4];
        // What came before the failure is there; then the arm of the wait hears of the failure, and no later arm does.
        let told = loop {
            match small.wait(&mut results, Notify::Any) {
                Ok(_) => {}
                Err(status) => break status,
            }
        };
        assert_eq!(told, NtStatus::BUFFER_OVERFLOW);
        assert!(small.poll(&mut results).is_empty());
        let (tell, heard) = mpsc::channel();
        let notified = small.notify(Notify::Any, move |_, status| {
            let _ = tell.send(status);
        })?;
        machine.machine().flush();
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [NtStatus::BUFFER_OVERFLOW]);
        drop((notified, overruns, all));
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

/// Whether polls and arms of the queue overlap, and a way to hold an arm up.
#[derive(Default)]
struct Watch {
    /// Calls on the queue that have begun and not returned.
    inside: AtomicUsize,
    overlaps: AtomicUsize,
    /// The next arm lasts until a callback has come to the consumer and, if it will, has polled.
    hold: AtomicBool,
    called_back: AtomicBool,
}

struct Watcher(HostOs, Arc<Watch>);

impl Hooks for Watcher {
    type Os = HostOs;
    type State = ();
    type Call = ();

    fn os(&self) -> &HostOs {
        &self.0
    }

    fn adapter(&self, _: &NDK_ADAPTER_INFO) -> Result<(), NtStatus> {
        Ok(())
    }

    fn object(&self, _: &Event<'_, ()>, _: ObjectId) -> Result<(), NtStatus> {
        Ok(())
    }

    fn event(&self, event: &Event<'_, ()>, (): &mut ()) -> Verdict {
        let Self(_, watch) = self;
        match (event.phase, event.function) {
            (Phase::Call, Function::ArmCq | Function::GetCqResultsEx) => {
                if watch.inside.fetch_add(1, SeqCst) != 0 {
                    watch.overlaps.fetch_add(1, SeqCst);
                }
                if event.function == Function::ArmCq && watch.hold.swap(false, SeqCst) {
                    let started = Instant::now();
                    while !watch.called_back.load(SeqCst) && started.elapsed() < Duration::from_secs(20) {
                        std::thread::yield_now();
                    }
                    // The handler polls now, if it may run at all.
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            (Phase::Return, Function::ArmCq | Function::GetCqResultsEx) => drop(watch.inside.fetch_sub(1, SeqCst)),
            (Phase::Callback, Function::CqNotification) => watch.called_back.store(true, SeqCst),
            _ => {}
        }
        Verdict::Forward
    }
}

/// An adapter behind a [`Watcher`].
fn watched(machine: &Loopback, watch: &Arc<Watch>) -> Result<Adapter, NtStatus> {
    let inner = Device::open(&machine.devices()[0], NDK_VERSION::V2_1)?;
    // SAFETY: the adapter is open, and is used through the layer only.
    let wrapped = unsafe { interpose::wrap(inner, Watcher(HostOs::new(machine.machine()), watch.clone())) }?;
    let close = |adapter| {
        // SAFETY: the provider's adapter came from `Device::open`, and is closed once.
        let close_inner = |inner| unsafe { Device::<HostOs>::close(inner) };
        // SAFETY: the adapter came from `wrap` with these hooks.
        let _ = unsafe { interpose::close::<Watcher, _>(adapter, close_inner) };
    };
    // SAFETY: the adapter is open, and `close` closes it.
    unsafe { ndk::host::adopt(machine.machine(), wrapped, close) }
}

#[test]
fn the_handler_does_not_poll_while_notify_arms() -> Result<(), NtStatus> {
    let machine = Loopback::start(1)?;
    let watch = Arc::new(Watch::default());
    let adapter = watched(&machine, &watch)?;
    let mut all = everything(&machine, &adapter);
    let mut results = [Completion::EMPTY; 4];
    assert!(all.cq.wait_for(&mut results, Notify::Any, 100)?.is_empty(), "the arm is left");
    all.far.receiver.receive(7, &[all.mr.sge(0, 8)?])?;
    watch.hold.store(true, SeqCst);
    let (tell, told) = mpsc::channel();
    let (near, cq) = (&mut all.near, all.cq);
    let notified = std::thread::scope(|scope| {
        // The message comes while the arm of `notify` lasts.
        let waits = watch.clone();
        scope.spawn(move || {
            while waits.hold.load(SeqCst) {
                std::thread::yield_now();
            }
            near.initiator.send_inline(8, b"x", Flags::SILENT).expect("a send");
        });
        cq.notify(Notify::Any, drains(tell))
    })?;
    machine.machine().flush();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [7]);
    assert!(watch.called_back.load(SeqCst), "the arm that was left called back");
    assert_eq!(watch.overlaps.load(SeqCst), 0);
    drop((notified, all.near, all.far, all.connections, all.mr, all.pd));
    drop(adapter);
    machine.finish().expect("nothing is left");
    Ok(())
}

//! What the provider notes for whoever collects traces: connections, how they end, failures, overruns; and nothing on the data
//! path.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use conformance::host::{HostPlatform, Setup};
use conformance::{
    HELD, Verdict,
    client::{Options, Session},
    fixture::{Pair, Plan},
    platform::{Family, PinnedMemory, Place, Platform, Shape, Task},
};
use engine::{
    connection::DisconnectReason,
    cq::notify::CqFailure,
    os::{Affinity, Os, Routine},
};
use host::{HostDpc, HostEvent, HostLock, HostMemory, HostOs, HostTimer};
use ndkpi::{MDL, NDK_ADAPTER, NDK_VERSION, NtStatus};
use provider::{Config, Device, NdkOs, Note};

/// [`HostOs`], with a list of what was noted.
#[derive(Clone)]
struct NotingOs {
    os: HostOs,
    notes: Arc<Mutex<Vec<Note>>>,
}

impl Os for NotingOs {
    type Lock<T: Send + 'static> = HostLock<T>;
    type Dpc<R: Routine> = HostDpc<R>;
    type Timer<R: Routine> = HostTimer<R>;
    type Event = HostEvent;
    type Memory = HostMemory;

    fn lock<T: Send + 'static>(&self, value: T) -> Result<HostLock<T>, NtStatus> {
        self.os.lock(value)
    }

    fn dpc<R: Routine>(&self, processor: u32) -> Result<HostDpc<R>, NtStatus> {
        self.os.dpc(processor)
    }

    fn timer<R: Routine>(&self) -> Result<HostTimer<R>, NtStatus> {
        self.os.timer()
    }

    fn event(&self) -> Result<HostEvent, NtStatus> {
        self.os.event()
    }

    fn processors(&self) -> u32 {
        self.os.processors()
    }

    fn current_processor(&self) -> u32 {
        self.os.current_processor()
    }

    fn processor_for(&self, affinity: Affinity) -> Option<u32> {
        self.os.processor_for(affinity)
    }

    fn now(&self) -> u64 {
        self.os.now()
    }

    fn timer_resolution(&self) -> u32 {
        self.os.timer_resolution()
    }

    fn random(&self) -> u32 {
        self.os.random()
    }
}

impl NdkOs for NotingOs {
    unsafe fn memory_from_mdl(&self, mdl: *mut MDL, length: usize) -> Result<HostMemory, NtStatus> {
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { self.os.memory_from_mdl(mdl, length) }
    }

    fn note(&self, note: Note) {
        HostOs::assert_callback_context();
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }
}

/// A machine without adapters of its own, and one that notes.
struct Noting {
    inner: HostPlatform,
    device: fallible::Arc<Device<NotingOs>>,
    notes: Arc<Mutex<Vec<Note>>>,
}

impl Noting {
    fn new() -> Self {
        let inner = HostPlatform::start(Setup::default()).expect("a machine");
        let notes = Arc::<Mutex<Vec<Note>>>::default();
        let os = NotingOs { os: HostOs::new(inner.machine()), notes: notes.clone() };
        let device = Device::try_new(&os, Config::default()).expect("an adapter");
        Self { inner, device, notes }
    }

    /// What was noted since the last look.
    fn take(&self) -> Vec<Note> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs `work` on an open adapter.
    fn with(self, work: impl for<'s> FnOnce(&'s Session<'s>, &Self) -> Verdict) {
        let options = Options { name: "notes", version: NDK_VERSION::V2_1, seed: 1, hostile: false };
        let verdict = Session::with(&self, &options, |session| work(session, &self));
        assert_eq!(verdict, HELD);
        drop(self.device);
        self.inner.finish().expect("nothing is left");
    }
}

impl Platform for Noting {
    fn adapters(&self) -> u32 {
        1
    }

    fn open(&self, _: u32, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        Device::open(&self.device, version)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) -> bool {
        // SAFETY: the caller's promise.
        unsafe { Device::<NotingOs>::close(adapter) };
        true
    }

    fn address(&self, _: u32, family: Family) -> Option<IpAddr> {
        let mut addresses = self.device.config().addresses.iter().flatten().map(|interface| interface.address);
        addresses.find(|address| address.is_ipv4() == (family == Family::V4))
    }

    fn memory(&self, shape: Shape, length: usize) -> Result<Box<dyn PinnedMemory>, NtStatus> {
        self.inner.memory(shape, length)
    }

    fn now(&self) -> u64 {
        self.inner.now()
    }

    fn wait(&self, limit: u64, until: &dyn Fn() -> bool) -> bool {
        self.inner.wait(limit, until)
    }

    fn dwell(&self, until: &dyn Fn() -> bool) -> bool {
        self.inner.dwell(until)
    }

    fn settle(&self) {
        self.inner.settle();
    }

    fn sleep(&self, micros: u64) {
        self.inner.sleep(micros);
    }

    fn raised(&self, work: &mut dyn FnMut()) {
        self.inner.raised(work);
    }

    fn place(&self) -> Place {
        self.inner.place()
    }

    fn processors(&self) -> u32 {
        self.inner.processors()
    }

    fn run(&self, tasks: &mut [&mut dyn Task]) -> Result<(), NtStatus> {
        self.inner.run(tasks)
    }
}

/// How many of the notes are equal to `note`.
fn count(notes: &[Note], note: Note) -> usize {
    notes.iter().filter(|other| **other == note).count()
}

#[test]
fn a_connection_is_noted_on_both_sides_and_its_traffic_is_not() {
    Noting::new().with(|session, platform| {
        let pair = Pair::new(session)?;
        session.settle();
        let notes = platform.take();
        let connected = notes.iter().find_map(|note| match note {
            Note::Connected { local, remote } => Some((*local, *remote)),
            _ => None,
        });
        assert_eq!(connected, Some((pair.link.a.core().local()?, pair.link.a.core().peer()?)), "{notes:?}");
        assert_eq!((notes.len(), count(&notes, Note::Accepted)), (2, 1), "{notes:?}");
        for context in 0..50 {
            pair.deliver(context, false)?;
            pair.b.receive_done(context)?;
        }
        session.settle();
        assert_eq!(platform.take(), [], "nothing on the data path");

        pair.link.a.core().disconnect()?.succeeds()?;
        pair.link.b.core().wait_disconnect()?;
        let notes = platform.take();
        assert_eq!(count(&notes, Note::Disconnected), 1, "{notes:?}");
        assert_eq!(count(&notes, Note::Lost(DisconnectReason::Disconnected)), 1, "{notes:?}");
        assert_eq!(notes.len(), 2, "{notes:?}");
        HELD
    });
}

#[test]
fn an_adapter_that_goes_is_noted_for_each_side() {
    Noting::new().with(|session, platform| {
        let pair = Pair::new(session)?;
        session.settle();
        let _ = platform.take();
        platform.device.port().abort();
        pair.link.a.core().wait_disconnect()?;
        pair.link.b.core().wait_disconnect()?;
        assert_eq!(platform.take(), [Note::Lost(DisconnectReason::Removed); 2]);
        HELD
    });
}

#[test]
fn a_refused_connect_is_noted_with_its_status() {
    Noting::new().with(|session, platform| {
        let plan = Plan::new();
        let side = conformance::fixture::Side::new(&session.adapter()?, &plan, 1)?;
        let (from, nowhere) = (session.address(0, Family::V4, 0)?, session.address(0, Family::V4, 9)?);
        let connector = session.adapter()?.create_connector()?;
        let offer = conformance::fixture::Terms::new().a;
        let status = connector.core().connect(side.qp.core(), from, nowhere, &offer)?.wait()?;
        assert_eq!(status, NtStatus::CONNECTION_REFUSED);
        let notes = platform.take();
        let expected = Note::Failed { request: engine::connection::ConnectorRequest::Connect, status };
        assert_eq!(notes, [expected]);
        HELD
    });
}

#[test]
fn a_rejected_connect_is_noted_with_its_status() {
    Noting::new().with(|session, platform| {
        let side = conformance::fixture::Side::new(&session.adapter()?, &Plan::new(), 1)?;
        let (listener, address) = conformance::fixture::listen(session, Family::V4)?;
        let connector = session.adapter()?.create_connector()?;
        let offer = conformance::fixture::Terms::new().a;
        let from = session.address(0, Family::V4, 0)?;
        let connecting = connector.core().connect(side.qp.core(), from, address, &offer)?;
        assert_eq!(listener.take()?.reject(&[])?, NtStatus::SUCCESS);
        let status = connecting.wait()?;
        assert!(!status.is_success());
        let request = engine::connection::ConnectorRequest::Connect;
        assert_eq!(platform.take(), [Note::Failed { request, status }]);
        HELD
    });
}

#[test]
fn an_overrun_is_noted_once() {
    Noting::new().with(|session, platform| {
        let shallow = Plan { depths: [2, 64], ..Plan::new() };
        let pair = Pair::with(session, &Plan::new(), &shallow)?;
        // One more than the queue holds.
        for context in 0..3 {
            pair.b.receive(context, 0, 64)?;
        }
        for context in 0..3 {
            pair.a.send(context, 0, 16, 0)?;
        }
        pair.link.a.core().wait_disconnect()?;
        session.settle();
        let notes = platform.take();
        assert_eq!(count(&notes, Note::QueueFailed(CqFailure::Overrun)), 1, "{notes:?}");
        HELD
    });
}

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
    platform::{ExecutionContext, Family, PinnedMemory, Platform, Shape, Task},
};
use engine::{
    connection::{DisconnectReason, Fabric},
    cq::notify::CqFailure,
    os::{Affinity, Os, Routine},
    wire::{Cable, RejectReason, Wire, WireConfig},
};
use host::{HostDpc, HostEvent, HostLock, HostMemory, HostOs, HostTimer};
use ndkpi::{MDL, NDK_ADAPTER, NDK_VERSION, NtStatus};
use provider::{Config, Device, NdkOs, Note, Reason};

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
        // SAFETY: the same method of the same trait, with the same arguments.
        unsafe { self.os.memory_from_mdl(mdl, length) }
    }

    fn note(&self, note: Note) {
        HostOs::assert_callback_context();
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }
}

/// Where the frames of an end of a cable come out.
#[derive(Clone, Default)]
struct Far(Arc<Mutex<Option<fallible::Arc<Wire<NotingOs>>>>>);

impl Far {
    fn plug(&self, wire: Option<fallible::Arc<Wire<NotingOs>>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = wire;
    }
}

impl Cable for Far {
    fn send(&self, frame: &[u8]) {
        let far = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(far) = far {
            Wire::receive(&far, frame);
        }
    }
}

/// A machine without adapters of its own, and one that notes, perhaps with a second one at the other end of a cable.
struct Noting {
    inner: HostPlatform,
    device: fallible::Arc<Device<NotingOs>>,
    far: Option<(fallible::Arc<Device<NotingOs>>, [Far; 2])>,
    notes: Arc<Mutex<Vec<Note>>>,
}

impl Noting {
    fn new() -> Self {
        let inner = HostPlatform::start(Setup::default()).expect("a machine");
        let notes = Arc::<Mutex<Vec<Note>>>::default();
        let os = NotingOs { os: HostOs::new(inner.machine()), notes: notes.clone() };
        let device = Device::try_new(&os, Config::default()).expect("an adapter");
        Self { inner, device, far: None, notes }
    }

    /// Two adapters that reach each other by frames only.
    fn on_cable() -> Self {
        let Self { inner, device, notes, .. } = Self::new();
        drop(device);
        let os = NotingOs { os: HostOs::new(inner.machine()), notes: notes.clone() };
        let fabric = Fabric::try_new(&os).expect("memory");
        let ends = [Far::default(), Far::default()];
        let [device, other] = [0_u8, 1].map(|number| {
            let config =
                Config { addresses: Config::addresses_of(number + 1), link: number.into(), ..Config::default() };
            let wire = WireConfig::new([2, 0, 0, 0, 0, number]);
            let end = Box::new(ends[usize::from(number)].clone());
            Device::try_new_with_cable(&os, &fabric, config, wire, end).expect("an adapter")
        });
        ends[0].plug(other.wire());
        ends[1].plug(device.wire());
        Self { inner, device, far: Some((other, ends)), notes }
    }

    fn device(&self, adapter: u32) -> &fallible::Arc<Device<NotingOs>> {
        let far = self.far.as_ref().filter(|_| adapter == 1);
        far.map_or(&self.device, |(other, _)| other)
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
        if let Some((other, ends)) = self.far {
            for end in &ends {
                end.plug(None);
            }
            drop(other);
        }
        drop(self.device);
        self.inner.finish().expect("nothing is left");
    }
}

impl Platform for Noting {
    fn adapters(&self) -> u32 {
        1 + u32::from(self.far.is_some())
    }

    fn open(&self, adapter: u32, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        Device::open(self.device(adapter), version)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) -> bool {
        // SAFETY: `adapter` came from this device and is not used after this call (the trait's `# Safety`).
        unsafe { Device::<NotingOs>::close(adapter) };
        true
    }

    fn address(&self, adapter: u32, family: Family) -> Option<IpAddr> {
        let mut addresses = self.device(adapter).config().addresses.iter().flatten().map(|interface| interface.address);
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

    fn execution_context(&self) -> ExecutionContext {
        self.inner.execution_context()
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
fn a_connect_that_another_machine_refuses_is_noted_with_its_reason() {
    Noting::on_cable().with(|session, platform| {
        let side = conformance::fixture::Side::new(&session.adapter()?, &Plan::new(), 1)?;
        let (from, nowhere) = (session.address(0, Family::V4, 0)?, session.address(1, Family::V4, 9)?);
        let connector = session.adapter()?.create_connector()?;
        let offer = conformance::fixture::Terms::new().a;
        let status = connector.core().connect(side.qp.core(), from, nowhere, &offer)?.wait()?;
        let reason = Reason::of_rejection(RejectReason::BAD_SERVICE_ID);
        assert_eq!((status, reason.number()), (reason.status, 135));
        let request = engine::connection::ConnectorRequest::Connect;
        let expected = [Note::Rejected(RejectReason::BAD_SERVICE_ID), Note::Failed { request, status }];
        assert_eq!(platform.take(), expected);
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

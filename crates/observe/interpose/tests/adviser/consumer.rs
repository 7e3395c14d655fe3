//! A consumer that may break the rules: bare calls through the dispatch tables of adapters under the adviser.

use std::{
    cell::Cell,
    collections::BTreeMap,
    ffi::c_void,
    net::SocketAddr,
    ptr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering::SeqCst},
    },
};

use conformance::{
    Platform,
    host::{HostPinned, HostPlatform, Scheduler, Setup},
    platform::{Family, PinnedMemory, Shape},
};
use host::HostOs;
use interpose::{
    Function, Phase, Verdict,
    adviser::{Adviser, Finding, Report, Settings, Sink, Step, Totals},
    faults::{Faults, Plan, Rule, Tally, Target},
};
use ndkpi::*;
use provider::{CompletionMode, Config};
use testing::on_event::OnEvent;

/// Calls a slot of an object's table: `ndk!(object, Slot(arguments))`.
macro_rules! ndk {
    ($object:expr, $slot:ident($($argument:expr),* $(,)?)) => {{
        let object = $object;
        // SAFETY: an object that the consumer of the test holds; the layer keeps closed ones.
        let table = unsafe { (*object).Dispatch };
        // SAFETY: the slot is in the table; only the slot is read.
        let slot = unsafe { (*table).$slot }.expect("every slot is there");
        // SAFETY: what is against the rules in these calls is what the layer stops or the provider refuses.
        unsafe { slot(object.cast(), $($argument),*) }
    }};
}
pub(crate) use ndk;

/// How much contexts say of whose completion it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contexts {
    /// Everything.
    #[default]
    Distinct,
    /// All queue pairs have one.
    OneOfQueuePairs,
    /// All requests have one.
    OneOfRequests,
    /// All have one, and polls do not tell the type of a request.
    One,
}

thread_local! {
    /// What the consumers of this thread give.
    static CONTEXTS: Cell<Contexts> = const { Cell::new(Contexts::Distinct) };
}

impl Contexts {
    pub const ALL: [Self; 4] = [Self::Distinct, Self::OneOfQueuePairs, Self::OneOfRequests, Self::One];

    /// Runs a consumer that gives such contexts.
    pub fn of<T>(self, consumer: impl FnOnce() -> T) -> T {
        CONTEXTS.set(self);
        let result = consumer();
        CONTEXTS.set(Self::Distinct);
        result
    }

    /// The context of a queue pair.
    pub fn qp(context: usize) -> *mut c_void {
        let is_one = matches!(CONTEXTS.get(), Self::OneOfQueuePairs | Self::One);
        ptr::without_provenance_mut(if is_one { 0 } else { context })
    }

    /// The context of a request.
    pub fn request(context: usize) -> *mut c_void {
        let is_one = matches!(CONTEXTS.get(), Self::OneOfRequests | Self::One);
        ptr::without_provenance_mut(if is_one { 0 } else { context })
    }
}

/// Keeps findings, and the steps of the consumer.
struct Kept {
    found: Arc<Mutex<Vec<(Finding, String)>>>,
    steps: Arc<Mutex<Steps>>,
}

/// The steps, with names for the objects.
#[derive(Default)]
struct Steps {
    names: BTreeMap<usize, String>,
    steps: Vec<String>,
}

impl Steps {
    fn add(&mut self, step: &Step<'_>) {
        let (key, words) = match *step {
            Step::Opened { key, object, .. } => {
                self.names.insert(key, object.to_string());
                (key, "opened".to_owned())
            }
            Step::Began { key, function, .. } => (key, format!("began {}", function.name())),
            Step::Closing { key } => (key, "closing".to_owned()),
            Step::Ended { key, .. } => (key, "ended".to_owned()),
            Step::Unarmed { key } => (key, "unarmed".to_owned()),
            Step::Polled { key, .. } => (key, "polled".to_owned()),
            Step::Armed { key } => (key, "armed".to_owned()),
        };
        let name = self.names.get(&key).map_or("adapter", String::as_str);
        self.steps.push(format!("{name}: {words}"));
    }
}

impl Sink for Kept {
    fn report(&self, report: &Report<'_>) {
        self.found.lock().expect("no panic").push((report.finding, report.to_string()));
    }

    fn follows(&self) -> bool {
        true
    }

    fn follow(&self, step: &Step<'_>) {
        self.steps.lock().expect("no panic").add(step);
    }
}

/// What happens inside a call, as if another thread did it.
type Work = Box<dyn FnOnce() + Send>;

/// Work for the next call of a function.
type Planned = Arc<Mutex<Option<(Function, Work)>>>;

/// Does what is planned while the call runs: between the consumer and the provider.
fn inside(os: &HostOs, planned: &Planned) -> OnEvent {
    let planned = planned.clone();
    OnEvent::new(os, move |event| {
        if event.phase == Phase::Call {
            let mut work = planned.lock().expect("no panic");
            let wanted = work.as_ref().is_some_and(|(function, _)| *function == event.function);
            let now = if wanted { work.take() } else { None };
            drop(work);
            if let Some((_, now)) = now {
                now();
            }
        }
        Verdict::Forward
    })
}

/// A pointer for work on the same thread.
pub struct Moved<T>(*mut T);

impl<T> Clone for Moved<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Moved<T> {}

// SAFETY: the work runs on the thread that has made it.
unsafe impl<T> Send for Moved<T> {}

impl<T> Moved<T> {
    pub const fn new(pointer: *mut T) -> Self {
        Self(pointer)
    }

    pub const fn get(self) -> *mut T {
        self.0
    }
}

/// The hooks of the tests.
type Hooks = (Adviser<HostOs, Kept>, OnEvent);

/// What a completion has said.
#[derive(Default)]
pub struct Done {
    status: AtomicI32,
    object: AtomicPtr<c_void>,
    count: AtomicU32,
}

impl Done {
    /// One that lives as long as the program: a context.
    pub fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    pub fn context(&'static self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    pub fn count(&self) -> u32 {
        self.count.load(SeqCst)
    }

    /// The object of a creation.
    pub fn object<T>(&self) -> *mut T {
        self.object.load(SeqCst).cast()
    }

    pub fn status(&self) -> NtStatus {
        NtStatus(self.status.load(SeqCst))
    }

    fn set(&self, status: NtStatus) {
        self.status.store(status.0, SeqCst);
        self.count.fetch_add(1, SeqCst);
    }
}

/// The completion of a request, with a [`Done`] for a context.
pub unsafe extern "system" fn requested(context: *mut c_void, status: NtStatus) {
    // SAFETY: the tests give contexts that live as long as the program.
    let done = unsafe { &*context.cast::<Done>() };
    done.set(status);
}

/// The completion of a creation.
pub unsafe extern "system" fn created(context: *mut c_void, status: NtStatus, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: the context is that of the call: a `Done`, which the test keeps until the callback has come.
    let done = unsafe { &*context.cast::<Done>() };
    done.object.store(object.cast(), SeqCst);
    done.set(status);
}

/// The completion of a close.
pub unsafe extern "system" fn closed(context: *mut c_void) {
    // SAFETY: the context is that of the call: a `Done`, which the test keeps until the callback has come.
    let done = unsafe { &*context.cast::<Done>() };
    done.set(NtStatus::SUCCESS);
}

/// A connect event.
unsafe extern "system" fn connection_came(context: *mut c_void, connector: *mut NDK_CONNECTOR) {
    // SAFETY: the context is that of the call: a `Done`, which the test keeps until the callback has come.
    let done = unsafe { &*context.cast::<Done>() };
    done.object.store(connector.cast(), SeqCst);
    done.set(NtStatus::SUCCESS);
}

/// A notification that only counts.
pub unsafe extern "system" fn notified(context: *mut c_void, status: NtStatus) {
    // SAFETY: the context is that of the call: a `Done`, which the test keeps until the callback has come.
    let done = unsafe { &*context.cast::<Done>() };
    done.set(status);
}

/// An adapter that can be pulled.
struct Pulled(fallible::Arc<provider::Device<HostOs>>);

impl Target for Pulled {
    fn remove(&self) {
        self.0.port().abort();
    }
}

/// The end of a connection.
unsafe extern "system" fn disconnected(context: *mut c_void) {
    // SAFETY: the context is that of the call: a `Done`, which the test keeps until the callback has come.
    let done = unsafe { &*context.cast::<Done>() };
    done.set(NtStatus::SUCCESS);
}

/// A machine with an adapter under the adviser.
pub struct World {
    pub platform: HostPlatform,
    pub adapter: *mut NDK_ADAPTER,
    /// The faults that have happened.
    pub tally: fallible::Arc<Tally>,
    has_faults: bool,
    work: Planned,
    found: Arc<Mutex<Vec<(Finding, String)>>>,
    steps: Arc<Mutex<Steps>>,
}

/// How the machine of a test differs from the ordinary one.
#[derive(Clone, Copy)]
pub struct Differs {
    pub completion: CompletionMode,
    pub adjust: fn(&mut Config),
    pub longest_callback: u64,
    /// On threads, in real time.
    pub threads: bool,
    /// Faults between the adviser and the provider.
    pub faults: Option<Rule>,
}

impl Default for Differs {
    fn default() -> Self {
        Self { completion: CompletionMode::Inline, adjust: |_| {}, longest_callback: 0, threads: false, faults: None }
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(Differs::default())
    }

    pub fn with(differs: Differs) -> Self {
        let setup = Setup {
            scheduler: if differs.threads { Scheduler::Threads } else { Scheduler::Seeded { seed: 1, preemption: 0 } },
            completion: differs.completion,
            tokens: Some(1 << 8),
            ..Setup::default()
        };
        let platform = HostPlatform::start_with(setup, differs.adjust).expect("a machine");
        let provider = platform.open(0, NDK_VERSION::new(2, 0)).expect("an adapter");
        let (found, steps): (Arc<Mutex<Vec<_>>>, Arc<Mutex<Steps>>) = Default::default();
        let sink = fallible::Arc::try_new(Kept { found: found.clone(), steps: steps.clone() });
        let sink = sink.expect("memory");
        let totals = fallible::Arc::try_new(Totals::default()).expect("memory");
        let settings = Settings { longest_callback: differs.longest_callback, ..Settings::default() };
        let os = platform.devices()[0].os().clone();
        let plan = differs.faults.map_or_else(Plan::default, |rule| Plan::new(1).with(rule).expect("a rule"));
        let tally = fallible::Arc::try_new(Tally::new(plan)).expect("memory");
        let provider = differs.faults.map_or(provider, |_| {
            let pulled = Pulled(platform.devices()[0].clone());
            let faults = Faults::with_target(os.clone(), 1, tally.clone(), pulled);
            // SAFETY: the adapter was just opened.
            unsafe { interpose::wrap(provider, faults) }.expect("memory")
        });
        let work = Planned::default();
        let inside = inside(&os, &work);
        let adviser = Adviser::new(os, settings, sink, totals);
        // SAFETY: the adapter was just opened.
        let adapter = unsafe { interpose::wrap(provider, (adviser, inside)) }.expect("memory");
        Self { platform, adapter, tally, has_faults: differs.faults.is_some(), work, found, steps }
    }

    /// Does something inside the next call of a function.
    pub fn inside(&self, function: Function, work: impl FnOnce() + Send + 'static) {
        let is_plain = CONTEXTS.get() == Contexts::One && function == Function::GetCqResultsEx;
        let function = if is_plain { Function::GetCqResults } else { function };
        *self.work.lock().expect("no panic") = Some((function, Box::new(work)));
    }

    /// What was found, with words.
    pub fn found(&self) -> Vec<(Finding, String)> {
        self.found.lock().expect("no panic").clone()
    }

    /// The steps of the consumer so far, each with its object.
    pub fn steps(&self) -> Vec<String> {
        self.steps.lock().expect("no panic").steps.clone()
    }

    pub fn wait(&self, what: &str, until: &dyn Fn() -> bool) {
        assert!(self.platform.wait(5_000_000, until), "waited for {what}; found {:?}", self.found());
    }

    /// Waits for a request.
    #[track_caller]
    pub fn finish(&self, status: NtStatus, done: &'static Done) -> NtStatus {
        if status != NtStatus::PENDING {
            return status;
        }
        self.wait("a completion", &|| done.count() > 0);
        NtStatus(done.status.load(SeqCst))
    }

    /// Makes a request whose outcome does not matter, and waits for it.
    #[track_caller]
    pub fn try_request(&self, call: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NtStatus) {
        let _ = self.request(call);
    }

    /// Makes a request and waits for it.
    #[track_caller]
    pub fn request(&self, call: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NtStatus) -> NtStatus {
        let done = Done::new();
        self.finish(call(Some(requested), done.context()), done)
    }

    /// Creates an object.
    #[track_caller]
    pub fn create<T>(
        &self,
        call: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NtStatus,
    ) -> *mut T {
        let (done, mut object) = (Done::new(), ptr::null_mut());
        let status = call(Some(created), done.context(), &raw mut object);
        let pended = status == NtStatus::PENDING;
        assert_eq!(self.finish(status, done), NtStatus::SUCCESS, "a creation");
        if pended { done.object() } else { object }
    }

    /// Begins a close.
    pub fn close_with<T: Object>(object: *mut T, context: *mut c_void) -> NtStatus {
        let any: *mut NDK_CQ = object.cast();
        // SAFETY: an object that the consumer of the test holds, whatever its kind: slot 0 is the close.
        let table = unsafe { (*any).Dispatch };
        // SAFETY: the table of an object that is open.
        let slot = unsafe { (*table).NdkCloseCq }.expect("every slot is there");
        // SAFETY: the object is open and closed once, with a context that the test keeps until the callback has come.
        unsafe { slot(any.cast(), Some(closed), context) }
    }

    /// Begins a close, and waits if `waits`.
    #[track_caller]
    pub fn close<T: Object>(&self, object: *mut T) {
        let done = Done::new();
        let status = Self::close_with(object, done.context());
        assert_eq!(self.finish(status, done), NtStatus::SUCCESS);
    }

    /// Closes the adapter, and returns what was found.
    pub fn end(self) -> Vec<(Finding, String)> {
        let Self { platform, adapter, found, has_faults, .. } = self;
        let close = |provider| {
            // SAFETY: the provider's adapter, which nobody uses any more.
            unsafe { platform.close(provider) }
        };
        let close = |inner| {
            if !has_faults {
                return close(inner);
            }
            // SAFETY: the adapter of the layer with the faults, which nobody uses any more.
            unsafe { interpose::close::<Faults<HostOs, Pulled>, _>(inner, close) }.expect("it is one")
        };
        // SAFETY: the adapter is of this layer, and not used after this.
        let closed = unsafe { interpose::close::<Hooks, _>(adapter, close) };
        assert_eq!(closed, Some(true), "the adapter closes");
        platform.finish().expect("nothing is left");
        let found = found.lock().expect("no panic");
        found.clone()
    }

    /// Closes the adapter of the layer, and not that of the provider, as if it were closed.
    pub fn pretend_to_close(&self) {
        // SAFETY: the adapter is of this layer, and the test does not use it after this.
        let closed = unsafe { interpose::close::<Hooks, _>(self.adapter, |_| ()) };
        assert_eq!(closed, Some(()));
    }

    /// The end of a world in which objects are left on purpose: they, and the machine, are forgotten.
    pub fn abandon(self) -> Vec<(Finding, String)> {
        let found = self.found();
        std::mem::forget(self);
        found
    }

    pub fn pd(&self) -> *mut NDK_PD {
        self.create(|completion, context, out| ndk!(self.adapter, NdkCreatePd(completion, context, out)))
    }

    pub fn cq(&self, depth: u32) -> *mut NDK_CQ {
        self.cq_with(depth, Some(notified), Done::new().context())
    }

    pub fn cq_with(
        &self,
        depth: u32,
        notification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
        event: *mut c_void,
    ) -> *mut NDK_CQ {
        self.create(|completion, context, out| {
            ndk!(self.adapter, NdkCreateCq(depth, notification, event, ptr::null(), completion, context, out))
        })
    }

    pub fn mr(&self, pd: *mut NDK_PD, fast: bool) -> *mut NDK_MR {
        self.create(|completion, context, out| ndk!(pd, NdkCreateMr(fast.into(), completion, context, out)))
    }

    /// A queue pair of `depth` requests in both directions, with two elements and 16 inline bytes.
    pub fn qp(&self, pd: *mut NDK_PD, cq: *mut NDK_CQ, depth: u32, qp_context: usize) -> *mut NDK_QP {
        let qp_context = Contexts::qp(qp_context);
        self.create(|completion, context, out| {
            ndk!(pd, NdkCreateQp(cq, cq, qp_context, depth, depth, 2, 2, 16, completion, context, out))
        })
    }

    pub fn connector(&self) -> *mut NDK_CONNECTOR {
        self.create(|completion, context, out| ndk!(self.adapter, NdkCreateConnector(completion, context, out)))
    }

    pub fn address(&self, port: u16) -> SOCKADDR_INET {
        let address = self.platform.address(0, Family::V4).expect("an address");
        SOCKADDR_INET::from(SocketAddr::new(address, port))
    }

    /// Memory, registered.
    pub fn region(&self, pd: *mut NDK_PD, flags: u32) -> Region {
        let memory = HostPinned::new(Shape::Whole, 8192).expect("memory");
        let mr = self.mr(pd, false);
        let status =
            self.request(|completion, context| ndk!(mr, NdkRegisterMr(memory.mdl(), 8192, flags, completion, context)));
        assert_eq!(status, NtStatus::SUCCESS);
        let token = ndk!(mr, NdkGetLocalTokenFromMr());
        let remote = ndk!(mr, NdkGetRemoteTokenFromMr());
        Region { mr, token, remote, memory }
    }

    /// Two connected queue pairs of `depth` requests on one completion queue of `entries`.
    pub fn pair(&self, depth: u32, entries: u32) -> Pair {
        let pd = self.pd();
        let notified_of = Done::new();
        let cq = self.cq_with(entries, Some(notified), notified_of.context());
        let qps = [self.qp(pd, cq, depth, 1), self.qp(pd, cq, depth, 2)];
        self.connect(pd, cq, notified_of, qps)
    }

    /// Connects two queue pairs on this completion queue, whose notifications `notified` counts.
    pub fn connect(&self, pd: *mut NDK_PD, cq: *mut NDK_CQ, notified: &'static Done, qps: [*mut NDK_QP; 2]) -> Pair {
        let region = self.region(pd, NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
        let events = Done::new();
        let listener: *mut NDK_LISTENER = self.create(|completion, context, out| {
            ndk!(self.adapter, NdkCreateListener(Some(connection_came), events.context(), completion, context, out))
        });
        let local = self.address(0);
        let status = self.request(|completion, context| {
            ndk!(listener, NdkListen(local.as_ptr(), local.length(), completion, context))
        });
        assert_eq!(status, NtStatus::SUCCESS);
        let (mut to, mut length) = (SOCKADDR_INET::UNSPECIFIED, 28_u32);
        let buffer = (&raw mut to).cast();
        assert_eq!(ndk!(listener, NdkGetLocalAddress(buffer, &raw mut length)), NtStatus::SUCCESS);
        let active = self.connector();
        let connecting = Done::new();
        let status = ndk!(
            active,
            NdkConnect(
                qps[0],
                local.as_ptr(),
                local.length(),
                to.as_ptr(),
                to.length(),
                2,
                2,
                ptr::null(),
                0,
                Some(requested),
                connecting.context()
            )
        );
        self.wait("a connect event", &|| events.count() == 1);
        let passive: *mut NDK_CONNECTOR = events.object.load(SeqCst).cast();
        let accepting = Done::new();
        let ended = [Done::new(), Done::new()];
        let accept = ndk!(
            passive,
            NdkAccept(
                qps[1],
                2,
                2,
                ptr::null(),
                0,
                Some(disconnected),
                ended[1].context(),
                Some(requested),
                accepting.context()
            )
        );
        assert_eq!(self.finish(status, connecting), NtStatus::SUCCESS, "the connect");
        let status = self.request(|completion, context| {
            ndk!(active, NdkCompleteConnect(Some(disconnected), ended[0].context(), completion, context))
        });
        assert_eq!(status, NtStatus::SUCCESS, "the last step");
        assert_eq!(self.finish(accept, accepting), NtStatus::SUCCESS, "the accept");
        Pair { pd, cq, notified, region, qps, listener, connectors: [active, passive], ended }
    }

    /// Takes completions until there are none. Returns their statuses.
    pub fn drain(cq: *mut NDK_CQ) -> Vec<NtStatus> {
        let mut statuses = Vec::new();
        loop {
            let count = if CONTEXTS.get() == Contexts::One {
                let mut results = [NDK_RESULT::ZEROED; 4];
                let count = ndk!(cq, NdkGetCqResults(results.as_mut_ptr(), 4));
                statuses.extend(results[..count as usize].iter().map(|result| result.Status));
                count
            } else {
                let mut results = [NDK_RESULT_EX::ZEROED; 4];
                let count = ndk!(cq, NdkGetCqResultsEx(results.as_mut_ptr(), 4));
                statuses.extend(results[..count as usize].iter().map(|result| result.Status));
                count
            };
            if count < 4 {
                return statuses;
            }
        }
    }

    /// Waits until so many completions were taken.
    #[track_caller]
    pub fn completions(&self, cq: *mut NDK_CQ, count: usize) -> Vec<NtStatus> {
        let taken = Mutex::new(Vec::new());
        self.wait("completions", &|| {
            let mut taken = taken.lock().expect("no panic");
            taken.extend(Self::drain(cq));
            taken.len() >= count
        });
        taken.into_inner().expect("no panic")
    }

    /// Ends a pair as it should be ended, and what it was alone on.
    pub fn end_pair(&self, pair: &Pair) {
        self.end_connection(pair);
        self.close(pair.cq);
        self.close(pair.pd);
    }

    /// Ends a pair as it should be ended.
    pub fn end_connection(&self, pair: &Pair) {
        for qp in pair.qps {
            ndk!(qp, NdkFlush());
        }
        self.platform.settle();
        Self::drain(pair.cq);
        // It refuses connects from here on, and its close ends with that of the last connector.
        let listener = Done::default();
        let status = Self::close_with(pair.listener, ptr::from_ref(&listener).cast_mut().cast());
        for connector in pair.connectors {
            self.close(connector);
        }
        if status == NtStatus::PENDING {
            self.wait("the close of the listener", &|| listener.count() > 0);
        }
        for qp in pair.qps {
            self.close(qp);
        }
        self.close(pair.region.mr);
    }
}

/// Registered memory.
pub struct Region {
    pub mr: *mut NDK_MR,
    pub token: u32,
    pub remote: u32,
    pub memory: HostPinned,
}

impl Region {
    pub fn element(&self, offset: usize, length: u32) -> NDK_SGE {
        NDK_SGE::new(self.memory.address().wrapping_add(offset).cast(), length, self.token)
    }

    pub fn address(&self, offset: usize) -> u64 {
        self.memory.address().addr() as u64 + offset as u64
    }
}

/// Two queue pairs that are connected with each other.
pub struct Pair {
    pub pd: *mut NDK_PD,
    pub cq: *mut NDK_CQ,
    /// Its notifications.
    pub notified: &'static Done,
    pub region: Region,
    pub qps: [*mut NDK_QP; 2],
    pub listener: *mut NDK_LISTENER,
    pub connectors: [*mut NDK_CONNECTOR; 2],
    /// Who was told that the connection has ended.
    pub ended: [&'static Done; 2],
}

impl Pair {
    pub fn receive(&self, context: usize, length: u32) -> NtStatus {
        let element = self.region.element(4096, length);
        ndk!(self.qps[1], NdkReceive(Contexts::request(context), &raw const element, 1))
    }

    pub fn send(&self, context: usize, length: u32, flags: u32) -> NtStatus {
        let element = self.region.element(0, length);
        ndk!(self.qps[0], NdkSend(Contexts::request(context), &raw const element, 1, flags))
    }

    pub fn send_element(&self, context: usize, element: NDK_SGE) -> NtStatus {
        ndk!(self.qps[0], NdkSend(Contexts::request(context), &raw const element, 1, 0))
    }

    pub fn read(&self, context: usize, element: NDK_SGE) -> NtStatus {
        let remote = self.region.address(0);
        ndk!(self.qps[0], NdkRead(Contexts::request(context), &raw const element, 1, remote, self.region.remote, 0))
    }
}

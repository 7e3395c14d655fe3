//! The wire: an adapter whose frames leave the machine, in VXLAN through a datagram socket of Winsock Kernel (`docs/wire.md`).
//!
//! ```text
//!   TCP/IP --- NDIS ---+                       +--- Winsock Kernel --- UDP 4789 --- peers
//!                      +-- Sender, arrival ----+
//!   NDK ---- engine ---+
//! ```
//!
//! | Module | Contents |
//! |---|---|
//! | [`settings`] | the keywords |
//! | [`socket`] | Winsock Kernel |
//! | [`sender`] | datagrams on their way out |
//! | [`arrival`] | datagrams that have come |
//! | [`shown`] | what programs and traces are told |
//!
//! The socket is opened by a work item: at the start of the system Winsock Kernel comes later than this driver. It is closed while the
//! adapter sleeps, and opened again, a second later at the earliest, when it has failed. As long as there is one the link is up.

pub mod arrival;
pub mod sender;
pub mod settings;
pub mod shown;
pub mod socket;

use alloc::boxed::Box;
use core::{
    net::SocketAddr,
    ptr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use arrayvec::ArrayVec;
use cable::{Class, Counters, Kind, MacAddress, frame::TAG_BYTES, peers::MAX_PEERS};
use driver_common::{
    os::{Kernel, KernelDpc, KernelLock, KernelTimer},
    trace::{self, Troubles},
};
use engine::{
    os::{Dpc, Os, Routine, SpinLock, Timer},
    wire::Cable,
};
use fallible::{Arc, try_box};
use kernel::{Asking, DatagramSocket, WaitLock, WskProvider};
use ndis::WSK_NO_WAIT;
use ndkpi::{NDIS_HANDLE, NtStatus};
use roce::vxlan::Bridge;

pub use self::settings::{Ends, Wanted};
use self::{
    sender::{Sender, Source},
    shown::Watch,
    socket::Current,
};
use crate::{
    adapter::Adapter,
    attributes,
    configuration::Keywords,
    frames::Frame,
    receive::Received,
    work::{Job, Work},
};

/// Microseconds between two tries to open a socket.
const RETRY: u64 = 1_000_000;

/// Microseconds in which a sleeping adapter still sends what it has to say.
const LAST_WORDS: u64 = 20_000;

/// Requests that one run of the DPC makes at most.
const REQUESTS_PER_RUN: usize = 8;

/// The way of one adapter to its peers.
pub struct Tunnel {
    ends: Box<Ends>,
    is_impaired: bool,
    bridge: KernelLock<Bridge>,
    sender: Sender,
    current: Current,
    dpc: KernelDpc<Flush>,
    /// The adapter, from its start to its end.
    adapter: KernelLock<Option<Arc<Adapter>>>,
    /// There should be a socket.
    is_wanted: KernelLock<bool>,
    work: Work,
    retry: KernelTimer<Retry>,
    /// For the work item.
    opening: WaitLock<Opening>,
    /// Frames that were dropped on their way out.
    lost: AtomicU64,
    /// Looks for troubles of connections.
    watch: KernelTimer<Watch>,
    /// The timer is set.
    is_watched: AtomicBool,
    /// The troubles that were told of.
    told: KernelLock<Troubles>,
}

/// What it takes to open sockets.
struct Opening {
    client: Option<WskProvider>,
    asking: Asking,
    /// When a socket was to be opened last.
    tried: Option<u64>,
    /// Why that has failed; nobody is told twice.
    failed: Option<NtStatus>,
}

impl Tunnel {
    /// A way to `ends`, without a socket. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    ///
    /// `adapter` is an adapter of NDIS that lives until [`Tunnel::end`] has returned or the result is dropped.
    #[inline(never)]
    pub unsafe fn try_new(
        adapter: NDIS_HANDLE,
        ends: Box<Ends>,
        keywords: &Keywords,
        processor: u32,
    ) -> Result<Arc<Self>, NtStatus> {
        let opening = Opening { client: None, asking: Asking::try_new()?, tried: None, failed: None };
        Arc::try_new(Self {
            is_impaired: keywords.impairment != cable::Impairment::default(),
            bridge: Kernel.lock(bridge(&ends)?)?,
            sender: Sender::try_new(keywords.frame as usize, ends.vni)?,
            current: Current::try_new()?,
            dpc: Kernel.dpc(processor)?,
            adapter: Kernel.lock(None)?,
            is_wanted: Kernel.lock(true)?,
            // SAFETY: an adapter of NDIS that outlives the work (`# Safety`).
            work: unsafe { Work::try_new(adapter) }?,
            retry: Kernel.timer()?,
            opening: WaitLock::try_new(opening)?,
            lost: AtomicU64::new(0),
            watch: Kernel.timer()?,
            is_watched: AtomicBool::new(false),
            told: Kernel.lock(Troubles::default())?,
            ends,
        })
        .map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)
    }

    /// The engine's way to it.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn plug(this: &Arc<Self>) -> Result<Box<dyn Cable>, NtStatus> {
        let plug: Box<dyn Cable> = try_box(Plug(this.clone())).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        Ok(plug)
    }

    /// Frames go from now on, as soon as there is a socket. `PASSIVE_LEVEL`.
    pub fn begin(&self, adapter: &Arc<Adapter>) {
        self.adapter.with(|place| *place = Some(adapter.clone()));
        Work::request::<Reconcile>(adapter);
    }

    /// Nothing goes any more, and nothing comes in, and nothing of NDIS is left here. `PASSIVE_LEVEL`, before the adapter is halted, or its
    /// initialisation fails. Calling it again does nothing.
    pub fn end(&self) {
        self.is_wanted.with(|wanted| *wanted = false);
        self.work.close();
        let _ = self.retry.cancel();
        self.opening.with(|opening| {
            self.current.close(&mut opening.asking);
            opening.client = None;
        });
        // Dropped after the lock is released.
        drop(self.adapter.with(Option::take));
        // Nobody sets it without an adapter.
        let _ = self.watch.cancel();
    }

    /// The adapter sleeps, or is awake: its socket goes, or comes back. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// It goes a little later: peers are told that their connections have ended.
    pub fn set_awake(&self, awake: bool) {
        self.is_wanted.with(|wanted| *wanted = awake);
        match self.adapter() {
            Some(adapter) if awake => Work::request::<Reconcile>(&adapter),
            Some(adapter) => self.retry.set(LAST_WORDS, &adapter),
            None => {}
        }
    }

    /// The socket does not work any more. `IRQL <= DISPATCH_LEVEL`.
    pub fn broke(&self, status: NtStatus) {
        if self.current.set_broken()
            && let Some(adapter) = self.adapter()
        {
            trace::wire_broken(adapter.number(), status);
            Work::request::<Reconcile>(&adapter);
        }
    }

    /// The adapter, while it is there. `IRQL <= DISPATCH_LEVEL`.
    #[must_use]
    pub fn adapter(&self) -> Option<Arc<Adapter>> {
        self.adapter.with(|adapter| adapter.clone())
    }

    /// Returns true if the cable's keywords apply to what comes in.
    #[must_use]
    pub const fn is_impaired(&self) -> bool {
        self.is_impaired
    }

    /// Who is where.
    #[must_use]
    pub const fn bridge(&self) -> &KernelLock<Bridge> {
        &self.bridge
    }

    const fn sender(&self) -> &Sender {
        &self.sender
    }

    const fn current(&self) -> &Current {
        &self.current
    }

    /// Frames that were dropped on their way out: without a socket or a slot, or because Winsock Kernel did not take them.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    fn way(&self, destination: MacAddress) -> ArrayVec<SocketAddr, MAX_PEERS> {
        let now = Kernel.now();
        self.bridge.with(|bridge| bridge.way(now, destination).iter().copied().take(MAX_PEERS).collect())
    }

    /// Sends a frame of the engine's. `IRQL = DISPATCH_LEVEL`, no lock held.
    fn send(this: &Arc<Self>, frame: &[u8]) {
        let Some(&destination) = frame.first_chunk() else { return };
        // Those of RDMA are counted by the engine (`oid::statistics`).
        if Class::of(frame) != Class::Rdma
            && let Some(adapter) = this.adapter()
        {
            adapter.sent().add(Kind::of(&destination), 1, frame.len() as u64);
        }
        let way = this.way(destination);
        // SAFETY: bytes that somebody has.
        let put = unsafe { this.sender.put(Source::Bytes(frame), &way) };
        let lost = way.len() - put.unwrap_or(0);
        if lost > 0 {
            this.lost.fetch_add(lost as u64, Relaxed);
        }
        this.dpc.queue(this);
    }

    /// Takes frames of protocols, as many as there are slots for, and counts them. `IRQL = DISPATCH_LEVEL`, no lock held.
    ///
    /// # Safety
    ///
    /// The frames are the caller's, and nobody changes them.
    pub unsafe fn take(this: &Arc<Self>, frames: &[Frame], sent: &Counters) -> Received {
        if !this.current.is_open() {
            sent.discard(frames.len() as u64);
            return Received { count: frames.len(), full: false };
        }
        let mut taken = Received { count: 0, full: false };
        for frame in frames {
            let mut destination = MacAddress::default();
            // SAFETY: the frames are the caller's, and nobody changes them (`# Safety`).
            if unsafe { frame.head(&mut destination) } == Some(destination.len()) {
                let way = this.way(destination);
                // SAFETY: the frames are the caller's, and nobody changes them (`# Safety`).
                match unsafe { this.sender.put(Source::Frame(frame), &way) } {
                    Some(0) => {
                        taken.full = true;
                        break;
                    }
                    Some(_) => {
                        let bytes = frame.length() + frame.tag.map_or(0, |_| TAG_BYTES);
                        sent.add(Kind::of(&destination), 1, bytes as u64);
                    }
                    None => sent.error(),
                }
            } else {
                sent.error();
            }
            taken.count += 1;
        }
        this.dpc.queue(this);
        taken
    }

    /// A request is complete, and its slots are free. `IRQL <= DISPATCH_LEVEL`.
    fn settle(&self, status: NtStatus, is_wanted: bool) {
        if !status.is_success() {
            self.lost.fetch_add(1, Relaxed);
            if breaks(status) {
                self.broke(status);
            }
        }
        if is_wanted && let Some(adapter) = self.adapter() {
            Adapter::wake_sender(&adapter);
        }
    }

    /// Hands datagrams to Winsock Kernel, a bounded number of them.
    fn flush(this: &Arc<Self>) {
        if !this.sender.begin() {
            return;
        }
        this.watch();
        let used = this.current.enter();
        for _ in 0..REQUESTS_PER_RUN {
            let Some(flushed) = this.sender.flush(this, used.as_ref()) else { break };
            if flushed.dropped > 0 {
                this.lost.fetch_add(flushed.dropped, Relaxed);
            }
            if flushed.is_wanted
                && let Some(adapter) = this.adapter()
            {
                Adapter::wake_sender(&adapter);
            }
        }
        drop(used);
        if this.sender.end() {
            this.dpc.queue(this);
        }
    }

    /// Closes a socket that is not wanted or does not work, and opens one that is. `PASSIVE_LEVEL`, one at a time.
    fn reconcile(&self, adapter: &Arc<Adapter>, opening: &mut Opening) {
        let is_wanted = self.is_wanted.with(|wanted| *wanted);
        if self.current.is_open() && (!is_wanted || self.current.is_broken()) {
            self.current.close(&mut opening.asking);
            trace::wire(adapter.number(), false, self.ends.local);
            attributes::indicate_link(adapter, false);
        }
        if !is_wanted || self.current.is_open() {
            return;
        }
        let now = Kernel.now();
        if let Some(tried) = opening.tried
            && now < tried + RETRY
        {
            self.retry.set(tried + RETRY - now, adapter);
            return;
        }
        opening.tried = Some(now);
        self.current.renew();
        match self.open(opening) {
            Ok(socket) => {
                opening.failed = None;
                self.current.put(socket);
                trace::wire(adapter.number(), true, self.ends.local);
                attributes::indicate_link(adapter, true);
            }
            Err(status) => {
                if opening.failed.replace(status) != Some(status) {
                    trace::wire_failed(adapter.number(), self.ends.local, status);
                }
                self.retry.set(RETRY, adapter);
            }
        }
    }

    fn open(&self, opening: &mut Opening) -> Result<DatagramSocket, NtStatus> {
        let Opening { client, asking, .. } = opening;
        let client = match client {
            Some(client) => client,
            // It is not there while the system starts, and nobody waits for it here.
            None => client.insert(WskProvider::capture(WSK_NO_WAIT)?),
        };
        let context = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the client and this live until the socket is closed, by `end` at the latest.
        unsafe { DatagramSocket::open(client, asking, self.ends.local, Some(&arrival::EVENTS), context) }
    }
}

/// The peers of a wire, and the stations that are said to be behind them.
#[inline(never)]
fn bridge(ends: &Ends) -> Result<Bridge, NtStatus> {
    let addresses = ends.peers.addresses();
    let mut bridge = Bridge::new(ends.vni, &addresses, None).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
    for peer in ends.peers.all() {
        if let Some(station) = peer.station {
            // There is room for as many, and each is a station behind a peer.
            let _ = bridge.fix(station, peer.address);
        }
    }
    Ok(bridge)
}

/// Returns true if a socket of which a request ends so does not work any more. That a datagram found no way, or that there was no memory,
/// says nothing of the socket.
fn breaks(status: NtStatus) -> bool {
    ![NtStatus::INSUFFICIENT_RESOURCES, NtStatus::NETWORK_UNREACHABLE, NtStatus::HOST_UNREACHABLE, NtStatus::CANCELLED]
        .contains(&status)
}

/// The end of the engine's wire.
struct Plug(Arc<Tunnel>);

impl Cable for Plug {
    fn send(&self, frame: &[u8]) {
        Tunnel::send(&self.0, frame);
    }
}

/// The DPC that hands datagrams to Winsock Kernel.
pub struct Flush;

impl Routine for Flush {
    type Target = Tunnel;

    fn run(tunnel: &Arc<Tunnel>) {
        Tunnel::flush(tunnel);
    }
}

/// The timer after which a socket is opened again.
pub struct Retry;

impl Routine for Retry {
    type Target = Adapter;

    fn run(adapter: &Arc<Adapter>) {
        Work::request::<Reconcile>(adapter);
    }
}

/// Makes the socket what it should be.
struct Reconcile;

impl Job for Reconcile {
    fn work(adapter: &Adapter) -> Option<&Work> {
        adapter.tunnel().map(|tunnel| &tunnel.work)
    }

    fn run(adapter: &Arc<Adapter>) {
        if let Some(tunnel) = adapter.tunnel() {
            tunnel.opening.with(|opening| tunnel.reconcile(adapter, opening));
        }
    }
}

//! A fabric with adapters on a seeded machine, and consumers that write down what they are told.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use engine::{
    Nic,
    connection::{
        ConnectParameters, ConnectionLimits, Connector, ConnectorClient, ConnectorRequest, DisconnectReason, Fabric,
        Incoming, InterfaceAddress, Listener, ListenerClient, Owner, Port, ReadLimits, SharedEndpoint, Timeouts,
    },
    cq::{Cq, CqClient, CqConsumer, CqParameters, notify::CqFailure},
    memory::{Domain, MemoryLimits, MemoryTable},
    nic::NicMode,
    qp::{Flags, Qp, QpParameters, Sge, Work},
};
use host::{HostOs, machine::Machine};
use ndkpi::NtStatus;
use testing::posters::{Initiator, Receiver};

use crate::failures::counted;

pub const LIMITS: ConnectionLimits = ConnectionLimits {
    max_caller_data: 56,
    max_callee_data: 148,
    max_reads: ReadLimits { inbound: 16, outbound: 12 },
    backlog: 4,
    loopback: true,
};

/// Microseconds.
pub const TIMEOUTS: Timeouts = Timeouts { connect: 1_000, establish: 2_000, disconnect: 4_000 };

pub const READS: ReadLimits = ReadLimits { inbound: 8, outbound: 8 };

/// What a connector's consumer was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Completed(ConnectorRequest, NtStatus),
    Disconnected(DisconnectReason),
    /// The client was dropped: the close is complete.
    Gone,
}

/// What was said so far.
#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<Vec<Said>>>);

impl Heard {
    fn lock(&self) -> MutexGuard<'_, Vec<Said>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was said since the last look.
    pub fn take(&self) -> Vec<Said> {
        std::mem::take(&mut *self.lock())
    }
}

/// Something that a consumer does when it is told something.
pub type Reaction = Box<dyn Fn(&Said) + Send + Sync>;

/// A consumer's connector, as the engine knows its consumer.
struct Consumer {
    heard: Heard,
    busy: AtomicBool,
    reaction: Reaction,
    _alive: Alive,
}

impl Consumer {
    fn hear(&self, said: Said) {
        HostOs::assert_callback_context();
        assert!(!self.busy.swap(true, SeqCst), "two calls at one time");
        self.heard.lock().push(said);
        (self.reaction)(&said);
        self.busy.store(false, SeqCst);
    }
}

impl ConnectorClient for Consumer {
    fn completed(&self, request: ConnectorRequest, status: NtStatus) {
        self.hear(Said::Completed(request, status));
    }

    fn disconnected(&self, reason: DisconnectReason) {
        self.hear(Said::Disconnected(reason));
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        assert!(!self.busy.load(SeqCst), "dropped while it is called");
        self.heard.lock().push(Said::Gone);
        (self.reaction)(&Said::Gone);
    }
}

/// Counts itself among what is alive.
pub struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Sees a client go.
#[derive(Clone, Default)]
pub struct Gone(Arc<AtomicBool>);

impl Gone {
    pub fn get(&self) -> bool {
        self.0.load(SeqCst)
    }
}

/// A client that has nothing to do but to go.
pub struct Silent {
    gone: Gone,
    last: Option<Box<dyn Fn() + Send + Sync>>,
    _alive: Alive,
}

impl Silent {
    /// Does something when it goes.
    pub fn at_last(mut self, last: impl Fn() + Send + Sync + 'static) -> Self {
        self.last = Some(Box::new(last));
        self
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.gone.0.store(true, SeqCst);
        if let Some(last) = &self.last {
            last();
        }
    }
}

impl CqClient for Silent {
    fn notify(&self, _: NtStatus) {}

    fn failed(&self, _: CqFailure) {}
}

/// A connector and what its consumer has heard.
#[derive(Clone)]
pub struct Node {
    pub connector: fallible::Arc<Connector<HostOs>>,
    pub heard: Heard,
}

impl Node {
    /// Closes the connector. What the consumer hears of it goes on to be written down.
    pub fn close(self) -> Heard {
        Connector::close(&self.connector);
        self.heard
    }

    pub fn take(&self) -> Vec<Said> {
        self.heard.take()
    }
}

/// A queue pair with a completion queue of its own.
pub struct Queues {
    pub qp: fallible::Arc<Qp<HostOs>>,
    pub initiator: Initiator<HostOs>,
    pub receiver: Receiver<HostOs>,
    pub completions: CqConsumer<HostOs>,
    pub gone: Gone,
}

impl Queues {
    /// Posts an empty send.
    pub fn send(&mut self, context: usize) -> Result<(), NtStatus> {
        let work = Work::Send { invalidate: None };
        self.initiator.post(context, work, Flags::default(), std::iter::empty::<Sge>())
    }

    /// Posts an empty send that completes only if it fails.
    pub fn send_silently(&mut self, context: usize) -> Result<(), NtStatus> {
        let flags = Flags::SILENT_SUCCESS;
        self.initiator.post(context, Work::Send { invalidate: None }, flags, std::iter::empty::<Sge>())
    }

    /// Posts an empty receive.
    pub fn receive(&mut self, context: usize) {
        self.receiver.post(context, std::iter::empty::<Sge>()).expect("room");
    }

    /// Contexts and statuses of what has completed.
    pub fn completed(&mut self) -> Vec<(usize, NtStatus)> {
        let mut found = Vec::new();
        self.completions
            .poll(usize::MAX, |completion| found.push((completion.request_context, completion.outcome.status())));
        found
    }

    /// Closes the queue pair: whether that is complete can be seen in the result.
    pub fn close(self) -> Gone {
        Qp::close(&self.qp);
        self.completions.cq().close();
        self.gone
    }
}

/// A listener, and what came in.
pub struct Server {
    pub listener: fallible::Arc<Listener<HostOs>>,
    pub address: SocketAddr,
    arrived: Arc<Mutex<Vec<Node>>>,
    pub gone: Gone,
}

impl Server {
    /// The connectors that came in since the last look.
    pub fn arrivals(&self) -> Vec<Node> {
        std::mem::take(&mut *self.arrived.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The one connector that came in.
    #[track_caller]
    pub fn arrival(&self) -> Node {
        let mut arrivals = self.arrivals();
        assert_eq!(arrivals.len(), 1);
        arrivals.remove(0)
    }

    /// The same server, for clients that know it by this address.
    pub fn known_as(self, address: &str) -> Self {
        Self { address: at(address), ..self }
    }

    pub fn close(self) -> Gone {
        Listener::close(&self.listener);
        self.gone
    }
}

struct Acceptor {
    arrived: Arc<Mutex<Vec<Node>>>,
    alive: Arc<AtomicUsize>,
    busy: AtomicBool,
    gone: Silent,
}

impl ListenerClient<HostOs> for Acceptor {
    fn connect_event(&self, incoming: Incoming<HostOs>) {
        HostOs::assert_callback_context();
        assert!(!self.busy.swap(true, SeqCst), "two connect events at one time");
        let (consumer, heard) = consumer(&self.alive, Box::new(|_| ()));
        if let Ok(connector) = counted(|| incoming.into_connector(consumer)) {
            self.arrived.lock().unwrap_or_else(PoisonError::into_inner).push(Node { connector, heard });
        }
        self.busy.store(false, SeqCst);
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        assert!(!self.gone.gone.get(), "dropped once");
    }
}

fn consumer(alive: &Arc<AtomicUsize>, reaction: Reaction) -> (Consumer, Heard) {
    alive.fetch_add(1, SeqCst);
    let heard = Heard::default();
    (Consumer { heard: heard.clone(), busy: AtomicBool::new(false), reaction, _alive: Alive(alive.clone()) }, heard)
}

/// One side of a connection.
pub struct Side {
    pub node: Node,
    pub queues: Queues,
}

impl Side {
    /// Closes everything of this side.
    pub fn close(self) -> Heard {
        let heard = self.node.close();
        self.queues.close();
        heard
    }

    pub fn heard(&self) -> Vec<Said> {
        self.node.take()
    }
}

/// A machine, a fabric, and what queue pairs need.
pub struct World {
    pub machine: Machine,
    pub os: HostOs,
    pub fabric: fallible::Arc<Fabric<HostOs>>,
    nic: fallible::Arc<Nic<HostOs>>,
    pub domain: fallible::Arc<Domain<HostOs>>,
    alive: Arc<AtomicUsize>,
}

impl World {
    pub fn new() -> Self {
        Self::on(Machine::seeded(1).start())
    }

    pub fn on(machine: Machine) -> Self {
        let os = HostOs::new(&machine);
        let limits = MemoryLimits { tokens: 16, mappings: 1, registration: 1 << 20, fast_register_pages: 1 };
        let table = MemoryTable::try_new(&os, limits).expect("memory");
        Self {
            fabric: Fabric::try_new(&os).expect("memory"),
            nic: Nic::try_new_in(&os, NicMode::Deferred).expect("memory"),
            domain: Domain::try_new(&table).expect("memory"),
            alive: Arc::default(),
            machine,
            os,
        }
    }

    /// Everything that can happen without waiting happens.
    pub fn run(&self) {
        self.machine.run_until_idle();
    }

    /// An adapter that has `addresses`, each in a network of its 24 (IPv4) or 64 (IPv6) leading bits.
    pub fn adapter(&self, addresses: &[&str]) -> fallible::Arc<Port<HostOs>> {
        self.adapter_with(addresses, LIMITS, TIMEOUTS)
    }

    pub fn adapter_with(
        &self,
        addresses: &[&str],
        limits: ConnectionLimits,
        timeouts: Timeouts,
    ) -> fallible::Arc<Port<HostOs>> {
        let port = self.try_adapter(limits, timeouts).expect("memory");
        for address in addresses {
            port.add_address(interface(address)).expect("a free address");
        }
        port
    }

    /// An adapter on that link, with these addresses and scope ids.
    pub fn adapter_on(&self, link: u32, addresses: &[(&str, u32)]) -> fallible::Arc<Port<HostOs>> {
        let port = Port::try_new_on_link(&self.fabric, link, LIMITS, TIMEOUTS).expect("memory");
        for (address, scope) in addresses {
            port.add_address(interface(address).in_scope(*scope)).expect("a free address");
        }
        port
    }

    /// An adapter without addresses.
    pub fn try_adapter(
        &self,
        limits: ConnectionLimits,
        timeouts: Timeouts,
    ) -> Result<fallible::Arc<Port<HostOs>>, NtStatus> {
        counted(|| Port::try_new(&self.fabric, limits, timeouts))
    }

    /// A client that only counts itself.
    pub fn silent(&self) -> (Silent, Gone) {
        self.alive.fetch_add(1, SeqCst);
        let gone = Gone::default();
        (Silent { gone: gone.clone(), last: None, _alive: Alive(self.alive.clone()) }, gone)
    }

    pub fn node(&self, port: &fallible::Arc<Port<HostOs>>) -> Node {
        self.node_that(port, Box::new(|_| ()))
    }

    pub fn node_that(&self, port: &fallible::Arc<Port<HostOs>>, reaction: Reaction) -> Node {
        self.try_node(port, reaction).expect("memory")
    }

    pub fn try_node(&self, port: &fallible::Arc<Port<HostOs>>, reaction: Reaction) -> Result<Node, NtStatus> {
        let (consumer, heard) = consumer(&self.alive, reaction);
        let connector = counted(|| Connector::try_new(port, Owner::default(), consumer))?;
        Ok(Node { connector, heard })
    }

    pub fn server(&self, port: &fallible::Arc<Port<HostOs>>, address: &str) -> Server {
        let server = self.idle_server(port).expect("memory");
        Listener::listen(&server.listener, at(address)).expect("a free port");
        Server { address: server.listener.local_address().expect("it listens"), ..server }
    }

    /// A server that does not listen yet.
    pub fn idle_server(&self, port: &fallible::Arc<Port<HostOs>>) -> Result<Server, NtStatus> {
        let (silent, gone) = self.silent();
        self.idle_server_of(port, silent, gone)
    }

    /// A server with a client of its own.
    pub fn idle_server_of(
        &self,
        port: &fallible::Arc<Port<HostOs>>,
        silent: Silent,
        gone: Gone,
    ) -> Result<Server, NtStatus> {
        let arrived = Arc::<Mutex<Vec<Node>>>::default();
        let (alive, busy) = (self.alive.clone(), AtomicBool::new(false));
        let acceptor = Acceptor { arrived: arrived.clone(), alive, busy, gone: silent };
        let listener = counted(|| Listener::try_new(port, Owner { process: Some(7) }, acceptor))?;
        Ok(Server { listener, address: at("0.0.0.0:0"), arrived, gone })
    }

    pub fn shared(
        &self,
        port: &fallible::Arc<Port<HostOs>>,
        address: &str,
    ) -> Result<(fallible::Arc<SharedEndpoint<HostOs>>, Gone), NtStatus> {
        let (client, gone) = self.silent();
        let address = at(address);
        let endpoint = counted(|| SharedEndpoint::try_new(port, address, Owner::default(), client))?;
        Ok((endpoint, gone))
    }

    pub fn queues(&self) -> Queues {
        self.try_queues().expect("memory")
    }

    pub fn try_queues(&self) -> Result<Queues, NtStatus> {
        let (client, gone) = self.silent();
        self.try_queues_of(client, gone)
    }

    /// Queues with a client of its own for the queue pair.
    pub fn try_queues_of(&self, last: Silent, gone: Gone) -> Result<Queues, NtStatus> {
        let (client, _) = self.silent();
        let parameters = CqParameters { depth: 64, max_depth: 64, processor: 0 };
        let (cq, completions) = Cq::try_new(&self.os, parameters, client)?;
        let parameters = QpParameters {
            receive_depth: 16,
            initiator_depth: 16,
            max_receive_sge: 1,
            max_initiator_sge: 1,
            max_peer_sge: 1,
            inline_size: 0,
            max_transfer: 1 << 20,
            context: 0,
        };
        let new =
            Qp::try_new(&self.nic, &self.domain, &cq, &cq, None, &parameters, last).inspect_err(|_| cq.close())?;
        let initiator = Initiator::new(&new.qp, new.send_queue);
        let receiver = Receiver::new(&new.qp, new.receive_queue);
        Ok(Queues { qp: new.qp, initiator, receiver, completions, gone })
    }

    /// A connect from an ephemeral port of `from`, up to the connector that came in.
    #[track_caller]
    pub fn request(&self, from: &str, client: &fallible::Arc<Port<HostOs>>, server: &Server) -> (Side, Node) {
        let side = Side { node: self.node(client), queues: self.queues() };
        connect(&side, from, server.address, b"").expect("pending");
        self.run();
        (side, server.arrival())
    }

    /// [`World::request`] that is accepted too.
    #[track_caller]
    pub fn accepted(&self, from: &str, client: &fallible::Arc<Port<HostOs>>, server: &Server) -> (Side, Side) {
        let (active, arrival) = self.request(from, client, server);
        let passive = Side { node: arrival, queues: self.queues() };
        accept(&passive, b"").expect("pending");
        self.run();
        assert_eq!(active.heard(), [Said::Completed(ConnectorRequest::Connect, NtStatus::SUCCESS)]);
        (active, passive)
    }

    /// A connection from an ephemeral port of `from`.
    #[track_caller]
    pub fn connected(&self, from: &str, client: &fallible::Arc<Port<HostOs>>, server: &Server) -> (Side, Side) {
        let (active, passive) = self.accepted(from, client, server);
        drop(Connector::complete_connect(&active.node.connector).expect("accepted"));
        self.run();
        assert_eq!(active.heard(), []);
        assert_eq!(passive.heard(), [Said::Completed(ConnectorRequest::Accept, NtStatus::SUCCESS)]);
        (active, passive)
    }

    /// Checks that nothing is left of all that was made, and stops the machine.
    #[track_caller]
    pub fn finish(self) {
        self.run();
        self.finish_threads();
    }

    /// [`World::finish`] on a machine of threads.
    #[track_caller]
    pub fn finish_threads(self) {
        let Self { machine, os, fabric, nic, domain, alive } = self;
        machine.flush();
        assert_eq!(alive.load(SeqCst), 0, "clients that were not dropped");
        assert_eq!(fallible::Arc::references_now(&fabric), 1, "references to the fabric");
        assert_eq!(machine.leaks(), None);
        drop((fabric, nic, domain, os));
        machine.shutdown();
    }
}

pub fn at(address: &str) -> SocketAddr {
    address.parse().expect("an address")
}

pub fn interface(address: &str) -> InterfaceAddress {
    let address: IpAddr = address.parse().expect("an address");
    InterfaceAddress::new(address, if address.is_ipv4() { 24 } else { 64 })
}

/// Connects from an ephemeral port.
pub fn connect(side: &Side, from: &str, to: SocketAddr, data: &[u8]) -> Result<(), NtStatus> {
    connect_from(side, SocketAddr::new(from.parse().expect("an address"), 0), to, data)
}

pub fn connect_from(side: &Side, from: SocketAddr, to: SocketAddr, data: &[u8]) -> Result<(), NtStatus> {
    Connector::connect(&side.node.connector, &side.queues.qp, from, &asking(to, data))
}

pub fn connect_shared(
    side: &Side,
    endpoint: &fallible::Arc<SharedEndpoint<HostOs>>,
    to: SocketAddr,
) -> Result<(), NtStatus> {
    Connector::connect_shared(&side.node.connector, &side.queues.qp, endpoint, &asking(to, b""))
}

pub const fn asking(remote: SocketAddr, private_data: &[u8]) -> ConnectParameters<'_> {
    ConnectParameters { remote, reads: READS, private_data }
}

pub fn accept(side: &Side, data: &[u8]) -> Result<(), NtStatus> {
    Connector::accept(&side.node.connector, &side.queues.qp, READS, data)
}

/// What a consumer hears when `request` is answered.
pub const fn answer(request: ConnectorRequest, status: NtStatus) -> Said {
    Said::Completed(request, status)
}

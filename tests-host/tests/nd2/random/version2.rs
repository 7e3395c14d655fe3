//! A client of version 2.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use conformance::random::Random;
use nd2::abi::{
    HRESULT, IID_IND2MemoryRegion, IID_IND2MemoryWindow, ND2_REQUEST_TYPE, ND2_RESULT, ND2_SGE, OVERLAPPED,
    mr_flags::{ND_MR_FLAG_ALLOW_REMOTE_READ, ND_MR_FLAG_ALLOW_REMOTE_WRITE},
    notify::{ND_CQ_NOTIFY_ANY, ND_CQ_NOTIFY_ERRORS, ND_CQ_NOTIFY_SOLICITED},
    op_flags::{
        ND_OP_FLAG_ALLOW_READ, ND_OP_FLAG_ALLOW_WRITE, ND_OP_FLAG_INLINE, ND_OP_FLAG_READ_FENCE,
        ND_OP_FLAG_SEND_AND_SOLICIT_EVENT, ND_OP_FLAG_SILENT_SUCCESS,
    },
};
use nd2_selftest::{
    Memory, Overlapped, World,
    client::{Connector, Listener, Piece, Qp, QpSizes, Queue, Region, Srq, Window, foreign},
};

use super::{Method, Requests, expect, some};
use crate::statuses::is_valid;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

type H = HRESULT;

static NOTIFY: Method =
    Method::new("Notify", &[H::ND_BUFFER_OVERFLOW, H::ND_CANCELED, H::ND_INSUFFICIENT_RESOURCES, H::ND_DEVICE_REMOVED]);
static NOTIFY_SHARED: Method = Method::new(
    "IND2SharedReceiveQueue::Notify",
    &[H::ND_CANCELED, H::ND_INSUFFICIENT_RESOURCES, H::ND_DEVICE_REMOVED],
);
static REGISTER: Method = Method::new(
    "Register",
    &[
        H::ND_INSUFFICIENT_RESOURCES,
        H::ND_ACCESS_VIOLATION,
        H::ND_DEVICE_REMOVED,
        H::ND_INVALID_PARAMETER,
        // It is registered.
        H::ND_INVALID_DEVICE_STATE,
    ],
);
static DEREGISTER: Method = Method::new(
    "Deregister",
    // It is not registered.
    &[H::ND_DEVICE_BUSY, H::ND_INVALID_DEVICE_STATE],
);
static CONNECT: Method = Method::new(
    "Connect",
    &[
        H::ND_CANCELED,
        H::ND_DEVICE_REMOVED,
        H::ND_CONNECTION_ACTIVE,
        H::ND_CONNECTION_REFUSED,
        H::ND_HOST_UNREACHABLE,
        H::ND_NETWORK_UNREACHABLE,
        // Decisions.
        H::ND_CONNECTION_INVALID,
        H::ND_INVALID_ADDRESS,
        H::ND_ADDRESS_ALREADY_EXISTS,
    ],
);
static COMPLETE: Method =
    Method::new("CompleteConnect", &[H::ND_CANCELED, H::ND_CONNECTION_INVALID, H::ND_DEVICE_REMOVED]);
static ACCEPT: Method = Method::new(
    "Accept",
    &[
        H::ND_CANCELED,
        H::ND_DEVICE_REMOVED,
        H::ND_CONNECTION_ACTIVE,
        H::ND_CONNECTION_ABORTED,
        // A decision.
        H::ND_CONNECTION_INVALID,
    ],
);
static HEAR: Method =
    Method::new("NotifyDisconnect", &[H::ND_CANCELED, H::ND_CONNECTION_INVALID, H::ND_DEVICE_REMOVED]);
static DISCONNECT: Method =
    Method::new("Disconnect", &[H::ND_CANCELED, H::ND_CONNECTION_INVALID, H::ND_DEVICE_REMOVED]);
static GET_REQUEST: Method = Method::new(
    "GetConnectionRequest",
    &[
        H::ND_CANCELED,
        H::ND_DEVICE_REMOVED,
        // The connector has a connection.
        H::ND_CONNECTION_ACTIVE,
    ],
);

/// What posting may answer. It is the same for all, but that nobody has to be connected for a receive.
const POST: &[H] = &[
    H::ND_CONNECTION_INVALID,
    H::ND_NO_MORE_ENTRIES,
    H::ND_DATA_OVERRUN,
    H::ND_BUFFER_OVERFLOW,
    H::ND_DEVICE_REMOVED,
    // A decision: inline, and longer than the queue pair allows.
    H::ND_INVALID_BUFFER_SIZE,
];
const BIND: &[H] = &[
    H::ND_CONNECTION_INVALID,
    H::ND_NO_MORE_ENTRIES,
    H::ND_ACCESS_VIOLATION,
    H::ND_DEVICE_REMOVED,
    // Without a right.
    H::ND_INVALID_PARAMETER_6,
];
const BIND_ADDRESS: &[H] = &[
    H::ND_SHARING_VIOLATION,
    H::ND_DEVICE_REMOVED,
    H::ND_CANCELED,
    H::ND_INVALID_ADDRESS,
    // A decision.
    HRESULT::of(ndkpi::NtStatus::ADDRESS_ALREADY_ASSOCIATED),
];
const STATE: &[H] = &[H::ND_CONNECTION_INVALID, H::ND_DEVICE_REMOVED, H::ND_CONNECTION_ABORTED, H::ND_BUFFER_OVERFLOW];

/// Bytes of a message or of its place.
const SLOT: usize = 64;
const SLOTS: usize = 512;
/// Where messages are sent from, received, and where reads and writes go.
const PLACES: [usize; 3] = [0, SLOT * SLOTS, 2 * SLOT * SLOTS];

/// A work request.
struct Work {
    context: usize,
    kind: ND2_REQUEST_TYPE,
    silent: bool,
}

/// A queue pair, and what was posted to it.
struct Pair {
    qp: Option<Qp>,
    queue: usize,
    shared: Option<usize>,
    initiates: VecDeque<Work>,
    receives: VecDeque<Work>,
    /// The newest message that it has received.
    newest: usize,
}

struct Completions {
    queue: Option<Queue>,
    /// Requests for notification that were issued while it was empty, and their types.
    waiting: Vec<(*mut OVERLAPPED, u32)>,
}

/// Two connectors and two queue pairs that have been connected.
struct Link {
    connectors: [usize; 2],
    pairs: [usize; 2],
}

/// A client of version 2. What it releases leaves an empty place.
pub struct Version2 {
    memory: Piece,
    buffers: Vec<Memory>,
    queues: Vec<Completions>,
    shared: Vec<(Option<Srq>, Vec<usize>)>,
    pairs: Vec<Pair>,
    connectors: Vec<Option<Connector>>,
    listeners: Vec<Option<Listener>>,
    regions: Vec<Option<Region>>,
    windows: Vec<Option<Window>>,
    links: Vec<Link>,
    posted: usize,
    /// Messages that were posted and not received, and how long they are.
    sent: HashMap<usize, u32>,
}

/// A place that is not empty.
fn alive<T>(random: &mut Random, all: &[Option<T>]) -> Option<usize> {
    let places: Vec<_> = (0..all.len()).filter(|at| all[*at].is_some()).collect();
    some(random, places.len()).map(|at| places[at])
}

impl Version2 {
    pub fn new(world: &World, requests: &mut Requests) -> Self {
        let buffer = Memory::try_new(3 * SLOT * SLOTS).expect("memory");
        let region = world.adapter.region(world.file).expect("a region");
        let (at, length) = (buffer.pointer(0).cast(), 3 * SLOT * SLOTS);
        let flags = ND_MR_FLAG_ALLOW_REMOTE_READ | ND_MR_FLAG_ALLOW_REMOTE_WRITE;
        requests.ask(world, &REGISTER, |request| region.register(at, length, flags, request));
        world.settle();
        Self {
            memory: Piece { region, buffer },
            buffers: Vec::new(),
            queues: Vec::new(),
            shared: Vec::new(),
            pairs: Vec::new(),
            connectors: Vec::new(),
            listeners: Vec::new(),
            regions: Vec::new(),
            windows: Vec::new(),
            links: Vec::new(),
            posted: 0,
            sent: HashMap::new(),
        }
    }

    pub fn step(&mut self, world: &World, requests: &mut Requests, random: &mut Random) {
        match random.below(32) {
            0..3 => self.make(world, random),
            3..6 => self.connect(world, requests, random),
            6..10 => self.receive(random),
            10..14 => self.send(random),
            14..17 => self.read_or_write(random),
            17 | 18 => self.bind_or_invalidate(random),
            19..23 => self.take(world, requests, random),
            23 => self.notify(world, requests, random),
            24 => self.cancel(random),
            25 | 26 => self.of_connector(world, requests, random),
            27 => self.of_listener(world, requests, random),
            28 => self.of_region(world, requests, random),
            29 => self.others(world, requests, random),
            30 => self.release(random),
            _ => {
                world.settle();
                requests.look();
            }
        }
    }

    fn make(&mut self, world: &World, random: &mut Random) {
        let (adapter, file) = (&world.adapter, world.file);
        match random.below(8) {
            0 | 1 => self.queues.push(Completions { queue: adapter.queue(file, 2048, 0).ok(), waiting: Vec::new() }),
            2 | 3 => self.pair(world, random),
            4 => self.connectors.push(adapter.connector(file).ok()),
            5 => self.regions.push(adapter.region(file).ok()),
            6 => self.windows.push(adapter.window().ok()),
            _ => self.shared.push((adapter.srq(file, 16, 2, random.below(4)).ok(), Vec::new())),
        }
    }

    fn pair(&mut self, world: &World, random: &mut Random) {
        if self.queues.iter().all(|line| line.queue.is_none()) {
            self.queues.push(Completions { queue: world.adapter.queue(world.file, 2048, 0).ok(), waiting: Vec::new() });
        }
        let alive: Vec<_> = (0..self.queues.len()).filter(|at| self.queues[*at].queue.is_some()).collect();
        let queue = alive[some(random, alive.len()).expect("a queue")];
        let line = self.queues[queue].queue.as_ref().expect("a queue");
        let number = self.pairs.len() + 1;
        let shared = (0..self.shared.len()).find(|at| self.shared[*at].0.is_some() && random.chance(30));
        let alone = || {
            let sizes = QpSizes { receives: 16, initiates: 16, receive_sge: 2, initiator_sge: 2, inline: 64 };
            world.adapter.qp(line.as_ptr(), line.as_ptr(), number, sizes)
        };
        let with = |srq: &Srq| world.adapter.qp_with_srq(line, srq.as_ptr(), number);
        let made = shared.and_then(|at| self.shared[at].0.as_ref()).map_or_else(alone, with);
        let (initiates, receives) = (VecDeque::new(), VecDeque::new());
        self.pairs.push(Pair { qp: made.ok(), queue, shared, initiates, receives, newest: 0 });
    }

    /// Goes through all that it takes to connect two queue pairs, or stops half-way.
    fn connect(&mut self, world: &World, requests: &mut Requests, random: &mut Random) {
        let mut pairs = [0; 2];
        for pair in &mut pairs {
            if random.chance(60) || self.pairs.is_empty() {
                self.pair(world, random);
                *pair = self.pairs.len() - 1;
            } else {
                *pair = some(random, self.pairs.len()).expect("a queue pair");
            }
        }
        let (adapter, file) = (&world.adapter, world.file);
        let (Ok(active), Ok(passive), Ok(listener)) =
            (adapter.connector(file), adapter.connector(file), adapter.listener(file))
        else {
            return;
        };
        let connectors = [self.connectors.len(), self.connectors.len() + 1];
        let mut stops = || random.chance(6);
        let bound = listener.bind(SocketAddr::new(HERE, 0)) == HRESULT::ND_SUCCESS;
        let [one, other] = pairs.map(|at| self.pairs[at].qp.as_ref());
        if let (true, Some(one), Some(other), HRESULT::ND_SUCCESS) = (bound, one, other, listener.listen(0))
            && let Ok(at) = listener.local()
            && !stops()
        {
            requests.ask(world, &GET_REQUEST, |request| listener.request(&passive, request));
            requests.ask(world, &CONNECT, |request| active.connect(one, at, (4, 4), b"hello", request));
            let connects = requests.newest();
            world.settle();
            if !stops() {
                let pends = requests.ask(world, &ACCEPT, |request| passive.accept(other, (4, 4), b"welcome", request));
                let accepts = requests.newest();
                world.settle();
                if pends && requests.status(connects) == Some(HRESULT::ND_SUCCESS) && !stops() {
                    requests.ask(world, &COMPLETE, |request| active.complete(request));
                    world.settle();
                    if requests.status(accepts) == Some(HRESULT::ND_SUCCESS) {
                        self.links.push(Link { connectors, pairs });
                    }
                }
            }
        }
        self.connectors.extend([Some(active), Some(passive)]);
        self.listeners.push(Some(listener));
    }

    /// The context of the next work request, and its place in the memory.
    fn next(&mut self) -> (usize, usize) {
        self.posted += 1;
        (self.posted, self.posted % SLOTS * SLOT)
    }

    /// A piece of the memory, seldom with the token of nothing.
    fn piece(&self, random: &mut Random, offset: usize, length: u32) -> ND2_SGE {
        if random.chance(2) {
            return foreign(self.memory.address(offset), length, random.below(100));
        }
        self.memory.sge(offset, length)
    }

    fn receive(&mut self, random: &mut Random) {
        let (context, offset) = self.next();
        let length = if random.chance(3) { 4 } else { 64 };
        let list = [self.piece(random, PLACES[1] + offset, length)];
        let Some(at) = some(random, self.pairs.len()) else { return };
        let pair = &mut self.pairs[at];
        if let Some(at) = pair.shared {
            let (Some(srq), posted) = &mut self.shared[at] else { return };
            let result = srq.receive(context, &list);
            expect("IND2SharedReceiveQueue::Receive", result, POST);
            if result == HRESULT::ND_SUCCESS {
                posted.push(context);
            }
            return;
        }
        let Some(qp) = &pair.qp else { return };
        let result = qp.receive(context, &list);
        expect("Receive", result, POST);
        if result == HRESULT::ND_SUCCESS {
            pair.receives.push_back(Work { context, kind: ND2_REQUEST_TYPE::RECEIVE, silent: false });
        }
    }

    /// Posts an initiator request to some queue pair.
    fn initiate(
        &mut self,
        random: &mut Random,
        kind: ND2_REQUEST_TYPE,
        flags: u32,
        listed: &[HRESULT],
        post: impl FnOnce(&Qp, usize) -> HRESULT,
    ) -> bool {
        let context = self.posted;
        let Some(at) = some(random, self.pairs.len()) else { return false };
        let pair = &mut self.pairs[at];
        let Some(qp) = &pair.qp else { return false };
        let result = post(qp, context);
        expect(format_args!("{kind:?}"), result, listed);
        let accepted = result == HRESULT::ND_SUCCESS;
        if accepted {
            let silent = flags & ND_OP_FLAG_SILENT_SUCCESS != 0;
            pair.initiates.push_back(Work { context, kind, silent });
        }
        accepted
    }

    fn send(&mut self, random: &mut Random) {
        let (context, offset) = self.next();
        let length = 8 + random.below(57);
        let mut flags = 0;
        for flag in
            [ND_OP_FLAG_SILENT_SUCCESS, ND_OP_FLAG_READ_FENCE, ND_OP_FLAG_SEND_AND_SOLICIT_EVENT, ND_OP_FLAG_INLINE]
        {
            flags |= if random.chance(20) { flag } else { 0 };
        }
        self.memory.buffer.write(offset, &(context as u64).to_le_bytes());
        let cut = 4;
        let list = if flags & ND_OP_FLAG_INLINE == 0 && random.chance(30) {
            vec![self.piece(random, offset, cut), self.piece(random, offset + 4, length - cut)]
        } else {
            vec![self.piece(random, offset, length)]
        };
        if self.initiate(random, ND2_REQUEST_TYPE::SEND, flags, POST, |qp, context| qp.send(context, &list, flags)) {
            self.sent.insert(context, length);
        }
    }

    fn read_or_write(&mut self, random: &mut Random) {
        let (_, offset) = self.next();
        let list = [self.piece(random, PLACES[2] + offset, 64)];
        let (mut token, address) = (self.memory.region.remote_token(), self.memory.address(PLACES[2]));
        if let Some(Some(window)) = some(random, self.windows.len()).map(|at| &self.windows[at])
            && random.chance(20)
        {
            token = window.remote_token();
        }
        let flags = if random.chance(20) { ND_OP_FLAG_SILENT_SUCCESS } else { 0 };
        if random.chance(50) {
            let post = |qp: &Qp, context| qp.read(context, &list, address, token, flags);
            self.initiate(random, ND2_REQUEST_TYPE::READ, flags, POST, post);
        } else {
            let post = |qp: &Qp, context| qp.write(context, &list, address, token, flags);
            self.initiate(random, ND2_REQUEST_TYPE::WRITE, flags, POST, post);
        }
    }

    fn bind_or_invalidate(&mut self, random: &mut Random) {
        self.next();
        let Some(at) = alive(random, &self.windows) else { return };
        // References of its own, as a client may have.
        let window = self.windows[at].as_ref().expect("a window").query(&IID_IND2MemoryWindow);
        let window: Window = window.expect("its interface");
        if random.chance(40) {
            let post = |qp: &Qp, context| qp.invalidate(context, &window, 0);
            self.initiate(random, ND2_REQUEST_TYPE::INVALIDATE, 0, POST, post);
            return;
        }
        let rights =
            [ND_OP_FLAG_ALLOW_READ, ND_OP_FLAG_ALLOW_WRITE, 0, ND_OP_FLAG_ALLOW_READ][random.below(4) as usize];
        let flags = rights | if random.chance(20) { ND_OP_FLAG_SILENT_SUCCESS } else { 0 };
        let other = alive(random, &self.regions).filter(|_| random.chance(30));
        let region = other.and_then(|at| self.regions[at].as_ref()).unwrap_or(&self.memory.region);
        let region: Region = region.query(&IID_IND2MemoryRegion).expect("its interface");
        let place = (self.memory.address(PLACES[2]), 4096);
        let post = |qp: &Qp, context| qp.bind(context, &region, &window, place, flags);
        self.initiate(random, ND2_REQUEST_TYPE::BIND, flags, BIND, post);
    }

    /// Takes results from a queue.
    fn take(&mut self, world: &World, requests: &mut Requests, random: &mut Random) {
        let Some(at) = some(random, self.queues.len()) else { return };
        self.take_from(at, world, requests, random.below(8));
    }

    fn take_from(&mut self, at: usize, world: &World, requests: &mut Requests, most: u32) -> usize {
        let Some(queue) = &self.queues[at].queue else { return 0 };
        let results = queue.results(most);
        for result in &results {
            self.ended(result);
            requests.see(format_args!("{:?}", result.RequestType), result.Status);
        }
        if !results.is_empty() && !self.queues[at].waiting.is_empty() {
            world.settle();
            let failed = results.iter().any(|result| result.Status != HRESULT::ND_SUCCESS);
            for (request, kind) in std::mem::take(&mut self.queues[at].waiting) {
                if kind == ND_CQ_NOTIFY_ANY || failed {
                    assert!(!requests.pends(request), "a result without a notification of type {kind}");
                } else {
                    self.queues[at].waiting.push((request, kind));
                }
            }
        }
        results.len()
    }

    /// One result.
    fn ended(&mut self, result: &ND2_RESULT) {
        let context = result.RequestContext.addr();
        let kind = result.RequestType;
        assert!(is_valid(kind, result.Status), "{result:?}");
        let pair = result.QueuePairContext.addr().checked_sub(1).and_then(|at| self.pairs.get_mut(at));
        let pair = pair.unwrap_or_else(|| panic!("no such queue pair: {result:?}"));
        if kind != ND2_REQUEST_TYPE::RECEIVE {
            let work = loop {
                let work = pair.initiates.pop_front().unwrap_or_else(|| panic!("nothing is posted: {result:?}"));
                if work.context == context {
                    break work;
                }
                assert!(work.silent, "{result:?} before {}", work.context);
            };
            assert_eq!(work.kind, kind);
            assert!(!work.silent || result.Status != HRESULT::ND_SUCCESS, "silent: {result:?}");
            return;
        }
        if let Some(at) = pair.shared {
            let posted = &mut self.shared[at].1;
            let place = posted.iter().position(|one| *one == context);
            posted.swap_remove(place.unwrap_or_else(|| panic!("not posted: {result:?}")));
        } else {
            let work = pair.receives.pop_front().unwrap_or_else(|| panic!("nothing is posted: {result:?}"));
            assert_eq!(work.context, context, "{result:?}");
        }
        if result.Status == HRESULT::ND_SUCCESS {
            let bytes = self.memory.buffer.bytes(PLACES[1] + context % SLOTS * SLOT, 8);
            let message = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
            let message = usize::try_from(message).expect("a number");
            assert!(message > pair.newest, "{message} after {}", pair.newest);
            pair.newest = message;
            assert_eq!(self.sent.remove(&message), Some(result.BytesTransferred), "message {message}");
        }
    }

    fn notify(&mut self, world: &World, requests: &mut Requests, random: &mut Random) {
        let Some(at) = some(random, self.queues.len()) else { return };
        let kind =
            [ND_CQ_NOTIFY_ANY, ND_CQ_NOTIFY_ANY, ND_CQ_NOTIFY_ERRORS, ND_CQ_NOTIFY_SOLICITED][random.below(4) as usize];
        world.settle();
        let is_empty = self.take_from(at, world, requests, 0) == 0 && random.chance(70) && {
            while self.take_from(at, world, requests, 16) != 0 {}
            true
        };
        let Some(queue) = &self.queues[at].queue else { return };
        let pends = requests.ask(world, &NOTIFY, |request| queue.notify(kind, request));
        if is_empty && pends && requests.pends(requests.newest()) {
            let newest = requests.newest();
            self.queues[at].waiting.push((newest, kind));
        }
    }

    fn cancel(&mut self, random: &mut Random) {
        const LISTED: &[HRESULT] = &[HRESULT::ND_UNSUCCESSFUL];
        fn of<T: Overlapped>(random: &mut Random, all: &[Option<T>]) {
            if let Some(Some(one)) = some(random, all.len()).map(|at| &all[at]) {
                expect("CancelOverlappedRequests", one.cancel(), LISTED);
            }
        }
        match random.below(5) {
            0 | 1 => of(random, &self.connectors),
            2 => of(random, &self.listeners),
            3 => of(random, &self.regions),
            _ => {
                if let Some(at) = some(random, self.queues.len())
                    && let Completions { queue: Some(queue), waiting } = &mut self.queues[at]
                {
                    waiting.clear();
                    expect("CancelOverlappedRequests", queue.cancel(), LISTED);
                }
            }
        }
    }

    fn of_connector(&self, world: &World, requests: &mut Requests, random: &mut Random) {
        let Some(at) = alive(random, &self.connectors) else { return };
        let connector = self.connectors[at].as_ref().expect("a connector");
        let qp = some(random, self.pairs.len()).and_then(|at| self.pairs[at].qp.as_ref());
        let address = SocketAddr::new(HERE, [0, 5000, 5001][random.below(3) as usize]);
        let port = alive(random, &self.listeners).and_then(|at| self.listeners[at].as_ref()?.local().ok());
        match random.below(11) {
            0 => expect("Bind", connector.bind(address), BIND_ADDRESS),
            1 | 2 => {
                let (Some(qp), to) = (qp, port.unwrap_or(address)) else { return };
                requests.ask(world, &CONNECT, |request| connector.connect(qp, to, (1, 1), b"", request));
            }
            3 => _ = requests.ask(world, &COMPLETE, |request| connector.complete(request)),
            4 => {
                let Some(qp) = qp else { return };
                requests.ask(world, &ACCEPT, |request| connector.accept(qp, (1, 1), b"", request));
            }
            5 => expect("Reject", connector.reject(b"no"), STATE),
            6 => expect("GetReadLimits", connector.read_limits().err().unwrap_or(HRESULT::ND_SUCCESS), STATE),
            7 => expect("GetPrivateData", connector.private_data(&mut [0; 8]).0, STATE),
            8 => expect("GetPeerAddress", connector.peer().err().unwrap_or(HRESULT::ND_SUCCESS), STATE),
            9 => _ = requests.ask(world, &HEAR, |request| connector.notify_disconnect(request)),
            _ => _ = requests.ask(world, &DISCONNECT, |request| connector.disconnect(request)),
        }
    }

    fn of_listener(&mut self, world: &World, requests: &mut Requests, random: &mut Random) {
        let Some(at) = alive(random, &self.listeners) else {
            return self.listeners.push(world.adapter.listener(world.file).ok());
        };
        let listener = self.listeners[at].as_ref().expect("a listener");
        match random.below(3) {
            0 => {
                let address = SocketAddr::new(HERE, [0, 5000, 5001][random.below(3) as usize]);
                expect("IND2Listener::Bind", listener.bind(address), BIND_ADDRESS);
            }
            1 => {
                // Not bound, or listening: a decision.
                let listed = [H::ND_INVALID_DEVICE_STATE, BIND_ADDRESS[4], H::ND_DEVICE_REMOVED];
                expect("Listen", listener.listen(random.below(3)), &listed);
            }
            _ => {
                let Some(at) = alive(random, &self.connectors) else { return };
                let connector = self.connectors[at].as_ref().expect("a connector");
                requests.ask(world, &GET_REQUEST, |request| listener.request(connector, request));
            }
        }
    }

    fn of_region(&mut self, world: &World, requests: &mut Requests, random: &mut Random) {
        let Some(at) = alive(random, &self.regions) else { return };
        let region = self.regions[at].as_ref().expect("a region");
        if random.chance(50) {
            let buffer = Memory::try_new(4096).expect("memory");
            let flags = [0, ND_MR_FLAG_ALLOW_REMOTE_READ, ND_MR_FLAG_ALLOW_REMOTE_WRITE][random.below(3) as usize];
            let bytes = buffer.pointer(0).cast();
            requests.ask(world, &REGISTER, |request| region.register(bytes, 4096, flags, request));
            self.buffers.push(buffer);
        } else {
            requests.ask(world, &DEREGISTER, |request| region.deregister(request));
        }
    }

    fn others(&self, world: &World, requests: &mut Requests, random: &mut Random) {
        match random.below(4) {
            0 => {
                if let Some(Some(qp)) = some(random, self.pairs.len()).map(|at| &self.pairs[at].qp) {
                    expect("Flush", qp.flush(), &[HRESULT::ND_DEVICE_REMOVED]);
                }
            }
            1 => {
                if let Some(Some(queue)) = some(random, self.queues.len()).map(|at| &self.queues[at].queue) {
                    let listed = [H::ND_BUFFER_OVERFLOW, H::ND_DEVICE_REMOVED];
                    expect("Resize", queue.resize(1024 + random.below(2048)), &listed);
                }
            }
            2 => {
                if let Some(Some(srq)) = some(random, self.shared.len()).map(|at| &self.shared[at].0) {
                    let listed = [H::ND_BUFFER_OVERFLOW, H::ND_INVALID_PARAMETER, H::ND_DEVICE_REMOVED];
                    expect("Modify", srq.modify(8 + random.below(16), random.below(8)), &listed);
                }
            }
            _ => {
                if let Some(Some(srq)) = some(random, self.shared.len()).map(|at| &self.shared[at].0) {
                    requests.ask(world, &NOTIFY_SHARED, |request| srq.notify(request));
                }
            }
        }
    }

    fn release(&mut self, random: &mut Random) {
        fn one<T>(random: &mut Random, all: &mut [Option<T>]) {
            if let Some(at) = some(random, all.len()) {
                all[at] = None;
            }
        }
        match random.below(7) {
            0 => one(random, &mut self.connectors),
            1 => one(random, &mut self.listeners),
            2 => one(random, &mut self.regions),
            3 => one(random, &mut self.windows),
            4 => {
                if let Some(at) = some(random, self.pairs.len()) {
                    self.pairs[at].qp = None;
                }
            }
            5 => {
                if let Some(at) = some(random, self.shared.len()) {
                    self.shared[at].0 = None;
                }
            }
            _ => {
                if let Some(at) = some(random, self.queues.len()) {
                    self.queues[at].queue = None;
                }
            }
        }
    }

    /// Disconnects every connection of which all is still there: what was posted on it has ended then.
    pub fn disconnect(&mut self, world: &World, requests: &mut Requests, random: &mut Random) {
        for link in std::mem::take(&mut self.links) {
            world.settle();
            let side = random.below(2) as usize;
            let Some(connector) = &self.connectors[link.connectors[side]] else { continue };
            let pends = requests.ask(world, &DISCONNECT, |request| connector.disconnect(request));
            let ended = requests.newest();
            world.settle();
            if !pends || requests.status(ended) != Some(HRESULT::ND_SUCCESS) {
                continue;
            }
            for at in 0..self.queues.len() {
                while self.take_from(at, world, requests, 16) != 0 {}
            }
            for at in link.pairs {
                let Pair { qp: Some(_), queue, initiates, receives, .. } = &self.pairs[at] else { continue };
                if self.queues[*queue].queue.is_some() {
                    let left = initiates.iter().filter(|work| !work.silent).chain(receives);
                    let left: Vec<_> = left.map(|work| (work.context, work.kind)).collect();
                    assert!(left.is_empty(), "outstanding after Disconnect: {left:?}");
                }
            }
        }
    }

    /// Releases everything, in any order. The memory is to be kept until the world has ended.
    pub fn end(mut self, world: &World, random: &mut Random) -> Vec<Memory> {
        for _ in 0..random.below(60) {
            self.release(random);
            if random.chance(10) {
                world.settle();
            }
        }
        let Self { memory: Piece { region, buffer }, mut buffers, .. } = self;
        drop(region);
        buffers.push(buffer);
        buffers
    }
}

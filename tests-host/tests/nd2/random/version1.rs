//! A client of version 1, whose results are in blocks of its own.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ptr,
};

use conformance::random::Random;
use nd2::{
    CompletionPolicy,
    abi::{
        HRESULT, IID_IClassFactory, IID_INDProvider, IUnknownVtbl, ND_MR_HANDLE, ND_MW_DESCRIPTOR, ND_RESULT,
        notify::ND_CQ_NOTIFY_ANY,
        op_flags::{ND_OP_FLAG_ALLOW_READ, ND_OP_FLAG_ALLOW_WRITE},
    },
};
use nd2_selftest::{
    Client, Com, Memory, Overlapped, World,
    client::{Adapter1, Connector1, Endpoint1, Factory, Listen1, Provider1, Queue1, Region1},
};

use super::{expect, some};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// What cancelling may answer besides success.
const CANCEL: &[HRESULT] = &[HRESULT::ND_UNSUCCESSFUL];
const BYTES: usize = 16 << 10;

/// A queue and what came of it.
struct End {
    connector: Option<Connector1>,
    endpoint: Option<Endpoint1>,
}

/// Places for results, which stay where they are when there are more.
pub type Blocks = Vec<Box<ND_RESULT>>;

/// A client of version 1.
pub struct Version1 {
    adapter: Adapter1,
    region: Region1,
    queues: Vec<Option<Queue1>>,
    ends: Vec<End>,
    listens: Vec<(Option<Listen1>, u16)>,
    window: Option<Com<IUnknownVtbl>>,
    descriptor: Option<ND_MW_DESCRIPTOR>,
    /// The blocks, which stay where they are, and those whose results have not come.
    blocks: Blocks,
    outstanding: HashSet<*mut ND_RESULT>,
    /// With what each request has been answered.
    requests: Vec<Client>,
}

impl Version1 {
    pub fn new(world: &World) -> Self {
        let iid = IID_IClassFactory;
        let factory: Factory = Com::make(|out| world.class_object(&raw const iid, out)).expect("a factory");
        let provider: Provider1 = factory.create(ptr::null_mut(), &IID_INDProvider).expect("the provider");
        let adapter = provider.open(SocketAddr::new(HERE, 0)).expect("the adapter");
        let (buffer, request) = (Memory::try_new(BYTES).expect("memory"), world.request());
        let mut handle = ND_MR_HANDLE(0);
        let result = adapter.register(buffer.pointer(0).cast(), BYTES, &request, &mut handle);
        assert!(result == HRESULT::ND_SUCCESS || result.is_pending(), "{result}");
        world.settle();
        Self {
            adapter,
            region: Region1 { handle, buffer },
            queues: Vec::new(),
            ends: Vec::new(),
            listens: Vec::new(),
            window: None,
            descriptor: None,
            blocks: Vec::new(),
            outstanding: HashSet::new(),
            requests: vec![request],
        }
    }

    pub fn step(&mut self, world: &World, random: &mut Random) {
        match random.below(20) {
            0 | 1 => self.make(world, random),
            2 | 3 => self.connect(world, random),
            4..11 => self.post(random),
            11..14 => self.take(random),
            14 => self.notify(world, random),
            15 | 16 => self.of_connector(world, random),
            17 => self.cancel(random),
            18 => self.release(random),
            _ => world.settle(),
        }
    }

    /// Calls an overlapped method. Its request stays as long as the client.
    fn ask(requests: &mut Vec<Client>, world: &World, call: impl FnOnce(&Client) -> HRESULT) {
        let request = world.request();
        let result = call(&request);
        let pends = world.policy() == CompletionPolicy::Pending;
        assert!(result != HRESULT::ND_SUCCESS || !pends, "a method succeeds by itself");
        requests.push(request);
    }

    fn end(&mut self, random: &mut Random) -> usize {
        if self.queues.iter().all(Option::is_none) {
            self.queues.push(self.adapter.queue(1024).ok());
        }
        let queue = self.queues.iter().flatten().nth(some(random, self.queues.iter().flatten().count()).unwrap_or(0));
        let connector = self.adapter.connector().ok();
        let endpoint = queue.and_then(|queue| connector.as_ref()?.endpoint([queue, queue], 16, (2, 2)).ok());
        self.ends.push(End { connector, endpoint: endpoint.map(|(endpoint, _)| endpoint) });
        self.ends.len() - 1
    }

    fn make(&mut self, world: &World, random: &mut Random) {
        match random.below(4) {
            0 => self.queues.push(self.adapter.queue(1024).ok()),
            1 => drop(self.end(random)),
            2 => {
                if let Ok((listen, port)) = self.adapter.listen(random.below(3) as usize, 0) {
                    self.listens.push((Some(listen), port));
                }
            }
            _ => {
                let block = self.block();
                // SAFETY: the block is one of the client's, which stay.
                let block = unsafe { &mut *block };
                self.window = self.adapter.window(block).ok();
                world.settle();
                self.descriptor = None;
            }
        }
    }

    /// A new block.
    fn block(&mut self) -> *mut ND_RESULT {
        self.blocks.push(Box::new(ND_RESULT { Status: HRESULT::ND_PENDING, BytesTransferred: 0 }));
        let block: &mut ND_RESULT = self.blocks.last_mut().expect("a block");
        ptr::with_exposed_provenance_mut(ptr::from_mut(block).expose_provenance())
    }

    fn connect(&mut self, world: &World, random: &mut Random) {
        let [near, far] = [self.end(random), self.end(random)];
        let Ok((listen, port)) = self.adapter.listen(0, 0) else { return };
        let (one, other) = (&self.ends[near], &self.ends[far]);
        let mut stops = || random.chance(6);
        if let (
            End { connector: Some(active), endpoint: Some(from) },
            End { connector: Some(passive), endpoint: Some(to) },
        ) = (one, other)
            && !stops()
        {
            let requests = &mut self.requests;
            let at = SocketAddr::new(HERE, port);
            Self::ask(requests, world, |request| listen.request(passive, request));
            Self::ask(requests, world, |request| active.connect(from.as_ptr(), at, b"one", request));
            world.settle();
            if !stops() {
                Self::ask(requests, world, |request| passive.accept(to.as_ptr(), b"two", request));
                world.settle();
                if !stops() {
                    Self::ask(requests, world, |request| active.complete(request));
                    world.settle();
                }
            }
        }
        self.listens.push((Some(listen), port));
    }

    fn post(&mut self, random: &mut Random) {
        let at = self.block();
        let Some(Some(endpoint)) = some(random, self.ends.len()).map(|at| &self.ends[at].endpoint) else { return };
        // SAFETY: the block is one of the client's, which stay.
        let block = unsafe { &mut *at };
        let offset = random.below(200) as usize * 64;
        let list = [self.region.sge(offset, random.below(64) as usize)];
        let result = match (random.below(10), &self.window, self.descriptor) {
            (0..4, ..) => endpoint.receive(block, &list),
            (4 | 5, Some(window), _) => {
                let flags = [ND_OP_FLAG_ALLOW_READ, ND_OP_FLAG_ALLOW_WRITE][random.below(2) as usize];
                let bound = endpoint.bind(block, &self.region, window, (0, 4096), flags);
                self.descriptor = bound.ok().or(self.descriptor);
                bound.err().unwrap_or(HRESULT::ND_SUCCESS)
            }
            (6, _, Some(descriptor)) => endpoint.read(block, &list, &descriptor, 64),
            (7, _, Some(descriptor)) => endpoint.write(block, &list, &descriptor, 64),
            (8, Some(window), _) => endpoint.invalidate(block, window),
            (9, _, Some(descriptor)) => endpoint.send_and_invalidate(block, &list, &descriptor),
            _ => endpoint.send(block, &list, 0),
        };
        if result == HRESULT::ND_SUCCESS {
            self.outstanding.insert(at);
        }
        if random.chance(10) {
            endpoint.batch(random.chance(50));
        }
        if random.chance(3) {
            let flushed = endpoint.flush();
            assert!([HRESULT::ND_SUCCESS, HRESULT::ND_DEVICE_REMOVED].contains(&flushed), "{flushed}");
        }
    }

    fn take(&mut self, random: &mut Random) {
        let Some(Some(queue)) = some(random, self.queues.len()).map(|at| &self.queues[at]) else { return };
        for block in queue.results(random.below(8) as usize) {
            assert!(self.outstanding.remove(&block), "a result of nothing that was posted");
            // SAFETY: the block is one of the client's, which stay.
            let result = unsafe { block.read() };
            assert!(!result.Status.is_pending(), "{result:?}");
        }
    }

    fn notify(&mut self, world: &World, random: &mut Random) {
        let Some(Some(queue)) = some(random, self.queues.len()).map(|at| &self.queues[at]) else { return };
        Self::ask(&mut self.requests, world, |request| queue.notify(ND_CQ_NOTIFY_ANY, request));
    }

    fn of_connector(&mut self, world: &World, random: &mut Random) {
        let Some(at) = some(random, self.ends.len()) else { return };
        let End { connector: Some(connector), endpoint } = &self.ends[at] else { return };
        let endpoint = endpoint.as_ref().map_or(ptr::null_mut(), Com::as_ptr);
        let port = some(random, self.listens.len()).map_or(7, |at| self.listens[at].1);
        let requests = &mut self.requests;
        match random.below(7) {
            0 => {
                let at = SocketAddr::new(HERE, port);
                Self::ask(requests, world, |request| connector.connect(endpoint, at, b"", request));
            }
            1 => Self::ask(requests, world, |request| connector.accept(endpoint, b"", request)),
            2 => Self::ask(requests, world, |request| connector.complete(request)),
            3 => drop(connector.reject(b"no")),
            4 => Self::ask(requests, world, |request| connector.notify_disconnect(request)),
            5 => drop(connector.address(random.chance(50))),
            _ => Self::ask(requests, world, |request| connector.disconnect(request)),
        }
    }

    fn cancel(&self, random: &mut Random) {
        if let Some(Some(queue)) = some(random, self.queues.len()).map(|at| &self.queues[at]) {
            expect("a queue's", queue.cancel(), CANCEL);
        }
        if let Some(Some(connector)) = some(random, self.ends.len()).map(|at| &self.ends[at].connector) {
            expect("a connector's", connector.cancel(), CANCEL);
        }
        if let Some((Some(listen), _)) = some(random, self.listens.len()).map(|at| &self.listens[at]) {
            expect("a listener's", listen.cancel(), CANCEL);
        }
    }

    fn release(&mut self, random: &mut Random) {
        match random.below(5) {
            0 => {
                if let Some(at) = some(random, self.queues.len()) {
                    self.queues[at] = None;
                }
            }
            1 => {
                if let Some(at) = some(random, self.listens.len()) {
                    self.listens[at].0 = None;
                }
            }
            2 => self.window = None,
            kind => {
                if let Some(at) = some(random, self.ends.len()) {
                    if kind == 3 {
                        self.ends[at].connector = None;
                    } else {
                        self.ends[at].endpoint = None;
                    }
                }
            }
        }
    }

    /// Releases everything, in any order. What comes back is to be kept until the world has ended.
    pub fn end_all(mut self, world: &World, random: &mut Random) -> (Memory, Blocks) {
        for _ in 0..random.below(30) {
            self.release(random);
        }
        let Self { adapter, region, queues, ends, listens, window, blocks, requests, .. } = self;
        drop((window, ends, listens, queues));
        world.settle();
        for request in &requests {
            assert!(!request.status().is_pending(), "a request that has not ended");
        }
        drop(adapter);
        (region.buffer, blocks)
    }
}

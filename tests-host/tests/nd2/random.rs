//! Clients that call whatever they like: random programs of both versions, on objects in any state, whose requests are cancelled and
//! whose objects are released at any moment.
//!
//! Whatever they do:
//!
//! - a method answers with a status of its page, or of the table of decisions;
//! - a request that pends ends once, with such a status, at the latest when its object is released, and a packet comes to the port of
//!   its file; nothing else sends packets;
//! - with the policy `pending` no overlapped method succeeds by itself;
//! - a work request gives one result, in the order of its queue pair, with its contexts and a status of its type; a silent one that
//!   succeeds gives none;
//! - a message is received once, whole, and in the order of its queue pair;
//! - a request for notification that was issued at an empty queue has ended when somebody takes a result;
//! - when a connection has been disconnected everything that was posted on its queue pairs has ended;
//! - when everything is released nothing is left.
//!
//! `ND2_PROGRAMS` and `ND2_SEED` ask for more of them, or for others.

mod version1;
mod version2;

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
    sync::Arc,
};

use conformance::random::Random;
use nd2::{
    CompletionPolicy,
    abi::{HRESULT, OVERLAPPED},
};
use nd2_selftest::{BackEnd, Client, CompletionPort, NicMode, Options, Schedule, World};

use self::{version1::Version1, version2::Version2};

/// An overlapped method, and the statuses that it and its requests may have besides success.
pub struct Method {
    name: &'static str,
    statuses: &'static [HRESULT],
}

impl Method {
    pub const fn new(name: &'static str, statuses: &'static [HRESULT]) -> Self {
        Self { name, statuses }
    }
}

/// What has happened in programs.
type Seen = BTreeSet<String>;

/// The requests of a client.
pub struct Requests {
    policy: CompletionPolicy,
    pending: Vec<(&'static Method, Client)>,
    /// What has pended and ended, and has to be kept: a packet may still name it.
    ended: Vec<Client>,
    port: Arc<CompletionPort>,
    /// Those for which a packet has come.
    told: HashSet<*mut OVERLAPPED>,
    /// What has happened: the name of a method or of a work request, and a status.
    seen: Seen,
}

impl Requests {
    fn new(world: &World) -> Self {
        let port = world.platform.completion_port(world.file).expect("an open file");
        Self {
            policy: world.policy(),
            pending: Vec::new(),
            ended: Vec::new(),
            port,
            told: HashSet::new(),
            seen: Seen::new(),
        }
    }

    /// Calls an overlapped method on the world's file, and keeps its request if it pends, which is true then.
    pub fn ask(&mut self, world: &World, method: &'static Method, call: impl FnOnce(&Client) -> HRESULT) -> bool {
        let request = world.request();
        let result = call(&request);
        if result.is_pending() {
            self.pending.push((method, request));
            return true;
        }
        let pends = self.policy == CompletionPolicy::Pending;
        assert!(result != HRESULT::ND_SUCCESS || !pends, "{} succeeds by itself", method.name);
        expect(method.name, result, method.statuses);
        self.see(method.name, result);
        false
    }

    /// Something has ended with this status.
    pub fn see(&mut self, what: impl fmt::Display, status: HRESULT) {
        self.seen.insert(format!("{what} {status}"));
    }

    /// Where the newest request is, for who wants to look at it later.
    pub fn newest(&self) -> *mut OVERLAPPED {
        self.pending.last().map_or(std::ptr::null_mut(), |(_, request)| request.as_ptr())
    }

    /// Returns true if the request there has not ended.
    pub fn pends(&self, at: *mut OVERLAPPED) -> bool {
        self.pending.iter().any(|(_, request)| request.as_ptr() == at && request.status().is_pending())
    }

    /// The status of the request there, if it has ended.
    pub fn status(&self, at: *mut OVERLAPPED) -> Option<HRESULT> {
        let all = self.pending.iter().map(|(_, request)| request).chain(&self.ended);
        all.filter(|request| request.as_ptr() == at).map(Client::status).find(|status| !status.is_pending())
    }

    /// Looks at what has ended. Everything that could happen has happened.
    fn look(&mut self) {
        while let Some(packet) = self.port.get() {
            assert!(self.told.insert(packet.overlapped), "two packets for one request");
        }
        let (pending, ended): (Vec<_>, Vec<_>) =
            self.pending.drain(..).partition(|(_, request)| request.status().is_pending());
        self.pending = pending;
        for (method, request) in ended {
            expect(method.name, request.status(), method.statuses);
            self.see(method.name, request.status());
            assert!(request.is_signalled(), "{}: its event", method.name);
            assert!(self.told.contains(&request.as_ptr()), "{}: no packet", method.name);
            self.ended.push(request);
        }
        assert_eq!(self.told.len(), self.ended.len(), "packets for requests that have not ended");
    }

    /// Everything has been released. Gives what has happened.
    fn end(mut self) -> Seen {
        self.look();
        let left: Vec<_> = self.pending.iter().map(|(method, _)| method.name).collect();
        assert!(left.is_empty(), "requests that have not ended: {left:?}");
        self.seen
    }
}

/// Checks a status.
#[track_caller]
pub fn expect(what: impl fmt::Display, status: HRESULT, listed: &[HRESULT]) {
    assert!(status == HRESULT::ND_SUCCESS || listed.contains(&status), "{what}: {status} is not listed");
}

/// Some place of a list, if it has one.
pub fn some(random: &mut Random, length: usize) -> Option<usize> {
    let length = u32::try_from(length).expect("a short list");
    (length != 0).then(|| random.below(length) as usize)
}

/// One program. Gives what has happened in it.
fn program(seed: u64) -> Seen {
    let mut random = Random::new(seed, "nd2");
    let policy = CompletionPolicy::ALL[random.below(3) as usize];
    let nic = if random.chance(30) { NicMode::Direct } else { NicMode::Deferred };
    let back_end = if random.chance(30) { BackEnd::Codes } else { BackEnd::Process };
    let schedule = Schedule::Seeded(seed, [0, 10, 40, 80][random.below(4) as usize]);
    let world = World::with(&Options { schedule, policy, nic, back_end, ..Options::default() }).expect("a world");
    let mut requests = Requests::new(&world);
    let mut second = Version2::new(&world, &mut requests);
    let mut first = random.chance(40).then(|| Version1::new(&world));
    for _ in 0..random.below(200) {
        match &mut first {
            Some(first) if random.chance(50) => first.step(&world, &mut random),
            _ => second.step(&world, &mut requests, &mut random),
        }
    }
    let removed = random.chance(10);
    if removed {
        world.remove(0);
    } else if random.chance(50) {
        second.disconnect(&world, &mut requests, &mut random);
    }
    let kept = (first.map(|first| first.end_all(&world, &mut random)), second.end(&world, &mut random));
    world.settle();
    let seen = requests.end();
    world.end().expect("nothing is left");
    drop(kept);
    seen
}

/// A number from the environment.
fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |value| value.parse().expect("a number"))
}

/// Programs of a usual run.
const USUAL: u64 = 100;

/// What happens in them.
const HAPPENS: &[&str] = &[
    "Accept ND_CONNECTION_ABORTED",
    "Accept ND_SUCCESS",
    "Bind ND_SUCCESS",
    "CompleteConnect ND_SUCCESS",
    "Connect ND_CANCELED",
    "Connect ND_CONNECTION_REFUSED",
    "Connect ND_SUCCESS",
    "Deregister ND_SUCCESS",
    "Disconnect ND_SUCCESS",
    "GetConnectionRequest ND_CANCELED",
    "IND2SharedReceiveQueue::Notify ND_SUCCESS",
    "Invalidate ND_CANCELED",
    "Notify ND_CANCELED",
    "Notify ND_DEVICE_REMOVED",
    "Notify ND_SUCCESS",
    "NotifyDisconnect ND_SUCCESS",
    "Read ND_SUCCESS",
    "Receive ND_BUFFER_OVERFLOW",
    "Receive ND_CANCELED",
    "Receive ND_SUCCESS",
    "Send ND_ACCESS_VIOLATION",
    "Send ND_CANCELED",
    "Send ND_REMOTE_ERROR",
    "Send ND_SUCCESS",
    "Write ND_SUCCESS",
];

#[test]
fn random_clients_see_what_the_pages_say_and_leave_nothing() {
    let (first, count) = (setting("ND2_SEED", 1), setting("ND2_PROGRAMS", USUAL));
    let mut seen = Seen::new();
    for seed in first..first + count {
        let more = std::panic::catch_unwind(|| program(seed)).ok();
        seen.extend(more.unwrap_or_else(|| panic!("ND2_SEED={seed} ND2_PROGRAMS=1 does it again")));
    }
    // The programs get where things happen.
    let missing: Vec<_> = HAPPENS.iter().filter(|one| !seen.contains(**one)).collect();
    assert!(count < USUAL || missing.is_empty(), "{missing:?} has not happened, but {seen:#?}");
}

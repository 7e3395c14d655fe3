//! Everybody does anything at any time: requests are answered once, indications come at most once, nothing comes after the
//! close, nothing is left, and the books of the adapters agree with what the consumers have seen.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use engine::{
    connection::{
        Answer, ConnectionLimits, Connector, ConnectorRequest, DisconnectReason, Hold, Listener, Port, SharedEndpoint,
    },
    qp::Qp,
};
use host::{HostOs, machine::Machine};
use ndkpi::NtStatus;

use crate::world::{Gone, Heard, LIMITS, Node, Said, Server, Side, TIMEOUTS, World, accept, connect, connect_shared};

const ADDRESSES: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
const STEPS: usize = 400;
const MOST_SIDES: usize = 12;

/// A consumer's side, and what it may expect to hear.
struct Actor {
    side: Side,
    adapter: usize,
    /// Requests that were accepted as pending.
    requests: Vec<ConnectorRequest>,
    /// The consumer knows that its connection was established.
    established: Arc<AtomicBool>,
    /// What was heard of the connector, up to now.
    heard: Vec<Said>,
    hold: Option<Hold<HostOs>>,
}

/// A connector that was closed.
struct Closed {
    requests: Vec<ConnectorRequest>,
    heard: Vec<Said>,
    later: Heard,
}

/// What all consumers have seen together.
#[derive(Default)]
struct Books {
    /// Connects that failed before a listener had taken them.
    refused_inline: u64,
    completed_connects: u64,
    accepted: u64,
    pending_connects: u64,
}

struct Play {
    world: World,
    adapters: [fallible::Arc<Port<HostOs>>; 2],
    servers: [Option<Server>; 2],
    /// Servers that were closed, each with its adapter. What came in before may still be delivered.
    retired: Vec<(usize, Server)>,
    shared: [fallible::Arc<SharedEndpoint<HostOs>>; 2],
    shared_gone: Vec<Gone>,
    actors: Vec<Actor>,
    closed: Vec<Closed>,
    books: Books,
    /// What has happened, for the comparison of two runs.
    script: Vec<String>,
}

impl Play {
    fn new(seed: u64) -> Self {
        let world = World::on(Machine::seeded(seed).processors(3).preemption(20).start());
        let limits = ConnectionLimits { backlog: 6, ..LIMITS };
        let adapters = ADDRESSES.map(|address| world.adapter_with(&[address], limits, TIMEOUTS));
        let mut shared_gone = Vec::new();
        let shared = [0, 1].map(|index| {
            let address = format!("{}:9", ADDRESSES[index]);
            let (endpoint, gone) = world.shared(&adapters[index], &address).expect("a free port");
            shared_gone.push(gone);
            endpoint
        });
        let servers = [0, 1].map(|index| Some(world.server(&adapters[index], &format!("{}:1", ADDRESSES[index]))));
        Self {
            world,
            adapters,
            servers,
            retired: Vec::new(),
            shared,
            shared_gone,
            actors: Vec::new(),
            closed: Vec::new(),
            books: Books::default(),
            script: Vec::new(),
        }
    }

    fn below(&self, bound: usize) -> usize {
        usize::try_from(self.world.machine.random() % bound as u64).expect("a small number")
    }

    fn act(&mut self) {
        let action = self.below(40);
        self.script.push(format!("{action}"));
        match action {
            0..=2 => self.enter(),
            3 | 4 => self.arrive(),
            5 => self.listen_or_not(),
            6 => self.let_time_pass(),
            _ if self.actors.is_empty() => {}
            _ => {
                let index = self.below(self.actors.len());
                // Half of the time somebody does anything, and otherwise what comes next.
                let action = if action < 20 { action } else { self.next_action(index) };
                self.act_with(action, index);
            }
        }
    }

    fn enter(&mut self) {
        if self.actors.len() >= MOST_SIDES {
            return;
        }
        let adapter = self.below(2);
        let node = self.world.node(&self.adapters[adapter]);
        self.add(adapter, node);
    }

    fn add(&mut self, adapter: usize, node: Node) {
        self.actors.push(Actor {
            side: Side { node, queues: self.world.queues() },
            adapter,
            requests: Vec::new(),
            established: Arc::default(),
            heard: Vec::new(),
            hold: None,
        });
    }

    fn arrive(&mut self) {
        let open = self.servers.iter().enumerate().filter_map(|(index, server)| Some((index, server.as_ref()?)));
        let all = open.chain(self.retired.iter().map(|(index, server)| (*index, server)));
        let arrivals: Vec<_> =
            all.flat_map(|(index, server)| server.arrivals().into_iter().map(move |node| (index, node))).collect();
        for (index, node) in arrivals {
            self.add(index, node);
        }
    }

    fn listen_or_not(&mut self) {
        let index = self.below(2);
        let choice = self.below(4);
        match &self.servers[index] {
            Some(server) if choice > 0 => server.listener.pause(choice == 1),
            Some(server) => {
                Listener::close(&server.listener);
                self.retired.extend(self.servers[index].take().map(|server| (index, server)));
            }
            None => {
                let address = format!("{}:0", ADDRESSES[index]);
                self.servers[index] = Some(self.world.server(&self.adapters[index], &address));
            }
        }
    }

    fn let_time_pass(&self) {
        match self.below(12) {
            0 => self.world.machine.run_for(TIMEOUTS.connect / 2),
            1 => self.world.machine.run_for(TIMEOUTS.establish / 2),
            2 if self.below(4) == 0 => self.world.machine.run_for(TIMEOUTS.disconnect),
            2 => self.world.run(),
            steps => {
                for _ in 0..steps {
                    self.world.machine.step();
                }
            }
        }
    }

    /// What a consumer does who wants its connection to get somewhere.
    fn next_action(&self, index: usize) -> usize {
        let actor = &self.actors[index];
        let passive = actor.side.node.connector.connection_data(&mut []).is_ok();
        match actor.heard.last() {
            _ if actor.established.load(SeqCst) => [15, 16, 17, 17, 16, 19][self.below(6)],
            Some(Said::Completed(ConnectorRequest::Connect, NtStatus::SUCCESS)) => 13,
            _ if !actor.requests.is_empty() => [0, 7][self.below(2)],
            _ if passive => 10,
            _ => 7,
        }
    }

    fn target(&self) -> Option<SocketAddr> {
        self.servers[self.below(2)].as_ref().map(|server| server.address)
    }

    fn act_with(&mut self, action: usize, index: usize) {
        let target = self.target();
        let choice = self.below(8);
        let actor = &mut self.actors[index];
        let connector = &actor.side.node.connector;
        match action {
            7..=9 => {
                let Some(target) = target else { return };
                let result = if choice == 0 {
                    connect_shared(&actor.side, &self.shared[actor.adapter], target)
                } else {
                    connect(&actor.side, ADDRESSES[actor.adapter], target, b"data")
                };
                match result {
                    Ok(()) => {
                        actor.requests.push(ConnectorRequest::Connect);
                        self.books.pending_connects += 1;
                    }
                    Err(NtStatus::CONNECTION_REFUSED) => self.books.refused_inline += 1,
                    Err(status) => assert!(
                        [NtStatus::CONNECTION_ACTIVE, NtStatus::CONNECTION_INVALID, NtStatus::ADDRESS_ALREADY_EXISTS]
                            .contains(&status),
                        "{status}"
                    ),
                }
            }
            10 | 11 => actor.requests.extend(accept(&actor.side, b"more").map(|()| ConnectorRequest::Accept)),
            12 if choice < 2 => {
                let _ = Connector::reject(connector, b"no");
            }
            12 | 13 => {
                // What is heard while the call runs is not the indication: it is held back.
                if let Ok(hold) = Connector::complete_connect(connector) {
                    self.books.completed_connects += 1;
                    actor.established.store(true, SeqCst);
                    if choice < 6 { drop(hold) } else { actor.hold = Some(hold) }
                }
            }
            14 => actor.hold = None,
            15 => match Connector::disconnect(connector) {
                Ok(Answer::Pending) => actor.requests.push(ConnectorRequest::Disconnect),
                Ok(Answer::Done) | Err(NtStatus::CONNECTION_INVALID | NtStatus::CONNECTION_ABORTED) => {}
                Err(status) => panic!("{status}"),
            },
            16 => {
                let _ = actor.side.queues.send(1);
            }
            17 => {
                if choice < 6 {
                    actor.side.queues.receive(2);
                }
                actor.side.queues.completed();
            }
            18 if choice == 0 => Qp::fail(&actor.side.queues.qp),
            19 if choice < 3 => {
                let actor = self.actors.swap_remove(index);
                self.close(actor);
            }
            _ => {}
        }
    }

    fn close(&mut self, mut actor: Actor) {
        Self::listen_to(&mut actor, &mut self.books);
        let Actor { side, requests, mut heard, hold, .. } = actor;
        let later = side.node.heard.clone();
        if self.below(2) == 0 {
            side.close();
        } else {
            let Side { node, queues } = side;
            queues.close();
            node.close();
        }
        // The close has returned: what began before it has ended.
        let during = later.take();
        heard.extend(&during);
        self.script.push(format!("closed after {heard:?}"));
        drop(hold);
        self.closed.push(Closed { requests, heard, later });
    }

    /// Hears what was said to the consumer, and checks that it may have been.
    fn listen_to(actor: &mut Actor, books: &mut Books) {
        for said in actor.side.node.take() {
            match said {
                Said::Completed(ConnectorRequest::Accept, NtStatus::SUCCESS) => {
                    books.accepted += 1;
                    actor.established.store(true, SeqCst);
                }
                Said::Completed(..) => {}
                Said::Disconnected(_) => {
                    assert!(actor.established.load(SeqCst), "an indication before the connection: {:?}", actor.heard);
                    assert!(actor.hold.is_none(), "an indication that was to be held back");
                }
                Said::Gone => panic!("gone without a close"),
            }
            actor.heard.push(said);
        }
    }

    fn listen_to_all(&mut self) {
        for actor in &mut self.actors {
            Self::listen_to(actor, &mut self.books);
            check_answers(&actor.requests, &actor.heard, false);
        }
    }

    fn finish(mut self) -> History {
        for server in self.servers.iter().flatten() {
            Listener::close(&server.listener);
        }
        self.world.run();
        self.arrive();
        for actor in std::mem::take(&mut self.actors) {
            self.close(actor);
        }
        self.servers = [None, None];
        self.retired.clear();
        self.world.run();
        for closed in &mut self.closed {
            let late = closed.later.take();
            assert!(!late.iter().any(|said| matches!(said, Said::Disconnected(_))), "after the close: {late:?}");
            let accepted = |said: &&Said| **said == Said::Completed(ConnectorRequest::Accept, NtStatus::SUCCESS);
            self.books.accepted += late.iter().filter(accepted).count() as u64;
            closed.heard.extend(late);
            check_answers(&closed.requests, &closed.heard, true);
            assert_eq!(closed.heard.last(), Some(&Said::Gone));
        }
        self.check_books();
        let heard = self.closed.iter().flat_map(|closed| closed.heard.iter().copied()).collect();
        let Self { world, adapters, shared, shared_gone, script, .. } = self;
        drop(shared);
        assert!(shared_gone.iter().all(Gone::get));
        assert!(adapters.iter().all(|adapter| adapter.connections(|_| Err(())).is_ok()), "no connection is listed");
        assert!(adapters.iter().all(|adapter| adapter.endpoints(|_| Err(())).is_ok()), "no endpoint is listed");
        drop(adapters);
        let trace = world.machine.trace_hash();
        world.finish();
        (script, trace, heard)
    }

    fn check_books(&self) {
        let counters = self.adapters.each_ref().map(|adapter| adapter.counters());
        let sum = |of: fn(&engine::connection::ConnectionCounters) -> u64| counters.iter().map(of).sum::<u64>();
        let books = &self.books;
        // Some accepts are heard while the close runs.
        let during = self.closed.iter().flat_map(|closed| &closed.heard);
        let accepted =
            during.filter(|said| **said == Said::Completed(ConnectorRequest::Accept, NtStatus::SUCCESS)).count();
        assert_eq!(accepted as u64, books.completed_connects, "accepts answered and connects completed");
        assert_eq!(sum(|counters| counters.connect), books.completed_connects);
        assert_eq!(sum(|counters| counters.accept), books.completed_connects);
        assert_eq!(sum(|counters| counters.active), 0);
        let failed = books.pending_connects - books.completed_connects;
        assert_eq!(sum(|counters| counters.connect_failure), books.refused_inline + 2 * failed);
    }
}

/// Checks that each request was answered once, in the order of the requests, and that at most one indication came. At the
/// end (`all`) none may be missing.
#[track_caller]
fn check_answers(requests: &[ConnectorRequest], heard: &[Said], all: bool) {
    let answered: Vec<_> = heard
        .iter()
        .filter_map(|said| match said {
            Said::Completed(request, _) => Some(*request),
            _ => None,
        })
        .collect();
    assert!(requests.starts_with(&answered), "requests {requests:?}, but heard {heard:?}");
    assert!(!all || answered.len() == requests.len(), "requests {requests:?}, but heard {heard:?}");
    let indications = heard.iter().filter(|said| matches!(said, Said::Disconnected(_))).count();
    assert!(indications <= 1, "{heard:?}");
}

/// What has happened, a number that depends on every choice of the machine, and all that was heard.
type History = (Vec<String>, u64, Vec<Said>);

fn play(seed: u64) -> History {
    let mut play = Play::new(seed);
    for _ in 0..STEPS {
        play.act();
        play.listen_to_all();
    }
    play.finish()
}

/// Everything that a consumer can be told.
fn everything() -> impl Iterator<Item = Said> {
    use ConnectorRequest::{Accept, Connect, Disconnect};
    use DisconnectReason::{Closed, Disconnected, Failed, TimedOut};
    let aborted = NtStatus::CONNECTION_ABORTED;
    let common = [NtStatus::SUCCESS, NtStatus::IO_TIMEOUT, NtStatus::CANCELLED];
    let answers = [(Connect, NtStatus::CONNECTION_REFUSED), (Accept, aborted), (Disconnect, aborted)]
        .into_iter()
        .flat_map(move |(request, special)| common.into_iter().chain([special]).map(move |status| (request, status)));
    let reasons = [Closed, Disconnected, Failed, TimedOut];
    answers.map(|(request, status)| Said::Completed(request, status)).chain(reasons.map(Said::Disconnected))
}

#[test]
fn random_consumers_on_both_sides_hear_what_they_may() {
    let mut heard = Vec::new();
    for seed in 0..300 {
        let result = std::panic::catch_unwind(|| play(seed));
        heard.extend(result.unwrap_or_else(|_| panic!("seed {seed}")).2);
    }
    // It would be worth little if it did not come far.
    let counts = everything().map(|what| (what, heard.iter().filter(|said| **said == what).count()));
    let rare: Vec<_> = counts.filter(|(_, count)| *count < 5).collect();
    assert!(rare.is_empty(), "heard hardly ever: {rare:?}");
}

#[test]
fn a_seed_replays() {
    for seed in 1000..1010 {
        assert_eq!(play(seed), play(seed));
    }
    assert_ne!(play(1).1, play(2).1);
}

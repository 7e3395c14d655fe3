//! Both sides at the same time, on real threads.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use engine::connection::{ConnectionLimits, Connector, ConnectorRequest, Port, Timeouts};
use fallible::Arc;
use host::{HostOs, machine::Machine};
use ndkpi::NtStatus;

use crate::world::{LIMITS, Said, Side, World, accept, connect};

const ADDRESSES: [&str; 2] = ["10.0.0.1", "10.0.0.2"];

#[test]
fn consumers_on_several_processors_hear_what_they_may() {
    const ROUNDS: usize = 150;
    let world = World::on(Machine::threads().processors(2).start());
    let limits = ConnectionLimits { backlog: 64, ..LIMITS };
    // Time is real here, and the host may be busy.
    let timeouts = Timeouts { connect: 10_000_000, establish: 10_000_000, disconnect: 20_000 };
    let adapters = ADDRESSES.map(|address| world.adapter_with(&[address], limits, timeouts));
    let server = world.server(&adapters[1], "10.0.0.2:1");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|number| {
                let (world, adapter, to) = (&world, &adapters[0], server.address);
                scope.spawn(move || {
                    (0..ROUNDS).for_each(|round| client_round(world, adapter, to, number * 7 + round));
                })
            })
            .collect();
        let acceptor = scope.spawn(|| {
            let mut passive = Vec::new();
            for round in 0.. {
                for node in server.arrivals() {
                    let side = Side { node, queues: world.queues() };
                    if round % 5 == 4 {
                        let _ = Connector::reject(&side.node.connector, b"");
                    } else {
                        let _ = accept(&side, b"");
                    }
                    passive.push(side);
                }
                if passive.len() > 8 || (stop.load(SeqCst) && !passive.is_empty()) {
                    let side = passive.remove(0);
                    if round % 2 == 0 {
                        let _ = Connector::disconnect(&side.node.connector);
                    }
                    side.close();
                }
                if stop.load(SeqCst) && passive.is_empty() {
                    break;
                }
                world.machine.yield_now();
            }
        });
        for client in clients {
            client.join().expect("no panic");
        }
        stop.store(true, SeqCst);
        acceptor.join().expect("no panic");
    });
    for node in server.arrivals() {
        node.close();
    }
    server.close();
    world.machine.flush();
    let counters = adapters.each_ref().map(|adapter| adapter.counters());
    assert_eq!(counters[0].connect, counters[1].accept);
    assert!(counters[0].connect > 200, "{counters:?}");
    assert_eq!((counters[0].active, counters[1].active), (0, 0));
    drop(adapters);
    world.finish_threads();
}

fn client_round(world: &World, adapter: &Arc<Port<HostOs>>, to: SocketAddr, round: usize) {
    let mut side = Side { node: world.node(adapter), queues: world.queues() };
    if connect(&side, ADDRESSES[0], to, b"").is_ok() {
        let mut heard = Vec::new();
        while heard.is_empty() && round % 7 != 3 {
            heard = side.heard();
            world.machine.yield_now();
        }
        if heard == [Said::Completed(ConnectorRequest::Connect, NtStatus::SUCCESS)]
            && let Ok(hold) = Connector::complete_connect(&side.node.connector)
        {
            let _ = side.queues.send(1);
            drop(hold);
            if round.is_multiple_of(3) {
                let _ = Connector::disconnect(&side.node.connector);
            }
        }
    }
    let heard = side.close();
    while heard.take().last() != Some(&Said::Gone) {
        world.machine.yield_now();
    }
}

//! How connections are not established: rejected, given up, or too late (`NDKPI 5.8`, `7.7.2`).

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use engine::{
    connection::{Connector, ConnectorRequest},
    qp::Qp,
};
use host::machine::Machine;
use ndkpi::NtStatus;

use crate::{
    data::{CALLEE, data, padded},
    world::{Node, READS, Said, Side, TIMEOUTS, World, accept, answer, asking, at, connect, connect_from},
};

#[test]
fn a_connect_that_nobody_answers_times_out_and_can_be_tried_again() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let active = Side { node: world.node(&adapter), queues: world.queues() };
    connect_from(&active, at("10.0.0.1:5"), server.address, b"").expect("pending");
    world.machine.run_for(TIMEOUTS.connect - 100);
    let late = Side { node: server.arrival(), queues: world.queues() };
    assert_eq!(active.heard(), []);
    world.machine.run_for(200);
    assert_eq!(active.heard(), [answer(ConnectorRequest::Connect, NtStatus::IO_TIMEOUT)]);
    assert_eq!(accept(&late, b""), Err(NtStatus::CONNECTION_ABORTED), "the active side has given up");
    assert_eq!(Connector::reject(&late.node.connector, b""), Err(NtStatus::CONNECTION_ABORTED));
    connect_from(&active, at("10.0.0.1:5"), server.address, b"").expect("pending");
    world.run();
    let arrival = server.arrival();
    assert_eq!(late.close().take(), [Said::Gone]);
    world.machine.run_for(TIMEOUTS.connect - 100);
    assert_eq!(active.heard(), [], "the second connect has all of its time");
    arrival.close();
    active.close();
    server.close();
    drop(adapter);
    world.finish();
}

//= NDKPI 7.7.2
#[test]
fn an_accept_that_is_not_completed_times_out_and_that_is_final() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let (active, passive) = world.accepted("10.0.0.1", &adapter, &server);
    world.machine.run_for(TIMEOUTS.establish + 100);
    assert_eq!(passive.heard(), [answer(ConnectorRequest::Accept, NtStatus::IO_TIMEOUT)]);
    assert_eq!(active.heard(), []);
    assert_eq!(Connector::complete_connect(&active.node.connector).err(), Some(NtStatus::IO_TIMEOUT));
    assert_eq!(Connector::reject(&active.node.connector, b"").err(), Some(NtStatus::CONNECTION_ABORTED));
    assert_eq!(connect(&active, "10.0.0.1", server.address, b""), Err(NtStatus::CONNECTION_ACTIVE));
    assert_eq!(accept(&passive, b""), Err(NtStatus::CONNECTION_ABORTED));
    for side in [&active, &passive] {
        let disconnected = Connector::disconnect(&side.node.connector);
        assert_eq!(disconnected.err(), Some(NtStatus::CONNECTION_INVALID), "there was no connection");
    }
    active.close();
    passive.close();
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn an_answer_in_time_stops_the_clock() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let (active, passive) = world.connected("10.0.0.1", &adapter, &server);
    world.machine.run_for(10 * TIMEOUTS.disconnect);
    assert_eq!((active.heard(), passive.heard()), (vec![], vec![]));
    assert_eq!(world.machine.leaks(), None, "no timer is set");
    active.close();
    passive.close();
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn a_side_that_closes_aborts_what_the_other_waits_for() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    // The active side, while it connects: before the event and after it.
    let early = Side { node: world.node(&adapter), queues: world.queues() };
    connect(&early, "10.0.0.1", server.address, b"").expect("pending");
    let heard = early.close();
    world.run();
    assert_eq!(heard.take(), [answer(ConnectorRequest::Connect, NtStatus::CANCELLED), Said::Gone]);
    assert!(server.arrivals().is_empty(), "nobody wants it any more");
    let (active, arrival) = world.request("10.0.0.1", &adapter, &server);
    let passive = Side { node: arrival, queues: world.queues() };
    let heard = active.close();
    world.run();
    assert_eq!(heard.take(), [answer(ConnectorRequest::Connect, NtStatus::CANCELLED), Said::Gone]);
    assert_eq!(accept(&passive, b""), Err(NtStatus::CONNECTION_ABORTED));
    assert_eq!(Connector::reject(&passive.node.connector, b""), Err(NtStatus::CONNECTION_ABORTED));
    passive.close();
    // The active side, when the passive one has accepted.
    let (active, passive) = world.accepted("10.0.0.1", &adapter, &server);
    let heard = active.close();
    world.run();
    assert_eq!(heard.take(), [Said::Gone]);
    assert_eq!(passive.heard(), [answer(ConnectorRequest::Accept, NtStatus::CONNECTION_ABORTED)]);
    passive.close();
    // The passive side, when it has accepted.
    let (active, passive) = world.accepted("10.0.0.1", &adapter, &server);
    let heard = passive.close();
    world.run();
    assert_eq!(heard.take(), [answer(ConnectorRequest::Accept, NtStatus::CANCELLED), Said::Gone]);
    assert_eq!(active.heard(), []);
    assert_eq!(Connector::complete_connect(&active.node.connector).err(), Some(NtStatus::CONNECTION_ABORTED));
    active.close();
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn a_rejected_connect_is_refused_with_private_data_and_can_be_tried_again() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let active = Side { node: world.node(&adapter), queues: world.queues() };
    connect_from(&active, at("10.0.0.1:5"), server.address, b"").expect("pending");
    world.run();
    let refused = server.arrival();
    Connector::reject(&refused.connector, b"no").expect("waiting");
    assert_eq!(active.heard(), [], "not told inline");
    let again = connect_from(&active, at("10.0.0.1:5"), server.address, b"");
    assert_eq!(again, Err(NtStatus::CONNECTION_ACTIVE), "it does not know yet");
    world.run();
    assert_eq!(active.heard(), [answer(ConnectorRequest::Connect, NtStatus::CONNECTION_REFUSED)]);
    assert_eq!(data(&active.node, CALLEE), (Ok(CALLEE), padded(b"no", CALLEE)));
    assert_eq!(active.node.connector.local_address(), Err(NtStatus::CONNECTION_INVALID));
    assert_eq!(Connector::complete_connect(&active.node.connector).err(), Some(NtStatus::CONNECTION_INVALID));
    let invalid = Err(NtStatus::CONNECTION_INVALID);
    assert_eq!(Connector::reject(&refused.connector, b""), invalid, "once only");
    let queues = world.queues();
    assert_eq!(Connector::accept(&refused.connector, &queues.qp, READS, b""), invalid, "too late");
    queues.close();
    // The same connector, queue pair and port.
    connect_from(&active, at("10.0.0.1:5"), server.address, b"").expect("pending");
    assert_eq!(data(&active.node, 0).0, Err(NtStatus::CONNECTION_INVALID), "that was about the first connect");
    world.run();
    let passive = Side { node: server.arrival(), queues: world.queues() };
    accept(&passive, b"").expect("pending");
    world.run();
    drop(Connector::complete_connect(&active.node.connector).expect("accepted"));
    world.run();
    assert_eq!(passive.heard(), [answer(ConnectorRequest::Accept, NtStatus::SUCCESS)]);
    refused.close();
    active.close();
    passive.close();
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn a_refused_connect_can_be_tried_again_inside_its_completion() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let queues = Arc::new(world.queues());
    let again = Arc::new(Mutex::new(None::<(Node, SocketAddr)>));
    let (inside, qp) = (again.clone(), queues.qp.clone());
    let node = world.node_that(
        &adapter,
        Box::new(move |said| {
            if *said == answer(ConnectorRequest::Connect, NtStatus::CONNECTION_REFUSED)
                && let Some((node, to)) = inside.lock().expect("no panic").take()
            {
                Connector::connect(&node.connector, &qp, at("10.0.0.1:5"), &asking(to, b"")).expect("pending again");
            }
        }),
    );
    *again.lock().expect("no panic") = Some((node.clone(), server.address));
    Connector::connect(&node.connector, &queues.qp, at("10.0.0.1:5"), &asking(server.address, b"")).expect("pending");
    world.run();
    server.arrival().close();
    world.run();
    let passive = server.arrival();
    assert_eq!(passive.connector.peer_address(), Ok(at("10.0.0.1:5")));
    node.close();
    passive.close();
    server.close();
    Qp::close(&queues.qp);
    queues.completions.cq().close();
    drop((queues, adapter));
    world.finish();
}

#[test]
fn closing_an_unaccepted_connector_rejects_it() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let (active, arrival) = world.request("10.0.0.1", &adapter, &server);
    let heard = arrival.close();
    world.run();
    assert_eq!(heard.take(), [Said::Gone]);
    assert_eq!(active.heard(), [answer(ConnectorRequest::Connect, NtStatus::CONNECTION_REFUSED)]);
    assert_eq!(data(&active.node, 0).0, Err(NtStatus::CONNECTION_INVALID), "nothing was said");
    active.close();
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn the_active_side_may_reject_what_was_accepted() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let (active, passive) = world.accepted("10.0.0.1", &adapter, &server);
    Connector::reject(&active.node.connector, b"after all").expect("accepted");
    world.run();
    assert_eq!(passive.heard(), [answer(ConnectorRequest::Accept, NtStatus::CONNECTION_ABORTED)]);
    assert_eq!(data(&passive.node, CALLEE), (Ok(CALLEE), padded(b"after all", CALLEE)));
    let invalid = Some(NtStatus::CONNECTION_INVALID);
    assert_eq!(Connector::complete_connect(&active.node.connector).err(), invalid);
    assert_eq!(Connector::reject(&active.node.connector, b"").err(), invalid);
    assert_eq!(active.heard(), []);
    active.close();
    passive.close();
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn only_what_waits_can_be_rejected() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let invalid = Err(NtStatus::CONNECTION_INVALID);
    let idle = world.node(&adapter);
    assert_eq!(Connector::reject(&idle.connector, b""), invalid);
    idle.close();
    let (active, arrival) = world.request("10.0.0.1", &adapter, &server);
    assert_eq!(Connector::reject(&active.node.connector, b""), invalid, "nobody has accepted");
    let passive = Side { node: arrival, queues: world.queues() };
    accept(&passive, b"").expect("pending");
    assert_eq!(Connector::reject(&passive.node.connector, b""), invalid, "it has accepted");
    assert_eq!(Connector::reject(&active.node.connector, b""), invalid, "it does not know yet");
    world.run();
    drop(Connector::complete_connect(&active.node.connector).expect("accepted"));
    assert_eq!(Connector::reject(&active.node.connector, b""), invalid, "it is established");
    world.run();
    active.close();
    passive.close();
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn the_end_of_one_requests_time_is_not_that_of_the_next() {
    let mut retried = 0;
    for seed in 0..100 {
        let world = World::on(Machine::seeded(seed).processors(3).start());
        let adapter = world.adapter(&["10.0.0.1"]);
        let server = world.server(&adapter, "10.0.0.1:1");
        // Answers come from another processor than expiries: from the one on which the connector was made.
        world.machine.bind_current_thread(2);
        let active = Side { node: world.node(&adapter), queues: world.queues() };
        world.machine.bind_current_thread(0);
        connect(&active, "10.0.0.1", server.address, b"").expect("pending");
        world.run();
        let arrival = server.arrival();
        // The expiry is on its way when the answer comes.
        let fired = world.machine.statistics().timers_fired;
        while world.machine.statistics().timers_fired == fired {
            assert!(world.machine.step(), "seed {seed}: the timer is set");
        }
        arrival.close();
        let mut heard = active.heard();
        while heard.is_empty() {
            assert!(world.machine.step(), "seed {seed}: the answer comes");
            heard = active.heard();
        }
        if heard == [answer(ConnectorRequest::Connect, NtStatus::CONNECTION_REFUSED)] {
            retried += 1;
            connect(&active, "10.0.0.1", server.address, b"").expect("pending");
            let due = world.machine.now() + TIMEOUTS.connect;
            while world.machine.now() < due {
                assert_eq!(active.heard(), [], "seed {seed}");
                assert!(world.machine.step(), "seed {seed}: the timer is set");
            }
            world.machine.run_for(100);
            assert_eq!(active.heard(), [answer(ConnectorRequest::Connect, NtStatus::IO_TIMEOUT)], "seed {seed}");
            // If its event came before that.
            for arrival in server.arrivals() {
                arrival.close();
            }
        }
        active.close();
        server.close();
        drop(adapter);
        world.finish();
    }
    assert!(retried > 20, "{retried}");
}

//! Closes that are waited for (`NDKPI 7.9`), and what is free after them.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use host::machine::{Irql, Machine, lower, raise};
use ndk::{Access, Close, NtStatus, Offer, QpSizes, host::Loopback};
use provider::{CompletionMode, NicMode};

use crate::{Everything, PATIENCE, Watched, everything, machines};

#[test]
fn a_port_is_free_when_the_close_of_its_listener_has_completed() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let at = machine.address(0, 4711);
        for _ in 0..200 {
            adapter.listen(at, drop)?.close()?.wait()?;
            adapter.acceptor(at)?.close()?.wait()?;
        }
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

#[test]
fn a_port_is_free_at_once_if_requests_complete_within_the_call() -> Result<(), NtStatus> {
    let machine = ndk::host::Loopback::with(host::machine::Machine::threads().start(), 1, |config| {
        config.mode = CompletionMode::Inline;
    })?;
    let adapter = machine.open(0)?;
    for _ in 0..2000 {
        drop(adapter.listen(machine.address(0, 4711), drop)?);
    }
    Ok(())
}

#[test]
fn every_object_has_a_close_that_can_be_waited_for() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let Everything { pd, mr, cq, near, far, connections } = everything(&machine, &adapter);
        let (window, srq) = (pd.create_mw()?, pd.create_srq(8, 1, 0, |_| ())?);
        let fast = pd.create_fast_mr(adapter.map(adapter.memory(4096)?)?, true)?;
        let [active, passive] = connections;
        active.close()?.wait()?;
        passive.close()?.wait()?;
        near.close()?.wait()?;
        far.close()?.wait()?;
        cq.close()?.wait()?;
        window.close()?.wait()?;
        srq.close()?.wait()?;
        fast.close()?.wait()?;
        mr.close()?.wait()?;
        adapter.create_connector()?.close()?.wait()?;
        pd.close()?.wait()?;
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

#[test]
fn a_close_pends_until_nothing_needs_the_object_any_more() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(8)?);
        let qp = pd.create_qp(&cq, &cq, QpSizes::default(), 0)?;
        let (pd, cq) = (pd.close()?, cq.close()?);
        machine.machine().sleep(1000);
        assert_eq!((pd.outcome(), cq.outcome()), (None, None));
        drop(qp);
        pd.wait()?;
        cq.wait()?;
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

#[test]
fn a_close_goes_on_if_nobody_waits_for_it() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let (first, second) = (adapter.create_pd()?, adapter.create_pd()?);
        drop(first.close()?);
        let before = raise(Irql::DISPATCH_LEVEL);
        // The wait is refused if it would be one, and the close goes on.
        let _ = second.close()?.wait();
        lower(before);
        let acceptor = adapter.acceptor(machine.address(0, 0))?;
        assert!(acceptor.wait_for(PATIENCE / 1000).is_err());
        drop(acceptor.close()?);
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

/// Machines of both kinds with both engines, whose requests complete within the call.
fn inline_machines() -> impl Iterator<Item = Loopback> {
    [NicMode::Deferred, NicMode::Direct].into_iter().flat_map(|nic| {
        [Machine::threads().start(), Machine::seeded(7).start()].map(|machine| {
            Loopback::with(machine, 2, |config| (config.mode, config.nic) = (CompletionMode::Inline, nic))
                .expect("memory for a machine")
        })
    })
}

#[test]
fn every_close_that_waits_for_nothing_completes_within_the_call_if_requests_do() -> Result<(), NtStatus> {
    for machine in inline_machines() {
        let adapter = machine.open(0)?;
        for _ in 0..50 {
            let Everything { pd, mr, cq, near, far, connections } = everything(&machine, &adapter);
            let (window, srq) = (pd.create_mw()?, pd.create_srq(8, 1, 0, |_| ())?);
            let fast = pd.create_fast_mr(adapter.map(adapter.memory(4096)?)?, true)?;
            let (listener, unused) = (adapter.listen(machine.address(0, 0), drop)?, adapter.create_connector()?);
            let [active, passive] = connections;
            // A seeded machine may let its time run out.
            let _ = active.disconnect()?.wait();
            machine.machine().flush();
            let mut closes = vec![("connector", active.close()?), ("the other side's", passive.close()?)];
            closes.extend([
                ("unused connector", unused.close()?),
                ("listener", listener.close()?),
                ("window", window.close()?),
                ("shared receive queue", srq.close()?),
                ("fast region", fast.close()?),
                ("region", mr.close()?),
                ("completion queue", adapter.create_cq(8)?.close()?),
                ("domain", adapter.create_pd()?.close()?),
            ]);
            // A queue pair's DPC cancels what is left of it, and lets go of what it needs then.
            for close in [near.close()?, far.close()?, cq.close()?, pd.close()?] {
                close.wait()?;
            }
            let pend = closes.iter().filter(|(_, close)| close.outcome().is_none());
            let pend: Vec<_> = pend.map(|(what, _)| what).collect();
            assert!(pend.is_empty(), "{pend:?}");
        }
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

#[test]
fn everybody_who_has_closed_the_same_domain_is_told() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let pd = adapter.create_pd()?;
        let closes = [pd.clone().close()?, pd.clone().close()?, pd.close()?];
        for close in closes {
            close.wait()?;
        }
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

#[test]
fn memory_is_free_when_the_close_of_its_region_has_completed() -> Result<(), NtStatus> {
    for machine in machines() {
        let adapter = machine.open(0)?;
        let pd = adapter.create_pd()?;
        for _ in 0..50 {
            let gone = Arc::new(AtomicBool::new(false));
            let memory = Box::new(Watched(adapter.memory(4096)?, gone.clone()));
            pd.register(memory, Access::LOCAL_WRITE)?.close()?.wait()?;
            assert!(gone.load(Relaxed));
        }
        drop(pd);
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

#[test]
fn a_connectors_port_is_free_when_its_close_returns() -> Result<(), NtStatus> {
    for machine in inline_machines() {
        let adapter = machine.open(0)?;
        let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(64)?);
        let acceptor = adapter.acceptor(machine.address(0, 0))?;
        let (from, to): (SocketAddr, _) = (machine.address(0, 4712), acceptor.local_address()?);
        for _ in 0..200 {
            let qp = pd.create_qp(&cq, &cq, QpSizes::default(), 1)?;
            let connecting = adapter.create_connector()?.connect(&qp, from, to, &Offer::default())?;
            // A seeded machine may let the time of either run out.
            drop(acceptor.wait_for(PATIENCE));
            let ends = [NtStatus::CONNECTION_REFUSED, NtStatus::IO_TIMEOUT];
            assert!(connecting.wait().is_err_and(|end| ends.contains(&end)));
        }
        drop((acceptor, cq, pd));
        drop(adapter);
        machine.finish().expect("nothing is left");
    }
    Ok(())
}

//! Closes that are waited for (`NDKPI 7.9`), and what is free after them.

use host::machine::{Irql, lower, raise};
use ndk::{Close, NtStatus, QpSizes};
use provider::CompletionMode;

use crate::{Everything, PATIENCE, everything, machines};

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

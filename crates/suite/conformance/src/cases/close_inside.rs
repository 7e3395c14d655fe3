//! Closing an object inside a callback of its own (`NDKPI 7.9`). Those of notifications and disconnect events are among the
//! cases of their themes.

use ndkpi::{NDK_CQ_NOTIFY_ANY as ANY, NtStatus};

use crate::{
    case::{Case, Check, HELD, Verdict},
    client::{Connector, Later, Life, QpCore, Session, Then},
    fixture::{Plan, Side, Terms, posted},
    platform::Family,
};

pub const CASES: &[Case] = &[
    Case::new(
        "close-inside.connect-event",
        "NDKPI 7.9",
        "Closes the new connector inside the connect event, which rejects the connection.",
        "The close completes, and the connect ends with STATUS_CONNECTION_REFUSED.",
        connect_event,
    ),
    //= NDKPI 7.9.7
    Case::new(
        "close-inside.completion-of-a-resize",
        "NDKPI 7.9",
        "Closes a completion queue inside the completion of its resize, where a request completes by a callback.",
        "The close completes after the callback has returned.",
        completion_of_a_resize,
    ),
    Case::new(
        "close-inside.notification-of-the-queue-pair",
        "NDKPI 7.9",
        "Closes a queue pair inside the notification of its completion queue, which it was flushed into.",
        "The close completes; so does that of the queue.",
        notification_of_the_queue_pair,
    ),
];

fn connect_event<'s>(s: &'s Session<'s>) -> Verdict {
    let adapter = s.peer_adapter()?;
    let close = s.keep(|connector: Connector<'s>| connector.start_close().map(|_| ()))?;
    let listener = adapter.create_listener(Some(close))?;
    listener.core().listen(s.address(adapter.number(), Family::V4, 0)?)?.succeeds()?;
    let address = listener.address()?;
    let side = Side::new(&s.adapter()?, &Plan::new(), 1)?;
    for _ in 0..3 {
        let connector = s.adapter()?.create_connector()?;
        let from = s.address(s.adapter()?.number(), Family::V4, 0)?;
        let offer = Terms::new().a;
        connector.core().connect(side.qp.core(), from, address, &offer)?.ends_with(NtStatus::CONNECTION_REFUSED)?;
        connector.close()?;
    }
    s.wait("three connect events", || listener.events() == 3)?;
    listener.close()?;
    HELD
}

/// Closes inside the completion of a call, which may run still (`NDKPI 7.9`, consumer rule 1).
fn close_inside_completion<'s>(life: &'s Life<'s>) -> Check {
    let closing = life.close_within(1).or_else(|_| life.close_within(0))?;
    ensure!(!closing.is_done(), "a close completed while a callback of the object runs");
    Ok(())
}

fn completion_of_a_resize<'s>(s: &'s Session<'s>) -> Verdict {
    s.need_flag(ndkpi::NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED, "CQ_RESIZE_SUPPORTED")?;
    for depth in 17..23 {
        let cq = s.adapter()?.create_cq(16, None)?;
        let life = cq.core().life();
        let close: Then<'s> = s.keep(move |_| s.note(close_inside_completion(life)))?;
        let pending = cq.core().resize_then(depth, Some(close))?;
        pending.succeeds()?;
        if pending.callbacks() == 0 {
            // Nothing was called back.
            cq.close()?;
            continue;
        }
        s.wait("the close that was begun inside the completion (NDKPI 7.9)", || life.is_closed())?;
    }
    HELD
}

fn notification_of_the_queue_pair<'s>(s: &'s Session<'s>) -> Verdict {
    let place: &Later<'s, QpCore<'s>> = s.keep(Later::new())?;
    let hook = s.hook(move |_, _| place.take().map_or(Ok(()), |qp| qp.life().close_within(0).map(|_| ())))?;
    let plan = Plan { on_receive: Some(hook), ..Plan::new() };
    let Side { qp, region, receive_cq, initiator_cq, pd } = Side::new(&s.adapter()?, &plan, 1)?;
    for context in 0..4 {
        posted("NdkReceive", qp.receive(context, &[region.element(0, 8)])?)?;
    }
    // Consumer rule 1: no close while a call on the queue pair runs.
    qp.flush()?;
    s.settle();
    place.set(qp.core());
    receive_cq.arm(ANY)?;
    s.wait("the close that was begun inside the notification (NDKPI 7.9)", || qp.life().is_closed())?;
    receive_cq.close()?;
    drop((region, initiator_cq, pd));
    HELD
}

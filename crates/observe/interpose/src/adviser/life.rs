//! Duties at closes and callbacks (`NDKPI 6`, `NDKPI 7.9`).

use core::sync::atomic::Ordering::SeqCst;

use engine::os::SpinLock;
use ndkpi::NDK_OBJECT_TYPE;

use super::{
    Adviser, Finding, Sink, State,
    node::{Body, RunningCallback, body},
};
use crate::{Event, Function, InterposeOs};

const DISPATCH_LEVEL: u8 = 2;

impl<O: InterposeOs, S: Sink> Adviser<O, S> {
    /// An object has come about.
    pub(super) fn opened(event: &Event<'_, State<O>>) {
        let Some(created) = event.created else { return };
        let node = created.state;
        if node.is_open.swap(true, SeqCst) {
            return;
        }
        for antecedent in node.antecedents() {
            antecedent.successors.fetch_add(1, SeqCst);
        }
        if let Some(adapter) = node.adapter_node() {
            adapter.open.fetch_add(1, SeqCst);
        }
    }

    /// A close begins.
    pub(super) fn close_begins(&self, event: &Event<'_, State<O>>) {
        let node = event.object.state;
        if event.function == Function::CloseAdapter {
            self.adapter_closes(event);
            return;
        }
        if !node.is_open.swap(false, SeqCst) {
            return;
        }
        for antecedent in node.antecedents() {
            antecedent.successors.fetch_sub(1, SeqCst);
        }
        if let Some(adapter) = node.adapter_node() {
            adapter.open.fetch_sub(1, SeqCst);
        }
        let is_used = match &node.body {
            Body::Cq(cq) => cq.running.load(SeqCst) != 0,
            Body::Srq(srq) => srq.receive.running_post() != 0,
            Body::Qp(qp) => {
                let notified = [&qp.receive_cq, &qp.initiator_cq].into_iter().flatten();
                let callback = notified.filter_map(|cq| body!(cq, Cq)).map(|cq| cq.callback.load(SeqCst)).max();
                // Inside a notification to which the post has led, nobody can know that it has not returned yet.
                [&qp.initiator, &qp.receive].iter().any(|queue| {
                    let running = queue.running_post();
                    running != 0 && callback.unwrap_or(0) < running
                })
            }
            _ => false,
        };
        if is_used {
            self.found(Finding::CloseDuringCall, node, event.function, format_args!("a call on it runs"));
        }
        match &node.body {
            Body::Mr(mr) => self.must_not_be_in_flight(event, mr),
            Body::Cq(cq) => self.queue_closes(node, cq),
            Body::Qp(qp) => qp.mark_over(),
            Body::Connector(_) => Self::connection_ends(node),
            _ => {}
        }
        self.chain_of(node, event);
        Self::requests_end(node);
    }

    /// The close of a queue ends its requests: nobody waits for their completions any more.
    fn requests_end(node: &State<O>) {
        match &node.body {
            Body::Qp(qp) => {
                for (queue, cq) in [(&qp.initiator, &qp.initiator_cq), (&qp.receive, &qp.receive_cq)] {
                    if let Some(cq) = cq.as_ref().and_then(|cq| body!(cq, Cq)) {
                        cq.ended(cq.qps.with(|_| queue.end_all()).counted);
                    }
                }
            }
            Body::Srq(srq) => {
                srq.taking.with(|()| srq.receive.end_all());
            }
            _ => {}
        }
    }

    fn adapter_closes(&self, event: &Event<'_, State<O>>) {
        let node = event.object.state;
        let Some(adapter) = body!(node, Adapter) else { return };
        let thread = self.os.place().thread;
        let is_inside = adapter
            .callbacks
            .with(|running| running.iter().any(|callback| callback.call != 0 && callback.thread == thread));
        if is_inside {
            let what = format_args!("a callback of the adapter runs on this thread");
            self.found(Finding::AdapterClosedInCallback, node, event.function, what);
        }
        let open = adapter.open.load(SeqCst);
        if open > 0 {
            self.found(Finding::StillOpen, node, event.function, format_args!("{open} objects are open"));
        }
        let mappings = adapter.mappings.load(SeqCst);
        if mappings > 0 {
            self.found(Finding::Mapping, node, event.function, format_args!("{mappings} mappings are not released"));
        }
    }

    /// A close pends, and its context lies on the stack: the consumer waits for it.
    ///
    /// That of a listener is left out: it stops the connects at once (`NDKPI 7.8`), so it is begun first and waited for last.
    pub(super) fn close_waits(&self, event: &Event<'_, State<O>>) {
        let node = event.object.state;
        if node.id.kind == NDK_OBJECT_TYPE::LISTENER {
            return;
        }
        let successors = node.successors.load(SeqCst);
        if successors > 0 {
            let what = format_args!("{successors} objects that depend on it are open");
            self.found(Finding::CloseWaitsForItself, node, event.function, what);
        }
    }

    /// A close has completed.
    pub(super) fn closed(event: &Event<'_, State<O>>) {
        let node = event.object.state;
        match &node.body {
            Body::Qp(_) | Body::Srq(_) => Self::detach(node),
            Body::Mr(_) => {
                Self::region_closed(node);
                Self::region_gone(node);
            }
            Body::Connector(connector) => {
                let qp = connector.qp.with(Option::take);
                drop(qp);
            }
            _ => {}
        }
    }

    /// A callback begins.
    pub(super) fn callback(&self, event: &Event<'_, State<O>>) {
        match event.function {
            Function::CqNotification => self.notified(event),
            Function::DisconnectEvent | Function::DisconnectEventEx => Self::connection_ends(event.object.state),
            _ => {}
        }
        let place = self.os.place();
        let Some(adapter) = event.object.state.adapter_node() else { return };
        adapter.callbacks.with(|running| {
            if let Some(free) = running.iter_mut().find(|callback| callback.call == 0) {
                *free =
                    RunningCallback { call: event.call, thread: place.thread, started: place.time, irql: place.irql };
            }
        });
    }

    /// A callback has returned.
    pub(super) fn callback_returned(&self, event: &Event<'_, State<O>>) {
        let node = event.object.state;
        if event.function == Function::CqNotification {
            self.notification_returned(event);
        }
        let Some(adapter) = node.adapter_node() else { return };
        let began = adapter.callbacks.with(|running| {
            let place = running.iter_mut().find(|callback| callback.call == event.call)?;
            Some(core::mem::take(place))
        });
        let Some(began) = began else { return };
        let place = self.os.place();
        if place.irql != began.irql {
            let what = format_args!("called at IRQL {}, returned at {}", began.irql, place.irql);
            self.found(Finding::CallbackIrql, node, event.function, what);
        }
        let took = place.time.saturating_sub(began.started);
        let most = self.settings.longest_callback;
        if most != 0 && began.irql >= DISPATCH_LEVEL && took > most {
            let what = format_args!("{} microseconds at DISPATCH_LEVEL", took / 10);
            self.found(Finding::LongCallback, node, event.function, what);
        }
    }
}

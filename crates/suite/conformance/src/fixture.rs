//! The fixture of most cases: two connected queue pairs and everything that they need.

use core::net::SocketAddr;

use ndkpi::{NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT, NtStatus};

use crate::{
    case::{Check, Stop},
    client::{
        ALL_RIGHTS, Adapter, Connector, Cq, CqCore, Done, Hook, Listener, Offer, OnDisconnect, Pd, Qp, QpCore, QpSizes,
        Region, Remote, Session,
    },
    platform::Family,
};

/// The context of the active side's queue pair.
pub const QP_A: usize = 0xA1;
/// The context of the passive side's queue pair.
pub const QP_B: usize = 0xB2;

/// How a side is created.
#[derive(Clone, Copy)]
pub struct Plan<'s> {
    /// The sizes of its queue pair.
    pub sizes: QpSizes,
    /// The depth of the completion queue for receives, and of the one for initiator requests.
    pub depths: [u32; 2],
    /// Both queues of the queue pair complete to the first completion queue.
    pub one_cq: bool,
    /// Runs in the callback of the completion queue for receives.
    pub on_receive: Option<Hook<'s>>,
    /// Runs in the callback of the completion queue for initiator requests.
    pub on_initiate: Option<Hook<'s>>,
    /// The size of its region in bytes.
    pub bytes: usize,
    /// The rights of its region.
    pub rights: u32,
}

impl Plan<'_> {
    /// Sixteen requests in each queue, four elements in each request, two pages.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            sizes: QpSizes { receive_depth: 16, initiator_depth: 16, receive_sge: 4, initiator_sge: 4, inline: 64 },
            depths: [64, 64],
            one_cq: false,
            on_receive: None,
            on_initiate: None,
            bytes: 8192,
            rights: ALL_RIGHTS,
        }
    }
}

impl Default for Plan<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// One end of a connection, connected or not.
pub struct Side<'s> {
    /// The queue pair.
    pub qp: Qp<'s>,
    /// Registered bytes.
    pub region: Region<'s>,
    /// Where receives complete.
    pub receive_cq: Cq<'s>,
    /// Where initiator requests complete, unless that is the same queue.
    pub initiator_cq: Option<Cq<'s>>,
    /// The protection domain.
    pub pd: Pd<'s>,
}

impl<'s> Side<'s> {
    /// Creates a side whose queue pair has this context.
    ///
    /// # Errors
    ///
    /// The first failure.
    pub fn new(adapter: &Adapter<'s>, plan: &Plan<'s>, context: usize) -> Check<Self> {
        let pd = adapter.create_pd()?;
        let receive_cq = adapter.create_cq(plan.depths[0], plan.on_receive)?;
        let initiator_cq = if plan.one_cq { None } else { Some(adapter.create_cq(plan.depths[1], plan.on_initiate)?) };
        let initiator = initiator_cq.as_ref().unwrap_or(&receive_cq).core();
        let qp = pd.core().create_qp(receive_cq.core(), initiator, context, plan.sizes)?;
        let region = Region::new(pd.core(), plan.bytes, plan.rights)?;
        Ok(Self { qp, region, receive_cq, initiator_cq, pd })
    }

    /// Where initiator requests complete.
    #[must_use]
    pub fn initiated(&self) -> &'s CqCore<'s> {
        self.initiator_cq.as_ref().unwrap_or(&self.receive_cq).core()
    }

    /// Posts a receive.
    ///
    /// # Errors
    ///
    /// The post fails.
    pub fn receive(&self, context: usize, offset: isize, length: u32) -> Check {
        posted("NdkReceive", self.qp.receive(context, &[self.region.element(offset, length)])?)
    }

    /// Posts a send.
    ///
    /// # Errors
    ///
    /// The post fails.
    pub fn send(&self, context: usize, offset: isize, length: u32, flags: u32) -> Check {
        posted("NdkSend", self.qp.send(context, &[self.region.element(offset, length)], flags)?)
    }

    /// Posts a send for which the peer has no receive yet. Skips the case on an adapter that ends the connection for that, as
    /// adapters of iWARP do at once.
    ///
    /// # Errors
    ///
    /// The post fails, or the case is skipped.
    pub fn send_unready(&self, context: usize, offset: isize, length: u32, flags: u32) -> Check {
        let status = self.qp.send(context, &[self.region.element(offset, length)], flags)?;
        if status == NtStatus::CONNECTION_INVALID {
            skip!("the connection of a message that met no receive has ended");
        }
        posted("NdkSend", status)
    }

    /// Posts a write.
    ///
    /// # Errors
    ///
    /// The post fails.
    pub fn write(&self, context: usize, offset: isize, length: u32, remote: Remote, flags: u32) -> Check {
        posted("NdkWrite", self.qp.write(context, &[self.region.element(offset, length)], remote, flags)?)
    }

    /// Posts a read.
    ///
    /// # Errors
    ///
    /// The post fails.
    pub fn read(&self, context: usize, offset: isize, length: u32, remote: Remote, flags: u32) -> Check {
        posted("NdkRead", self.qp.read(context, &[self.region.element(offset, length)], remote, flags)?)
    }

    /// A byte of this side's region, for the peer.
    #[must_use]
    pub fn remote(&self, offset: isize) -> Remote {
        Remote { address: self.region.address(offset), token: self.region.remote() }
    }

    /// Waits for a single completion of an initiator request: the success of this request.
    ///
    /// # Errors
    ///
    /// It does not arrive, or another one does.
    pub fn initiator_done(&self, context: usize) -> Check<Done> {
        let done = self.initiated().take_one()?;
        is_success(&done, context)?;
        Ok(done)
    }

    /// Waits for a single completion of a receive: the success of this request.
    ///
    /// # Errors
    ///
    /// It does not arrive, or another one does.
    pub fn receive_done(&self, context: usize) -> Check<Done> {
        let done = self.receive_cq.take_one()?;
        is_success(&done, context)?;
        Ok(done)
    }
}

/// Checks that a post was accepted.
///
/// # Errors
///
/// It was refused.
pub fn posted(what: &str, status: NtStatus) -> Check {
    ensure!(status == NtStatus::SUCCESS, "{what} was not posted: {status}");
    Ok(())
}

/// Checks that a completion is the success of this request.
///
/// # Errors
///
/// It is not.
pub fn is_success(done: &Done, context: usize) -> Check {
    ensure!(
        done.status == NtStatus::SUCCESS && done.request == context,
        "request {context:#x} should have succeeded; this completed: {done:?}"
    );
    Ok(())
}

/// Checks that a completion is that of this request, with this status.
///
/// # Errors
///
/// It is not.
pub fn is_done(done: &Done, context: usize, status: NtStatus) -> Check {
    ensure!(
        done.status == status && done.request == context,
        "request {context:#x} should have ended with {status}; this completed: {done:?}"
    );
    Ok(())
}

/// What the two sides offer for a connection.
#[derive(Clone, Copy)]
pub struct Terms<'a, 's> {
    /// The family of the addresses.
    pub family: Family,
    /// What the active side offers.
    pub a: Offer<'a>,
    /// What the passive side offers.
    pub b: Offer<'a>,
    /// The active side's disconnect event.
    pub on_a: OnDisconnect<'s>,
    /// The passive side's disconnect event.
    pub on_b: OnDisconnect<'s>,
}

impl Terms<'_, '_> {
    /// IPv4, sixteen reads each way, no private data, and disconnect events that are counted.
    #[must_use]
    pub const fn new() -> Self {
        let offer = Offer { inbound: 16, outbound: 16, data: &[] };
        Self { family: Family::V4, a: offer, b: offer, on_a: OnDisconnect::Count, on_b: OnDisconnect::Count }
    }
}

impl Default for Terms<'_, '_> {
    fn default() -> Self {
        Self::new()
    }
}

/// A connection: the two connectors and the listener.
pub struct Link<'s> {
    /// The active side.
    pub a: Connector<'s>,
    /// The passive side.
    pub b: Connector<'s>,
    /// The listener.
    pub listener: Listener<'s>,
}

/// Listens on the adapter for the passive side, on a port that the provider chooses.
///
/// # Errors
///
/// The first failure.
pub fn listen<'s>(session: &'s Session<'s>, family: Family) -> Check<(Listener<'s>, SocketAddr)> {
    let adapter = session.peer_adapter()?;
    let listener = adapter.create_listener(None)?;
    listener.core().listen(session.address(adapter.number(), family, 0)?)?.succeeds()?;
    let address = listener.address()?;
    Ok((listener, address))
}

impl<'s> Link<'s> {
    /// Connects the two sides: listen, connect, accept, complete-connect.
    ///
    /// # Errors
    ///
    /// The first failure.
    pub fn establish(session: &'s Session<'s>, a: &Side<'s>, b: &Side<'s>, terms: &Terms<'_, 's>) -> Check<Self> {
        Self::between(session, a.qp.core(), b.qp.core(), terms)
    }

    /// Connects two queue pairs: listen, connect, accept, complete-connect.
    ///
    /// # Errors
    ///
    /// The first failure.
    pub fn between(
        session: &'s Session<'s>,
        a: &'s QpCore<'s>,
        b: &'s QpCore<'s>,
        terms: &Terms<'_, 's>,
    ) -> Check<Self> {
        let (listener, address) = listen(session, terms.family)?;
        let adapter = session.adapter()?;
        let active = adapter.create_connector()?;
        let from = session.address(adapter.number(), terms.family, 0)?;
        let connecting = active.core().connect(a, from, address, &terms.a)?;
        let passive = listener.take()?;
        let accepting = passive.core().accept(b, &terms.b, terms.on_b)?;
        connecting.succeeds()?;
        active.core().complete_connect(terms.on_a)?.succeeds()?;
        accepting.succeeds()?;
        Ok(Self { a: active, b: passive, listener })
    }
}

/// Two connected sides.
pub struct Pair<'s> {
    /// The connection.
    pub link: Link<'s>,
    /// The active side.
    pub a: Side<'s>,
    /// The passive side.
    pub b: Side<'s>,
}

impl<'s> Pair<'s> {
    /// Two equal sides.
    ///
    /// # Errors
    ///
    /// The first failure. The case is inconclusive then: it has not come to its rule.
    pub fn new(session: &'s Session<'s>) -> Check<Self> {
        Self::with(session, &Plan::new(), &Plan::new())
    }

    /// Two sides by plan.
    ///
    /// # Errors
    ///
    /// As [`Pair::new`].
    pub fn with(session: &'s Session<'s>, a: &Plan<'s>, b: &Plan<'s>) -> Check<Self> {
        Self::tested(session, a, b).map_err(Stop::in_set_up)
    }

    /// Two sides by a plan that is what the case is about: that they come about is a part of its rule.
    ///
    /// # Errors
    ///
    /// The first failure.
    pub fn tested(session: &'s Session<'s>, a: &Plan<'s>, b: &Plan<'s>) -> Check<Self> {
        let (a, b) = Self::sides(session, a, b)?;
        Self::join(session, a, b, &Terms::new())
    }

    /// Two sides by plan, not connected yet.
    ///
    /// # Errors
    ///
    /// As [`Pair::new`].
    pub fn apart(session: &'s Session<'s>, a: &Plan<'s>, b: &Plan<'s>) -> Check<(Side<'s>, Side<'s>)> {
        Self::sides(session, a, b).map_err(Stop::in_set_up)
    }

    fn sides(session: &'s Session<'s>, a: &Plan<'s>, b: &Plan<'s>) -> Check<(Side<'s>, Side<'s>)> {
        let b = Side::new(&session.peer_adapter()?, b, QP_B)?;
        let a = Side::new(&session.adapter()?, a, QP_A)?;
        Ok((a, b))
    }

    /// Connects two sides.
    ///
    /// # Errors
    ///
    /// The first failure.
    pub fn join(session: &'s Session<'s>, a: Side<'s>, b: Side<'s>, terms: &Terms<'_, 's>) -> Check<Self> {
        let link = Link::establish(session, &a, &b, terms)?;
        Ok(Self { link, a, b })
    }

    /// Sends from the active to the passive side and waits for the sender's completion. The receiver's completion stays in its
    /// queue.
    ///
    /// # Errors
    ///
    /// The first failure.
    pub fn deliver(&self, context: usize, solicited: bool) -> Check {
        self.start_delivery(context, solicited)?;
        self.a.initiator_done(context).map(|_| ())
    }

    /// Like [`Pair::deliver`], without waiting.
    ///
    /// # Errors
    ///
    /// The first failure.
    pub fn start_delivery(&self, context: usize, solicited: bool) -> Check {
        self.b.receive(context, 0, 64)?;
        self.a.send(context, 0, 16, if solicited { NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT } else { 0 })
    }
}

//! Queue pairs, except for their requests.

use core::{
    ffi::c_void,
    ops::Deref,
    sync::atomic::{AtomicU32, Ordering},
};

use engine::{
    cq::Cq,
    os::{Os, SpinLock},
    qp::{NewQp, Qp, QpParameters, RqProducer, SqProducer, Srq},
};
use fallible::Arc;
use ndkpi::NtStatus;

use crate::{
    Device, OverlappedOs,
    adapter::AdapterCore,
    back_end::QueuePairSizes,
    connector,
    device::{Member, Membership},
};

/// Bytes that a queue pair takes besides: its places in its queues, the locks of its ends, and what it is with its connection.
const QUEUE_PAIR: u64 = 1024;

/// A queue pair. Its methods may be called on any threads at the same time.
pub struct QueuePair<P: OverlappedOs> {
    /// First: it closes before anything else goes.
    qp: Open<P::Os>,
    adapter: Arc<AdapterCore<P>>,
    send_queue: <P::Os as Os>::Lock<SqProducer>,
    /// `None` with a shared receive queue.
    receive_queue: <P::Os as Os>::Lock<Option<RqProducer>>,
    /// Requests that were posted, receives not counted.
    posted: AtomicU32,
    /// The connector that connects it, or has connected it.
    connector: <P::Os as Os>::Lock<Option<Arc<connector::Core<P>>>>,
    _member: Membership<P>,
}

impl<P: OverlappedOs> QueuePair<P> {
    /// Makes a queue pair that completes receives in the first and everything else in the second queue.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, `STATUS_IMPLEMENTATION_LIMIT`, `STATUS_DEVICE_REMOVED`.
    pub fn try_new(
        adapter: &Arc<AdapterCore<P>>,
        [receive, initiator]: [Arc<Cq<P::Os>>; 2],
        shared: Option<&Arc<Srq<P::Os>>>,
        context: *mut c_void,
        sizes: &QueuePairSizes,
    ) -> Result<Self, NtStatus> {
        let device = adapter.device();
        device.check_present()?;
        let info = &device.config().info;
        let parameters = QpParameters {
            receive_depth: sizes.receive_depth,
            initiator_depth: sizes.initiator_depth,
            max_receive_sge: sizes.max_receive_sge,
            max_initiator_sge: sizes.max_initiator_sge,
            max_peer_sge: info.MaxReceiveSge,
            inline_size: sizes.inline_size,
            max_transfer: info.MaxTransferLength,
            context: context.expose_provenance(),
        };
        // Given back with the last reference to the queue pair, which may be that of its connection.
        let charge = adapter.charge_object(QUEUE_PAIR + parameters.bytes::<P::Os>())?;
        let NewQp { qp, send_queue, receive_queue } =
            Qp::try_new(device.nic(), adapter.domain(), &receive, &initiator, shared, &parameters, charge)?;
        let qp = Open(qp);
        let member = Device::join(adapter, Member::QueuePair(qp.0.clone()))?;
        let os = device.platform().os();
        Ok(Self {
            adapter: adapter.clone(),
            send_queue: os.lock(send_queue)?,
            receive_queue: os.lock(shared.is_none().then_some(receive_queue))?,
            connector: os.lock(None)?,
            posted: AtomicU32::new(0),
            _member: member,
            qp,
        })
    }

    /// Runs `connect` on the queue pair, for `connector`, which is of the same adapter.
    pub fn connect<U>(&self, connector: &Arc<connector::Core<P>>, connect: impl FnOnce(&Arc<Qp<P::Os>>) -> U) -> U {
        let result = connect(&self.qp);
        // A connector that was refused does not take the queue pair from another. The reference to that one is dropped after the lock
        // is released.
        drop(self.connector.with(|place| connector.uses(&self.qp).then(|| place.replace(connector.clone()))));
        result
    }

    pub const fn adapter(&self) -> &Arc<AdapterCore<P>> {
        &self.adapter
    }

    /// Cancels what is posted.
    pub fn flush(&self) {
        Qp::flush(&self.qp);
    }

    /// Runs `work`, which posts to the send queue.
    pub fn initiate(
        &self,
        work: impl FnOnce(&Arc<Qp<P::Os>>, &mut SqProducer) -> Result<(), NtStatus>,
    ) -> Result<(), NtStatus> {
        let device = self.adapter.device();
        device.check_present()?;
        self.send_queue.with(|queue| work(&self.qp, queue))?;
        if device.faults().breaks(self.posted.fetch_add(1, Ordering::Relaxed).wrapping_add(1)) {
            Qp::fail(&self.qp);
        }
        Ok(())
    }

    /// Runs `work`, which posts to the receive queue.
    pub fn receive(
        &self,
        work: impl FnOnce(&Arc<Qp<P::Os>>, &mut RqProducer) -> Result<(), NtStatus>,
    ) -> Result<(), NtStatus> {
        self.adapter.device().check_present()?;
        self.receive_queue.with(|queue| work(&self.qp, queue.as_mut().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?))
    }
}

/// A queue pair of the engine. Dropping it closes it: it disconnects, and cancels what is posted. The completions still come.
struct Open<O: Os>(Arc<Qp<O>>);

impl<O: Os> Deref for Open<O> {
    type Target = Arc<Qp<O>>;

    fn deref(&self) -> &Arc<Qp<O>> {
        &self.0
    }
}

impl<O: Os> Drop for Open<O> {
    fn drop(&mut self) {
        Qp::close(&self.0);
    }
}

impl<P: OverlappedOs> Drop for QueuePair<P> {
    fn drop(&mut self) {
        if let Some(connector) = self.connector.with(Option::take) {
            connector.queue_pair_released(&self.qp);
        }
    }
}

//! What is behind the methods of `IND2Connector`.

use core::{net::SocketAddr, ptr::NonNull};

use engine::{
    connection::{Answer, ConnectParameters, Connector as EngineConnector, ConnectorRequest, ReadLimits},
    qp::Qp,
};
use fallible::Arc;
use ndkpi::NtStatus;

use super::{Connector, Core};
use crate::{Engine, OverlappedOs, abi::OVERLAPPED, adapter::AdapterCore, back_end, qp::QueuePair};

/// A status that says all there is to say, whether it came as an error or not.
fn either(result: Result<NtStatus, NtStatus>) -> NtStatus {
    result.unwrap_or_else(|status| status)
}

impl<P: OverlappedOs> back_end::Part<Engine<P>> for Connector<P> {
    fn adapter(&self) -> &Arc<AdapterCore<P>> {
        &self.core.adapter
    }
}

impl<P: OverlappedOs> back_end::Requests<Engine<P>> for Connector<P> {
    fn file(&self) -> &Arc<P::File> {
        &self.core.file
    }

    fn cancel(&self) -> Result<(), NtStatus> {
        self.core.cancel();
        Ok(())
    }
}

impl<P: OverlappedOs> back_end::Connector<Engine<P>> for Connector<P> {
    fn bind(&self, address: SocketAddr) -> Result<(), NtStatus> {
        self.core.bind(address)
    }

    unsafe fn connect(
        &self,
        qp: Option<&QueuePair<P>>,
        remote: SocketAddr,
        reads: ReadLimits,
        data: &[u8],
        overlapped: NonNull<OVERLAPPED>,
    ) -> NtStatus {
        let Some(qp) = qp else { return NtStatus::INVALID_PARAMETER };
        let connect = |qp: &Arc<Qp<P::Os>>| {
            let parameters = ConnectParameters { remote, reads, private_data: data };
            // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
            unsafe { Core::connect(&self.core, qp, &parameters, overlapped) }
        };
        either(qp.connect(&self.core, connect))
    }

    unsafe fn complete_connect(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
        either(unsafe { self.core.complete_connect(overlapped) })
    }

    unsafe fn accept(
        &self,
        qp: Option<&QueuePair<P>>,
        reads: ReadLimits,
        data: &[u8],
        overlapped: NonNull<OVERLAPPED>,
    ) -> NtStatus {
        let Some(qp) = qp else { return NtStatus::INVALID_PARAMETER };
        let accept = |qp: &Arc<Qp<P::Os>>| {
            let engine = self.core.engine()?;
            let ask = || EngineConnector::accept(&engine, qp, reads, data).map(|()| Answer::Pending);
            // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
            Ok(unsafe { self.core.ask(ConnectorRequest::Accept, Some(qp), overlapped, ask) })
        };
        either(qp.connect(&self.core, accept))
    }

    fn reject(&self, data: &[u8]) -> Result<(), NtStatus> {
        EngineConnector::reject(&self.core.engine()?, data)
    }

    fn read_limits(&self) -> Result<ReadLimits, NtStatus> {
        Ok(self.core.connection_data(&mut [])?.reads)
    }

    fn private_data(&self, into: &mut [u8]) -> Result<usize, NtStatus> {
        Ok(self.core.connection_data(into)?.required)
    }

    fn local_address(&self) -> Result<SocketAddr, NtStatus> {
        self.core.local_address()
    }

    fn peer_address(&self) -> Result<SocketAddr, NtStatus> {
        self.core.engine()?.peer_address()
    }

    unsafe fn notify_disconnect(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
        unsafe { self.core.notify_disconnect(overlapped) }
    }

    unsafe fn disconnect(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
        either(unsafe { self.core.disconnect(overlapped) })
    }
}

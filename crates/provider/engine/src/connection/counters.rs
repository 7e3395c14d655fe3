//! The connection counters of an adapter (`NDIS_NDK_PERFORMANCE_COUNTERS`, `NDIS-NDK 3`).

use crate::sync::{AtomicU64, Ordering};

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounters {
    /// `Connect`: outbound connections established.
    pub connect: u64,
    /// `Accept`: inbound connections established.
    pub accept: u64,
    /// `ConnectFailure`: attempts that failed. An outbound one counts once its local endpoint is in order; an inbound one
    /// once a listener has taken it. Each is counted on its own side.
    pub connect_failure: u64,
    /// `ConnectionError`: established connections that ended before a consumer of either side disconnected. A consumer that
    /// closes its connector counts for its peer's adapter only: on its own side that is no error.
    pub connection_error: u64,
    /// `ActiveConnection`: connections that exist now.
    pub active: u64,
}

/// The counters. None of them is touched on the data path.
#[derive(Default)]
pub(super) struct Counters {
    connect: AtomicU64,
    accept: AtomicU64,
    connect_failure: AtomicU64,
    connection_error: AtomicU64,
    active: AtomicU64,
}

impl Counters {
    pub fn connected(&self) {
        self.connect.fetch_add(1, Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    pub fn accepted(&self) {
        self.accept.fetch_add(1, Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    pub fn failed_to_connect(&self) {
        self.connect_failure.fetch_add(1, Ordering::Relaxed);
    }

    pub fn ended(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn broke(&self) {
        self.connection_error.fetch_add(1, Ordering::Relaxed);
    }

    pub fn now(&self) -> ConnectionCounters {
        ConnectionCounters {
            connect: self.connect.load(Ordering::Relaxed),
            accept: self.accept.load(Ordering::Relaxed),
            connect_failure: self.connect_failure.load(Ordering::Relaxed),
            connection_error: self.connection_error.load(Ordering::Relaxed),
            active: self.active.load(Ordering::Relaxed),
        }
    }
}

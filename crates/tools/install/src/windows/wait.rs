//! Waiting for what Windows tells: a bell that its notifications ring.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::calls::{self, Ringing};
use crate::Result;

/// A bell. What rings it has a reference of its own.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

/// For how long at most a waiter trusts in notifications: a device that fails to start sends none.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

impl Bell {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Rings it. Called by Windows, on a thread of its own.
    pub fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// Waits for the bell, and returns false if the time is over.
    pub fn wait(&self, within: Duration) -> bool {
        let begun = Instant::now();
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(rung, within.min(LOOK_AGAIN), |rung| !*rung);
        let (mut rung, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *rung) || begun.elapsed() < within
    }

    /// Has it rung when something happens to the device.
    pub fn of_device(self: &Arc<Self>, instance: &str) -> Result<Ringing> {
        calls::ring_for_device(self, instance)
    }

    /// Has it rung when an interface gets or loses IPv4, or changes.
    pub fn of_interfaces(self: &Arc<Self>) -> Result<Ringing> {
        calls::ring_for_interfaces(self)
    }

    /// Has it rung when an IPv4 address comes, goes or changes.
    pub fn of_addresses(self: &Arc<Self>) -> Result<Ringing> {
        calls::ring_for_addresses(self)
    }
}

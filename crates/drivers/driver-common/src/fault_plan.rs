//! The faults of `SET_FAULT_PLAN`, in front of the adapters that are opened from then on (`interpose::faults`). None by default, and
//! then nothing is there: consumers get the provider's own tables.

use core::array;

use control::provider_device::{FAULT_PLAN_ANSWER_BYTES, FAULT_PLAN_BYTES};
use engine::os::{Os, SpinLock};
use fallible::Arc;
use interpose::faults::{Faults, MOST_RULES, PLAN_BYTES, Plan, Tally, Target};
use ndkpi::{NDK_ADAPTER, NtStatus};
use zerocopy::{Immutable, IntoBytes, little_endian::U64};

use crate::{
    os::{Kernel, KernelLock},
    presence::Presence,
    trace,
};

const _: () = assert!(FAULT_PLAN_BYTES == PLAN_BYTES);
const _: () = assert!(FAULT_PLAN_ANSWER_BYTES == size_of::<Answer>());

/// The answer to `QUERY_FAULT_PLAN`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Answer {
    plan: [u8; PLAN_BYTES],
    /// Of each rule: how many calls it was about, and how often it happened.
    counts: [[U64; 2]; MOST_RULES],
}

/// The plan of a driver.
pub struct InjectedFaults {
    now: KernelLock<Arc<Tally>>,
}

impl InjectedFaults {
    /// Nothing happens.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new() -> Result<Arc<Self>, NtStatus> {
        let tally = Arc::try_new(Tally::default())?;
        Ok(Arc::try_new(Self { now: Kernel.lock(tally)? })?)
    }

    /// Takes the input of a request: a plan for what is opened from now on, whose counts begin at zero. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if it is none; then nothing has changed. `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn set(&self, input: &[u8]) -> Result<(), NtStatus> {
        let plan = Plan::from_bytes(input).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        let new = Arc::try_new(Tally::new(plan))?;
        let before = self.now.with(|now| core::mem::replace(now, new));
        // Freed without the lock.
        drop(before);
        trace::fault_plan(&plan);
        Ok(())
    }

    /// The answer to `QUERY_FAULT_PLAN`: the plan, and of each rule how many calls it was about and how often it happened.
    #[must_use]
    pub fn answer(&self) -> [u8; FAULT_PLAN_ANSWER_BYTES] {
        let tally = self.now.with(|now| now.clone());
        let counts = array::from_fn(|rule| [tally.calls_of(rule).into(), tally.made_of(rule).into()]);
        zerocopy::transmute!(Answer { plan: tally.plan().to_bytes(), counts })
    }

    /// Puts the faults in front of an adapter that was just opened, if there are any. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`: then the adapter is as it was.
    ///
    /// # Safety
    ///
    /// `adapter` is open, and nobody else has it.
    pub unsafe fn wrap(
        &self,
        adapter: *mut NDK_ADAPTER,
        consumer: u32,
        pulled: impl FnOnce() -> Pulled,
    ) -> Result<*mut NDK_ADAPTER, NtStatus> {
        let tally = self.now.with(|now| now.clone());
        if tally.plan().is_empty() {
            return Ok(adapter);
        }
        let hooks = Faults::with_target(Kernel, consumer, tally, pulled());
        // SAFETY: `adapter` is open and nobody else's (`# Safety`), which is what `wrap` asks for.
        unsafe { interpose::wrap(adapter, hooks) }
    }
}

/// The layer with the faults.
pub type Layer = Faults<Kernel, Pulled>;

/// An adapter that a fault can pull.
pub struct Pulled {
    provider: Arc<provider::Device<Kernel>>,
    presence: Arc<Presence>,
}

impl Pulled {
    /// This adapter, and the one of plug and play that it is.
    #[must_use]
    pub const fn new(provider: Arc<provider::Device<Kernel>>, presence: Arc<Presence>) -> Self {
        Self { provider, presence }
    }
}

impl Target for Pulled {
    fn remove(&self) {
        self.presence.set_ready(false);
        // Consumers have disconnect events and flushed queue pairs before plug and play tells them to close.
        self.provider.port().abort();
        self.presence.fail();
    }
}

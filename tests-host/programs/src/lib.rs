//! Programs of NDKPI calls, as byte strings: two consumers call a provider through its dispatch tables, beside a sequential oracle.
//!
//! Any bytes are a program. What they make is carried out step by step on a machine of one thread; after each step everything has
//! been done that can be, and status, completions, callbacks and every byte of memory have to be what the oracle says.
//!
//! The two consumers' adapters reach each other in memory, or by frames on a cable, which may spoil some ([`Way`]).

mod bytes;
mod cq;
pub mod generate;
mod memory;
mod oracle;
#[macro_use]
mod world;

mod steps;

use std::sync::Arc;

use conformance::{
    Platform, Stop,
    client::{Options, Session},
    host::{HostPlatform, Impairments, Layer, Scheduler, Setup},
};
use engine::nic::NicMode;
use ndkpi::{NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED as LOOPBACK, NDK_VERSION};
use provider::CompletionMode;
pub use world::Counts;

/// How the two adapters reach each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// In memory: what is posted is carried out at once.
    #[default]
    Memory,
    /// By frames on a cable that does this to them. What is posted has been carried out when it completes.
    Wire(Impairments),
}

impl Way {
    /// The cables of a campaign, with their names: a clean one, each impairment by itself, all together.
    #[must_use]
    pub fn cables() -> [(&'static str, Self); 6] {
        let clean = Impairments::default();
        [
            ("clean", clean),
            ("loss", Impairments { loss: 30, ..clean }),
            ("duplicates", Impairments { duplicates: 60, ..clean }),
            ("disorder", Impairments { disorder: 60, ..clean }),
            ("corruption", Impairments { corruption: 30, ..clean }),
            ("all", Impairments::all(15)),
        ]
        .map(|(name, impairments)| (name, Self::Wire(impairments)))
    }

    /// The cable, if there is one.
    pub(crate) const fn wire(self) -> Option<Impairments> {
        match self {
            Self::Memory => None,
            Self::Wire(impairments) => Some(impairments),
        }
    }

    /// Returns true if frames may be lost.
    pub(crate) fn is_spoilt(self) -> bool {
        self.wire().is_some_and(|impairments| impairments != Impairments::default())
    }
}

/// Runs a program.
///
/// # Errors
///
/// What the provider did otherwise than the oracle.
pub fn run(program: &[u8], counts: &mut Counts) -> Result<(), String> {
    run_with(program, counts, false)
}

/// As [`run`], saying what is done to the standard error if `verbose`.
///
/// # Errors
///
/// As [`run`].
pub fn run_with(program: &[u8], counts: &mut Counts, verbose: bool) -> Result<(), String> {
    carry_out(program, counts, (verbose, Way::Memory), None)
}

/// As [`run_with`], with the adapters on this way.
///
/// # Errors
///
/// As [`run`].
pub fn run_on(program: &[u8], counts: &mut Counts, way: Way, verbose: bool) -> Result<(), String> {
    carry_out(program, counts, (verbose, way), None)
}

/// As [`run`], with a layer between the consumers and the provider.
///
/// # Errors
///
/// As [`run`].
pub fn run_behind(program: &[u8], counts: &mut Counts, layer: &Layer) -> Result<(), String> {
    carry_out(program, counts, (false, Way::Memory), Some(layer))
}

fn carry_out(
    program: &[u8],
    counts: &mut Counts,
    (verbose, way): (bool, Way),
    layer: Option<&Layer>,
) -> Result<(), String> {
    let mut bytes = bytes::Bytes(program);
    let (kind, seed) = (bytes.next(), bytes.next());
    let watched_locks = kind & 2 == 0;
    // Nobody gets in between while a lock is held of which the machine knows nothing: it would be waited for for ever.
    let preemption = if watched_locks { [0, 10, 30, 60][usize::from(kind >> 4 & 3)] } else { 0 };
    let setup = Setup {
        scheduler: Scheduler::Seeded { seed: seed.into(), preemption },
        processors: Some(2),
        completion: [CompletionMode::Inline, CompletionMode::Pending, CompletionMode::Early, CompletionMode::Mixed]
            [usize::from(kind >> 2 & 3)],
        nic: if kind & 1 == 0 { NicMode::Deferred } else { NicMode::Direct },
        watched_locks,
        // Each end has an adapter of its own.
        without: LOOPBACK,
        tokens: Some(64),
        seed: seed.into(),
        wire: way.wire(),
        patience: if way == Way::Memory { Setup::default().patience } else { 20_000_000 },
        ..Setup::default()
    };
    let platform = Arc::new(HostPlatform::start(setup).map_err(|status| format!("no machine: {status}"))?);
    platform.set_verbose(verbose);
    let options = Options { name: "programs", version: NDK_VERSION::V2_1, seed: seed.into(), hostile: false };
    let behind = layer.map(|layer| layer(&platform));
    let seen: &dyn Platform = behind.as_ref().map_or(&*platform, |behind| &**behind);
    let result = Session::with(seen, &options, |session| world::run(session, (&platform, way), &mut bytes, counts));
    drop(behind);
    let panic = platform.take_panic();
    match result {
        Err(Stop::Failed(words)) => return Err(words.to_string()),
        Err(stop) => return Err(format!("skipped: {}", stop.text())),
        Ok(_) => {}
    }
    panic.map_or(Ok(()), Err)?;
    Arc::into_inner(platform).ok_or("somebody holds the machine")?.finish()
}

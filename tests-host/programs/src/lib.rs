//! Programs of NDKPI calls, as byte strings: two consumers call a provider through its dispatch tables, beside a sequential oracle.
//!
//! Any bytes are a program. What they make is carried out step by step on a machine of one thread; after each step everything has
//! been done that can be, and status, completions, callbacks and every byte of memory have to be what the oracle says.

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
    host::{HostPlatform, Layer, Scheduler, Setup},
};
use engine::nic::NicMode;
use ndkpi::{NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED as LOOPBACK, NDK_VERSION};
use provider::CompletionMode;
pub use world::Counts;

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
    carry_out(program, counts, verbose, None)
}

/// As [`run`], with a layer between the consumers and the provider.
///
/// # Errors
///
/// As [`run`].
pub fn run_behind(program: &[u8], counts: &mut Counts, layer: &Layer) -> Result<(), String> {
    carry_out(program, counts, false, Some(layer))
}

fn carry_out(program: &[u8], counts: &mut Counts, verbose: bool, layer: Option<&Layer>) -> Result<(), String> {
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
        ..Setup::default()
    };
    let platform = Arc::new(HostPlatform::start(setup).map_err(|status| format!("no machine: {status}"))?);
    platform.set_verbose(verbose);
    let options = Options { name: "programs", version: NDK_VERSION::V2_1, seed: seed.into(), hostile: false };
    let behind = layer.map(|layer| layer(&platform));
    let seen: &dyn Platform = behind.as_ref().map_or(&*platform, |behind| &**behind);
    let result = Session::with(seen, &options, |session| world::run(session, &platform, &mut bytes, counts));
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

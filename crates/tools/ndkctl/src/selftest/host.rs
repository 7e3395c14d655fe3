//! Cases on this machine, each on a machine of its own.

use std::sync::{Arc, atomic::AtomicBool};

use conformance::{
    Case, Run,
    client::Adapter,
    host::{Harness, HostPlatform},
};
use interpose::{adviser::Finding, faults::Tally};
use ndkpi::NDK_VERSION;

use super::{Finished, Ground, json::AdapterJson};
use crate::{adapters::technology, advise::Advice, args::Selftest, fault_plan, record::Latest};

/// The provider of this program.
pub struct Host<'a> {
    args: &'a Selftest,
    version: NDK_VERSION,
    harness: Harness,
    latest: Latest,
    advice: Option<Advice>,
    faults: Vec<[u64; 2]>,
}

impl<'a> Host<'a> {
    /// With an adviser and a recorder between suite and provider, where they are wanted.
    ///
    /// # Errors
    ///
    /// One line.
    pub fn new(args: &'a Selftest, advice: Option<&Advice>, interrupted: &Arc<AtomicBool>) -> Result<Self, String> {
        let harness = Harness::new(args.setup()).with_cancel_flag(interrupted.clone()).verbose(args.verbose);
        let latest = Latest::default();
        let layer = args.record.layer(&latest, advice).or_else(|| advice.map(Advice::layer));
        let harness = match layer {
            Some(layer) => harness.with_layer(layer),
            None => harness,
        };
        let faults = vec![[0; 2]; args.fault.len()];
        Ok(Self { args, version: super::version(args)?, harness, latest, advice: advice.cloned(), faults })
    }

    /// A tally of faults that begins with this case, so that a case fails alone as it does in a run.
    fn count(&mut self, tally: &Tally) {
        for (index, [calls, made]) in self.faults.iter_mut().enumerate() {
            *calls += tally.calls_of(index);
            *made += tally.made_of(index);
        }
    }
}

impl Ground for Host<'_> {
    fn run(&mut self, case: &'static Case, seed: u64) -> Result<Option<Finished>, String> {
        let how = Run { version: self.version, seed, hostile: true };
        let finished = if self.args.fault.is_empty() {
            self.harness.run(case, how)
        } else {
            let (layer, tally) = fault_plan::layer(seed, &self.args.fault)?;
            let finished = self.harness.clone().with_layer(layer).run(case, how);
            self.count(&tally);
            finished
        };
        let kept = Finished { outcome: finished.outcome, took: finished.took };
        Ok((!self.harness.is_cancelled()).then_some(kept))
    }

    fn recording(&mut self) -> Option<Vec<u8>> {
        self.latest.file()
    }

    fn faults(&self) -> &[[u64; 2]] {
        &self.faults
    }

    fn findings(&self) -> Result<Vec<(Finding, u32)>, String> {
        Ok(self.advice.iter().flat_map(Advice::made).collect())
    }

    fn adapter(&self) -> Option<AdapterJson> {
        let platform = HostPlatform::start(self.args.setup()).ok()?;
        let seen = Adapter::glimpse(&platform, 0, self.version).ok()?.ok();
        let _ = platform.finish();
        let (version, info) = seen?;
        Some(AdapterJson {
            name: "SoftNDK in this program".to_owned(),
            driver: Some(format!("ndkctl {}", env!("CARGO_PKG_VERSION"))),
            ndkpi: version.to_string(),
            vendor: Some(info.VendorId),
            technology: Some(technology(info.RdmaTechnology.0.cast_unsigned())),
        })
    }
}

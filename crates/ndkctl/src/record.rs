//! `--record FILE`: what happens between the suite or the ping-pong and the provider, in a file.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use clap::Args;
use conformance::{
    Platform,
    host::{HostPlatform, Interposed, Layer},
};
use interpose::NoHooks;
use recorder::{Keep, Recorder, Ring};
use recording::Recording;

use crate::size::parse_slots;

/// What is recorded, and where it goes.
#[derive(Clone, Debug, Default, Args)]
pub struct Record {
    /// Record every call, completion and callback, and write them to this file (docs/recorder.md)
    #[arg(long, value_name = "FILE")]
    pub record: Option<std::path::PathBuf>,
    /// With --record: how many slots of 64 bytes are kept, 256 to 16M; a request takes about five
    #[arg(long, requires = "record", default_value = "256K", value_name = "SLOTS", value_parser = parse_slots)]
    pub record_slots: u32,
    /// With --record: keep what came last when there is no more room, not what came first
    #[arg(long, requires = "record")]
    pub record_last: bool,
}

/// The ring of the latest run.
#[derive(Clone, Default)]
pub struct Latest(Arc<Mutex<Option<fallible::Arc<Ring>>>>);

impl Latest {
    fn put(&self, ring: fallible::Arc<Ring>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(ring);
    }

    /// The file of the latest run, if there was one.
    pub fn file(&self, processors: u32) -> Option<Vec<u8>> {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ring.map(|ring| recording::write(&ring, processors))
    }
}

impl Record {
    /// A platform whose adapters are recorded.
    ///
    /// # Errors
    ///
    /// One line, if there is no memory for the recording.
    pub fn platform(&self, platform: &Arc<HostPlatform>, latest: &Latest) -> Result<Box<dyn Platform + Send>, String> {
        let keep = if self.record_last { Keep::Last } else { Keep::First };
        let ring = Ring::try_new(self.record_slots as usize, keep)
            .map_err(|_| format!("no memory for {} slots: take fewer (--record-slots)", self.record_slots))?;
        latest.put(ring.clone());
        Ok(Box::new(Interposed::new(platform, Box::new(move |os| Recorder::new(os.clone(), ring.clone())))))
    }

    /// A layer that records each case by itself; none if nothing is to be recorded.
    pub fn layer(&self, latest: &Latest) -> Option<Layer> {
        self.record.as_ref()?;
        let (this, latest) = (self.clone(), latest.clone());
        let layer: Layer = Arc::new(move |platform: &Arc<HostPlatform>| {
            // Without memory nothing is recorded, which is said when the file is to be written.
            this.platform(platform, &latest)
                .unwrap_or_else(|_| Box::new(Interposed::new(platform, Box::new(|os| NoHooks(os.clone())))))
        });
        Some(layer)
    }
}

/// Writes a file.
///
/// # Errors
///
/// One line.
pub fn save(path: &Path, file: &[u8]) -> Result<(), String> {
    fs::write(path, file).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads a recording.
///
/// # Errors
///
/// One line.
pub fn load(path: &Path) -> Result<Recording, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let bytes = fs::read(path).map_err(|error| named(&error))?;
    Recording::read(&bytes).map_err(|error| named(&error))
}

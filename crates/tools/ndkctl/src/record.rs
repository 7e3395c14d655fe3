//! `--record FILE` and `--timeline FILE`: recording, on the host, what happens between the consumer and the provider.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use clap::{ArgGroup, Args};
use conformance::{
    Platform,
    host::{HostPlatform, Interposed, Layer},
};
use interpose::NoHooks;
use recorder::{Keep, Recorder, Ring};
use recording::Recording;

use crate::{advise::Advice, size::parse_slots, timeline};

/// Where a recording goes, and its size.
#[derive(Clone, Debug, Default, Args)]
#[command(group = ArgGroup::new("recorded").args(["record", "timeline"]).multiple(true))]
pub struct Record {
    /// Record every call, completion and callback to this file (docs/recorder.md)
    #[arg(id = "record", long = "record", value_name = "FILE", value_parser = crate::words::out_file)]
    pub file: Option<PathBuf>,
    /// Draw the recording: a picture if the name ends in .svg, else an HTML page with zoom, search and details
    #[arg(long, value_name = "FILE", value_parser = crate::words::out_file)]
    pub timeline: Option<PathBuf>,
    /// With --record or --timeline: size in slots of 64 bytes, 256 to 16M; a request takes one or two
    #[arg(long = "record-slots", requires = "recorded", default_value = "256K", value_name = "SLOTS", value_parser = parse_slots)]
    pub slots: u32,
    /// With --record or --timeline: when full, overwrite the oldest instead of dropping the newest
    #[arg(long = "record-last", requires = "recorded")]
    pub last: bool,
}

/// A ring, and how many processors its machine has.
type Kept = (fallible::Arc<Ring>, u32);

/// The ring of the latest run.
#[derive(Clone, Default)]
pub struct Latest(Arc<Mutex<Option<Kept>>>);

impl Latest {
    fn put(&self, ring: fallible::Arc<Ring>, processors: u32) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((ring, processors));
    }

    /// The file of the latest run, if there was one.
    pub fn file(&self) -> Option<Vec<u8>> {
        let latest = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        latest.map(|(ring, processors)| recording::write(&ring, processors))
    }
}

impl Record {
    /// Returns true if anything is to be recorded.
    pub const fn is_wanted(&self) -> bool {
        self.file.is_some() || self.timeline.is_some()
    }

    /// Writes what was asked for of a recording.
    ///
    /// # Errors
    ///
    /// One line.
    pub fn write(&self, file: &[u8]) -> Result<(), String> {
        if let Some(path) = &self.file {
            save(path, file)?;
        }
        if let Some(path) = &self.timeline {
            let recording = Recording::read(file).map_err(|error| format!("the recording: {error}"))?;
            timeline::draw(&recording, path)?;
        }
        Ok(())
    }

    /// The same with the name of a machine in the names of the files: `run.html` is `run-client.html`.
    #[must_use]
    pub fn of_machine(&self, machine: Option<&str>) -> Self {
        let Some(machine) = machine else { return self.clone() };
        let named = |file: &PathBuf| {
            let mut name = file.file_stem().unwrap_or_default().to_owned();
            name.push(format!("-{machine}"));
            if let Some(extension) = file.extension() {
                name.push(".");
                name.push(extension);
            }
            file.with_file_name(name)
        };
        Self { file: self.file.as_ref().map(named), timeline: self.timeline.as_ref().map(named), ..self.clone() }
    }

    /// Memory for a recording on a machine of so many processors.
    ///
    /// # Errors
    ///
    /// One line if there is none.
    pub fn ring(&self, processors: u32) -> Result<fallible::Arc<Ring>, String> {
        let keep = if self.last { Keep::Last } else { Keep::First };
        Ring::try_new(self.slots as usize, keep, processors)
            .map_err(|_| format!("no memory for {} slots: take fewer (--record-slots)", self.slots))
    }

    /// A platform whose adapters are recorded, with what an adviser finds, if there is one.
    ///
    /// # Errors
    ///
    /// One line if memory for the recording runs out.
    pub fn platform(
        &self,
        platform: &Arc<HostPlatform>,
        latest: &Latest,
        advice: Option<&Advice>,
    ) -> Result<Box<dyn Platform + Send>, String> {
        let processors = platform.machine().processors();
        let ring = self.ring(processors)?;
        latest.put(ring.clone(), processors);
        platform.record_cable(&ring);
        Ok(match advice {
            Some(advice) => Box::new(Interposed::new(platform, Box::new(advice.hooks_recorded(&ring)))),
            None => Box::new(Interposed::new(platform, Box::new(move |os| Recorder::new(os.clone(), ring.clone())))),
        })
    }

    /// A layer that records each case by itself, with what an adviser finds; none if nothing is to be recorded.
    pub fn layer(&self, latest: &Latest, advice: Option<&Advice>) -> Option<Layer> {
        if !self.is_wanted() {
            return None;
        }
        let (this, latest, advice) = (self.clone(), latest.clone(), advice.cloned());
        let layer: Layer = Arc::new(move |platform: &Arc<HostPlatform>| {
            // Without memory nothing is recorded, which is said when the file is to be written.
            this.platform(platform, &latest, advice.as_ref())
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

//! `ndkctl record`: what happens between consumers and a driver with adapters, in a file.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use control::{
    client::{DeviceControl, Slot},
    provider_device::{Recording, RecordingState},
};
use host::{note, say};
use recorder::format::{HEADER_BYTES, SLOT_BYTES};

use crate::{
    End,
    driver::{ELSEWHERE, Of, OpenDriver, open_provider},
    record::save,
    size::{parse_driver_slots, parse_seconds},
};

/// `ndkctl record`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Records only adapters that consumers open during the recording. docs/recorder.md has more.")]
pub struct DriverRecord {
    /// The file to write
    #[arg(value_name = "FILE", value_parser = crate::words::out_file)]
    pub file: PathBuf,
    /// Duration in seconds, 1 to 3600; by default until Ctrl-C
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub seconds: Option<u32>,
    /// Size in slots of 64 bytes of non-paged pool, 256 to 1M; a request takes one or two
    #[arg(long, default_value = "64K", value_name = "SLOTS", value_parser = parse_driver_slots)]
    pub slots: u32,
    /// When full, overwrite the oldest instead of dropping the newest
    #[arg(long)]
    pub last: bool,
    /// Do not start a recording: end the running one (the registry's Record), or fetch one that has ended
    #[arg(long, conflicts_with_all = ["seconds", "slots", "last"])]
    pub running: bool,
    /// Take what lay in the memory of a driver's recording, of a machine that has crashed (docs/recorder.md), from this file
    #[arg(long, value_name = "MEMORY", conflicts_with_all = ["seconds", "slots", "last", "running", "of"])]
    pub memory: Option<PathBuf>,
    #[command(flatten)]
    pub of: Of,
}

/// Runs the command.
///
/// # Errors
///
/// The reason, in one line.
pub fn run(args: &DriverRecord, interrupted: &AtomicBool) -> Result<End, String> {
    if let Some(memory) = &args.memory {
        let named = |what: &dyn std::fmt::Display| format!("{}: {what}", memory.display());
        let bytes = std::fs::read(memory).map_err(|error| named(&error))?;
        let file = recording::salvage(&bytes).ok_or_else(|| named(&"this is not the memory of a recording"))?;
        save(&args.file, &file)?;
        say!("{} slots", (file.len() - HEADER_BYTES) / SLOT_BYTES);
        return Ok(End::Good);
    }
    if !cfg!(windows) {
        note!("ndkctl record: {ELSEWHERE}");
        return Ok(End::Refused);
    }
    let wait = || {
        let (started, limit) = (Instant::now(), args.seconds.map(|seconds| Duration::from_secs(seconds.into())));
        while !interrupted.load(Relaxed) && limit.is_none_or(|limit| started.elapsed() < limit) {
            thread::sleep(Duration::from_millis(50));
        }
    };
    let (file, said) = record(&open_provider(args.of)?, args, wait)?;
    save(&args.file, &file)?;
    say!("{said}");
    Ok(End::Good)
}

/// Records until `wait` returns. The file, and a line about it.
fn record<T: DeviceControl>(
    opened: &OpenDriver<T>,
    args: &DriverRecord,
    wait: impl FnOnce(),
) -> Result<(Vec<u8>, String), String> {
    let (driver, refused) = (&opened.driver, |refusal| opened.refused(refusal));
    if !args.running {
        driver.record(&Recording { slots: args.slots, keep: args.last.into() }).map_err(refused)?;
        wait();
    }
    driver.record(&Recording { slots: 0, keep: 0 }).map_err(refused)?;
    taken(opened)
}

/// The latest recording, which has ended: its file, and a line about it.
///
/// # Errors
///
/// The driver refused or is gone, or there is none.
pub fn taken<T: DeviceControl>(opened: &OpenDriver<T>) -> Result<(Vec<u8>, String), String> {
    let (driver, refused) = (&opened.driver, |refusal| opened.refused(refusal));
    let state = driver.recording().map_err(refused)?;
    if state.slots == 0 {
        return Err(
            "nothing was recorded since the driver was loaded: leave --running out, or set Record (docs/registry.md)"
                .to_owned(),
        );
    }
    let slots = driver.recorded(&state).map_err(refused)?;
    let said = match (slots.len(), state.lost) {
        (0, _) => "0 slots: no consumer has opened an adapter meanwhile".to_owned(),
        (count, 0) => format!("{count} slots"),
        (count, lost) => format!("{count} slots; there was no room for {lost} more: take more (--slots)"),
    };
    Ok((file(&state, &slots), said))
}

/// The file of what the driver has recorded.
fn file(state: &RecordingState, slots: &[Slot]) -> Vec<u8> {
    let RecordingState { first, end, lost, processors, .. } = *state;
    recording::file(first..end, slots, lost, processors)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use clap::Parser;
    use control::{
        client::{Answer, DeviceControl, ProviderDriver, Refusal},
        provider_device::{
            QUERY_RECORDING, READ_RECORDING, Recording, RecordingFrom, RecordingPart, RecordingState, SET_RECORDING,
        },
    };

    use super::{DriverRecord, record};
    use crate::{
        args::{Cli, Command},
        driver::{OpenDriver, ProviderName},
    };

    fn opened(stand: Stand) -> OpenDriver<Stand> {
        OpenDriver { driver: ProviderDriver::new(stand), name: ProviderName::Softndk }
    }

    /// A driver with a recording of 3000 slots, of which every third is missing. For 1000 more there was no room.
    #[derive(Default)]
    struct Stand {
        has_one: bool,
        asked: RefCell<Vec<Recording>>,
    }

    impl DeviceControl for Stand {
        fn control(&self, code: u32, input: &[u8], output: &mut [u8]) -> Result<Answer, Refusal> {
            let answer = match code {
                SET_RECORDING => {
                    self.asked.borrow_mut().push(Recording::from_bytes(input).expect("a recording"));
                    Vec::new()
                }
                QUERY_RECORDING if !self.has_one => RecordingState::default().to_bytes().to_vec(),
                QUERY_RECORDING => RecordingState {
                    slots: 4096,
                    generation: 7,
                    processors: 3,
                    end: 3000,
                    lost: 1000,
                    ..RecordingState::default()
                }
                .to_bytes()
                .to_vec(),
                READ_RECORDING => {
                    let from = RecordingFrom::from_bytes(input).expect("a place");
                    assert_eq!((from.generation, from.reserved), (7, 0));
                    let room = (output.len() - RecordingPart::BYTES) / 64;
                    let next = (from.ordinal + room as u64).min(3000);
                    let slots = (from.ordinal..next).filter(|ordinal| ordinal % 3 != 0).flat_map(|ordinal| {
                        let mut slot = [0; 64];
                        slot[..8].copy_from_slice(&ordinal.to_le_bytes());
                        slot
                    });
                    RecordingPart { next, end: 3000 }.to_bytes().into_iter().chain(slots).collect()
                }
                other => panic!("{other:#x}"),
            };
            output[..answer.len()].copy_from_slice(&answer);
            Ok(Answer { length: answer.len(), more: false })
        }
    }

    fn args(words: &[&str]) -> DriverRecord {
        let line = ["ndkctl", "record", "file"].iter().chain(words);
        match Cli::try_parse_from(line).expect("a command line").command {
            Command::Record(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_recording_is_begun_ended_and_taken_in_parts() {
        let driver = opened(Stand { has_one: true, ..Stand::default() });
        let mut waited = false;
        let (file, said) = record(&driver, &args(&["--slots", "4K", "--last"]), || waited = true).expect("a file");
        let asked = driver.driver.transport().asked.borrow().clone();
        assert_eq!(asked, [Recording { slots: 4096, keep: 1 }, Recording { slots: 0, keep: 0 }]);
        assert!(waited && said.contains("2000 slots; there was no room for 1000 more"), "{said}");
        assert_eq!(file.len(), 64 + 2000 * 64 + 8);
        let recording = recording::Recording::read(&file).expect("a recording");
        assert_eq!((recording.lost, recording.processors), (1000 + 1000, 3), "what is missing is lost too");
    }

    #[test]
    fn the_recording_of_the_registry_is_only_ended() {
        let driver = opened(Stand { has_one: true, ..Stand::default() });
        record(&driver, &args(&["--running"]), || panic!("nothing to wait for")).expect("a file");
        assert_eq!(driver.driver.transport().asked.borrow().len(), 1);
        let none = opened(Stand::default());
        let refused = record(&none, &args(&["--running"]), || ()).expect_err("there is none");
        assert!(refused.contains("nothing was recorded") && !refused.contains('\n'), "{refused}");
        assert!(Cli::try_parse_from(["ndkctl", "record", "file", "--running", "--last"]).is_err());
        assert!(Cli::try_parse_from(["ndkctl", "record", "file", "--slots", "2M"]).is_err());
    }
}

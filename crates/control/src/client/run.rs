//! Starting, watching and cancelling a run of `ndktest`.

use crate::{
    report::Line,
    test_device::{CANCEL, From, Progress, QUERY_PROGRESS, QUERY_REPORT, START, Start, State},
};

use super::{Answer, Refusal, Transport};

/// As much of a report is asked for at a time.
const PART: usize = 16 << 10;

/// The driver `ndktest`.
pub struct TestDriver<T> {
    transport: T,
}

/// What a run shows while it goes on.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A step is done.
    Step(Line<'a>),
    /// A line that is no step.
    Remark(&'a str),
    /// How far the run is.
    Progress(Progress),
}

impl<T: Transport> TestDriver<T> {
    /// The driver at the other end of `transport`.
    pub const fn new(transport: T) -> Self {
        Self { transport }
    }

    /// Starts a run.
    ///
    /// # Errors
    ///
    /// [`Refusal::Busy`] while one is going on, [`Refusal::NotReady`] without a provider, [`Refusal::Invalid`] for a value out of
    /// range.
    pub fn start(&self, start: &Start) -> Result<(), Refusal> {
        self.transport.control(START, &start.to_bytes(), &mut []).map(drop)
    }

    /// How far the latest run is.
    ///
    /// # Errors
    ///
    /// The driver is gone.
    pub fn progress(&self) -> Result<Progress, Refusal> {
        let mut room = [0; Progress::BYTES];
        let Answer { length, .. } = self.transport.control(QUERY_PROGRESS, &[], &mut room)?;
        room.get(..length).and_then(Progress::from_bytes).ok_or(Refusal::Nonsense)
    }

    /// Asks the run to end soon. Harmless if there is none.
    ///
    /// # Errors
    ///
    /// The driver is gone.
    pub fn cancel(&self) -> Result<(), Refusal> {
        self.transport.control(CANCEL, &[], &mut []).map(drop)
    }

    /// Adds to `report` what the driver's has more.
    ///
    /// # Errors
    ///
    /// The driver is gone.
    fn read_on(&self, report: &mut Vec<u8>) -> Result<(), Refusal> {
        let mut room = vec![0; PART];
        loop {
            let from = From { offset: u32::try_from(report.len()).map_err(|_| Refusal::Nonsense)? };
            let Answer { length, more } = self.transport.control(QUERY_REPORT, &from.to_bytes(), &mut room)?;
            report.extend_from_slice(room.get(..length).ok_or(Refusal::Nonsense)?);
            if !more {
                return Ok(());
            }
            if length == 0 {
                return Err(Refusal::Nonsense);
            }
        }
    }

    /// Watches the run that was started last until it is over, and shows what it does. Between two looks `pause` is called;
    /// once `cancelled` says so the run is asked to end.
    ///
    /// # Errors
    ///
    /// The driver is gone.
    pub fn watch(
        &self,
        mut pause: impl FnMut(),
        cancelled: impl Fn() -> bool,
        mut show: impl FnMut(Event<'_>),
    ) -> Result<Progress, Refusal> {
        let (mut report, mut shown, mut asked) = (Vec::new(), 0, false);
        loop {
            if cancelled() && !asked {
                self.cancel()?;
                asked = true;
            }
            // First the progress: what was reported before the run was over is then in the report.
            let progress = self.progress()?;
            self.read_on(&mut report)?;
            while let Some(length) = report[shown..].iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&report[shown..shown + length]);
                show(Line::parse(&line).map_or(Event::Remark(&line), Event::Step));
                shown += length + 1;
            }
            show(Event::Progress(progress));
            if State::from_number(progress.state).ok_or(Refusal::Nonsense)? != State::Running {
                return Ok(progress);
            }
            pause();
        }
    }
}

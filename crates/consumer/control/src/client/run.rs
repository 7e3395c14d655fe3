//! Starting, watching and cancelling a run of `ndktest`.

use std::net::IpAddr;

use crate::{
    case::{Names, START_CASE, StartCase},
    network::{Begun, Interface, QUERY_INTERFACE, START_ON, StartOn},
    report::Line,
    test_device::{CANCEL, From, Progress, QUERY_PROGRESS, QUERY_REPORT, START, Start, State},
};

use super::{Answer, DeviceControl, Refusal};

/// How much of a report to read at a time.
const PART: usize = 16 << 10;

/// The driver `ndktest`.
pub struct TestDriver<T> {
    transport: T,
}

/// A network interface of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkInterface {
    /// The numbers.
    pub facts: Interface,
    /// Its alias.
    pub alias: String,
    /// Its description.
    pub description: String,
    /// Its preferred addresses.
    pub addresses: Vec<IpAddr>,
}

impl NetworkInterface {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (facts, text) = bytes.split_at_checked(Interface::BYTES)?;
        let facts = Interface::from_bytes(facts)?;
        let mut lines = str::from_utf8(text).ok()?.lines();
        let mut line = || lines.next().unwrap_or_default();
        let (alias, description, addresses) = (line().to_owned(), line().to_owned(), line());
        let addresses = addresses.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { facts, alias, description, addresses })
    }
}

/// What happens during a run.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A step has finished.
    Step(Line<'a>),
    /// A remark in the report.
    Remark(&'a str),
    /// The progress of the run.
    Progress(Progress),
}

impl<T: DeviceControl> TestDriver<T> {
    /// The driver at the other end of `transport`.
    pub const fn new(transport: T) -> Self {
        Self { transport }
    }

    /// Starts a run.
    ///
    /// # Errors
    ///
    /// [`Refusal::Busy`] during another run, [`Refusal::NotReady`] without a provider, [`Refusal::Invalid`] for a value out of
    /// range.
    pub fn start(&self, start: &Start) -> Result<(), Refusal> {
        self.transport.control(START, &start.to_bytes(), &mut []).map(drop)
    }

    /// Starts a run on the adapter of a network interface, and of a second one unless its name is empty. `how` needs no
    /// lengths.
    ///
    /// # Errors
    ///
    /// [`Refusal::Busy`] during another run, [`Refusal::Invalid`] for a value out of range. What is wrong with the interfaces is
    /// in the answer.
    pub fn start_on(&self, how: &StartOn, interface: &str, peer: &str) -> Result<Begun, Refusal> {
        let length = |name: &str| u32::try_from(name.len()).map_err(|_| Refusal::Invalid);
        let head = StartOn { interface: length(interface)?, peer: length(peer)?, ..*how };
        let mut room = [0; Begun::BYTES];
        let bytes = [&head.to_bytes(), interface.as_bytes(), peer.as_bytes()].concat();
        let Answer { length, .. } = self.transport.control(START_ON, &bytes, &mut room)?;
        room.get(..length).and_then(Begun::from_bytes).ok_or(Refusal::Nonsense)
    }

    /// Starts a run of one case. `how` needs no lengths.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotSupported`] if the driver is older than this; else as for [`TestDriver::start`] and
    /// [`TestDriver::start_on`].
    pub fn start_case(&self, how: &StartCase, names: Names<'_>) -> Result<Begun, Refusal> {
        let length = |name: &str| u32::try_from(name.len()).map_err(|_| Refusal::Invalid);
        let Names { case, interface, peer } = names;
        let head = StartCase { case: length(case)?, interface: length(interface)?, peer: length(peer)?, ..*how };
        let mut room = [0; Begun::BYTES];
        let bytes = [&head.to_bytes(), case.as_bytes(), interface.as_bytes(), peer.as_bytes()].concat();
        let Answer { length, .. } = self.transport.control(START_CASE, &bytes, &mut room)?;
        room.get(..length).and_then(Begun::from_bytes).ok_or(Refusal::Nonsense)
    }

    /// The network interfaces of the machine.
    ///
    /// # Errors
    ///
    /// The driver is gone, or the system refused to list them.
    pub fn interfaces(&self) -> Result<Vec<NetworkInterface>, Refusal> {
        let mut all = Vec::new();
        let mut room = vec![0; PART];
        // No machine has this many: the driver does not end its list.
        for number in 0..4096 {
            let from = From { offset: number };
            let Answer { length, .. } = self.transport.control(QUERY_INTERFACE, &from.to_bytes(), &mut room)?;
            let bytes = room.get(..length).ok_or(Refusal::Nonsense)?;
            match NetworkInterface::parse(bytes).ok_or(Refusal::Nonsense)? {
                interface if interface.facts.index == 0 => return Ok(all),
                interface => all.push(interface),
            }
        }
        Err(Refusal::Nonsense)
    }

    /// The progress of the latest run.
    ///
    /// # Errors
    ///
    /// The driver is gone.
    pub fn progress(&self) -> Result<Progress, Refusal> {
        let mut room = [0; Progress::BYTES];
        let Answer { length, .. } = self.transport.control(QUERY_PROGRESS, &[], &mut room)?;
        room.get(..length).and_then(Progress::from_bytes).ok_or(Refusal::Nonsense)
    }

    /// Cancels the run. Harmless without one.
    ///
    /// # Errors
    ///
    /// The driver is gone.
    pub fn cancel(&self) -> Result<(), Refusal> {
        self.transport.control(CANCEL, &[], &mut []).map(drop)
    }

    /// Appends to `report` what the driver has added to its own.
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

    /// Watches the latest run until it ends, and shows its events. Calls `pause` between two queries, and cancels the run once
    /// `cancelled` returns true.
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
            // Query the progress first, so that the report then includes everything from before the end of the run.
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

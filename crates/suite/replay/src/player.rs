//! Goes through the records: makes the calls, waits for what came, compares.

use std::{collections::HashMap, ffi::c_void, sync::Arc};

use conformance::{
    Platform,
    host::{HostPlatform, Layer, Scheduler, Setup},
};
use interpose::{Function, Phase};
use ndkpi::{
    NDK_ADAPTER, NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NtStatus,
};
use recording::{Outcome, Record, Recording};

use crate::{
    Difference, MOST_DIFFERENCES, Report,
    adapters::Adapters,
    addresses::Ports,
    answers::{Events, Ongoing, created, requested},
    course::{Course, Full},
    memory::Memory,
    objects::{Objects, created_by},
    polls::Left,
    posts::Taking,
    progress::Progress,
};

/// How long something is waited for, in microseconds of the machine's own time.
const PATIENCE: u64 = 3_000_000;

/// What a call has answered.
pub enum Answer {
    /// A status, at once.
    Status(NtStatus),
    /// A token.
    Token(u32),
    /// A status, and an address.
    Address(NtStatus, Vec<u8>),
    /// What a request has come to, or will.
    Request(Arc<Ongoing>),
    /// Nothing that can be compared.
    Nothing,
    /// The call was not made.
    LeftOut,
}

/// A replay.
pub struct Player<'r> {
    pub recording: &'r Recording,
    host: Arc<HostPlatform>,
    /// The machine, or the layer in front of it.
    platform: Box<dyn Platform + Send>,
    pub adapters: HashMap<u8, *mut NDK_ADAPTER>,
    pub wanted: Adapters,
    pub objects: Objects,
    pub memory: Memory,
    pub ports: Ports,
    pub taking: Taking,
    /// What hooks are told of the room that was left in a poll.
    pub left: Left,
    /// The peer of each queue pair, and the adapter of each object.
    pub peers: HashMap<u32, u32>,
    pub adapter_of: HashMap<u32, u8>,
    answers: HashMap<(u8, u64), Answer>,
    /// Events of objects that are being created.
    pub expected: HashMap<(u8, u64), Arc<Events>>,
    /// Mappings that are being built: their recorded addresses.
    pub building: HashMap<(u8, u64), u64>,
    /// What had been carried out before which call, though nobody had looked yet.
    progress: &'r Progress,
    /// How many callbacks of each object, and connectors, were recorded so far.
    called_back: HashMap<u32, usize>,
    /// Objects that came about only here.
    orphans: Vec<(NDK_OBJECT_TYPE, *mut NDK_OBJECT_HEADER)>,
    course: Course,
    has_found_room: bool,
    report: Report,
}

/// How a replay has ended.
pub enum End {
    /// All records were gone through.
    Whole(Report),
    /// A post found room that was refused: what comes behind it is not what was recorded.
    FoundRoom,
}

impl<'r> Player<'r> {
    /// Makes the machine and its adapters, behind a layer that forwards what it is given.
    ///
    /// # Errors
    ///
    /// One line.
    pub fn start(
        recording: &'r Recording,
        progress: &'r Progress,
        seed: u64,
        layer: &Layer,
        left: Left,
        course: Course,
    ) -> Result<Self, String> {
        let wanted = Adapters::of(recording)?;
        let setup = Setup {
            scheduler: Scheduler::Seeded { seed, preemption: course.preemption },
            processors: Some(recording.processors.clamp(1, 8)),
            adapters: u8::try_from(wanted.devices.len()).unwrap_or(u8::MAX),
            ..Setup::default()
        };
        // The platform makes its adapters one after the other.
        let nth = std::cell::Cell::new(0);
        let adjust = |config: &mut provider::Config| wanted.adjust(config, nth.replace(nth.get() + 1));
        let host = HostPlatform::start_with(setup, adjust);
        let host = Arc::new(host.map_err(|status| format!("no machine for the replay: {status}"))?);
        let platform = layer(&host);
        let mut player = Self {
            recording,
            host,
            platform,
            adapters: HashMap::new(),
            wanted,
            objects: Objects::default(),
            memory: Memory::of(recording),
            ports: Ports::default(),
            taking: Taking::default(),
            left,
            peers: recording::peers(recording),
            adapter_of: HashMap::new(),
            answers: HashMap::new(),
            expected: HashMap::new(),
            building: HashMap::new(),
            progress,
            called_back: HashMap::new(),
            orphans: Vec::new(),
            course,
            has_found_room: false,
            report: Report::default(),
        };
        player.open_adapters()?;
        Ok(player)
    }

    fn open_adapters(&mut self) -> Result<(), String> {
        let version = self.wanted.version();
        let devices: Vec<(u8, usize)> =
            self.wanted.device_of.iter().map(|(adapter, device)| (*adapter, *device)).collect();
        for (adapter, device) in devices {
            let device = u32::try_from(device).unwrap_or(0);
            let opened = self.platform.open(device, version);
            let opened = opened.map_err(|status| format!("adapter {adapter} cannot be opened: {status}"))?;
            self.adapters.insert(adapter, opened);
        }
        Ok(())
    }

    /// Runs the recording.
    ///
    /// # Errors
    ///
    /// One line.
    pub fn run(mut self) -> Result<End, String> {
        let recording = self.recording;
        let mut result = Ok(());
        for record in &recording.records {
            if self.has_found_room || self.report.differences.len() >= MOST_DIFFERENCES {
                break;
            }
            if record.created != 0 {
                self.adapter_of.insert(record.created, record.adapter);
            }
            result = match record.phase {
                Phase::Call if self.course.full == Full::LeftOut && self.progress.was_full(record) => {
                    self.report.either_way += 1;
                    Ok(())
                }
                Phase::Call => self.call(record),
                Phase::Return => {
                    self.returned(record);
                    Ok(())
                }
                Phase::Callback => {
                    self.callback(record);
                    Ok(())
                }
                Phase::CallbackReturn => Ok(()),
            };
            if result.is_err() {
                break;
            }
        }
        self.end();
        let Self { host, platform, mut report, has_found_room, .. } = self;
        drop(platform);
        let ended = Arc::into_inner(host).map_or_else(|| Err("the machine".to_owned()), HostPlatform::finish);
        result?;
        if has_found_room {
            return Ok(End::FoundRoom);
        }
        if let Err(left) = ended {
            let record = recording.records.last().map_or(0, |record| record.ordinal);
            report.differences.push(Difference { record, what: format!("left behind at the end: {left}") });
        }
        Ok(End::Whole(report))
    }

    /// Something differs.
    pub fn differ(&mut self, record: &Record, what: impl AsRef<str>) {
        let name = record.function.name();
        let what = format!("{name}, object {}: {}", record.object, what.as_ref());
        self.report.differences.push(Difference { record: record.ordinal, what });
    }

    fn call(&mut self, record: &Record) -> Result<(), String> {
        let is_post = record.function.is_post();
        if self.course.pace.has_time(self.progress, record) {
            self.platform.settle();
        }
        let mut answer = self.make(record)?;
        let is_full = is_post && matches!(answer, Answer::Status(NtStatus::NO_MORE_ENTRIES));
        if is_full && self.progress.had_room(record) {
            self.platform.settle();
            answer = self.make(record)?;
        }
        if matches!(answer, Answer::Status(status) if status.is_success()) && self.progress.was_full(record) {
            self.has_found_room = true;
        }
        if matches!(answer, Answer::LeftOut) {
            self.report.left_out += 1;
        } else {
            self.report.calls += 1;
        }
        self.answers.insert((record.adapter, record.call), answer);
        Ok(())
    }

    /// The call could not be made.
    pub fn leave_out(&mut self, record: &Record, why: &str) -> Answer {
        self.differ(record, format!("left out: {why}"));
        Answer::LeftOut
    }

    /// The call has returned in the recording.
    fn returned(&mut self, record: &Record) {
        let key = (record.adapter, record.call);
        if matches!(record.function, Function::GetCqResults | Function::GetCqResultsEx) {
            self.answers.remove(&key);
            self.poll(record);
            return;
        }
        if record.outcome == Outcome::Status(NtStatus::PENDING) {
            return;
        }
        let Some(answer) = self.answers.remove(&key) else { return };
        match answer {
            Answer::Status(here) => {
                self.compare(record, here);
                if record.function == Function::BuildLam && here.is_success() {
                    self.mapped(record);
                }
            }
            Answer::Token(here) => self.token(record, here),
            Answer::Address(here, bytes) => {
                self.compare(record, here);
                if let recording::Arguments::Address { out } = &record.arguments {
                    self.ports.learn(&out.stored.bytes, &bytes);
                }
            }
            Answer::Request(ongoing) => self.ended(record, &ongoing),
            Answer::Nothing | Answer::LeftOut => {}
        }
    }

    /// The provider has called back in the recording.
    fn callback(&mut self, record: &Record) {
        let is_event = matches!(
            record.function,
            Function::CqNotification
                | Function::SrqNotification
                | Function::ConnectEvent
                | Function::DisconnectEvent
                | Function::DisconnectEventEx
        );
        if is_event {
            self.event(record);
        } else if let Some(Answer::Request(ongoing)) = self.answers.remove(&(record.adapter, record.call)) {
            self.ended(record, &ongoing);
        }
    }

    /// Waits until something is so.
    pub fn wait(&self, until: impl Fn() -> bool) -> bool {
        until() || self.platform.wait(PATIENCE, &until)
    }

    /// Compares a status with the one that was recorded.
    pub fn compare(&mut self, record: &Record, here: NtStatus) {
        if let Outcome::Status(recorded) = record.outcome
            && recorded != here
        {
            self.differ(record, format!("recorded {recorded}, here {here}"));
        }
    }

    /// A request has ended in the recording: it ends here too.
    fn ended(&mut self, record: &Record, ongoing: &Arc<Ongoing>) {
        if !self.wait(|| ongoing.status().is_some()) {
            self.differ(record, "recorded its completion, here it does not complete");
            self.answers.insert((record.adapter, record.call), Answer::Request(ongoing.clone()));
            return;
        }
        let here = ongoing.status().unwrap_or(NtStatus::PENDING);
        self.compare(record, here);
        let object = ongoing.object();
        match (record.created, object.is_null(), created_by(record.function)) {
            (0, false, Some(kind)) => self.orphans.push((kind, object)),
            (number, false, Some(kind)) => {
                self.objects.insert(number, kind, object);
                if let Some(events) = self.expected.remove(&(record.adapter, record.call)) {
                    self.objects.set_events(number, events);
                }
            }
            _ => {}
        }
        if record.function == Function::BuildLam && here.is_success() {
            self.mapped(record);
        }
    }

    /// An event callback was recorded: it comes here too.
    fn event(&mut self, record: &Record) {
        let Some(events) = self.objects.events(record.object) else {
            self.differ(record, "a callback of an object that has none here");
            return;
        };
        let nth = self.called_back.entry(record.object).or_insert(0);
        let index = *nth;
        *nth += 1;
        if !self.wait(|| events.count() > index) {
            // A consumer that closes hears of the end of its connection or not (`NDKPI 7.7.6`).
            let may_be_missing = self.objects.kind(record.object) == Some(NDK_OBJECT_TYPE::CONNECTOR)
                && self.objects.any(record.object).is_none();
            if !may_be_missing {
                self.differ(record, "recorded a callback, here none comes");
            }
            return;
        }
        if let (Some(here), Outcome::Status(_)) = (events.status(index), record.outcome) {
            self.compare(record, here);
        }
        if record.function == Function::ConnectEvent && record.created != 0 {
            let connector = events.connector(index);
            self.objects.insert(record.created, NDK_OBJECT_TYPE::CONNECTOR, connector.cast());
        }
    }

    /// Makes a request: `call` gets a completion and a context.
    pub fn request(
        record: &Record,
        call: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NtStatus,
    ) -> Answer {
        let ongoing = Arc::new(Ongoing::default());
        if !record.has_completion {
            return Answer::Status(call(None, std::ptr::null_mut()));
        }
        let context = Ongoing::context(&ongoing);
        let status = call(Some(requested), context);
        if status != NtStatus::PENDING {
            // SAFETY: the provider has not pended, so it does not call back: the reference is taken back once.
            unsafe { Ongoing::of(context) }.finish(status, std::ptr::null_mut());
        }
        Answer::Request(ongoing)
    }

    /// Makes a creation: `call` gets a completion, a context and a place for the object.
    pub fn create<T>(
        record: &Record,
        call: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NtStatus,
    ) -> Answer {
        let ongoing = Arc::new(Ongoing::default());
        let mut object = std::ptr::null_mut();
        let (completion, context) = if record.has_completion {
            (Some(created as NDK_FN_CREATE_COMPLETION), Ongoing::context(&ongoing))
        } else {
            (None, std::ptr::null_mut())
        };
        let place = if record.lacks_place { std::ptr::null_mut() } else { &raw mut object };
        let status = call(completion, context, place);
        if status != NtStatus::PENDING {
            let object = if status.is_success() { object.cast() } else { std::ptr::null_mut() };
            ongoing.finish(status, object);
            if record.has_completion {
                // SAFETY: the provider has not pended, so it does not call back: the reference is taken back once.
                drop(unsafe { Ongoing::of(context) });
            }
        }
        Answer::Request(ongoing)
    }

    /// Closes everything, and compares what nobody has asked for yet.
    fn end(&mut self) {
        self.platform.settle();
        self.extra_callbacks();
        let mut closing = Vec::new();
        for number in self.objects.open() {
            if let Some((kind, raw)) = self.objects.any(number) {
                self.objects.close(number);
                closing.extend(crate::calls::close(kind, raw));
            }
        }
        for (kind, raw) in std::mem::take(&mut self.orphans) {
            closing.extend(crate::calls::close(kind, raw));
        }
        // Connections that nobody in the recording has seen.
        for connector in self.unseen_connectors() {
            closing.extend(crate::calls::close(NDK_OBJECT_TYPE::CONNECTOR, connector));
        }
        self.wait(|| closing.iter().all(|ongoing| ongoing.status().is_some()));
        for adapter in std::mem::take(&mut self.adapters).into_values() {
            // SAFETY: it was opened by this platform, and is not used again.
            unsafe { self.platform.close(adapter) };
        }
    }

    fn unseen_connectors(&self) -> Vec<*mut NDK_OBJECT_HEADER> {
        let listeners = self.recording.records.iter().map(|record| record.object);
        let mut listeners: Vec<u32> = listeners.collect();
        listeners.sort_unstable();
        listeners.dedup();
        let mut unseen = Vec::new();
        for listener in listeners {
            let Some(events) = self.objects.events(listener) else { continue };
            let seen = self.called_back.get(&listener).copied().unwrap_or(0);
            unseen.extend((seen..events.connectors()).map(|nth| events.connector(nth).cast()));
        }
        unseen
    }

    /// Callbacks that came only here.
    fn extra_callbacks(&mut self) {
        let recording = self.recording;
        let mut last: HashMap<u32, &Record> = HashMap::new();
        for record in &recording.records {
            last.insert(record.object, record);
        }
        let mut objects: Vec<(u32, &Record)> = last.into_iter().collect();
        objects.sort_unstable_by_key(|(object, _)| *object);
        for (object, record) in objects {
            let Some(events) = self.objects.events(object) else { continue };
            let (here, recorded) = (events.count(), self.called_back.get(&object).copied().unwrap_or(0));
            // What was recorded and has not come is reported already. The ends of connections whose sides are both closed may be
            // told or not.
            let is_connector = self.objects.kind(object) == Some(NDK_OBJECT_TYPE::CONNECTOR);
            if here > recorded && !is_connector && recording.lost == 0 {
                self.differ(record, format!("recorded {recorded} callbacks of the object, here {here}"));
            }
        }
    }
}

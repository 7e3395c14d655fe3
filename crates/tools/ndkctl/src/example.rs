//! Short runs on a machine whose order is determined by a seed: what the pictures of the documents show.

use std::{net::SocketAddr, sync::Arc};

use conformance::{
    Platform,
    host::{HostPlatform, Interposed, Scheduler, Setup},
    platform::Family,
};
use interpose::{Function, Phase};
use ndk::{Access, Adapter, Completion, Connection, Cq, Flags, Mr, NDK_VERSION, Notify, NtStatus, Offer, Qp, QpSizes};
use recorder::{Keep, Recorder, Ring};
use recording::{
    Recording,
    timeline::{Options, Scale},
};

use crate::{consumer, timeline::Example};

/// The recording of an example, how it is drawn, and its title.
///
/// # Errors
///
/// The reason, in one line.
pub fn run(which: Example) -> Result<(Recording, Options, String), String> {
    let setup = Setup {
        scheduler: Scheduler::Seeded { seed: 1, preemption: 0 },
        processors: Some(2),
        adapters: 1,
        ..Setup::default()
    };
    let host = HostPlatform::start(setup).map_err(|status| format!("no machine: {status}"))?;
    let ring = Ring::try_new(1 << 12, Keep::First, host.machine().processors());
    let (host, ring) = (Arc::new(host), ring.map_err(|_| "no memory".to_owned())?);
    let shared = ring.clone();
    let platform: Arc<dyn Platform + Send> =
        Arc::new(Interposed::new(&host, Box::new(move |os| Recorder::new(os.clone(), shared.clone()))));
    let adapter = consumer::open(&host, platform, 0, NDK_VERSION::V2_0)?;
    let to = host.address(0, Family::V4).ok_or("the adapter has no address")?;
    let sides = Sides::new(&adapter, (to, 0).into());
    let shown = sides.and_then(|sides| match which {
        Example::Completion => sides.completion(&*host),
        Example::Merge => sides.merge(&*host),
    });
    shown.map_err(|status| format!("the example has failed: {status}"))?;
    drop(adapter);
    let file = recording::write(&ring, 2);
    Arc::into_inner(host).map_or_else(|| Err("somebody still uses the machine".to_owned()), HostPlatform::finish)?;
    let recording = Recording::read(&file).map_err(|error| error.to_string())?;
    let title = match which {
        Example::Completion => "Post, completion, arm, callback",
        Example::Merge => "Two arms merge into one",
    };
    let options = Options {
        width: 1080,
        scale: Scale::Order,
        moments: interesting(&recording),
        title: title.to_owned(),
        ..Options::default()
    };
    Ok((recording, options, title.to_owned()))
}

/// From the first receive that is posted to the last poll or arm.
fn interesting(recording: &Recording) -> (usize, usize) {
    let records = &recording.records;
    let first = records.iter().position(|record| record.function == Function::Receive).unwrap_or(0);
    let shown = [Function::ArmCq, Function::GetCqResultsEx, Function::CqNotification];
    let last = records.iter().rposition(|record| {
        shown.contains(&record.function) && matches!(record.phase, Phase::Return | Phase::CallbackReturn)
    });
    (first, last.map_or(records.len(), |last| last + 1))
}

/// Two connected queue pairs: one sends a message, the other receives it.
struct Sides {
    memory: Mr,
    sender: Qp,
    sends: Cq,
    receiver: Qp,
    receives: Cq,
    _connections: [Connection; 2],
}

impl Sides {
    fn new(adapter: &Adapter, at: SocketAddr) -> Result<Self, NtStatus> {
        let pd = adapter.create_pd()?;
        let memory = pd.register(adapter.memory(4096)?, Access::LOCAL_WRITE)?;
        // In the order of their names in docs/ndk-in-ten-minutes.md: those of the sender first.
        let (sends, receives) = (adapter.create_cq(16)?, adapter.create_cq(16)?);
        let sender = pd.create_qp(&sends, &sends, QpSizes::default(), 1)?;
        let receiver = pd.create_qp(&receives, &receives, QpSizes::default(), 2)?;
        let connections = adapter.connect_pair(at, &sender, &receiver, &Offer::default(), 1_000_000)?;
        Ok(Self { memory, sender, sends, receiver, receives, _connections: connections })
    }

    /// The receiver arms, a message comes, the callback takes it and arms again.
    fn completion(mut self, platform: &dyn Platform) -> Result<(), NtStatus> {
        self.receiver.receiver.receive(1, &[self.memory.sge(2048, 64)?])?;
        self.message(platform)
    }

    /// The receiver arms for solicited completions and then for any: a plain message calls back.
    fn merge(mut self, platform: &dyn Platform) -> Result<(), NtStatus> {
        self.receiver.receiver.receive(1, &[self.memory.sge(2048, 64)?])?;
        self.receives.arm(Notify::Solicited);
        self.message(platform)
    }

    /// The receiver arms for any completion, and the sender sends. The callback does what a consumer's should: it takes everything,
    /// and arms again.
    fn message(mut self, platform: &dyn Platform) -> Result<(), NtStatus> {
        let _notified = self.receives.notify(Notify::Any, |cq, _| {
            while !cq.poll(&mut [Completion::EMPTY; 4]).is_empty() {}
            cq.arm(Notify::Any);
        })?;
        self.sender.initiator.send(2, &[self.memory.sge(0, 64)?], Flags::empty())?;
        platform.settle();
        while !self.sends.poll(&mut [Completion::EMPTY; 4]).is_empty() {}
        Ok(())
    }
}

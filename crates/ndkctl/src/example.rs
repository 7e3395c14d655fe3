//! Short runs on a machine whose order is determined by a seed: what the pictures of the documents show.

use std::sync::Arc;

use conformance::{
    Check, HELD, Platform, Stop,
    client::{CqCore, Options as SessionOptions, Session},
    fixture::{Pair, Plan},
    host::{HostPlatform, Interposed, Scheduler, Setup},
};
use interpose::{Function, Phase};
use ndkpi::{NDK_CQ_NOTIFY_ANY, NDK_CQ_NOTIFY_SOLICITED, NDK_RESULT_EX, NDK_VERSION};
use recorder::{Keep, Recorder, Ring};
use recording::{
    Recording,
    timeline::{Options, Scale},
};

use crate::timeline::Example;

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
    let (host, ring) = (Arc::new(host), Ring::try_new(1 << 12, Keep::First).map_err(|_| "no memory".to_owned())?);
    let shared = ring.clone();
    let platform = Interposed::new(&host, Box::new(move |os| Recorder::new(os.clone(), shared.clone())));
    let options = SessionOptions { name: "example", version: NDK_VERSION::V2_0, seed: 0, hostile: false };
    let shown = Session::with(&platform, &options, |session| {
        // A callback does what a consumer's should: it takes everything, and arms again.
        let on_receive = session.keep(|cq: &CqCore<'_>, _| {
            drain(cq)?;
            cq.arm(NDK_CQ_NOTIFY_ANY)
        })?;
        let (near, far) = (Plan::new(), Plan { on_receive: Some(on_receive), ..Plan::new() });
        let pair = Pair::with(session, &near, &far)?;
        match which {
            Example::Completion => completion(&platform, &pair)?,
            Example::Merge => merge(&platform, &pair)?,
        }
        HELD
    });
    if let Err(Stop::Failed(text) | Stop::Skipped(text)) = shown {
        return Err(text.as_str().to_owned());
    }
    let file = recording::write(&ring, 2);
    drop(platform);
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

fn drain(cq: &CqCore<'_>) -> Check {
    let mut results = [NDK_RESULT_EX::ZEROED; 4];
    while cq.poll_with(&mut results, |_| ())? > 0 {}
    Ok(())
}

/// The receiver arms, a message comes, the callback takes it and arms again.
fn completion(platform: &dyn Platform, pair: &Pair<'_>) -> Check {
    pair.b.receive(1, 0, 64)?;
    pair.b.receive_cq.core().arm(NDK_CQ_NOTIFY_ANY)?;
    pair.a.send(2, 0, 64, 0)?;
    platform.settle();
    drain(pair.a.initiated())
}

/// The receiver arms for solicited completions and then for any: a plain message calls back.
fn merge(platform: &dyn Platform, pair: &Pair<'_>) -> Check {
    pair.b.receive(1, 0, 64)?;
    pair.b.receive_cq.core().arm(NDK_CQ_NOTIFY_SOLICITED)?;
    pair.b.receive_cq.core().arm(NDK_CQ_NOTIFY_ANY)?;
    pair.a.send(2, 0, 64, 0)?;
    platform.settle();
    drain(pair.a.initiated())
}

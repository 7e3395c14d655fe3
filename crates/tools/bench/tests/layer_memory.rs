//! What the adviser and the recorder take: memory that has an end, and none on the data path.

use std::{
    hint::black_box,
    sync::{Arc, Mutex, PoisonError},
};

use bench::{
    allocated::{allocations, in_use},
    kind::Kind,
    ndk::{Connection, Layer, Plan},
};
use conformance::{
    HELD, Platform,
    client::{Options, Session},
    host::{HostPlatform, Interposed, Scheduler, Setup},
    soak::{self, Counts},
};
use host::{HostOs, machine::Machine};
use interpose::{
    Event, Hooks, NoHooks, ObjectId, Verdict,
    adviser::{Adviser, Report, Settings, Sink, Totals},
};
use ndkpi::{NDK_ADAPTER_INFO, NDK_OP_FLAG_INLINE, NDK_RESULT_EX, NDK_VERSION, NtStatus};
use provider::CompletionMode;
use recorder::{Keep, Recorder, Ring, format::SLOT_BYTES};

/// Bytes are counted in the whole program: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const LAYERS: [Layer; 4] = [Layer::None, Layer::Forwarding, Layer::Advising, Layer::Recording];

#[test]
fn a_message_and_a_write_allocate_nothing() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for layer in LAYERS {
        let machine = Machine::seeded(1).processors(1).start();
        let plan = Plan { kind: Kind::DIRECT, depth: 64, bytes: 4096, inline: 64, steps: true };
        let mut connection = Connection::behind(&HostOs::unwatched(&machine), plan, layer);
        let mut results = [NDK_RESULT_EX::ZEROED; 2];
        let mut round = || {
            let [here, there] = &mut connection.sides;
            assert_eq!(there.receive(64, 8), NtStatus::SUCCESS);
            assert_eq!(here.send(0, 8, NDK_OP_FLAG_INLINE), NtStatus::SUCCESS);
            assert_eq!(here.write(there, 0, 64, 0), NtStatus::SUCCESS);
            assert_eq!(there.received(&mut results) + here.initiated(&mut results), 3, "all of them complete");
        };
        // What is kept of a post has its place from the beginning, and what is recorded overwrites itself.
        let made = allocations(|| (0..5_000).for_each(|_| round()));
        assert_eq!(made, 0, "{}", layer.words());
        connection.close();
        machine.run_until_idle();
        machine.shutdown();
    }
}

/// Findings are printed or counted by others.
struct Ignored;

impl Sink for Ignored {
    fn report(&self, _: &Report<'_>) {}
}

/// Keeps eight words of every object for ever.
struct Leaking(HostOs);

impl Hooks for Leaking {
    type Os = HostOs;
    type State = ();
    type Call = ();

    fn os(&self) -> &HostOs {
        &self.0
    }

    fn adapter(&self, _: &NDK_ADAPTER_INFO) -> Result<(), NtStatus> {
        Ok(())
    }

    fn object(&self, _: &Event<'_, ()>, _: ObjectId) -> Result<(), NtStatus> {
        Box::leak(black_box(Box::new([0_u64; 8])));
        Ok(())
    }

    fn event(&self, _: &Event<'_, ()>, (): &mut ()) -> Verdict {
        Verdict::Forward
    }
}

/// How many bytes more the program has after rounds of random traffic than after the first of them. Each round makes and closes
/// objects of every kind on one adapter, behind a layer or not. The suite itself keeps something of each until its session ends: the
/// same without a layer, for the traffic is the same.
fn growth(layer: impl FnOnce(&Arc<HostPlatform>) -> Option<Box<dyn Platform>>) -> usize {
    let scheduler = Scheduler::Seeded { seed: 5, preemption: 0 };
    let setup = Setup { scheduler, completion: CompletionMode::Inline, ..Setup::default() };
    let host = Arc::new(HostPlatform::start(setup).expect("memory"));
    let layer = layer(&host);
    let platform: &dyn Platform = layer.as_deref().unwrap_or(&*host);
    let options = Options { name: "memory", version: NDK_VERSION::V2_0, seed: 3, hostile: true };
    let (counts, mut at_ends) = (Counts::default(), Vec::with_capacity(ROUNDS));
    let verdict = Session::with(platform, &options, |session| {
        for _ in 0..ROUNDS {
            soak::round(session, &counts, 2, 10)?;
            at_ends.push(in_use());
        }
        HELD
    });
    assert_eq!(verdict, HELD);
    at_ends[ROUNDS - 1] - at_ends[WARM]
}

/// [`growth`] behind hooks.
fn growth_behind<H: Hooks<Os = HostOs>>(make: impl Fn(&HostOs) -> H + Send + Sync + 'static) -> usize
where
    Interposed<H>: Platform + 'static,
{
    growth(|host| Some(Box::new(Interposed::new(host, Box::new(make)))))
}

const ROUNDS: usize = 8;
/// Rounds after which tables have the size that they need.
const WARM: usize = 2;
/// What is open at the end of a round differs by a few KiB.
const STEP: usize = 16 << 10;

#[test]
fn closed_objects_leave_nothing_behind() {
    const SLOTS: usize = 1 << 10;
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let hooks = growth_behind(|os: &HostOs| NoHooks(os.clone()));
    let plain = growth(|_| None);
    assert!(hooks <= plain + STEP, "behind hooks that do nothing: {hooks} bytes beside {plain}");
    let leaking = growth_behind(|os: &HostOs| Leaking(os.clone()));
    assert!(leaking > plain + STEP, "a layer that leaks is not found: {leaking} bytes beside {plain}");
    let adviser = |os: &HostOs| {
        let sink = fallible::Arc::try_new(Ignored).expect("memory");
        let totals = fallible::Arc::try_new(Totals::default()).expect("memory");
        Adviser::new(os.clone(), Settings { longest_callback: 0, ..Settings::default() }, sink, totals)
    };
    let advised = growth_behind(adviser);
    assert!(advised <= plain + STEP, "behind the adviser: {advised} bytes beside {plain}");
    for keep in [Keep::First, Keep::Last] {
        let before = in_use();
        let ring = Ring::try_new(SLOTS, keep, 1).expect("memory");
        let taken = in_use() - before;
        assert!((SLOTS * SLOT_BYTES..SLOTS * SLOT_BYTES + 1024).contains(&taken), "{taken} bytes for {SLOTS} slots");
        let of_layer = ring.clone();
        let recorded = growth_behind(move |os: &HostOs| Recorder::new(os.clone(), of_layer.clone()));
        assert!(recorded <= plain + STEP, "behind the recorder, {keep:?}: {recorded} bytes beside {plain}");
        assert_eq!(ring.range().count(), SLOTS, "there was more than it keeps");
    }
}

//! A recording in the driver: begun, ended and read by a program, and run again on the host.

use conformance::{
    HELD,
    client::{Options, Session},
};
use control::{
    client::{ProviderDriver, Refusal},
    provider_device::{
        Faults, READ_RECORDING, RECORDING_SLOTS, Recording as Wanted, RecordingFrom, RecordingPart, RecordingState,
        SET_FAULTS, SET_RECORDING, SLOT_BYTES,
    },
    test_device::{CANCEL, Kind, State},
};
use interpose::{Function, adviser::Finding};
use ndkpi::{NDK_VERSION, NtStatus};
use recording::{
    Recording,
    timeline::{MarkKind, Timeline},
};
use simulated_kernel::{Kernel, Value, wdk::STATUS_BUFFER_TOO_SMALL};

use crate::{
    consumer::InKernel,
    transport::ToKernel,
    world::{Consumer, Provider, consumer_control, finish, progress, provider_control, report, start},
};

type Driver = ProviderDriver<ToKernel>;

/// What the driver has recorded, as the file that `ndkctl record` writes.
fn recorded(driver: &Driver) -> Vec<u8> {
    let state = driver.recording().expect("a state");
    let slots = driver.recorded(&state).expect("slots");
    let RecordingState { first, end, lost, processors, .. } = state;
    recording::file(first..end, &slots, lost, processors)
}

/// A consumer that opens the adapter and makes a few objects.
fn consume(kernel: &Kernel, provider: &Provider) {
    let options = Options { name: "record", version: NDK_VERSION::V2_0, seed: 0, hostile: false };
    let verdict = provider.driver.run(|| {
        let platform = InKernel::query(kernel, &provider.device);
        Session::with(&platform, &options, |session| {
            let adapter = session.adapter()?;
            drop((adapter.create_cq(8, None)?, adapter.create_pd()?));
            HELD
        })
    });
    assert_eq!(verdict, HELD);
}

fn functions(recording: &Recording) -> Vec<Function> {
    recording.records.iter().map(|record| record.function).collect()
}

#[test]
fn what_consumers_do_is_recorded_only_while_it_is_wanted() {
    let kernel = Kernel::threads().processors(2).start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let driver = Driver::new(ToKernel(provider_control(&kernel)));
    consume(&kernel, &provider);
    assert_eq!(
        driver.recording().map(|state| (state.slots, state.end, state.processors)),
        Ok((0, 0, 2)),
        "off unless somebody wants it"
    );
    driver.record(&Wanted { slots: 1000, keep: 0 }).expect("a recording");
    consume(&kernel, &provider);
    driver.record(&Wanted::default()).expect("it ends");
    let state = driver.recording().expect("a state");
    assert_eq!((state.slots, state.is_on, state.processors, state.lost), (1024, 0, 2, 0), "a power of two");
    consume(&kernel, &provider);
    assert_eq!(driver.recording(), Ok(state), "nothing more is recorded");
    let recording = Recording::read(&recorded(&driver)).expect("a recording");
    let called = functions(&recording);
    for function in [Function::CreateCq, Function::CreatePd, Function::Close, Function::CloseAdapter] {
        assert!(called.contains(&function), "{function:?} in {called:?}");
    }
    // Another one takes its place, and what was said of the first one is not true of it.
    driver.record(&Wanted { slots: 256, keep: 1 }).expect("a recording");
    assert_eq!(driver.recorded(&state), Err(Refusal::Invalid), "of another generation");
    (0..20).for_each(|_| consume(&kernel, &provider));
    let last = Recording::read(&recorded(&driver)).expect("a recording");
    assert!(last.first > 0 && last.lost == 0, "{} slots were written over", last.first);
    assert_eq!(functions(&last).last(), Some(&Function::CloseAdapter), "what came last is kept");
    drop(driver);
    provider.unload();
}

/// What the adviser finds stands in the recording, at the call in which it was, and is counted for who asks.
#[test]
fn what_the_adviser_finds_is_recorded_and_counted_while_a_program_wants_it() {
    const ABOVE_LIMIT: usize = Finding::AboveLimit.number() as usize;
    let kernel = Kernel::threads().processors(2).start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let driver = Driver::new(ToKernel(provider_control(&kernel)));
    let break_a_rule = || {
        let options = Options { name: "advise", version: NDK_VERSION::V2_0, seed: 0, hostile: false };
        let verdict = provider.driver.run(|| {
            let platform = InKernel::query(&kernel, &provider.device);
            Session::with(&platform, &options, |session| {
                let adapter = session.adapter()?;
                assert!(adapter.create_cq(u32::MAX, None).is_err(), "deeper than any adapter's");
                HELD
            })
        });
        assert_eq!(verdict, HELD);
    };
    let (mode, before) = driver.advice().expect("an answer");
    assert_eq!((mode, before.len()), (0, Finding::ALL.len()), "off unless somebody wants it");
    break_a_rule();
    assert_eq!(driver.advice(), Ok((0, before.clone())), "there is no adviser");
    assert_eq!(driver.set_adviser(5), Err(Refusal::Invalid));
    driver.set_adviser(1).expect("a mode");
    driver.record(&Wanted { slots: 1000, keep: 0 }).expect("a recording");
    break_a_rule();
    driver.record(&Wanted::default()).expect("it ends");
    let (mode, now) = driver.advice().expect("an answer");
    assert_eq!((mode, now[ABOVE_LIMIT - 1]), (1, before[ABOVE_LIMIT - 1] + 1));
    let recording = Recording::read(&recorded(&driver)).expect("a recording");
    let [found] = &recording.findings[..] else { panic!("{:?}", recording.findings) };
    assert_eq!((usize::from(found.finding), found.function), (ABOVE_LIMIT, Function::CreateCq));
    assert!(found.seen.starts_with("a depth of 4294967295"), "{}", found.seen);
    let timeline = Timeline::of(&recording);
    let mark = timeline.marks.iter().find(|mark| mark.kind == MarkKind::Finding).expect("a mark");
    let call = timeline.marks.iter().find(|mark| mark.label == "CreateCq").expect("the call");
    assert!(call.from <= mark.from && mark.to <= call.to, "{mark:?} in {call:?}");
    driver.set_adviser(0).expect("a mode");
    break_a_rule();
    assert_eq!(driver.advice(), Ok((0, now)), "nothing more is found");
    drop(driver);
    provider.unload();
}

#[test]
fn the_registry_begins_a_recording_with_the_driver() {
    let kernel = Kernel::threads().start();
    for (value, slots) in [(0, 0), (1, 256), (512, 512), ((1 << 20) + 1, 0)] {
        let provider = Provider::load_with(&kernel, &[("Record", Value::Number(value))]).expect("the provider loads");
        let driver = Driver::new(ToKernel(provider_control(&kernel)));
        consume(&kernel, &provider);
        let state = driver.recording().expect("a state");
        assert_eq!((state.slots, state.end > 0), (slots, slots > 0), "Record {value}");
        drop(driver);
        provider.unload();
    }
}

#[test]
fn what_is_out_of_range_changes_nothing() {
    let kernel = Kernel::threads().start();
    let provider = Provider::load(&kernel).expect("the provider loads");
    let driver = Driver::new(ToKernel(provider_control(&kernel)));
    driver.record(&Wanted { slots: 256, keep: 0 }).expect("a recording");
    consume(&kernel, &provider);
    let before = driver.recording();
    for wrong in [
        Wanted { slots: RECORDING_SLOTS.start() - 1, keep: 0 },
        Wanted { slots: RECORDING_SLOTS.end() + 1, keep: 0 },
        Wanted { slots: u32::MAX, keep: 0 },
        Wanted { slots: 256, keep: 2 },
        Wanted { slots: 0, keep: 2 },
    ] {
        assert_eq!(driver.record(&wrong), Err(Refusal::Invalid), "{wrong:?}");
    }
    let file = &driver.transport().0;
    let ask = |from: RecordingFrom, room: usize| file.control(READ_RECORDING, &from.to_bytes(), room);
    let from = RecordingFrom { generation: before.expect("a state").generation, ..RecordingFrom::default() };
    for (from, room) in [
        (RecordingFrom { generation: from.generation + 1, ..from }, 4096),
        (RecordingFrom { reserved: 1, ..from }, 4096),
    ] {
        let answer = ask(from, room);
        assert_eq!((NtStatus(answer.status), answer.bytes.len()), (NtStatus::INVALID_PARAMETER, 0), "{from:?}");
    }
    for room in [0, RecordingPart::BYTES - 1, RecordingPart::BYTES + SLOT_BYTES - 1] {
        assert_eq!(ask(from, room).status, STATUS_BUFFER_TOO_SMALL, "{room} bytes");
    }
    // Far behind the end there is nothing, and it is said where the end is.
    for ordinal in [1 << 20, u64::MAX] {
        let answer = ask(RecordingFrom { ordinal, ..from }, 4096);
        let part = RecordingPart::from_bytes(&answer.bytes).expect("no slots");
        assert_eq!((part.next, part.end), (ordinal, before.expect("a state").end));
    }
    assert_eq!(driver.recording(), before);
    // Without memory the recording that goes on stays.
    let fail = |every| {
        let faults = Faults { fail_every_allocation: every, lose_connections: 0 };
        assert!(file.control(SET_FAULTS, &faults.to_bytes(), 0).is_success());
    };
    fail(1);
    let answer = file.control(SET_RECORDING, &Wanted { slots: 1 << 12, keep: 0 }.to_bytes(), 0);
    fail(0);
    assert_eq!(NtStatus(answer.status), NtStatus::INSUFFICIENT_RESOURCES);
    assert_eq!(driver.recording(), before);
    drop(driver);
    provider.unload();
}

/// The suite begins in the kernel; what was recorded of it is run again on the host.
#[test]
fn a_recording_of_the_driver_is_run_again_on_the_host() {
    let kernel = Kernel::seeded(5).start();
    let provider = Provider::load_with(&kernel, &[("Record", Value::Number(1 << 14))]).expect("the provider loads");
    let consumer = Consumer::load(&kernel).expect("the consumer loads");
    let tests = consumer_control(&kernel);
    assert!(start(&tests, Kind::Conformance, 1).is_success());
    let driver = Driver::new(ToKernel(provider_control(&kernel)));
    while driver.recording().expect("a state").lost == 0 {
        assert_eq!(progress(&tests).state, State::Running as u32, "the suite fills the recording");
        kernel.sleep(2_000);
    }
    assert!(tests.control(CANCEL, &[], 0).is_success());
    assert_eq!(finish(&kernel, &tests).failed, 0, "{}", report(&tests));
    drop(tests);
    let file = recorded(&driver);
    drop(driver);
    consumer.unload();
    provider.unload();
    // One process has one kernel at a time; the host's machine is none.
    drop(kernel);
    let recording = Recording::read(&file).expect("a recording");
    assert!(recording.records.len() > 3_000 && recording.lost > 0, "{} records", recording.records.len());
    let report = replay::run(&recording, 0).expect("it runs");
    assert!(report.calls > 1_000, "{} calls", report.calls);
    assert_eq!(report.differences, []);
}

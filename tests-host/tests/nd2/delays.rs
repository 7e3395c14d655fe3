//! Completions and requests that are late because the adapter's settings ask for it.

use delay::Delay;
use nd2::{
    CompletionPolicy, Faults,
    abi::{HRESULT, notify::ND_CQ_NOTIFY_ANY},
};
use nd2_selftest::{BackEnd, Options, Overlapped, Schedule, Stream, World, run};
use softnd::settings::Settings;

/// How late everything is, in microseconds.
const LATE: u64 = 1_000;
const DELAY: Delay = Delay::Fixed(1_000);

fn world(faults: Faults, back_end: BackEnd) -> World {
    let options = Options { schedule: Schedule::Seeded(1, 0), faults, back_end, ..Options::default() };
    World::with(&options).expect("a world")
}

fn completions_are_late(back_end: BackEnd) {
    let world = world(Faults { completion_delay: DELAY, ..Faults::default() }, back_end);
    let stream = Stream::new(&world, 16).expect("a stream");
    for _ in 0..2 {
        let first = stream.deliver().expect("a message");
        let request = world.request();
        assert_eq!(stream.queue.results(16).len(), 0, "it is not seen yet");
        assert_eq!(stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING);
        world.let_pass(LATE - 1);
        assert_eq!(stream.queue.results(16).len(), 0, "nor now");
        assert_eq!(stream.queue.outcome(&request, false), HRESULT::ND_PENDING);
        assert!(!request.is_signalled());
        world.let_pass(2);
        assert!(request.is_signalled());
        assert_eq!(stream.queue.outcome(&request, false), HRESULT::ND_SUCCESS);
        // As long as the client has not seen everything, it sees what comes.
        let second = stream.deliver().expect("a message");
        stream.takes(&[first, second]).expect("both, and then nothing");
    }
    drop(stream);
    world.end().expect("nothing is left");
}

#[test]
fn completions_are_seen_late_by_polls_and_by_requests_for_notification() {
    completions_are_late(BackEnd::Process);
    completions_are_late(BackEnd::Codes);
}

#[test]
fn a_queue_that_is_released_while_something_is_held_back_leaves_nothing() {
    let world = world(Faults { completion_delay: DELAY, ..Faults::default() }, BackEnd::Process);
    let stream = Stream::new(&world, 16).expect("a stream");
    stream.deliver().expect("a message");
    assert_eq!(stream.queue.results(16).len(), 0, "the delay has begun");
    let request = world.request();
    assert_eq!(stream.queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING);
    drop(stream);
    assert!(request.is_signalled(), "it is cancelled at once");
    world.end().expect("nothing is left, without waiting");
}

#[test]
fn the_failure_of_a_queue_is_not_held_back() {
    let faults = Faults { completion_delay: DELAY, ..Faults::default() };
    for filter in ["notify.internal_error", "notify.buffer_overflow"] {
        let rows =
            run(&Options { filter: Some(filter), schedule: Schedule::Seeded(1, 0), faults, ..Options::default() });
        let failed: Vec<_> = rows.iter().filter(|row| !row.outcome.is_pass()).map(|row| row.name).collect();
        assert!(!rows.is_empty() && failed.is_empty(), "{failed:?}");
    }
}

fn requests_are_late(back_end: BackEnd) {
    let world = world(Faults { request_delay: DELAY, ..Faults::default() }, back_end);
    let region = world.adapter.region(world.file).expect("a region");
    let buffer = host::PinnedBuffer::new(4096).expect("memory");
    let request = world.request();
    let registered = region.register(buffer.pointer(0).cast(), 4096, 1, &request);
    assert_eq!(registered, HRESULT::ND_PENDING);
    world.let_pass(LATE - 1);
    assert_eq!(region.outcome(&request, false), HRESULT::ND_PENDING, "it has not ended yet");
    world.let_pass(2);
    assert_eq!(region.outcome(&request, false), HRESULT::ND_SUCCESS);
    assert_eq!(region.deregister(&request), HRESULT::ND_PENDING);
    world.let_pass(LATE + 1);
    assert_eq!(region.outcome(&request, false), HRESULT::ND_SUCCESS);
    drop(region);
    world.end().expect("nothing is left");
}

#[test]
fn overlapped_requests_end_late() {
    requests_are_late(BackEnd::Process);
    requests_are_late(BackEnd::Codes);
}

/// Connections and transfers: everything that waits for the end of a request or for a completion, in each policy.
#[test]
fn clients_that_wait_get_there_whatever_is_late() {
    for (seed, policy) in (1..).zip(CompletionPolicy::ALL) {
        let faults = Faults {
            completion_delay: Delay::Exponential(200, 2_000),
            request_delay: Delay::Uniform(0, 500),
            ..Faults::default()
        };
        for (filter, back_end) in [
            ("results.initiator_requests_in_order", BackEnd::Process),
            ("connection.establish", BackEnd::Process),
            ("connection.read_limits", BackEnd::Codes),
        ] {
            let schedule = Schedule::Seeded(seed, 20);
            let rows = run(&Options { filter: Some(filter), policy, schedule, faults, back_end, ..Options::default() });
            let failed: Vec<_> = rows.iter().filter(|row| !row.outcome.is_pass()).collect();
            assert!(!rows.is_empty() && failed.is_empty(), "{policy}: {failed:?}");
        }
    }
}

#[test]
fn the_settings_ask_for_delays() {
    let mut settings = Settings::default();
    assert_eq!(settings.get("completion_delay").as_deref(), Some("0"), "none if nobody asks");
    settings.set("completion_delay", "~200").expect("a delay");
    settings.set("request_delay", "100..500").expect("a delay");
    let faults = settings.config.faults;
    assert_eq!(faults.completion_delay, Delay::Exponential(200, 2_000));
    assert_eq!(faults.request_delay, Delay::Uniform(100, 500));
    assert_eq!(settings.get("request_delay").as_deref(), Some("100..500"));
}

//! Memory that runs out: a documented status, everything undone, and never an abort.

use nd2::{
    CompletionPolicy,
    abi::{HRESULT, notify::ND_CQ_NOTIFY_ANY},
};
use nd2_selftest::{Client, Schedule, World};
use testing::allocation::{fail_nth, growth};

fn world() -> World {
    World::new(Schedule::Seeded(5, 0), CompletionPolicy::Pending).expect("a world")
}

/// Makes something again and again, with an allocation more that succeeds each time, until all do.
fn every_allocation<T>(what: &str, documented: &[HRESULT], mut create: impl FnMut() -> Result<T, HRESULT>) {
    // What is made only once is made before.
    drop(create().unwrap_or_else(|result| panic!("{what}: {result}")));
    let mut failures = 0;
    loop {
        let mut done = false;
        let grown = growth(|| {
            let (outcome, failed) = fail_nth(failures, &mut create);
            match outcome {
                Ok(made) => {
                    assert!(!failed, "{what}: a failure was overlooked");
                    drop(made);
                    done = true;
                }
                Err(result) => {
                    assert!(failed, "{what}: {result} without a failure");
                    assert!(documented.contains(&result), "{what}: {result}");
                }
            }
        });
        assert_eq!(grown, 0, "{what}: bytes are left after failure {failures}");
        if done {
            break;
        }
        failures += 1;
    }
    assert!(failures > 0, "{what} allocates nothing");
}

#[test]
fn creations_without_memory_fail_with_a_documented_status_and_leave_nothing() {
    let world = world();
    let (adapter, file) = (&world.adapter, world.file);
    let memory = [HRESULT::ND_NO_MEMORY];
    let resources = [HRESULT::ND_INSUFFICIENT_RESOURCES, HRESULT::ND_NO_MEMORY];
    // The table of tokens uses a place again after a thousand others: until then it grows.
    for _ in 0..3000 {
        drop(adapter.window().expect("a window"));
        drop(world.provider.open(&nd2::abi::IID_IND2Adapter, 2).expect("an adapter"));
    }
    every_allocation("CreateCompletionQueue", &memory, || adapter.queue(file, 8, 0));
    every_allocation("CreateCompletionQueue of version 1", &memory, || adapter.queue1(file, 8));
    every_allocation("CreateMemoryRegion", &memory, || adapter.region(file));
    every_allocation("CreateMemoryWindow", &resources, || adapter.window());
    every_allocation("CreateSharedReceiveQueue", &memory, || adapter.srq(file, 8, 2, 0));
    every_allocation("CreateConnector", &memory, || adapter.connector(file));
    every_allocation("CreateListener", &memory, || adapter.listener(file));
    every_allocation("OpenAdapter", &memory, || world.provider.open(&nd2::abi::IID_IND2Adapter, 2));
    world.end().expect("nothing is left");
}

#[test]
fn a_notification_request_without_memory_is_insufficient_resources() {
    let world = world();
    let queue = world.adapter.queue(world.file, 8, 0).expect("a queue");
    let requests = [(); 3].map(|()| Client::new(&world.platform));
    let (result, failed) = fail_nth(0, || queue.notify(ND_CQ_NOTIFY_ANY, &requests[0]));
    assert_eq!((result, failed), (HRESULT::ND_INSUFFICIENT_RESOURCES, true));
    assert_eq!(requests[0].status(), HRESULT::ND_SUCCESS, "the structure is untouched");
    // The queue is none the worse.
    assert_eq!(queue.notify(ND_CQ_NOTIFY_ANY, &requests[1]), HRESULT::ND_PENDING);
    drop(queue);
    assert_eq!(requests[1].status(), HRESULT::ND_CANCELED);
    world.end().expect("nothing is left");
}

#[test]
fn a_resize_without_memory_is_insufficient_resources_and_changes_nothing() {
    let world = world();
    let queue = world.adapter.queue(world.file, 8, 0).expect("a queue");
    for nth in 0..2 {
        let (result, failed) = fail_nth(nth, || queue.resize(1024));
        assert_eq!((result, failed), (HRESULT::ND_INSUFFICIENT_RESOURCES, true));
    }
    assert_eq!(queue.resize(1024), HRESULT::ND_SUCCESS);
    drop(queue);
    world.end().expect("nothing is left");
}

#[test]
fn the_data_path_allocates_nothing() {
    let world = world();
    let queue = world.adapter.queue(world.file, 8, 0).expect("a queue");
    let request = Client::new(&world.platform);
    assert_eq!(queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING);
    assert_eq!(queue.results(0).len(), 0);
    // The room for a request is there from the first one on.
    drop(queue);
    assert_eq!(request.status(), HRESULT::ND_CANCELED);
    world.end().expect("nothing is left");
}

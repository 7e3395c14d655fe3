//! When the library can be unloaded (`DllCanUnloadNow`). Alone in its process, because objects are counted in all of it.

use nd2::{CompletionPolicy, abi::HRESULT, class::can_unload_now, com::lock_server, live_objects};
use nd2_selftest::{Schedule, World};

#[test]
fn the_library_can_be_unloaded_when_all_objects_are_released_and_not_before() {
    assert_eq!((can_unload_now(), live_objects()), (HRESULT::S_OK, 0));
    let world = World::new(Schedule::Seeded(1, 0), CompletionPolicy::Pending).expect("a world");
    assert_eq!((can_unload_now(), live_objects()), (HRESULT::S_FALSE, 2), "the provider and the adapter");
    let queue = world.adapter.queue(world.file, 8, 0).expect("a queue");
    let window = world.adapter.window().expect("a window");
    assert_eq!(live_objects(), 4);
    assert!(world.adapter.queue(world.file, 0, 0).is_err(), "a queue for nothing");
    assert_eq!(live_objects(), 4, "what was not made is not counted");
    drop((queue, window));
    assert_eq!((can_unload_now(), live_objects()), (HRESULT::S_FALSE, 2));
    world.end().expect("nothing is left");
    assert_eq!((can_unload_now(), live_objects()), (HRESULT::S_OK, 0));
    // A lock is a reason to stay too, and goes once.
    assert_eq!((lock_server(true), can_unload_now()), (HRESULT::S_OK, HRESULT::S_FALSE));
    assert_eq!((lock_server(false), can_unload_now()), (HRESULT::S_OK, HRESULT::S_OK));
    assert_eq!((lock_server(false), live_objects()), (HRESULT::ND_INVALID_PARAMETER, 0), "nothing was locked");
}

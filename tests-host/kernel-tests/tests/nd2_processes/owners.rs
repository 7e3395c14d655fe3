//! Whose a connection is, as an administrator's program is told.

use control::{
    client::{Connection, ProviderDriver},
    provider_device,
};

use crate::{
    program::{Program, Side, connect},
    transport::ToKernel,
    world::World,
};

/// The connections of the driver's adapters.
pub fn connections(world: &World) -> Vec<Connection> {
    let file = world.kernel.open(provider_device::LINK_NAME).expect("the control device");
    ProviderDriver::new(ToKernel(file)).connections().expect("a list")
}

/// The process that a connection belongs to is the one that has opened the file, and not one that says so. It is gone from the
/// list when the process is.
#[test]
fn a_connection_is_listed_with_the_process_that_owns_it() {
    let world = World::seeded(1, 1);
    let [first, second] = [1, 2].map(|number| Program::start(&world.kernel, number));
    let [here, there] = [Side::new(&first, 1, 1), Side::new(&second, 2, 1)];
    assert_eq!(connections(&world), []);
    connect(&here, &there, 1);
    let numbers = [&first, &second].map(|program| program.process.number());
    assert_ne!(numbers[0], numbers[1]);
    let all = connections(&world);
    // Who listens is at the listener's port.
    let owner = |at_listener: bool| all.iter().find(|one| (one.local.port() == 7000) == at_listener);
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(owner(false).and_then(|one| one.process), Some(numbers[0]), "{all:?}");
    assert_eq!(owner(true).and_then(|one| one.process), Some(numbers[1]), "{all:?}");
    drop(first);
    let all = connections(&world);
    assert!(all.iter().all(|one| one.process == Some(numbers[1])), "{all:?}");
    drop(second);
    assert_eq!(connections(&world), []);
    world.end();
}

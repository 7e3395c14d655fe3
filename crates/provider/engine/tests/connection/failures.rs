//! Without memory, requests fail with the documented status and nothing is left of them.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr,
};

use engine::connection::{Connector, ConnectorRequest, Listener};
use ndkpi::NtStatus;

use crate::world::{LIMITS, Node, READS, Said, Server, Side, TIMEOUTS, World, answer, asking, at, interface};

thread_local! {
    /// True if allocations are counted now.
    static COUNTED: Cell<bool> = const { Cell::new(false) };
    /// Counted allocations until the one that fails. Zero is never reached.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, of which one chosen allocation fails.
struct Failing;

// SAFETY: everything is passed on to the system's allocator as it is, or answered with null, which an allocator may do.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTED.get() && LEFT.get() > 0 {
            LEFT.set(LEFT.get() - 1);
            if LEFT.get() == 0 {
                return ptr::null_mut();
            }
        }
        // SAFETY: the caller keeps the contract of the same function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of the same function.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static FAILING: Failing = Failing;

/// Runs `work`, in which allocations may fail.
pub fn counted<T>(work: impl FnOnce() -> T) -> T {
    COUNTED.set(true);
    let result = work();
    COUNTED.set(false);
    result
}

/// What a scenario has made, to be closed whatever became of it.
#[derive(Default)]
struct Made {
    servers: Vec<Server>,
    sides: Vec<Side>,
    nodes: Vec<Node>,
}

impl Made {
    fn close(self) {
        for side in self.sides {
            side.close();
        }
        for node in self.nodes {
            node.close();
        }
        for server in self.servers {
            server.close();
        }
    }
}

/// Two connections, one over a shared endpoint, from their beginning to their end.
fn scenario(world: &World, made: &mut Made) -> Result<(), NtStatus> {
    let adapter = world.try_adapter(LIMITS, TIMEOUTS)?;
    counted(|| adapter.add_address(interface("10.0.0.1")))?;
    made.servers.push(world.idle_server(&adapter)?);
    let server = &made.servers[0];
    let to = at("10.0.0.1:1");
    counted(|| Listener::listen(&server.listener, to))?;
    let (shared, _) = world.shared(&adapter, "10.0.0.1:2")?;
    for own in [true, false] {
        made.nodes.push(world.try_node(&adapter, Box::new(|_| ()))?);
        let queues = world.try_queues()?;
        made.sides.extend(made.nodes.pop().map(|node| Side { node, queues }));
        let active = made.sides.last().expect("pushed");
        let parameters = asking(to, b"hello");
        counted(|| {
            if own {
                Connector::connect(&active.node.connector, &active.queues.qp, at("10.0.0.1:0"), &parameters)
            } else {
                Connector::connect_shared(&active.node.connector, &active.queues.qp, &shared, &parameters)
            }
        })?;
        world.run();
        let Some(node) = made.servers[0].arrivals().pop() else {
            // The provider of the passive side had no memory for the connector.
            assert_eq!(active.heard(), [answer(ConnectorRequest::Connect, NtStatus::CONNECTION_REFUSED)]);
            return Err(NtStatus::CONNECTION_REFUSED);
        };
        made.nodes.push(node);
        let queues = world.try_queues()?;
        made.sides.extend(made.nodes.pop().map(|node| Side { node, queues }));
        let passive = made.sides.last().expect("pushed");
        counted(|| Connector::accept(&passive.node.connector, &passive.queues.qp, READS, b"good day"))?;
        world.run();
        let [.., active, passive] = &made.sides[..] else { unreachable!("two sides") };
        assert_eq!(active.heard(), [answer(ConnectorRequest::Connect, NtStatus::SUCCESS)]);
        // From here on nothing needs memory.
        drop(counted(|| Connector::complete_connect(&active.node.connector)).expect("accepted"));
        world.run();
        assert_eq!(passive.heard(), [answer(ConnectorRequest::Accept, NtStatus::SUCCESS)]);
        counted(|| Connector::disconnect(&passive.node.connector)).expect("connected");
        world.run();
        assert!(matches!(active.heard()[..], [Said::Disconnected(_)]));
        assert_eq!(passive.heard(), [answer(ConnectorRequest::Disconnect, NtStatus::SUCCESS)]);
    }
    Ok(())
}

/// Runs the scenario with the first failure, the second, and so on, until there is none. Gives the number of failures.
fn sweep(arm: impl Fn(&World, u64), disarm: impl Fn(&World) -> bool) -> u64 {
    let run = |nth| {
        let world = World::new();
        let mut made = Made::default();
        arm(&world, nth);
        let result = scenario(&world, &mut made);
        let failed = disarm(&world);
        made.close();
        world.run();
        world.finish();
        (result, failed)
    };
    // The machine learns the order of locks once, and does without the memory for it if it must.
    assert_eq!(run(u64::MAX), (Ok(()), false));
    for nth in 1.. {
        let (result, failed) = run(nth);
        if !failed {
            assert_eq!(result, Ok(()));
            return nth - 1;
        }
        let refused = [NtStatus::INSUFFICIENT_RESOURCES, NtStatus::CONNECTION_REFUSED];
        assert!(result.is_err_and(|status| refused.contains(&status)), "failure {nth}: {result:?}");
    }
    unreachable!("there are fewer allocations than numbers")
}

//= invariant 5
#[test]
fn every_allocation_may_fail() {
    let failures = sweep(|_, nth| LEFT.set(nth), |_| LEFT.replace(0) == 0);
    assert!(failures > 40, "{failures} failures");
}

#[test]
fn every_creation_of_the_operating_system_may_fail() {
    let last = Cell::new(0);
    let failures = sweep(
        |world, nth| {
            last.set(world.machine.creations().saturating_add(nth));
            world.machine.fail_creation(if nth == u64::MAX { 0 } else { nth });
        },
        |world| {
            world.machine.fail_creation(0);
            world.machine.creations() >= last.get()
        },
    );
    assert!(failures > 20, "{failures} failures");
}

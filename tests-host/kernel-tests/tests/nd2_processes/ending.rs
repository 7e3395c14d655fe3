//! The end of a process, at any moment, and of an adapter.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use nd2::abi::{
    mr_flags::ND_MR_FLAG_ALLOW_LOCAL_WRITE,
    notify::ND_CQ_NOTIFY_ANY,
    op_flags::{ND_OP_FLAG_ALLOW_READ, ND_OP_FLAG_ALLOW_WRITE},
};
use nd2_control::wire::{LINK_NAME, Verb};
use ndkpi::NtStatus;
use simulated_kernel::{
    Kernel, Pending,
    wdk::{STATUS_PENDING, STATUS_SUCCESS},
};

use crate::{
    actor::Random,
    program::{Killed, Program, Region, Side, address, connect, of},
    traffic::{ALL, exchange},
    world::{SEEDS, World},
};

/// Lets two processes exchange bytes, and kills one of them after so many calls. Returns true if it was killed.
fn killed(seed: u64, victim: usize, after: u32) -> bool {
    let world = World::seeded(seed, 1);
    let programs = [1, 2].map(|number| Program::start(&world.kernel, number));
    programs[victim].left.set(Some(after));
    let lived = catch_unwind(AssertUnwindSafe(|| exchange(&world.kernel, programs.each_ref(), [1, 1])));
    let killed = lived.is_err();
    if let Err(panic) = lived
        && !panic.is::<Killed>()
    {
        resume_unwind(panic);
    }
    let [first, second] = programs;
    let (dies, stays) = if victim == 0 { (first, second) } else { (second, first) };
    dies.process.kill();
    // The other one goes on: everything of its own is still there.
    let again = Side::new(&stays, 9, 1);
    let at = stays.process.allocate(4096, true);
    let region = stays.region(again.adapter, at, 4096, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
    stays.ask(Verb::Deregister, &of(region.handle), 0);
    stays.process.kill();
    world.end();
    killed
}

#[test]
fn a_process_can_be_killed_at_each_of_its_calls() {
    for victim in [0, 1] {
        let mut calls = 0;
        while killed(1 + u64::from(calls), victim, calls) {
            calls += 1;
        }
        assert!(calls > 15, "{calls} calls");
    }
}

/// Makes a window and binds the first bytes of a region to it.
fn bind(side: &Side<'_>, kernel: &Kernel, region: &Region, at: u64) -> u64 {
    let window = side.program.make(Verb::CreateWindow, &of(side.adapter));
    let bind = of(side.qp).u64(1).u64(region.handle).u64(window).u64(at).u64(64);
    side.program.ask(Verb::Bind, &bind.u32(ND_OP_FLAG_ALLOW_READ | ND_OP_FLAG_ALLOW_WRITE), 4);
    assert_eq!(side.result(kernel).status, STATUS_SUCCESS);
    window
}

#[test]
fn a_registration_that_windows_keep_ends_with_its_request_after_its_region_was_released() {
    // The request is cancelled, or the process dies. Another window is not bound, or was released.
    for (seed, dies) in [(1, false), (2, true)] {
        let world = World::seeded(seed, 1);
        let programs = [1, 2].map(|number| Program::start(&world.kernel, number));
        let [here, there] = [Side::new(&programs[0], 1, 1), Side::new(&programs[1], 2, 1)];
        connect(&here, &there, 1);
        let at = here.program.process.allocate(4096, true);
        let region = here.program.region(here.adapter, at, 4096, ALL);
        let windows = [(); 2].map(|()| bind(&here, &world.kernel, &region, at));
        here.program.make(Verb::CreateWindow, &of(here.adapter));
        here.program.ask(Verb::Close, &of(region.handle), 0);
        here.program.ask(Verb::Close, &of(windows[0]), 0);
        assert!(!region.request.is_complete(), "the other window keeps it");
        if !dies {
            region.request.cancel();
            assert_ne!(region.request.wait().status, STATUS_PENDING);
        }
        let [first, second] = programs;
        first.process.kill();
        drop(second);
        world.end();
    }
}

#[test]
fn a_registration_ends_with_the_last_window_that_keeps_it() {
    let world = World::seeded(1, 1);
    let programs = [1, 2].map(|number| Program::start(&world.kernel, number));
    let [here, there] = [Side::new(&programs[0], 1, 1), Side::new(&programs[1], 2, 1)];
    connect(&here, &there, 1);
    let at = here.program.process.allocate(4096, true);
    let region = here.program.region(here.adapter, at, 4096, ALL);
    let windows = [(); 2].map(|()| bind(&here, &world.kernel, &region, at));
    here.program.ask(Verb::Close, &of(region.handle), 0);
    for window in windows {
        assert!(!region.request.is_complete());
        here.program.ask(Verb::Close, &of(window), 0);
    }
    assert_eq!(region.request.wait().status, STATUS_SUCCESS);
    // Nothing else has ended.
    here.program.ask(Verb::Query, &of(here.adapter), 96);
    drop(programs);
    world.end();
}

/// What a process has of everything that can be outstanding, and of everything that can be released.
struct Belongings {
    handles: Vec<u64>,
    requests: Vec<Pending>,
}

impl Belongings {
    fn new(kernel: &Kernel, side: &Side<'_>, listener: Option<u64>) -> Self {
        let (program, adapter) = (side.program, side.adapter);
        let mut handles = vec![adapter, side.queue, side.qp, side.connector];
        let mut requests = Vec::new();
        handles.extend(listener);
        // Regions that two windows keep, that one does, and that none does.
        for windows in [2, 1, 0] {
            let at = program.process.allocate(4096, true);
            let region = program.region(adapter, at, 4096, ALL);
            handles.extend((0..windows).map(|_| bind(side, kernel, &region, at)));
            if windows == 0 {
                // A receive that nobody fills, and a send that nobody receives.
                program.receive(side.qp, 7, &[(at, 64, region.local)]);
                program.send(side.qp, 8, &[(at, 64, region.local)]);
            }
            handles.push(region.handle);
            requests.push(region.request);
        }
        // A second queue pair and queue, and a connector that waits at a listener, and one that connects to it.
        let queue = program.queue(adapter);
        let qp = program.qp(adapter, queue, 9);
        let shared = of(adapter).u32(16).u32(4).u32(8).u32(0).u64(0);
        let shared = program.make(Verb::CreateSharedReceiveQueue, &shared);
        let [waits, connects] = [(); 2].map(|()| program.make(Verb::CreateConnector, &of(adapter)));
        let at = address(1, u16::try_from(7100 + handles.len()).expect("a port"));
        let own = program.make(Verb::CreateListener, &of(adapter));
        if program.call(Verb::BindListener, &of(own).bytes(&at), 0).status == STATUS_SUCCESS {
            program.ask(Verb::Listen, &of(own).u32(0), 0);
            requests.push(program.begin(Verb::GetConnectionRequest, &of(own).u64(waits), 0));
            let connect = of(connects).u64(qp).u32(4).u32(4).bytes(&at);
            requests.push(program.begin(Verb::Connect, &connect, 0));
        }
        for kind in 0..3 {
            requests.push(program.begin(Verb::Notify, &of(queue).u32(kind), 0));
        }
        requests.push(program.begin(Verb::NotifyShared, &of(shared), 0));
        requests.push(program.begin(Verb::NotifyDisconnect, &of(side.connector), 0));
        handles.extend([queue, qp, shared, waits, connects, own]);
        Self { handles, requests }
    }

    /// Releases some objects and cancels some requests, in any order.
    fn lose_some(&mut self, program: &Program, random: &mut Random<'_>) {
        for _ in 0..random.below(self.handles.len() + self.requests.len()) {
            if random.one_in(3) && !self.requests.is_empty() {
                self.requests.swap_remove(random.below(self.requests.len())).cancel();
            } else if !self.handles.is_empty() {
                let handle = self.handles.swap_remove(random.below(self.handles.len()));
                // A cancelled registration may have ended the session.
                let _ = program.call(Verb::Close, &of(handle), 0);
            }
            if random.one_in(20) {
                let _ = program.begin(Verb::Disconnect, &of(self.handles.first().copied().unwrap_or(0)), 0);
            }
        }
    }
}

#[test]
fn a_process_can_be_killed_whatever_it_has_released_and_cancelled_in_whatever_order() {
    for seed in 1..60 {
        let mut random = Random::seeded(seed);
        let world = World::seeded(seed, 1);
        let programs = [1, 2].map(|number| Program::start(&world.kernel, number));
        let sides = [Side::new(&programs[0], 1, 1), Side::new(&programs[1], 2, 1)];
        let listener = connect(&sides[0], &sides[1], 1);
        let mut belongings = [None, Some(listener)]
            .into_iter()
            .zip(&sides)
            .map(|(listener, side)| Belongings::new(&world.kernel, side, listener));
        let mut belongings = [(); 2].map(|()| belongings.next().expect("two sides"));
        // One, or both in turn.
        let turns = random.below(4);
        for turn in 0..=turns {
            belongings[turn % 2].lose_some(&programs[turn % 2], &mut random);
        }
        let [first, second] = programs;
        let (dies, stays) = if random.one_in(2) { (first, second) } else { (second, first) };
        dies.process.kill();
        stays.process.kill();
        world.end();
    }
}

#[test]
fn the_peer_of_a_process_that_dies_is_told() {
    for seed in SEEDS {
        let world = World::seeded(seed, 1);
        let programs = [1, 2].map(|number| Program::start(&world.kernel, number));
        let [here, there] = [Side::new(&programs[0], 1, 1), Side::new(&programs[1], 2, 1)];
        connect(&here, &there, 1);
        let at = there.program.process.allocate(4096, true);
        let region = there.program.region(there.adapter, at, 4096, ALL);
        there.program.receive(there.qp, 3, &[(at, 64, region.local)]);
        let hears = there.program.begin(Verb::NotifyDisconnect, &of(there.connector), 0);
        let notified = there.program.begin(Verb::Notify, &of(there.queue).u32(ND_CQ_NOTIFY_ANY), 0);
        let first = &programs[0];
        let (queue, kernel) = (there.queue, &world.kernel);
        // What dies has a request for notification outstanding too, and a window that keeps its registration.
        let mine = first.process.allocate(4096, true);
        let registered = first.region(here.adapter, mine, 4096, ALL);
        let window = first.make(Verb::CreateWindow, &of(here.adapter));
        let bind = of(here.qp).u64(1).u64(registered.handle).u64(window).u64(mine).u64(64).u32(ND_OP_FLAG_ALLOW_READ);
        first.ask(Verb::Bind, &bind, 4);
        assert_eq!(here.result(kernel).status, STATUS_SUCCESS);
        let waits = first.begin(Verb::Notify, &of(here.queue).u32(ND_CQ_NOTIFY_ANY), 0);
        assert!(!waits.is_complete());
        let [first, second] = programs;
        first.process.kill();
        assert_eq!(hears.wait().status, STATUS_SUCCESS);
        assert_eq!(notified.wait().status, STATUS_SUCCESS);
        let mut found = Vec::new();
        kernel.wait_until(|| {
            found = second.results(queue, 4);
            !found.is_empty()
        });
        assert_eq!((found[0].status, found[0].request), (NtStatus::CANCELLED.0, 3));
        second.process.kill();
        world.end();
    }
}

#[test]
fn pages_are_not_locked_any_more_when_a_process_has_gone_whose_file_another_one_keeps() {
    let world = World::seeded(1, 1);
    let program = Program::start(&world.kernel, 1);
    let side = Side::new(&program, 1, 1);
    let at = program.process.allocate(4096, true);
    program.region(side.adapter, at, 4096, ALL);
    // As if the handle had been duplicated into another process.
    let (file, queue) = (program.file(), side.queue);
    program.process.kill();
    let other = world.kernel.process();
    let affinity = other.begin(&file, Verb::Affinity.code(), &of(queue).0, 12).wait();
    assert_eq!(affinity.status, STATUS_SUCCESS, "the session goes on with its last file");
    drop(file);
    drop(other);
    world.end();
}

#[test]
fn a_cancelled_request_is_gone_and_its_event_harms_nobody() {
    for seed in SEEDS {
        let world = World::seeded(seed, 1);
        let programs = [1, 2].map(|number| Program::start(&world.kernel, number));
        let [here, there] = [Side::new(&programs[0], 1, 1), Side::new(&programs[1], 2, 1)];
        connect(&here, &there, 1);
        let at = there.program.process.allocate(4096, true);
        let region = there.program.region(there.adapter, at, 4096, ALL);
        there.program.receive(there.qp, 3, &[(at, 64, region.local)]);
        let first = there.program.begin(Verb::Notify, &of(there.queue).u32(ND_CQ_NOTIFY_ANY), 0);
        let second = there.program.begin(Verb::Notify, &of(there.queue).u32(ND_CQ_NOTIFY_ANY), 0);
        first.cancel();
        assert_eq!(first.wait().status, NtStatus::CANCELLED.0);
        here.program.send(here.qp, 1, &[]);
        assert_eq!(second.wait().status, STATUS_SUCCESS);
        // A registration that is cancelled has ended: its tokens are no good.
        region.request.cancel();
        assert_ne!(region.request.wait().status, simulated_kernel::wdk::STATUS_PENDING);
        assert_eq!(there.program.ask(Verb::Tokens, &of(region.handle), 8), [0; 8]);
        drop(programs);
        world.end();
    }
}

#[test]
fn cancelled_requests_are_not_counted() {
    let world = World::seeded(1, 1);
    let programs = [1, 2].map(|number| Program::start(&world.kernel, number));
    let [here, there] = [Side::new(&programs[0], 1, 1), Side::new(&programs[1], 2, 1)];
    let listener = connect(&here, &there, 1);
    let program = there.program;
    // With a threshold its request would end at once: there are no receives.
    let shared = of(there.adapter).u32(16).u32(4).u32(0).u32(0).u64(0);
    let shared = program.make(Verb::CreateSharedReceiveQueue, &shared);
    let idle = program.make(Verb::CreateConnector, &of(there.adapter));
    // More than any of these holds, and all together more than the process may have.
    for _ in 0..4500 {
        let waiting = [
            program.begin(Verb::Notify, &of(there.queue).u32(ND_CQ_NOTIFY_ANY), 0),
            program.begin(Verb::NotifyShared, &of(shared), 0),
            program.begin(Verb::NotifyDisconnect, &of(there.connector), 0),
            program.begin(Verb::GetConnectionRequest, &of(listener).u64(idle), 0),
        ];
        for request in waiting {
            let is_refused = request.is_complete();
            request.cancel();
            assert!(!is_refused, "refused: {:#x}", request.wait().status);
            assert_eq!(request.wait().status, NtStatus::CANCELLED.0);
        }
    }
    // One of several: the others stay, and hear of what comes.
    let [first, second, third] =
        [(); 3].map(|()| program.begin(Verb::Notify, &of(there.queue).u32(ND_CQ_NOTIFY_ANY), 0));
    second.cancel();
    assert_eq!(second.wait().status, NtStatus::CANCELLED.0);
    program.receive(there.qp, 3, &[]);
    here.program.send(here.qp, 1, &[]);
    assert_eq!([first, third].map(|request| request.wait().status), [STATUS_SUCCESS; 2]);
    drop(programs);
    world.end();
}

#[test]
fn a_connect_that_is_cancelled_is_given_up_and_the_connector_may_connect_again() {
    let world = World::seeded(1, 1);
    let programs = [1, 2].map(|number| Program::start(&world.kernel, number));
    let [here, there] = [Side::new(&programs[0], 1, 1), Side::new(&programs[1], 2, 1)];
    let at = address(1, 7000);
    let listener = there.program.make(Verb::CreateListener, &of(there.adapter));
    there.program.ask(Verb::BindListener, &of(listener).bytes(&at), 0);
    there.program.ask(Verb::Listen, &of(listener).u32(0), 0);
    for _ in 0..3 {
        let connect = of(here.connector).u64(here.qp).u32(4).u32(4).bytes(&at);
        let connects = here.program.begin(Verb::Connect, &connect, 0);
        assert!(!connects.is_complete());
        connects.cancel();
        assert_eq!(connects.wait().status, NtStatus::CANCELLED.0);
    }
    drop(programs);
    world.end();
}

#[test]
fn an_adapter_that_goes_ends_what_is_outstanding_and_only_closing_succeeds() {
    for seed in SEEDS {
        let mut world = World::seeded(seed, 2);
        let programs = [1, 2].map(|number| Program::start(&world.kernel, number));
        let [here, there] = [Side::new(&programs[0], 1, 1), Side::new(&programs[1], 2, 2)];
        connect(&here, &there, 2);
        let hears = here.program.begin(Verb::NotifyDisconnect, &of(here.connector), 0);
        let waits = there.program.begin(Verb::Notify, &of(there.queue).u32(ND_CQ_NOTIFY_ANY), 0);
        world.adapters.pop().expect("two adapters").surprise_remove();
        assert_eq!(waits.wait().status, NtStatus::DEVICE_REMOVED.0);
        assert_eq!(hears.wait().status, STATUS_SUCCESS, "the other side loses its connection");
        let refused = there.program.call(Verb::CreateConnector, &of(there.adapter), 8);
        assert_eq!(refused.status, NtStatus::DEVICE_REMOVED.0);
        there.program.ask(Verb::Close, &of(there.connector), 0);
        here.program.make(Verb::CreateConnector, &of(here.adapter));
        drop(programs);
        world.end();
    }
}

/// As its other consumers see it: a surprise removal without the removal.
#[test]
fn the_connections_of_programs_end_when_their_adapter_sleeps_and_others_begin_when_it_wakes() {
    for seed in SEEDS {
        let world = World::seeded(seed, 1);
        let programs = [1, 2].map(|number| Program::start(&world.kernel, number));
        for round in 0..2 {
            let [here, there] = [Side::new(&programs[0], 1, 1), Side::new(&programs[1], 2, 1)];
            let listener = connect(&here, &there, 1);
            let ends = [&here, &there].map(|side| side.program.begin(Verb::NotifyDisconnect, &of(side.connector), 0));
            assert!(ends.iter().all(|end| !end.is_complete()));
            world.adapters[0].sleep();
            for end in ends {
                assert_eq!(end.wait().status, STATUS_SUCCESS, "round {round}");
            }
            // Everything that is open stays.
            here.program.ask(Verb::Query, &of(here.adapter), 96);
            world.adapters[0].wake();
            for (side, handle) in [(&there, there.connector), (&there, listener), (&here, here.connector)] {
                side.program.ask(Verb::Close, &of(handle), 0);
            }
            world.kernel.machine().flush();
        }
        drop(programs);
        world.end();
    }
}

/// What the page says (docs/nd2.md): one answer, whatever is asked.
#[test]
fn files_that_are_open_when_the_last_adapter_goes_have_one_answer() {
    for seed in SEEDS {
        let mut world = World::seeded(seed, 1);
        let program = Program::start(&world.kernel, 1);
        let side = Side::new(&program, 1, 1);
        let fresh = program.process.open(LINK_NAME).expect("one more file, of no session");
        let waits = program.begin(Verb::Notify, &of(side.queue).u32(ND_CQ_NOTIFY_ANY), 0);
        assert!(world.adapters.pop().expect("an adapter").remove().is_ok(), "programs do not hold it up");
        assert_eq!(waits.wait().status, NtStatus::DEVICE_REMOVED.0);
        for round in 0..2 {
            for (verb, handle) in [
                (Verb::Query, side.adapter),
                (Verb::Affinity, side.queue),
                (Verb::CreateConnector, side.adapter),
                (Verb::Notify, side.queue),
                (Verb::Close, side.queue),
                (Verb::Close, 0),
            ] {
                assert_eq!(program.call(verb, &of(handle), 96).status, NtStatus::DEVICE_REMOVED.0, "{verb:?}");
            }
            for verb in [Verb::Begin, Verb::Join, Verb::Query] {
                let answer = program.process.begin(&fresh, verb.code(), &of(1).0, 96).wait();
                assert_eq!(answer.status, NtStatus::DEVICE_REMOVED.0, "{verb:?} by a file of no session");
            }
            if round == 0 {
                world.adapters.push(world.driver.add_device().expect("the adapter comes again"));
            }
        }
        let again = Program::start(&world.kernel, 2);
        let _ = Side::new(&again, 1, 1);
        drop((fresh, program, again));
        world.end();
    }
}

#[test]
fn the_device_goes_with_the_last_adapter() {
    let world = World::seeded(1, 1);
    let World { kernel, driver, adapters } = world;
    drop(kernel.open(LINK_NAME).expect("there is an adapter"));
    for adapter in adapters {
        assert!(adapter.remove().is_ok());
    }
    assert!(kernel.open(LINK_NAME).is_err());
    driver.unload();
}

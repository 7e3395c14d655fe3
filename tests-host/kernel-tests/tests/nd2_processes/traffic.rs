//! Two processes connect, send, read and write, and are notified.

use nd2::abi::{
    mr_flags::{ND_MR_FLAG_ALLOW_LOCAL_WRITE, ND_MR_FLAG_ALLOW_REMOTE_READ, ND_MR_FLAG_ALLOW_REMOTE_WRITE},
    notify::ND_CQ_NOTIFY_ANY,
    op_flags::ND_OP_FLAG_ALLOW_WRITE,
};
use nd2_control::wire::{ADDRESS, Verb};
use simulated_kernel::{Kernel, Value, wdk::STATUS_SUCCESS};

use crate::{
    program::{Program, Side, connect, of},
    reader::Reader,
    world::{SEEDS, World},
};

pub const ALL: u32 = ND_MR_FLAG_ALLOW_LOCAL_WRITE | ND_MR_FLAG_ALLOW_REMOTE_READ | ND_MR_FLAG_ALLOW_REMOTE_WRITE;

/// Both processes know their memory by the same address, and each finds the other's bytes there.
pub fn exchange(kernel: &Kernel, programs: [&Program; 2], adapters: [u8; 2]) {
    let [here, there] = [Side::new(programs[0], 1, adapters[0]), Side::new(programs[1], 2, adapters[1])];
    connect(&here, &there, adapters[1]);
    let at = here.program.process.allocate(8192, true);
    assert_eq!(there.program.process.allocate(8192, true), at, "address spaces of their own");
    let [mine, theirs] = [&here, &there].map(|side| side.program.region(side.adapter, at, 8192, ALL));

    // A send, with a notification for who receives it.
    here.program.process.write(at, b"to the other process");
    there.program.receive(there.qp, 77, &[(at + 4096, 100, theirs.local)]);
    let notified = there.program.begin(Verb::Notify, &of(there.queue).u32(ND_CQ_NOTIFY_ANY), 0);
    assert!(!notified.is_complete());
    here.program.send(here.qp, 5, &[(at, 9, mine.local), (at + 9, 11, mine.local)]);
    assert_eq!(notified.wait().status, STATUS_SUCCESS);
    let result = there.result(kernel);
    assert_eq!((result.status, result.bytes, result.qp, result.request), (STATUS_SUCCESS, 20, 2, 77));
    assert_eq!(there.program.process.read(at + 4096, 20), b"to the other process");
    assert_eq!(here.result(kernel).request, 5);
    assert_eq!(there.program.process.read(at, 20), [0; 20], "the same address there is another place");

    // A write and a read.
    here.program.rdma(Verb::Write, here.qp, 6, (at + 100, theirs.remote), &[(at, 8, mine.local)]);
    assert_eq!(here.result(kernel).status, STATUS_SUCCESS);
    assert_eq!(there.program.process.read(at + 100, 8), b"to the o");
    there.program.process.write(at + 200, b"come and get it");
    here.program.rdma(Verb::Read, here.qp, 7, (at + 200, theirs.remote), &[(at + 4096, 15, mine.local)]);
    assert_eq!(here.result(kernel).status, STATUS_SUCCESS);
    assert_eq!(here.program.process.read(at + 4096, 15), b"come and get it");

    // Inline bytes, and a window.
    let inline = of(here.qp).u64(8).u64(at + 300).u32(theirs.remote).u32(nd2::abi::op_flags::ND_OP_FLAG_INLINE);
    here.program.ask(Verb::Write, &inline.bytes(b"inline"), 0);
    assert_eq!(here.result(kernel).status, STATUS_SUCCESS);
    assert_eq!(there.program.process.read(at + 300, 6), b"inline");
    let window = there.program.make(Verb::CreateWindow, &of(there.adapter));
    let bind = of(there.qp).u64(9).u64(theirs.handle).u64(window).u64(at + 400).u64(16).u32(ND_OP_FLAG_ALLOW_WRITE);
    let token = there.program.ask(Verb::Bind, &bind, 4);
    let token = Reader::new(&token).u32().expect("a token");
    assert_eq!(there.result(kernel).status, STATUS_SUCCESS);
    here.program.rdma(Verb::Write, here.qp, 10, (at + 408, token), &[(at, 8, mine.local)]);
    assert_eq!(here.result(kernel).status, STATUS_SUCCESS);
    assert_eq!(there.program.process.read(at + 408, 8), b"to the o");

    // The end of the registration ends the request that has locked the pages, and then its own.
    here.program.ask(Verb::Deregister, &of(mine.handle), 0);
    assert!(mine.request.is_complete());
    assert_eq!(mine.request.wait().status, STATUS_SUCCESS);

    // A disconnect is heard of.
    let hears = there.program.begin(Verb::NotifyDisconnect, &of(there.connector), 0);
    here.program.ask(Verb::Disconnect, &of(here.connector), 0);
    assert_eq!(hears.wait().status, STATUS_SUCCESS);
}

#[test]
fn two_processes_exchange_bytes_over_one_adapter() {
    for seed in SEEDS {
        let world = World::seeded(seed, 1);
        let programs = [1, 2].map(|number| Program::start(&world.kernel, number));
        exchange(&world.kernel, programs.each_ref(), [1, 1]);
        drop(programs);
        world.end();
    }
}

#[test]
fn two_processes_exchange_bytes_over_two_adapters() {
    let world = World::on(Kernel::threads().processors(2).start(), 2, &[]);
    let programs = [1, 2].map(|number| Program::start(&world.kernel, number));
    exchange(&world.kernel, programs.each_ref(), [1, 2]);
    drop(programs);
    world.end();
}

#[test]
fn a_process_is_told_the_addresses_and_limits_of_the_adapters() {
    let world = World::seeded(1, 2);
    let program = Program::start(&world.kernel, 1);
    let side = Side::new(&program, 1, 2);
    let list = side.program.ask(Verb::Addresses, &crate::program::Input::default(), 1024);
    let mut list = Reader::new(&list);
    assert_eq!(list.u32(), Ok(4), "an address of each family for each of two adapters");
    for adapter in [1, 1, 2, 2] {
        assert_eq!(list.u64(), Ok(adapter));
        assert_ne!(list.bytes(ADDRESS).expect("an address")[0], 0);
    }
    assert_eq!(list.end(), Ok(()));
    let info = side.program.ask(Verb::Query, &of(side.adapter), 96);
    assert_eq!((info.len(), info[8]), (96, 2), "the adapter's number");
    drop(program);
    world.end();
}

#[test]
fn a_process_meets_the_limits_of_the_drivers_profile() {
    for (profile, elements, reads) in [(0, 16, 128), (3, 3, 2), (5, 1, 1)] {
        let world = World::on(Kernel::seeded(1).start(), 1, &[("Profile", Value::Number(profile))]);
        let program = Program::start(&world.kernel, 1);
        let info = program.ask(Verb::Query, &of(program.open(1)), 96);
        let number = |at: usize| u32::from_le_bytes(info[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((number(0x20), number(0x24), number(0x34)), (elements, elements, reads), "profile {profile}");
        drop(program);
        world.end();
    }
}

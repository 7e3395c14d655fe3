//! What a process cannot do (docs/threat-model.md, "Programs").

use nd2::abi::mr_flags::{ND_MR_FLAG_ALLOW_LOCAL_WRITE, ND_MR_FLAG_ALLOW_REMOTE_READ};
use nd2_control::{
    Limits,
    wire::{KEY, LINK_NAME, Reader, SDDL, SDDL_USERS, VERSION, Verb},
};
use ndkpi::NtStatus;
use simulated_kernel::{
    Kernel, Value,
    wdk::{STATUS_ACCESS_VIOLATION, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_SUCCESS},
};

use crate::{
    program::{Input, Program, Side, connect, of},
    traffic::ALL,
    world::World,
};

const INVALID_HANDLE: i32 = NtStatus::INVALID_HANDLE.0;
const INVALID_DEVICE_STATE: i32 = NtStatus::INVALID_DEVICE_STATE.0;

#[test]
fn a_handle_is_good_for_one_process_one_kind_and_until_it_is_closed() {
    let world = World::seeded(1, 1);
    let [one, other] = [1, 2].map(|number| Program::start(&world.kernel, number));
    let side = Side::new(&one, 1, 1);
    for handle in [side.adapter, side.queue, side.qp, side.connector] {
        assert_eq!(other.call(Verb::Close, &of(handle), 0).status, INVALID_HANDLE, "of another process");
    }
    // Of another kind.
    assert_eq!(one.call(Verb::Resize, &of(side.qp).u32(4), 0).status, INVALID_HANDLE);
    assert_eq!(one.call(Verb::Flush, &of(side.queue), 0).status, INVALID_HANDLE);
    assert_eq!(one.call(Verb::Cancel, &of(side.qp), 0).status, INVALID_HANDLE);
    assert_eq!(one.call(Verb::LocalAddress, &of(side.queue), 28).status, INVALID_HANDLE);
    // Closed: the place is used again, and the old handle is not good for what is there now.
    one.ask(Verb::Close, &of(side.connector), 0);
    let again = one.make(Verb::CreateConnector, &of(side.adapter));
    assert_eq!(again & 0xFFFF_FFFF, side.connector & 0xFFFF_FFFF, "the same place");
    assert_eq!(one.call(Verb::ReadLimits, &of(side.connector), 8).status, INVALID_HANDLE);
    assert_eq!(one.call(Verb::Close, &of(side.connector), 0).status, INVALID_HANDLE);
    for handle in [0, 1, u64::MAX, again ^ 1 << 32, again + (1 << 16)] {
        assert_eq!(one.call(Verb::Close, &of(handle), 0).status, INVALID_HANDLE, "{handle:#x}");
    }
    drop([one, other]);
    world.end();
}

#[test]
fn an_input_is_as_long_as_its_verb_says_or_refused() {
    let world = World::seeded(1, 1);
    let program = Program::start(&world.kernel, 1);
    let side = Side::new(&program, 1, 1);
    for verb in Verb::ALL {
        // Those that take bytes or elements behind their numbers.
        let open_ended = matches!(verb, Verb::Send | Verb::Write | Verb::Accept | Verb::Connect | Verb::Reject);
        for length in (0..100).chain([1000, 2048, 2049, 5000]) {
            let input = Input(vec![0; length]);
            let answer = program.call(*verb, &input, 4096);
            let nothing_wanted = *verb == Verb::Addresses && length == 0;
            assert_eq!(answer.status == STATUS_SUCCESS, nothing_wanted, "{verb:?} with {length} bytes");
            assert!(nothing_wanted || answer.bytes.is_empty());
        }
        if !open_ended {
            // A handle that is good, and nothing that follows it.
            for handle in [side.adapter, side.queue, side.qp, side.connector] {
                let answer = program.call(*verb, &of(handle).bytes(&[0; 777]), 4096);
                assert_ne!(answer.status, STATUS_SUCCESS, "{verb:?} with too much");
            }
        }
    }
    // No room for the answer: nothing is made, and nothing is lost.
    for room in 0..8 {
        let status = program.call(Verb::CreateConnector, &of(side.adapter), room).status;
        assert_eq!(status, NtStatus::BUFFER_TOO_SMALL.0, "room for {room} bytes");
    }
    assert_eq!(program.call(Verb::Addresses, &Input::default(), 20).status, NtStatus::BUFFER_TOO_SMALL.0);
    assert_eq!(program.call(Verb::Query, &of(side.adapter), 95).status, NtStatus::BUFFER_TOO_SMALL.0);
    drop(program);
    world.end();
}

#[test]
fn a_file_says_once_whose_it_is_and_nobody_guesses() {
    let world = World::seeded(1, 1);
    let program = Program::start(&world.kernel, 1);
    let adapter = program.open(1);
    let stranger = world.kernel.process();
    let say = |file: &simulated_kernel::File, verb: Verb, version, key: [u8; KEY]| {
        let input = Input::default().u32(version).bytes(&key);
        file.control(verb.code(), &input.0, 0).status
    };
    let [fresh, wrong, zero, old, taken, joined] = [(); 6].map(|()| stranger.open(LINK_NAME).expect("the device"));
    assert_eq!(fresh.control(Verb::Query.code(), &of(adapter).0, 96).status, INVALID_DEVICE_STATE, "nobody's");
    assert_eq!(say(&wrong, Verb::Join, VERSION, [2; KEY]), STATUS_INVALID_PARAMETER);
    assert_eq!(say(&wrong, Verb::Join, VERSION, [1; KEY]), INVALID_DEVICE_STATE, "no second guess");
    assert_eq!(say(&zero, Verb::Begin, VERSION, [0; KEY]), STATUS_INVALID_PARAMETER);
    assert_eq!(say(&old, Verb::Begin, VERSION + 1, [3; KEY]), STATUS_INVALID_PARAMETER);
    assert_eq!(say(&taken, Verb::Begin, VERSION, [1; KEY]), STATUS_INVALID_PARAMETER, "the key is in use");
    assert_eq!(say(&joined, Verb::Join, VERSION, [1; KEY]), STATUS_SUCCESS);
    assert_eq!(joined.control(Verb::Query.code(), &of(adapter).0, 96).status, STATUS_SUCCESS);
    // The session lives as long as one of its files does.
    drop([fresh, wrong, zero, old, taken]);
    program.process.kill();
    assert_eq!(joined.control(Verb::Query.code(), &of(adapter).0, 96).status, STATUS_SUCCESS);
    drop(joined);
    stranger.kill();
    let again = Program::start(&world.kernel, 1);
    assert_eq!(
        again.call(Verb::Query, &of(adapter), 96).status,
        INVALID_HANDLE,
        "the key is free, and nothing is left"
    );
    drop(again);
    world.end();
}

#[test]
fn a_process_takes_no_more_than_its_quota_and_gives_it_back() {
    let world = World::seeded(1, 1);
    let program = Program::start(&world.kernel, 1);
    let other = Program::start(&world.kernel, 2);
    let adapter = program.open(1);
    let limits = Limits::default();
    // Objects.
    let many: Vec<_> = (1..limits.objects).map(|_| program.make(Verb::CreateRegion, &of(adapter))).collect();
    assert_eq!(program.call(Verb::CreateRegion, &of(adapter), 8).status, STATUS_INSUFFICIENT_RESOURCES);
    let of_other = other.open(1);
    other.make(Verb::CreateRegion, &of(of_other));
    for region in many {
        program.ask(Verb::Close, &of(region), 0);
    }
    // Locked bytes. Nobody touches them.
    let half = usize::try_from(limits.locked / 2).expect("a number of bytes");
    let at = program.process.allocate(half, true);
    let regions = [(); 2].map(|()| program.region(adapter, at, half, ND_MR_FLAG_ALLOW_LOCAL_WRITE));
    let third = program.make(Verb::CreateRegion, &of(adapter));
    let register = || program.register(third, at, 4096, ND_MR_FLAG_ALLOW_LOCAL_WRITE).expect("memory of its own");
    assert_eq!(register().wait().status, STATUS_INSUFFICIENT_RESOURCES);
    program.ask(Verb::Deregister, &of(regions[0].handle), 0);
    let registered = register();
    assert!(!registered.is_complete(), "there is room again");
    drop([program, other]);
    world.end();
}

#[test]
fn processes_share_the_tokens_of_the_registry() {
    let world = World::on(Kernel::seeded(1).start(), 1, &[("MaxTokens", Value::Number(16))]);
    let program = Program::start(&world.kernel, 1);
    let adapter = program.open(1);
    let create = || program.call(Verb::CreateRegion, &of(adapter), 8).status;
    let made = (0..16).take_while(|_| create() == STATUS_SUCCESS).count();
    assert!((8..16).contains(&made), "{made} regions");
    assert_eq!(create(), NtStatus::NO_MEMORY.0);
    drop(program);
    world.end();
}

#[test]
fn a_token_of_another_process_is_no_good_on_a_connection() {
    let world = World::seeded(1, 1);
    let programs = [1, 2, 3].map(|number| Program::start(&world.kernel, number));
    let [attacker, peer, victim] = [1, 2, 3].map(|number| Side::new(&programs[usize::from(number) - 1], number, 1));
    connect(&attacker, &peer, 1);
    let at = attacker.program.process.allocate(4096, true);
    let own = attacker.program.region(attacker.adapter, at, 4096, ALL);
    let secret = victim.program.process.allocate(4096, true);
    victim.program.process.write(secret, b"secret");
    let theirs = victim.program.region(victim.adapter, secret, 4096, ALL);
    // The token is right, on the same adapter, and for reading: but of another protection domain.
    let (from, token) = ((secret, theirs.remote), own.local);
    attacker.program.rdma(Verb::Read, attacker.qp, 1, from, &[(at, 6, token)]);
    assert_eq!(attacker.result(&world.kernel).status, NtStatus::REMOTE_RESOURCES.0);
    assert_eq!(attacker.program.process.read(at, 6), [0; 6]);
    // Nor is a local token of somebody else's.
    attacker.program.ask(Verb::Flush, &of(attacker.qp), 0);
    drop(programs);
    world.end();
}

#[test]
fn memory_is_the_processs_own_and_as_it_may_use_it() {
    let world = World::seeded(1, 1);
    let program = Program::start(&world.kernel, 1);
    let adapter = program.open(1);
    let (writable, constant) = (program.process.allocate(4096, true), program.process.allocate(4096, false));
    let region = program.make(Verb::CreateRegion, &of(adapter));
    let register = |verb: Verb, at: u64, length: usize, flags: u32| {
        let input = of(region).u64(at).u32(flags);
        program.process.begin_direct(&program.file(), verb.code(), &input.0, (at, length))
    };
    let refused = |verb, at, length, flags| match register(verb, at, length, flags) {
        Ok(request) => request.wait().status,
        Err(status) => status,
    };
    let (write, read) = (ND_MR_FLAG_ALLOW_LOCAL_WRITE, ND_MR_FLAG_ALLOW_REMOTE_READ);
    // Nothing there, the end of it beyond what is there, nothing at all.
    assert_eq!(refused(Verb::RegisterWritable, 0x1000, 16, write), STATUS_ACCESS_VIOLATION);
    assert_eq!(refused(Verb::RegisterWritable, writable + 4000, 97, write), STATUS_ACCESS_VIOLATION);
    assert_eq!(refused(Verb::RegisterWritable, writable, 0, write), STATUS_ACCESS_VIOLATION);
    // What the process cannot write the adapter cannot either, and pages that were locked for reading are not written.
    assert_eq!(refused(Verb::RegisterWritable, constant, 4096, write), STATUS_ACCESS_VIOLATION);
    assert_eq!(refused(Verb::RegisterReadable, constant, 4096, write), STATUS_INVALID_PARAMETER);
    assert_eq!(refused(Verb::RegisterReadable, constant, 4096, 1 << 20), STATUS_INVALID_PARAMETER);
    let registered = register(Verb::RegisterReadable, constant, 4096, read).expect("its own memory");
    assert!(!registered.is_complete());
    assert_eq!(refused(Verb::RegisterWritable, writable, 4096, write), INVALID_DEVICE_STATE, "it is registered");
    program.ask(Verb::Deregister, &of(region), 0);
    // An address that wraps around.
    let input = of(region).u64(u64::MAX - 8).u32(write);
    let code = Verb::RegisterWritable.code();
    let wrapped = program.process.begin_direct(&program.file(), code, &input.0, (writable, 4096)).expect("memory");
    assert_eq!(wrapped.wait().status, STATUS_INVALID_PARAMETER);
    drop(program);
    world.end();
}

#[test]
fn a_range_that_is_freed_and_used_again_is_not_written_through_the_registration() {
    let world = World::seeded(1, 1);
    let programs = [1, 2].map(|number| Program::start(&world.kernel, number));
    let [here, there] = [Side::new(&programs[0], 1, 1), Side::new(&programs[1], 2, 1)];
    connect(&here, &there, 1);
    let at = there.program.process.allocate(4096, true);
    let region = there.program.region(there.adapter, at, 4096, ALL);
    there.program.process.free(at);
    assert_eq!(there.program.process.allocate(4096, true), at, "other pages at the same address");
    let write = of(here.qp).u64(8).u64(at).u32(region.remote).u32(nd2::abi::op_flags::ND_OP_FLAG_INLINE);
    here.program.ask(Verb::Write, &write.bytes(b"late"), 0);
    assert_eq!(here.result(&world.kernel).status, STATUS_SUCCESS, "the registration stands");
    assert_eq!(there.program.process.read(at, 4), [0; 4]);
    drop(programs);
    world.end();
}

#[test]
fn nobody_but_administrators_unless_the_installer_says_so() {
    // The system and administrators; and in the other one the group of users, for reading and writing.
    assert_eq!(SDDL, "D:P(A;;GA;;;SY)(A;;GA;;;BA)");
    assert_eq!(SDDL_USERS.strip_prefix(SDDL), Some("(A;;GRGW;;;BU)"));
    for users in [0, 1] {
        let world = World::on(Kernel::seeded(1).start(), 1, &[("NdUsers", Value::Number(users))]);
        let wanted = if users == 1 { SDDL_USERS } else { SDDL };
        assert_eq!(world.kernel.access(LINK_NAME).as_deref(), Some(wanted));
        world.end();
    }
}

#[test]
fn codes_that_are_none_and_verbs_of_another_method_are_refused() {
    let world = World::seeded(1, 1);
    let program = Program::start(&world.kernel, 1);
    let file = program.file();
    let known: Vec<_> = Verb::ALL.iter().map(|verb| verb.code()).collect();
    for verb in Verb::ALL {
        for code in (0..4).map(|method| verb.code() & !3 | method).filter(|code| !known.contains(code)) {
            let answer = file.control(code, &[0; 64], 64);
            assert_eq!(answer.status, NtStatus::INVALID_DEVICE_REQUEST.0, "{code:#x}");
        }
    }
    assert_eq!(Reader::new(&[1]).u32(), Err(NtStatus::INVALID_PARAMETER));
    drop(file);
    drop(program);
    world.end();
}

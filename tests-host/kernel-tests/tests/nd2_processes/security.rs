//! What a process cannot do (docs/threat-model.md, "Programs").

use std::sync::Arc;

use engine::memory::MemoryLimits;
use nd2::{
    Quota, Resource,
    abi::{
        mr_flags::{ND_MR_FLAG_ALLOW_LOCAL_WRITE, ND_MR_FLAG_ALLOW_REMOTE_READ},
        notify::ND_CQ_NOTIFY_ANY,
    },
};
use nd2_control::wire::{KEY, LINK_NAME, SDDL, SDDL_USERS, VERSION, Verb, Word, begin};
use ndkpi::NtStatus;
use simulated_kernel::{
    Answer, File, Kernel, Pending, Process, Value,
    wdk::{NTSTATUS, STATUS_ACCESS_VIOLATION, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_SUCCESS},
};
use softndk::nd::access;

use crate::{
    program::{Input, Program, Side, address, connect, of},
    reader::Reader,
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

/// One more session of a process.
struct Another<'p> {
    process: &'p Process,
    file: Arc<File>,
}

impl<'p> Another<'p> {
    /// Begins one with a key made of `number`, if the driver lets it.
    fn begin(process: &'p Process, number: u8) -> Result<Self, NTSTATUS> {
        let another = Self { process, file: process.open(LINK_NAME)? };
        let begun = another.call(Verb::Begin, &Input::default().u32(VERSION).bytes(&[number; KEY]), 0);
        if begun.status == STATUS_SUCCESS { Ok(another) } else { Err(begun.status) }
    }

    fn call(&self, verb: Verb, input: &Input, output: usize) -> Answer {
        self.process.begin(&self.file, verb.code(), &input.0, output).wait()
    }

    fn make(&self, verb: Verb, input: &Input) -> Result<u64, NTSTATUS> {
        let answer = self.call(verb, input, 8);
        if answer.status == STATUS_SUCCESS { Ok(handle(&answer)) } else { Err(answer.status) }
    }
}

fn handle(answer: &Answer) -> u64 {
    Reader::new(&answer.bytes).u64().expect("a handle")
}

/// Makes as many as there are. Returns them, and how one more is refused.
fn all_of(mut make: impl FnMut() -> Answer) -> (Vec<u64>, NTSTATUS) {
    let mut made = Vec::new();
    loop {
        let answer = make();
        if answer.status != STATUS_SUCCESS {
            return (made, answer.status);
        }
        made.push(handle(&answer));
    }
}

#[test]
fn a_process_begins_no_more_sessions_than_its_quota_and_leaves_the_others_theirs() {
    let world = World::seeded(1, 1);
    let [greedy, other] = [(); 2].map(|()| world.kernel.process());
    let most = u8::try_from(Quota::default().sessions).expect("a few");
    let mut sessions: Vec<_> =
        (1..=most).map(|number| Another::begin(&greedy, number).expect("within the quota")).collect();
    let refused = |number| Another::begin(&greedy, number).err();
    assert_eq!(refused(100), Some(STATUS_INSUFFICIENT_RESOURCES));
    let of_other = Another::begin(&other, 101).expect("another process has its own");
    // One that has ended makes room for one.
    let ended = sessions.pop().expect("several");
    greedy.close(&ended.file);
    drop(ended);
    sessions.push(Another::begin(&greedy, 102).expect("there is room again"));
    assert_eq!(refused(103), Some(STATUS_INSUFFICIENT_RESOURCES));
    drop((sessions, of_other));
    drop((greedy, other));
    world.end();
}

#[test]
fn a_process_locks_no_more_than_its_quota_by_all_its_sessions_and_gives_it_back() {
    let world = World::seeded(1, 1);
    let program = Program::start(&world.kernel, 1);
    let second = Another::begin(&program.process, 2).expect("a second session");
    let half = usize::try_from(Quota::default().locked / 2).expect("a number of bytes");
    // Nobody touches them.
    let at = program.process.allocate(half, true);
    let adapter = program.open(1);
    let first = program.region(adapter, at, half, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
    let adapter = second.make(Verb::Open, &of(1)).expect("the adapter");
    let register = |length| {
        let region = second.make(Verb::CreateRegion, &of(adapter)).expect("a region");
        let input = of(region).u64(at).u32(ND_MR_FLAG_ALLOW_LOCAL_WRITE);
        let code = Verb::RegisterWritable.code();
        program.process.begin_direct(&second.file, code, &input.0, (at, length)).expect("memory of its own")
    };
    assert!(!register(half).is_complete());
    assert_eq!(register(4096).wait().status, STATUS_INSUFFICIENT_RESOURCES);
    program.ask(Verb::Deregister, &of(first.handle), 0);
    assert!(!register(4096).is_complete(), "there is room again");
    drop(second);
    drop(program);
    world.end();
}

#[test]
fn a_process_takes_no_more_kernel_memory_than_its_quota_whatever_it_releases() {
    const DEPTH: u32 = 65_536;
    let world = World::seeded(1, 1);
    let [greedy, other] = [1, 2].map(|number| Program::start(&world.kernel, number));
    let second = Another::begin(&greedy.process, 3).expect("a second session");
    let (adapter, of_other) = (greedy.open(1), other.open(1));
    let queue = |adapter| of(adapter).u32(DEPTH).u32(0).u64(0);
    let before = world.kernel.pool_bytes();
    let (queues, refused) = all_of(|| greedy.call(Verb::CreateCompletionQueue, &queue(adapter), 8));
    assert_eq!(refused, STATUS_INSUFFICIENT_RESOURCES);
    assert!((32..64).contains(&queues.len()), "{} queues", queues.len());
    let quota = usize::try_from(Quota::default().memory).expect("a number of bytes");
    assert!(world.kernel.pool_bytes() - before <= quota);
    // Another session of the process does not help, nor does a small queue that grows.
    let of_second = second.make(Verb::Open, &of(1)).expect("an adapter is small");
    assert_eq!(second.make(Verb::CreateCompletionQueue, &queue(of_second)), Err(STATUS_INSUFFICIENT_RESOURCES));
    let small = greedy.make(Verb::CreateCompletionQueue, &of(adapter).u32(1).u32(0).u64(0));
    let grows = greedy.call(Verb::Resize, &of(small).u32(DEPTH), 0);
    assert_eq!(grows.status, STATUS_INSUFFICIENT_RESOURCES);
    // Another process has its own.
    other.make(Verb::CreateCompletionQueue, &queue(of_other));
    // A queue that is released while a queue pair uses it is still there.
    greedy.ask(Verb::Close, &of(small), 0);
    let [kept, gone] = [queues[0], queues[1]];
    greedy.ask(Verb::Close, &of(gone), 0);
    let qp = greedy.qp(adapter, kept, 1);
    greedy.ask(Verb::Close, &of(kept), 0);
    let again = || greedy.call(Verb::CreateCompletionQueue, &queue(adapter), 8);
    assert_eq!(all_of(again).0.len(), 1, "in the place of the one that is gone");
    greedy.ask(Verb::Close, &of(qp), 0);
    world.kernel.machine().flush();
    assert_eq!(all_of(again).0.len(), 1, "in the place of the one that was kept");
    drop(second);
    drop([greedy, other]);
    world.end();
}

#[test]
fn a_process_is_charged_for_all_the_kernel_memory_that_its_objects_take() {
    let kernel = Kernel::seeded(1).start();
    access::open(|_, _| {});
    let world = World::on(kernel, 1, &[]);
    let program = Program::start(&world.kernel, 1);
    let (adapter, at) = (program.open(1), program.process.allocate(1 << 20, true));
    let charged = || access::charged_memory(program.process.number()).expect("a session");
    let (mut requests, mut wrong) = (Vec::new(), Vec::new());
    // So many that the growth of a table, now and then, does not count.
    let mut check = |what: &str, many: usize, make: &mut dyn FnMut() -> Option<Pending>| {
        let before = (world.kernel.pool_bytes() as u64, charged());
        requests.extend((0..many).filter_map(|_| make()));
        let taken = world.kernel.pool_bytes() as u64 - before.0;
        let charge = charged() - before.1;
        if charge < taken {
            wrong.push(format!("{what}: {taken} bytes in {many}, and {charge} charged"));
        }
    };
    for depth in [1, 100, 1000] {
        let queue = of(adapter).u32(depth).u32(0).u64(0);
        check("a completion queue", 16, &mut || {
            program.make(Verb::CreateCompletionQueue, &queue);
            None
        });
        let shared = of(adapter).u32(depth).u32(4).u32(1).u32(0).u64(0);
        check("a shared receive queue", 16, &mut || {
            program.make(Verb::CreateSharedReceiveQueue, &shared);
            None
        });
        let queue = program.queue(adapter);
        for (elements, inline) in [(1, 0), (4, 64), (16, 512)] {
            let pair = of(adapter).u64(queue).u64(queue).u64(0).u32(depth).u32(depth);
            let pair = pair.u32(elements).u32(elements).u32(inline);
            check("a queue pair", 16, &mut || {
                program.make(Verb::CreateQueuePair, &pair);
                None
            });
        }
    }
    for verb in [Verb::CreateRegion, Verb::CreateWindow, Verb::CreateConnector, Verb::CreateListener] {
        check(&format!("{verb:?}"), 256, &mut || {
            program.make(verb, &of(adapter));
            None
        });
    }
    check("an open adapter", 256, &mut || {
        program.open(1);
        None
    });
    let regions: Vec<_> = (0..256).map(|_| program.make(Verb::CreateRegion, &of(adapter))).collect();
    let mut regions = regions.into_iter();
    check("a registration", 256, &mut || {
        let region = regions.next().expect("as many");
        Some(program.register(region, at, 1 << 20, ND_MR_FLAG_ALLOW_LOCAL_WRITE).expect("its own memory"))
    });
    let queue = program.queue(adapter);
    check("a request", 256, &mut || Some(program.begin(Verb::Notify, &of(queue).u32(ND_CQ_NOTIFY_ANY), 0)));
    assert_eq!(wrong, Vec::<String>::new());
    drop(requests);
    drop(program);
    world.driver.run(access::close);
    world.end();
}

#[test]
fn a_listener_is_charged_for_the_requests_that_wait_at_it() {
    const BACKLOG: u32 = 64;
    let kernel = Kernel::seeded(1).start();
    access::open(|_, _| {});
    let world = World::on(kernel, 1, &[]);
    let [listens, connects] = [1, 2].map(|number| Program::start(&world.kernel, number));
    let charged = || access::charged_memory(listens.process.number()).expect("a session");
    let (adapter, at) = (listens.open(1), address(1, 7000));
    let before = (world.kernel.pool_bytes() as u64, charged());
    let listener = listens.make(Verb::CreateListener, &of(adapter));
    listens.ask(Verb::BindListener, &of(listener).bytes(&at), 0);
    listens.ask(Verb::Listen, &of(listener).u32(BACKLOG), 0);
    let of_other = connects.open(1);
    let queue = connects.queue(of_other);
    for _ in 0..BACKLOG {
        let qp = connects.qp(of_other, queue, 1);
        let connector = connects.make(Verb::CreateConnector, &of(of_other));
        let connect = of(connector).u64(qp).u32(4).u32(4).bytes(&at).bytes(&[7; 500]);
        assert!(!connects.begin(Verb::Connect, &connect, 0).is_complete());
    }
    world.kernel.machine().flush();
    // Who has sent them is gone.
    connects.process.kill();
    world.kernel.machine().flush();
    let (taken, charge) = (world.kernel.pool_bytes() as u64 - before.0, charged() - before.1);
    assert!(charge >= taken, "{taken} bytes, and {charge} charged");
    drop(listens);
    world.driver.run(access::close);
    world.end();
}

#[test]
fn a_process_takes_no_more_than_its_share_of_an_adapter() {
    let world = World::seeded(1, 1);
    let [greedy, other] = [1, 2].map(|number| Program::start(&world.kernel, number));
    let (adapter, of_other) = (greedy.open(1), other.open(1));
    let shares = u64::from(Quota::default().shares);
    let limits = nd2::Limits::default();
    let windows = u64::from(MemoryLimits::WINDOWS);
    for (verb, all) in [
        (Verb::CreateWindow, windows),
        (Verb::CreateConnector, limits.get(Resource::Connectors)),
        (Verb::CreateListener, limits.get(Resource::Listeners)),
    ] {
        let (made, refused) = all_of(|| greedy.call(verb, &of(adapter), 8));
        assert_eq!((made.len() as u64, refused), (all / shares, STATUS_INSUFFICIENT_RESOURCES), "{verb:?}");
        other.make(verb, &of(of_other));
        for handle in made {
            greedy.ask(Verb::Close, &of(handle), 0);
        }
    }
    // A window that is released is given back, and so is its token.
    greedy.make(Verb::CreateWindow, &of(adapter));
    drop([greedy, other]);
    world.end();
}

#[test]
fn processes_share_the_tokens_of_the_registry() {
    let world = World::on(Kernel::seeded(1).start(), 1, &[("MaxTokens", Value::Number(16))]);
    let programs = [1, 2, 3].map(|number| Program::start(&world.kernel, number));
    for program in &programs {
        // Its share is four, and the adapter itself has one.
        let adapter = program.open(1);
        let (made, refused) = all_of(|| program.call(Verb::CreateRegion, &of(adapter), 8));
        assert_eq!((made.len(), refused), (3, STATUS_INSUFFICIENT_RESOURCES));
    }
    drop(programs);
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
    assert_eq!(begin::<Word>(&[1]), Err(NtStatus::INVALID_PARAMETER));
    drop(file);
    drop(program);
    world.end();
}

//! Programs of 32 bits: what crosses the boundary has the same widths for them, so the driver does not ask who calls
//! (`IoIs32bitProcess`).

use nd2_control::wire::Verb;
use ndkpi::NtStatus;
use simulated_kernel::{
    Kernel,
    wdk::{STATUS_ACCESS_VIOLATION, STATUS_INVALID_PARAMETER, STATUS_SUCCESS},
};

use crate::{
    actor::{Field, shape},
    program::{Input, Program, Region, Side, address, connect, of},
    traffic::ALL,
    world::{SEEDS, World},
};

/// Two pages that end where the addresses of 32 bits do.
const TOP: u64 = (1 << 32) - 8192;
/// The same for who loses the upper half of an address.
const ABOVE: u64 = TOP | 1 << 32;

/// An adapter, a queue, a queue pair with this context and a connector of a program.
fn side(program: &Program, context: u64) -> Side<'_> {
    let adapter = program.open(1);
    let queue = program.queue(adapter);
    let qp = program.qp(adapter, queue, context);
    let connector = program.make(Verb::CreateConnector, &of(adapter));
    Side { program, adapter, queue, qp, connector }
}

/// What a program of 32 bits, and one of 64, have.
struct End<'p> {
    side: Side<'p>,
    at: u64,
    region: Region,
}

const CONTEXTS: [u64; 2] = [u32::MAX as u64, u64::MAX];

/// Has the two connected.
fn connected(seed: u64, work: impl FnOnce(&Kernel, &End<'_>, &End<'_>)) {
    let world = World::seeded(seed, 1);
    let kernel = &world.kernel;
    let programs = [(TOP, 1), (ABOVE, 2)].map(|(first, number)| Program::start_in(kernel.process_from(first), number));
    let sides = [0, 1].map(|index| side(&programs[index], CONTEXTS[index]));
    connect(&sides[0], &sides[1], 1);
    let [narrow, wide] = sides.map(|side| {
        let at = side.program.process.allocate(8192, true);
        let region = side.program.region(side.adapter, at, 8192, ALL);
        End { side, at, region }
    });
    assert_eq!([narrow.at, wide.at], [TOP, ABOVE]);
    work(kernel, &narrow, &wide);
    drop((narrow, wide));
    drop(programs);
    world.end();
}

#[test]
fn a_program_of_32_bits_and_one_of_64_use_each_others_memory() {
    let both = |kernel: &Kernel, narrow: &End<'_>, wide: &End<'_>| {
        let (one, other) = (&narrow.side, &wide.side);
        let (mine, theirs) = (narrow.region.local, wide.region.local);
        // The last bytes that a program of 32 bits has an address for, from both sides, and contexts that come back whole.
        let last = narrow.at + 8188;
        one.program.process.write(last, b"last");
        other.program.receive(other.qp, u64::MAX - 1, &[(wide.at, 4, theirs)]);
        one.program.send(one.qp, CONTEXTS[0] - 1, &[(last, 4, mine)]);
        let (sent, received) = (one.result(kernel), other.result(kernel));
        assert_eq!((sent.status, sent.qp, sent.request), (STATUS_SUCCESS, CONTEXTS[0], CONTEXTS[0] - 1));
        assert_eq!((received.status, received.qp, received.request), (STATUS_SUCCESS, CONTEXTS[1], u64::MAX - 1));
        assert_eq!(other.program.process.read(wide.at, 4), b"last");
        one.program.rdma(Verb::Write, one.qp, 1, (wide.at + 100, wide.region.remote), &[(last, 4, mine)]);
        assert_eq!(one.result(kernel).status, STATUS_SUCCESS);
        assert_eq!(other.program.process.read(wide.at + 100, 4), b"last");
        other.program.process.write(wide.at + 200, b"wide");
        other.program.rdma(Verb::Write, other.qp, 2, (last, narrow.region.remote), &[(wide.at + 200, 4, theirs)]);
        assert_eq!(other.result(kernel).status, STATUS_SUCCESS);
        assert_eq!(one.program.process.read(last, 4), b"wide");
        // An address without its upper half is another one.
        other.program.rdma(Verb::Write, other.qp, 3, (last, narrow.region.remote), &[(narrow.at, 4, theirs)]);
        assert_eq!(other.result(kernel).status, STATUS_ACCESS_VIOLATION);
    };
    for seed in SEEDS {
        connected(seed, both);
    }
    connected(1, |kernel, narrow, wide| {
        let (from, to) = ((wide.at, 4, wide.region.local), (narrow.at + 8190, narrow.region.remote));
        wide.side.program.rdma(Verb::Write, wide.side.qp, 4, to, &[from]);
        assert_eq!(wide.side.result(kernel).status, NtStatus::REMOTE_RESOURCES.0, "two bytes beyond its memory");
        assert_eq!(narrow.side.program.process.read(narrow.at + 8190, 2), [0; 2]);
    });
}

/// A program that sent addresses, contexts and handles of its own width is refused.
#[test]
fn fields_of_32_bits_where_the_wire_has_64_are_refused() {
    let world = World::seeded(1, 1);
    let program = Program::start(&world.kernel, 1);
    let side = side(&program, 1);
    let handles = [side.adapter, side.queue, side.qp, side.connector];
    for verb in Verb::ALL.iter().filter(|verb| !matches!(verb, Verb::Addresses)) {
        for handle in handles {
            let input = shape(*verb).into_iter().fold(Input::default(), |input, field| match field {
                // The lower half of a handle; an address, or a context.
                Field::Made(_) => input.bytes(&handle.to_le_bytes()[..4]),
                Field::Long => input.u32(0x10_0000),
                Field::Small => input.u32(1),
                Field::Address => input.bytes(&address(1, 7000)),
                // Address, length, token.
                Field::Elements => input.u32(0x1000).u32(8).u32(1),
                Field::Bytes => input,
            });
            let answer = program.call(*verb, &input, 4096);
            let refused = [STATUS_INVALID_PARAMETER, NtStatus::INVALID_HANDLE.0, NtStatus::INVALID_DEVICE_STATE.0];
            assert!(refused.contains(&answer.status), "{verb:?}: {:#x}", answer.status);
            assert!(answer.bytes.is_empty(), "{verb:?}");
        }
    }
    drop(program);
    world.end();
}

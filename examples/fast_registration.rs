//! Fast registration: memory is registered by a work request, fast enough for every single transfer and for any part of a buffer.
//!
//! `cargo run --example fast_registration`

use ndk::{Access, Completion, Cq, Flags, Notify, NtStatus, QpSizes, host::Loopback};

/// Waits for the completion of a request, which must succeed.
fn await_done(cq: &mut Cq, context: usize) -> Result<(), NtStatus> {
    let mut results = [Completion::EMPTY; 1];
    for done in cq.wait(&mut results, Notify::Any)? {
        assert_eq!(done.ok()?, context);
    }
    Ok(())
}

fn main() -> Result<(), NtStatus> {
    let machine = Loopback::start(1)?;
    let adapter = machine.open(0)?;
    let pd = adapter.create_pd()?;
    let (mut owner_cq, mut reader_cq) = (adapter.create_cq(32)?, adapter.create_cq(32)?);
    let mut owner = pd.create_qp(&owner_cq, &owner_cq, QpSizes::default(), 0)?;
    let mut reader = pd.create_qp(&reader_cq, &reader_cq, QpSizes::default(), 1)?;
    let connections = examples::connect(&machine, &adapter, &owner, &reader)?;

    // The slow part, done once: map the pages to logical addresses, and create a region with room for them. `true` means that
    // peers will use it.
    let mapping = adapter.map(adapter.memory(16384)?)?;
    let mut region = pd.create_fast_mr(mapping, true)?;
    // The target of a read needs the read sink right, unless the adapter's flags say otherwise.
    let target = pd.register(adapter.memory(4096)?, Access::LOCAL_WRITE | Access::READ_SINK)?;

    for round in 0..3_u8 {
        // Another part each time. It may start at any byte.
        let (offset, length) = (1000 + 4096 * usize::from(round), 500);
        region.write(offset, &[b'a' + round; 500])?;

        // The fast part. The token can go to the peer as soon as this is posted: requests on this queue pair stay in order.
        owner.initiator.fast_register(1, &region, (offset, length), Access::REMOTE_READ, Flags::empty())?;
        let place = region.remote(offset)?;
        await_done(&mut owner_cq, 1)?;

        // A real peer would get `place` in a message.
        reader.initiator.read(2, &[target.sge(0, 500)?], place, Flags::empty())?;
        await_done(&mut reader_cq, 2)?;
        let mut bytes = [0; 500];
        target.read(0, &mut bytes)?;
        assert_eq!(bytes, [b'a' + round; 500]);

        // Invalidate before registering again. `Flags::FENCE` would make this wait for earlier reads of this queue pair.
        owner.initiator.invalidate(3, &region, Flags::empty())?;
        await_done(&mut owner_cq, 3)?;
        println!("round {round}: {length} bytes at {offset} read by the peer");
    }

    // From now on the peer's reads are refused, and its connection breaks.
    reader.initiator.read(4, &[target.sge(0, 500)?], region.remote(1000)?, Flags::empty())?;
    let refused = await_done(&mut reader_cq, 4);
    println!("after the last invalidation: {}", refused.err().unwrap_or(NtStatus::SUCCESS));
    assert_eq!(refused, Err(NtStatus::REMOTE_RESOURCES));
    drop(connections);
    Ok(())
}

#[test]
fn it_runs() -> Result<(), NtStatus> {
    main()
}

//! Memory that is registered by a request in the send queue: fast enough for each transfer, and for a part of the memory only.
//!
//! `cargo run --example fast_registration`

use ndk::{Access, Completion, Cq, Flags, Notify, NtStatus, QpSizes, host::Loopback};

/// Waits for the completion of a request, a success.
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

    // The slow part, once: the pages get addresses in the adapter's own address space, and a region for fast registrations gets
    // room for them. `true`: peers will be allowed to use it.
    let mapping = adapter.map(adapter.memory(16384)?)?;
    let mut region = pd.create_fast_mr(mapping, true)?;
    // A read's target needs the right to be one, unless the adapter says otherwise.
    let target = pd.register(adapter.memory(4096)?, Access::LOCAL_WRITE | Access::READ_SINK)?;

    for round in 0..3_u8 {
        // Another part each time: from any byte on, over any pages.
        let (offset, length) = (1000 + 4096 * usize::from(round), 500);
        region.write(offset, &[b'a' + round; 500])?;

        // The fast part. The token may be told to the peer from the post on; whatever the peer then does comes after it.
        owner.initiator.fast_register(1, &region, (offset, length), Access::REMOTE_READ, Flags::empty())?;
        let place = region.remote(offset)?;
        await_done(&mut owner_cq, 1)?;

        // A real peer gets `place` in a message.
        reader.initiator.read(2, &[target.sge(0, 500)?], place, Flags::empty())?;
        await_done(&mut reader_cq, 2)?;
        let mut bytes = [0; 500];
        target.read(0, &mut bytes)?;
        assert_eq!(bytes, [b'a' + round; 500]);

        // Only what was invalidated can be registered again. With `Flags::FENCE` it would wait for own reads before it.
        owner.initiator.invalidate(3, &region, Flags::empty())?;
        await_done(&mut owner_cq, 3)?;
        println!("round {round}: {length} bytes at {offset} read by the peer");
    }

    // From now on the peer is refused, and its connection breaks.
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

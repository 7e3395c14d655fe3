//! A shared receive queue: memory for the messages that arrive, instead of for every connection.
//!
//! `cargo run --example shared_receive_queue`

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use ndk::{Access, Completion, Flags, Notify, NtStatus, QpSizes, host::Loopback};

/// Number of connections.
const CLIENTS: usize = 4;
/// Messages per client.
const MESSAGES: usize = 50;
/// Receives shared by all clients.
const RECEIVES: usize = 16;
/// Size of a receive.
const SIZE: u32 = 64;

fn main() -> Result<(), NtStatus> {
    let machine = Loopback::start(1)?;
    let adapter = machine.open(0)?;
    let pd = adapter.create_pd()?;
    let mr = pd.register(adapter.memory(4096)?, Access::LOCAL_WRITE)?;

    // The queue calls back once, each time it is asked to, when fewer than 8 receives are left.
    let low = Arc::new(AtomicBool::new(false));
    let is_low = low.clone();
    let mut srq = pd.create_srq(16, 1, 8, move |status| is_low.store(status.is_success(), Relaxed))?;
    for slot in 0..RECEIVES {
        srq.receive(slot, &[mr.sge(slot * SIZE as usize, SIZE)?])?;
    }
    srq.notify_below(8)?.wait()?;

    // One completion queue for everything the server receives, deep enough for all receives. The context of the queue pair tells
    // which connection a message came from.
    let mut server_cq = adapter.create_cq(32)?;
    let mut sends = adapter.create_cq(64)?;
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let client = pd.create_qp(&sends, &sends, QpSizes { inline: 8, ..QpSizes::default() }, number)?;
        let server = pd.create_qp_with_srq(&server_cq, &server_cq, &srq, QpSizes::default(), number)?;
        let connections = examples::connect(&machine, &adapter, &client, &server)?;
        clients.push((client, server, connections));
    }

    let (mut results, mut refills, mut received) = ([Completion::EMPTY; 8], 0, [0; CLIENTS]);
    for message in 0..MESSAGES {
        for (number, (client, ..)) in clients.iter_mut().enumerate() {
            client.initiator.send_inline(message, &(number as u64).to_le_bytes(), Flags::empty())?;
        }
        let mut missing = CLIENTS;
        while missing > 0 {
            for done in server_cq.wait(&mut results, Notify::Any)? {
                let slot = done.ok()?;
                let mut bytes = [0; 8];
                mr.read(slot * SIZE as usize, &mut bytes)?;
                assert_eq!(u64::from_le_bytes(bytes), done.qp_context() as u64, "the message is the connection's own");
                received[done.qp_context()] += 1;
                missing -= 1;
                // The message has been read, so its buffer is posted again. A server that keeps messages for longer posts fresh
                // buffers when the callback tells it to.
                srq.receive(slot, &[mr.sge(slot * SIZE as usize, SIZE)?])?;
            }
        }
        if low.swap(false, Relaxed) {
            refills += 1;
            srq.notify_below(8)?.wait()?;
        }
        for done in sends.poll(&mut results) {
            done.ok()?;
        }
    }
    println!("messages per client: {received:?}, with {RECEIVES} receives; fewer than 8 were left {refills} times");
    assert_eq!(received, [MESSAGES; CLIENTS]);

    // Now show the callback: do not post buffers again, and soon fewer than 8 are left.
    for slot in 0..CLIENTS * 3 {
        clients[slot % CLIENTS].0.initiator.send_inline(0, &[0; 8], Flags::SILENT)?;
        while server_cq.wait(&mut results[..1], Notify::Any)?.is_empty() {}
    }
    while !low.load(Relaxed) {
        std::thread::yield_now();
    }
    println!("the queue has called back");
    Ok(())
}

#[test]
fn it_runs() -> Result<(), NtStatus> {
    main()
}

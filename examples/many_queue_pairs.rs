//! Many connections on one completion queue: a single callback handles the completions of all of them.
//!
//! `cargo run --example many_queue_pairs [CONNECTIONS [SEED]]`: with a seed it is the same run each time.

use std::{env, sync::mpsc};

use ndk::{Access, Completion, Flags, Notify, NtStatus, Operation, QpSizes, host::Loopback};

/// Number of connections, if the command line does not say another.
const CONNECTIONS: usize = 32;
/// Messages per connection.
const MESSAGES: usize = 8;
/// Size of a message.
const SIZE: u32 = 32;

fn main() -> Result<(), NtStatus> {
    let connections = env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(CONNECTIONS);
    let seed = env::args().nth(2).and_then(|word| word.parse().ok());
    let machine = seed.map_or_else(|| Loopback::start(1), |seed| Loopback::seeded(seed, 1))?;
    let adapter = machine.open(0)?;
    let pd = adapter.create_pd()?;
    let mr = pd.register(adapter.memory((SIZE as usize * connections).next_multiple_of(4096))?, Access::LOCAL_WRITE)?;

    // Deep enough for everything in flight on all connections: a queue that overruns breaks all of its queue pairs.
    let sizes = QpSizes { receives: 8, requests: 8, ..QpSizes::default() };
    let depth = u32::try_from(connections * 16).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let cq = adapter.create_cq(depth)?;
    let mut sends = adapter.create_cq(depth)?;
    let mut pairs = Vec::new();
    for number in 0..connections {
        let near = pd.create_qp(&sends, &sends, sizes, number)?;
        let mut far = pd.create_qp(&cq, &cq, sizes, number)?;
        for message in 0..MESSAGES {
            far.receiver.receive(message, &[mr.sge(SIZE as usize * number, SIZE)?])?;
        }
        let connection = examples::connect(&machine, &adapter, &near, &far)?;
        pairs.push((near, far, connection));
    }

    // The callback counts messages per queue pair, by the queue pair's context, and reports when all have arrived. A real
    // consumer would use that context to find the connection's state.
    let (tell, told) = mpsc::channel();
    let (mut received, mut left, mut callbacks) = (vec![0; connections], connections * MESSAGES, 0);
    let notified = cq.notify(Notify::Any, move |poller, status| {
        if status.is_error() {
            let _ = tell.send(Err(status));
            return;
        }
        callbacks += 1;
        let mut results = [Completion::EMPTY; 16];
        // Poll until nothing is left: an entry left behind may not cause another callback.
        loop {
            let done = poller.poll(&mut results);
            for one in done.iter().filter(|one| one.operation() == Some(Operation::Receive)) {
                if let Err(status) = one.ok() {
                    let _ = tell.send(Err(status));
                    return;
                }
                received[one.qp_context()] += 1;
                left -= 1;
            }
            if done.is_empty() {
                break;
            }
        }
        if left == 0 {
            let _ = tell.send(Ok((received.clone(), callbacks)));
        }
        poller.arm(Notify::Any);
    })?;

    // All messages of a connection start together: only the last post rings the doorbell.
    for (near, ..) in &mut pairs {
        for message in 0..MESSAGES {
            let flags = if message + 1 < MESSAGES { Flags::SILENT | Flags::DEFER } else { Flags::empty() };
            near.initiator.send(message, &[mr.sge(0, SIZE)?], flags)?;
        }
    }
    if seed.is_some() {
        // A machine with a seed runs only while somebody waits for it, and a channel is not its own.
        machine.machine().run_until_idle();
    }
    let (received, callbacks) = told.recv().unwrap_or(Err(NtStatus::CANCELLED))?;
    assert_eq!(received, vec![MESSAGES; connections]);
    println!("{} messages over {connections} connections, {callbacks} callbacks", connections * MESSAGES);

    // One completion per connection, that of its last send, which implies the silent ones before it.
    let (mut results, mut done) = ([Completion::EMPTY; 16], 0);
    while done < connections {
        for one in sends.wait(&mut results, Notify::Any)? {
            assert_eq!(one.ok()?, MESSAGES - 1);
            done += 1;
        }
    }
    drop(notified);
    Ok(())
}

#[test]
fn it_runs() -> Result<(), NtStatus> {
    main()
}

//! A request by message, its answer by RDMA write, and the end of the peer's access with the message that says so: how SMB
//! Direct reads a file.
//!
//! `cargo run --example write_and_invalidate`

use ndk::{Access, Completion, Cq, Flags, Notify, NtStatus, Operation, QpSizes, Remote, host::Loopback};

/// The answer.
const ANSWER: &[u8] = b"what the client asked for";

/// Waits for one completion and returns it if it is a success.
fn next(cq: &mut Cq) -> Result<Completion, NtStatus> {
    let mut results = [Completion::EMPTY; 1];
    let done = cq.wait(&mut results, Notify::Any)?;
    done.first().map_or(Err(NtStatus::CANCELLED), |one| one.ok().map(|_| *one))
}

fn main() -> Result<(), NtStatus> {
    let machine = Loopback::start(1)?;
    let adapter = machine.open(0)?;
    let pd = adapter.create_pd()?;
    let (mut client_cq, mut server_cq) = (adapter.create_cq(32)?, adapter.create_cq(32)?);
    let sizes = QpSizes::default();
    let mut client = pd.create_qp(&client_cq, &client_cq, sizes, 0)?;
    let mut server = pd.create_qp(&server_cq, &server_cq, sizes, 1)?;
    let connections = examples::connect(&machine, &adapter, &client, &server)?;

    // The client's memory: what a window gives to a peer the region must allow locally.
    let mut buffer = pd.register(adapter.memory(8192)?, Access::LOCAL_WRITE)?;
    let mut store = pd.register(adapter.memory(4096)?, Access::LOCAL_WRITE)?;
    store.write(0, ANSWER)?;

    // The client opens a window on the part of its memory where the answer is to go: nothing else can be written.
    let window = pd.create_mw()?;
    let (offset, length) = (4096, 256);
    client.initiator.bind(1, &window, &buffer, (offset, length), Access::REMOTE_WRITE, Flags::empty())?;
    assert_eq!(next(&mut client_cq)?.operation(), Some(Operation::Bind));

    // It asks: the message says where. The answer's message needs a receive, posted before the question goes out.
    let place = Remote { token: window.remote_token()?, ..buffer.remote(offset) };
    buffer.write(0, &place.to_bytes())?;
    server.receiver.receive(2, &[store.sge(1024, 12)?])?;
    client.receiver.receive(3, &[buffer.sge(64, 8)?])?;
    client.initiator.send(4, &[buffer.sge(0, 12)?], Flags::SILENT)?;

    // The server gets the question, writes the answer, and sends its length. Requests of one queue happen in their order, so the
    // client sees the bytes when it sees the message; and the message ends the server's access before the client sees it.
    assert_eq!(next(&mut server_cq)?.context(), 2);
    let mut bytes = [0; 12];
    store.read(1024, &mut bytes)?;
    let place = Remote::from_bytes(bytes);
    let count = u32::try_from(ANSWER.len()).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    store.write(2048, &u64::from(count).to_le_bytes())?;
    server.initiator.write(5, &[store.sge(0, count)?], place, Flags::SILENT)?;
    server.initiator.send_and_invalidate(6, &[store.sge(2048, 8)?], place.token, Flags::empty())?;
    assert_eq!(next(&mut server_cq)?.context(), 6);

    // The client gets the message. The completion names the token that it has lost its meaning: the window can be bound again,
    // and the buffer is the client's alone.
    let done = next(&mut client_cq)?;
    assert_eq!((done.context(), done.invalidated()), (3, Some(place.token)));
    let mut answer = [0; ANSWER.len()];
    buffer.read(offset, &mut answer)?;
    assert_eq!(answer, ANSWER);
    println!("answer: {}", String::from_utf8_lossy(&answer));

    // Who uses the token after that breaks the connection.
    server.initiator.write(7, &[store.sge(0, count)?], place, Flags::empty())?;
    let refused = next(&mut server_cq).err();
    println!("a second write: {}", refused.unwrap_or(NtStatus::SUCCESS));
    assert_eq!(refused, Some(NtStatus::REMOTE_RESOURCES));
    drop(connections);
    Ok(())
}

#[test]
fn it_runs() -> Result<(), NtStatus> {
    main()
}

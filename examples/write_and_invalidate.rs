//! A request by message, the answer by RDMA write, and a final message that also revokes the peer's access: how SMB Direct reads
//! a file.
//!
//! `cargo run --example write_and_invalidate`

use ndk::{Access, Completion, Cq, Flags, Notify, NtStatus, Operation, QpSizes, Remote, host::Loopback};

/// The answer.
const ANSWER: &[u8] = b"what the client asked for";

/// Waits for one completion, which must succeed.
fn next(cq: &mut Cq) -> Result<Completion, NtStatus> {
    let mut results = [Completion::EMPTY; 1];
    let done = cq.wait(&mut results, Notify::Any)?;
    done.first().map_or(Err(NtStatus::CANCELLED), |one| one.ok().map(|_| *one))
}

fn main() -> Result<(), NtStatus> {
    let machine = Loopback::start(1)?;
    let adapter = machine.open(0)?;
    let pd = adapter.create_pd()?;
    // The client's memory must allow locally what the window below will allow to the peer. Both regions are declared before the
    // queue pairs, so they drop after them (`NDKPI 7.4`).
    let mut buffer = pd.register(adapter.memory(8192)?, Access::LOCAL_WRITE)?;
    let mut store = pd.register(adapter.memory(4096)?, Access::LOCAL_WRITE)?;
    store.write(0, ANSWER)?;
    let (mut client_cq, mut server_cq) = (adapter.create_cq(32)?, adapter.create_cq(32)?);
    let sizes = QpSizes::default();
    let mut client = pd.create_qp(&client_cq, &client_cq, sizes, 0)?;
    let mut server = pd.create_qp(&server_cq, &server_cq, sizes, 1)?;
    let connections = examples::connect(&machine, &adapter, &client, &server)?;

    // The client opens a window on the part of its memory that is to receive the answer. The peer can write nowhere else.
    let window = pd.create_mw()?;
    let (offset, length) = (4096, 256);
    client.initiator.bind(1, &window, &buffer, (offset, length), Access::REMOTE_WRITE, Flags::empty())?;
    assert_eq!(next(&mut client_cq)?.operation(), Some(Operation::Bind));

    // The client's message says where to write. It posts a receive for the final message first.
    let place = Remote { token: window.remote_token()?, ..buffer.remote(offset) };
    buffer.write(0, &place.to_bytes())?;
    server.receiver.receive(2, &[store.sge(1024, 12)?])?;
    client.receiver.receive(3, &[buffer.sge(64, 8)?])?;
    client.initiator.send(4, &[buffer.sge(0, 12)?], Flags::SILENT)?;

    // The server gets the request, writes the answer, and sends its length. Requests of one queue are carried out in order, so
    // when the client gets the message the bytes are there. The message also revokes the server's access before the client gets
    // it.
    assert_eq!(next(&mut server_cq)?.context(), 2);
    let mut bytes = [0; 12];
    store.read(1024, &mut bytes)?;
    let place = Remote::from_bytes(bytes);
    let count = u32::try_from(ANSWER.len()).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    store.write(2048, &u64::from(count).to_le_bytes())?;
    server.initiator.write(5, &[store.sge(0, count)?], place, Flags::SILENT)?;
    server.initiator.send_and_invalidate(6, &[store.sge(2048, 8)?], place.token, Flags::empty())?;
    assert_eq!(next(&mut server_cq)?.context(), 6);

    // The client gets the message. Its completion names the token that was invalidated: the buffer is the client's alone again,
    // and the window can be bound again.
    let done = next(&mut client_cq)?;
    assert_eq!((done.context(), done.invalidated()), (3, Some(place.token)));
    let mut answer = [0; ANSWER.len()];
    buffer.read(offset, &mut answer)?;
    assert_eq!(answer, ANSWER);
    println!("answer: {}", String::from_utf8_lossy(&answer));

    // Using the token after that breaks the connection.
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

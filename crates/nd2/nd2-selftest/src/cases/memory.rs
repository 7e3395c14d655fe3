//! Memory regions and windows, and the flags that are not NDKPI's.

use std::{ptr, thread};

use nd2::abi::{
    HRESULT,
    mr_flags::{
        ND_MR_FLAG_ALLOW_LOCAL_WRITE, ND_MR_FLAG_ALLOW_REMOTE_READ, ND_MR_FLAG_ALLOW_REMOTE_WRITE,
        ND_MR_FLAG_DO_NOT_SECURE_VM, ND_MR_FLAG_RDMA_READ_SINK,
    },
    op_flags::{
        ND_OP_FLAG_ALLOW_READ, ND_OP_FLAG_ALLOW_WRITE, ND_OP_FLAG_INLINE, ND_OP_FLAG_READ_FENCE,
        ND_OP_FLAG_SEND_AND_SOLICIT_EVENT,
    },
};

use crate::{
    Case, Failure, World,
    case::{holds, is, ok},
    cases::results::take,
    client::{Overlapped, Piece, foreign},
    stream::{Stream, made},
};

pub const CASES: &[Case] = &[
    Case::new("region.register", "IND2MemoryRegion::Register", register),
    Case::new("region.deregister", "IND2MemoryRegion::Deregister", deregister),
    Case::new("region.deregister_waits_for_transfers", "IND2MemoryRegion::Deregister, return value 2", busy),
    Case::new("region.rights_of_a_read", "IND2MemoryRegion::Register, flags", read_sink),
    Case::new("window.grants_what_was_bound", "IND2MemoryWindow; IND2QueuePair::Bind", window),
    Case::new("window.needs_rights_of_its_region", "IND2QueuePair::Bind, return value 4", window_rights),
    Case::new("post.flags_are_those_of_nd", "NDSPI 5", flags),
    Case::new("post.inline_needs_no_region", "IND2QueuePair::Send, flags 4", inline),
    Case::new("post.own_memory_comes_first", "ND2_RESULT, table: ND_ACCESS_VIOLATION", own_first),
    Case::new("post.limits", "IND2QueuePair::Send, return values", limits),
    Case::new("post.reads_and_writes_move_bytes", "IND2QueuePair::Read; Write", read_write),
];

fn register(world: &World) -> Result<String, Failure> {
    let region = made("the region", world.adapter.region(world.file))?;
    let request = world.request();
    is("tokens before", (region.local_token(), region.remote_token()), (0, 0))?;
    let buffer = world.bytes(64)?;
    let at = buffer.pointer(0).cast();
    let flags = ND_MR_FLAG_ALLOW_LOCAL_WRITE;
    world.refuses(
        "no buffer",
        &request,
        region.register(ptr::null(), 64, flags, &request),
        HRESULT::ND_ACCESS_VIOLATION,
    )?;
    world.refuses("no bytes", &request, region.register(at, 0, flags, &request), HRESULT::ND_ACCESS_VIOLATION)?;
    world.refuses(
        "beyond the end",
        &request,
        region.register(at, usize::MAX >> 8, flags, &request),
        HRESULT::ND_INVALID_PARAMETER,
    )?;
    world.refuses("unknown flags", &request, region.register(at, 64, 0x10, &request), HRESULT::ND_INVALID_PARAMETER)?;
    world.now("Register", &region, &request, region.register(at, 64, flags | ND_MR_FLAG_DO_NOT_SECURE_VM, &request))?;
    holds("tokens", region.local_token() != 0 && region.remote_token() != 0)?;
    world.refuses("again", &request, region.register(at, 64, flags, &request), HRESULT::ND_INVALID_DEVICE_STATE)?;
    // The same bytes in another region.
    let other = made("another region", world.adapter.region(world.file))?;
    world.now("Register", &other, &request, other.register(at, 64, ND_MR_FLAG_ALLOW_REMOTE_READ, &request))?;
    holds("tokens of its own", other.local_token() != region.local_token())?;
    world.now("Deregister", &region, &request, region.deregister(&request))?;
    world.now("Deregister", &other, &request, other.deregister(&request))?;
    Ok("finished at return; two regions may have the same bytes".into())
}

fn deregister(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let (piece, request) = (world.memory(64, 0)?, world.request());
    let sge = piece.sge(0, 8);
    world.now("Deregister", &piece.region, &request, piece.region.deregister(&request))?;
    world.refuses("again", &request, piece.region.deregister(&request), HRESULT::ND_INVALID_DEVICE_STATE)?;
    stream.receive()?;
    ok("Send", stream.sender.send(1, &[sge], 0))?;
    is("a send of its bytes", take(world, &stream.sends, 1)?[0].Status, HRESULT::ND_ACCESS_VIOLATION)?;
    Ok("its token is no good any more".into())
}

/// As many bytes as take a while.
const LONG: usize = 1 << 20;

fn busy(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let window = made("the window", world.adapter.window())?;
    let (piece, request) = (world.memory(4096, ND_MR_FLAG_ALLOW_REMOTE_READ)?, world.request());
    ok("Bind", stream.sender.bind(1, &piece.region, &window, (piece.address(0), 64), ND_OP_FLAG_ALLOW_READ))?;
    take(world, &stream.sends, 1)?;
    world.refuses("with a window", &request, piece.region.deregister(&request), HRESULT::ND_DEVICE_BUSY)?;
    ok("Invalidate", stream.sender.invalidate(2, &window, 0))?;
    take(world, &stream.sends, 1)?;
    let result = piece.region.deregister(&request);
    world.succeeds("Deregister", &piece.region, &request, result)?;
    ok("nothing to cancel", piece.region.cancel())?;
    // While a transfer uses the bytes, if that can be had.
    let far = world.memory(LONG, ND_MR_FLAG_ALLOW_REMOTE_WRITE)?;
    let mut waited = 0;
    for _ in 0..8 {
        let near = world.registered(LONG, 0)?;
        let list = [near.sge(0, u32::try_from(LONG).unwrap_or(0))];
        ok("Write", stream.sender.write(3, &list, far.address(0), far.region.remote_token(), 0))?;
        thread::yield_now();
        let result = near.region.deregister(&request);
        // What still pends waits for the transfer.
        let written = if result.is_pending() && request.status().is_pending() {
            waited += 1;
            let cancel = near.region.cancel();
            let over = !request.status().is_pending();
            holds("ND_UNSUCCESSFUL while it waits", over || cancel == HRESULT::ND_UNSUCCESSFUL)?;
            world.ends("Deregister", &near.region, &request, HRESULT::ND_SUCCESS)?;
            true
        } else {
            world.succeeds("Deregister", &near.region, &request, result)?;
            false
        };
        let found = take(world, &stream.sends, 1)?[0].Status;
        if found != HRESULT::ND_SUCCESS {
            is("the write came too late", (found, written), (HRESULT::ND_ACCESS_VIOLATION, false))?;
            break;
        }
    }
    Ok(format!("ND_DEVICE_BUSY while a window is bound; {waited} waited for a transfer"))
}

fn read_sink(world: &World) -> Result<String, Failure> {
    let far = world.registered(64, ND_MR_FLAG_ALLOW_REMOTE_READ)?;
    far.buffer.write(0, b"far away");
    for (flags, status) in [
        (ND_MR_FLAG_RDMA_READ_SINK, HRESULT::ND_SUCCESS),
        (ND_MR_FLAG_ALLOW_LOCAL_WRITE, HRESULT::ND_SUCCESS),
        (0, HRESULT::ND_ACCESS_VIOLATION),
    ] {
        let stream = Stream::new(world, 8)?;
        let near = world.registered(64, flags)?;
        ok("Read", stream.sender.read(1, &[near.sge(0, 8)], far.address(0), far.region.remote_token(), 0))?;
        is("the read", take(world, &stream.sends, 1)?[0].Status, status)?;
        let bytes = if status == HRESULT::ND_SUCCESS { *b"far away" } else { [0; 8] };
        is("the bytes", near.buffer.bytes(0, 8), bytes.to_vec())?;
    }
    Ok("into a sink or bytes that may be written, and no others".into())
}

fn window(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let window = made("the window", world.adapter.window())?;
    is("before the first bind", window.remote_token(), 0)?;
    let far = world.memory(4096, 0)?;
    far.buffer.write(100, b"window");
    let rights = ND_OP_FLAG_ALLOW_READ | ND_OP_FLAG_ALLOW_WRITE;
    // The side that grants binds, the other reads and writes.
    ok("Bind", stream.receiver.bind(1, &far.region, &window, (far.address(100), 6), rights))?;
    let token = window.remote_token();
    holds("the token is there when Bind returns", token != 0)?;
    take(world, &stream.sends, 1)?;
    let list = [stream.memory.sge(0, 6)];
    ok("Read", stream.sender.read(2, &list, far.address(100), token, 0))?;
    is("the read", take(world, &stream.sends, 1)?[0].Status, HRESULT::ND_SUCCESS)?;
    is("the bytes", stream.memory.buffer.bytes(0, 6), b"window".to_vec())?;
    stream.memory.buffer.write(0, b"WINDOW");
    ok("Write", stream.sender.write(3, &list, far.address(100), token, 0))?;
    is("the write", take(world, &stream.sends, 1)?[0].Status, HRESULT::ND_SUCCESS)?;
    is("the bytes", far.buffer.bytes(100, 6), b"WINDOW".to_vec())?;
    ok("Invalidate", stream.receiver.invalidate(4, &window, ND_OP_FLAG_READ_FENCE))?;
    is("the invalidation", take(world, &stream.sends, 1)?[0].Status, HRESULT::ND_SUCCESS)?;
    ok("Read", stream.sender.read(5, &list, far.address(100), token, 0))?;
    is("a read after it", take(world, &stream.sends, 1)?[0].Status, HRESULT::ND_REMOTE_ERROR)?;
    Ok("read and write while bound, ND_REMOTE_ERROR after the invalidation".into())
}

fn window_rights(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let window = made("the window", world.adapter.window())?;
    let region = made("the region", world.adapter.region(world.file))?;
    let (buffer, request) = (world.bytes(64)?, world.request());
    let at = buffer.address(0);
    let bind = |place, flags| stream.sender.bind(1, &region, &window, place, flags);
    is("before it is registered", bind((at, 64), ND_OP_FLAG_ALLOW_READ), HRESULT::ND_ACCESS_VIOLATION)?;
    world.now(
        "Register",
        &region,
        &request,
        region.register(buffer.pointer(0).cast(), 64, ND_MR_FLAG_ALLOW_REMOTE_READ, &request),
    )?;
    is("write without local write", bind((at, 64), ND_OP_FLAG_ALLOW_WRITE), HRESULT::ND_ACCESS_VIOLATION)?;
    is("outside of the region", bind((at, 65), ND_OP_FLAG_ALLOW_READ), HRESULT::ND_ACCESS_VIOLATION)?;
    is("no right", bind((at, 64), 0), HRESULT::ND_INVALID_PARAMETER_6)?;
    let alone = stream.queue.as_ptr();
    let alone = made("a queue pair", world.adapter.qp(alone, alone, 0, crate::world::SIZES))?;
    let refused = alone.bind(1, &region, &window, (at, 64), ND_OP_FLAG_ALLOW_READ);
    is("not connected", refused, HRESULT::ND_CONNECTION_INVALID)?;
    is("the token, after what was refused", window.remote_token(), 0)?;
    ok("read", bind((at, 64), ND_OP_FLAG_ALLOW_READ))?;
    is("the bind", take(world, &stream.sends, 1)?[0].Status, HRESULT::ND_SUCCESS)?;
    ok("Invalidate", stream.sender.invalidate(2, &window, 0))?;
    take(world, &stream.sends, 1)?;
    let result = region.deregister(&request);
    holds("Deregister", result == HRESULT::ND_SUCCESS || result.is_pending())?;
    world.until("Deregister", || !request.status().is_pending())?;
    Ok("ND_ACCESS_VIOLATION inline".into())
}

fn flags(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let list = [stream.memory.sge(0, 8)];
    let (sender, far) = (&stream.sender, &stream.memory);
    let (at, token) = (far.address(0), far.region.remote_token());
    // 0x40 is NDKPI's flag for inline data, 0x08 and 0x10 are for windows only.
    for wrong in [0x08, 0x10, 0x40, 0x80, 0x8000_0000] {
        is("Send", sender.send(1, &list, wrong), HRESULT::ND_INVALID_PARAMETER_4)?;
    }
    for wrong in [ND_OP_FLAG_SEND_AND_SOLICIT_EVENT, ND_OP_FLAG_ALLOW_READ, 0x40] {
        is("Write", sender.write(1, &list, at, token, wrong), HRESULT::ND_INVALID_PARAMETER_6)?;
        is("Read", sender.read(1, &list, at, token, wrong), HRESULT::ND_INVALID_PARAMETER_6)?;
    }
    is("an inline read", sender.read(1, &list, at, token, ND_OP_FLAG_INLINE), HRESULT::ND_INVALID_PARAMETER_6)?;
    let window = made("the window", world.adapter.window())?;
    is("Invalidate", sender.invalidate(1, &window, ND_OP_FLAG_ALLOW_READ), HRESULT::ND_INVALID_PARAMETER_3)?;
    // One bit of it grants all that a write needs, unlike NDKPI's flag with the same number.
    let target = world.memory(64, 0)?;
    ok("Bind", stream.receiver.bind(1, &target.region, &window, (target.address(0), 8), ND_OP_FLAG_ALLOW_WRITE))?;
    take(world, &stream.sends, 1)?;
    let write = sender.write(2, &list, target.address(0), window.remote_token(), ND_OP_FLAG_INLINE);
    ok("an inline write through the window", write)?;
    is("the write", take(world, &stream.sends, 1)?[0].Status, HRESULT::ND_SUCCESS)?;
    Ok("what a request does not know is refused by the parameter's number".into())
}

fn inline(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let text = *b"inline!!";
    let own = foreign(text.as_ptr().expose_provenance() as u64, 1, 0);
    // More pieces than the queue pair has for others.
    let list: Vec<_> = (0..8_usize)
        .map(|index| nd2::abi::ND2_SGE { Buffer: own.Buffer.wrapping_byte_add(index), ..own })
        .map(|piece| nd2::abi::ND2_SGE { Buffer: ptr::with_exposed_provenance_mut(piece.Buffer.addr()), ..piece })
        .collect();
    ok("Receive", stream.receiver.receive(1, &[stream.memory.sge(4096, 64)]))?;
    ok("Send", stream.sender.send(1, &list, ND_OP_FLAG_INLINE))?;
    is("bytes", take(world, &stream.queue, 1)?[0].BytesTransferred, 8)?;
    is("the text", stream.memory.buffer.bytes(4096, 8), text.to_vec())?;
    let long = [stream.memory.sge(0, 129)];
    is("too many bytes", stream.sender.send(2, &long, ND_OP_FLAG_INLINE), HRESULT::ND_INVALID_BUFFER_SIZE)?;
    Ok("8 pieces outside of any region".into())
}

fn limits(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 256)?;
    let sge = stream.memory.sge(0, 8);
    is("too many pieces", stream.sender.send(1, &[sge; 5], 0), HRESULT::ND_DATA_OVERRUN)?;
    is("too many pieces", stream.receiver.receive(1, &[sge; 5]), HRESULT::ND_DATA_OVERRUN)?;
    let huge = nd2::abi::ND2_SGE { BufferLength: u32::MAX, ..sge };
    is("too many bytes", stream.sender.send(1, &[huge], 0), HRESULT::ND_BUFFER_OVERFLOW)?;
    let (at, token) = (stream.memory.address(0), stream.memory.region.remote_token());
    is("too many pieces of a read", stream.sender.read(1, &[sge; 4], at, token, 0), HRESULT::ND_DATA_OVERRUN)?;
    for _ in 0..64 {
        ok("Receive", stream.receiver.receive(1, &[sge]))?;
    }
    is("one too many", stream.receiver.receive(1, &[sge]), HRESULT::ND_NO_MORE_ENTRIES)?;
    let alone =
        made("a queue pair", world.adapter.qp(stream.queue.as_ptr(), stream.queue.as_ptr(), 0, crate::world::SIZES))?;
    is("not connected", alone.send(1, &[sge], 0), HRESULT::ND_CONNECTION_INVALID)?;
    ok("receives need no connection", alone.receive(1, &[sge]))?;
    // What was refused did no harm.
    ok("Send", stream.sender.send(2, &[sge], 0))?;
    is("the send", take(world, &stream.sends, 1)?[0].Status, HRESULT::ND_SUCCESS)?;
    Ok("ND_DATA_OVERRUN, ND_BUFFER_OVERFLOW, ND_NO_MORE_ENTRIES, ND_CONNECTION_INVALID".into())
}

fn read_write(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let far = world.memory(1 << 16, ND_MR_FLAG_ALLOW_REMOTE_READ | ND_MR_FLAG_ALLOW_REMOTE_WRITE)?;
    let near = world.memory(1 << 16, 0)?;
    let bytes: Vec<u8> = (0..1 << 16).map(|index: u32| index.to_le_bytes()[index as usize % 2]).collect();
    near.buffer.write(0, &bytes);
    let parts = [near.sge(0, 1000), near.sge(1000, 60_000), near.sge(61_000, 4536)];
    ok("Write", stream.sender.write(1, &parts, far.address(0), far.region.remote_token(), 0))?;
    is("the write", take(world, &stream.sends, 1)?[0].Status, HRESULT::ND_SUCCESS)?;
    holds("the bytes that were written", far.buffer.bytes(0, 1 << 16) == bytes)?;
    near.buffer.fill(0);
    ok("Read", stream.sender.read(2, &parts, far.address(0), far.region.remote_token(), 0))?;
    is("the read", take(world, &stream.sends, 1)?[0].Status, HRESULT::ND_SUCCESS)?;
    holds("the bytes that were read", near.buffer.bytes(0, 1 << 16) == bytes)?;
    Ok("65536 bytes in three pieces, there and back".into())
}

fn own_first(world: &World) -> Result<String, Failure> {
    let beyond = |piece: &Piece| [piece.sge(0, 9000)];
    let far = world.memory(64, ND_MR_FLAG_ALLOW_REMOTE_WRITE)?;
    let stream = Stream::new(world, 8)?;
    // Neither side has so much.
    let (at, token) = (far.address(0), far.region.remote_token());
    ok("Write", stream.sender.write(1, &beyond(&stream.memory), at, token, 0))?;
    is("the write", take(world, &stream.sends, 1)?[0].Status, HRESULT::ND_ACCESS_VIOLATION)?;
    let stream = Stream::new(world, 8)?;
    stream.receive()?;
    ok("Send", stream.sender.send(2, &beyond(&stream.memory), 0))?;
    is("the send", take(world, &stream.sends, 1)?[0].Status, HRESULT::ND_ACCESS_VIOLATION)?;
    // It is the connection that ends, and not the receive that was too short.
    is("the peer's receive", take(world, &stream.queue, 1)?[0].Status, HRESULT::ND_CANCELED)?;
    Ok("ND_ACCESS_VIOLATION, whatever is wrong at the peer, whose receive is not used".into())
}

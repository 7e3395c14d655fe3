//! `rping` of librdmacm: what its two sides say to each other.
//!
//! The client sends address, key and size of a buffer; the server reads it, and says so. The client sends those of a second one; the
//! server writes what it has read, and says so. Numbers are big-endian.

use std::time::{Duration, Instant};

use ndk::{Flags, Mr, Remote, RemoteToken};

use super::{
    fault::Fault,
    line::{End, MESSAGE},
};

/// The largest buffer that a server takes.
const MOST: u32 = 16 << 20;

fn encode(region: &Mr, size: u32) -> [u8; MESSAGE] {
    let remote = region.remote(0);
    let mut message = [0; MESSAGE];
    message[..8].copy_from_slice(&remote.address.to_be_bytes());
    message[8..12].copy_from_slice(&remote.token.to_bits().to_be_bytes());
    message[12..].copy_from_slice(&size.to_be_bytes());
    message
}

fn decode(message: &[u8; MESSAGE]) -> (Remote, u32) {
    let mut address = [0; 8];
    address.copy_from_slice(&message[..8]);
    let word = |at: usize| u32::from_be_bytes([message[at], message[at + 1], message[at + 2], message[at + 3]]);
    let token = RemoteToken::from_bits(word(8));
    (Remote { address: u64::from_be_bytes(address), token }, word(12))
}

/// The bytes of a ping: as many of rping's as fit.
pub fn data(ping: u32, size: u32) -> Vec<u8> {
    let mut data = format!("rdma-ping-{ping}: ").into_bytes();
    data.truncate(size as usize);
    #[expect(clippy::cast_possible_truncation, reason = "letters")]
    data.extend((data.len() as u32..size).map(|index| 65 + ((index + ping) % 58) as u8));
    // rping's is a string.
    if size > 20 {
        data.truncate(size as usize - 1);
        data.push(0);
    }
    data
}

/// The client's buffers.
pub struct Client {
    source: Mr,
    sink: Mr,
    size: u32,
}

impl Client {
    /// Buffers of a size.
    pub fn new(end: &End<'_, '_>, size: u32) -> Result<Self, Fault> {
        Ok(Self { source: end.region(size as usize)?, sink: end.region(size as usize)?, size })
    }

    /// One ping; the time that it took.
    pub fn ping(&mut self, end: &mut End<'_, '_>, ping: u32) -> Result<Duration, Fault> {
        let failed = |status| Fault::of("memory", status);
        let data = data(ping, self.size);
        self.source.write(0, &data).map_err(failed)?;
        self.sink.write(0, &vec![0; data.len()]).map_err(failed)?;
        let begun = Instant::now();
        end.tell(&encode(&self.source, self.size))?;
        end.message("the server's word that it has read")?;
        end.tell(&encode(&self.sink, self.size))?;
        end.message("the server's word that it has written")?;
        let took = begun.elapsed();
        let mut came = vec![0; data.len()];
        self.sink.read(0, &mut came).map_err(failed)?;
        let wrong = came.iter().zip(&data).position(|(came, sent)| came != sent);
        wrong.map_or(Ok(took), |at| Err(Fault::WrongData(format!("ping {ping}, byte {at} of {}", data.len()))))
    }
}

/// Answers pings until the peer has gone; returns how many, and their bytes.
pub fn serve(end: &mut End<'_, '_>) -> Result<(u64, u64), Fault> {
    const MOVE: usize = 1;
    let failed = |status| Fault::of("a request", status);
    let (mut pings, mut bytes) = (0, 0);
    let mut room = end.region(64 << 10)?;
    loop {
        let first = match end.message("a source") {
            Err(fault) if end.is_end(&fault) => return Ok((pings, bytes)),
            message => message?,
        };
        let (source, size) = decode(&first);
        if size == 0 || size > MOST {
            return Err(Fault::WrongData(format!("the client speaks of {size} bytes: is it rping?")));
        }
        if size as usize > room.length() {
            room = end.region(size as usize)?;
        }
        let element = room.sge(0, size).map_err(failed)?;
        end.qp.initiator.read(MOVE, &[element], source, Flags::empty()).map_err(failed)?;
        end.completed("the read of the source")?;
        end.tell(&[0; MESSAGE])?;
        let (sink, length) = decode(&end.message("a sink")?);
        if length < size {
            return Err(Fault::WrongData(format!("the client's sink has {length} bytes, its source {size}")));
        }
        let element = room.sge(0, size).map_err(failed)?;
        end.qp.initiator.write(MOVE, &[element], sink, Flags::empty()).map_err(failed)?;
        end.post_tell(&[0; MESSAGE])?;
        // A client that has its bytes knows whether they are right, and may have gone before its ACK is here: of both, for it is one.
        for what in ["the write to the sink", "the last word"] {
            match end.completed(what) {
                Err(fault) if end.is_end(&fault) => return Ok((pings + 1, bytes + u64::from(size))),
                done => done?,
            };
        }
        pings += 1;
        bytes += u64::from(size);
    }
}

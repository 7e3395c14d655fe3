//! `ucmatose` of librdmacm: the server sends messages, the client answers with as many, the server disconnects. Sizes and counts are not
//! said on the wire: both sides have to be told. Its bytes are any, so only lengths are compared.

use ndk::{Flags, Mr};

use super::{fault::Fault, line::End};

/// Where it listens.
pub const PORT: u16 = 7471;
/// Messages of a connection at most.
pub const MOST: u32 = 1000;

/// One side. All receives are for the same bytes, as there.
pub struct Side {
    size: u32,
    count: u32,
    buffer: Mr,
}

impl Side {
    /// Posts the receives. The end has a depth of at least `count`.
    pub fn new(end: &mut End<'_, '_>, size: u32, count: u32) -> Result<Self, Fault> {
        let failed = |status| Fault::of("a receive", status);
        let buffer = end.region(2 * size as usize)?;
        for _ in 0..count {
            let element = buffer.sge(size as usize, size).map_err(failed)?;
            end.qp.receiver.receive(0, &[element]).map_err(failed)?;
        }
        Ok(Self { size, count, buffer })
    }

    fn send(&self, end: &mut End<'_, '_>) -> Result<(), Fault> {
        let failed = |status| Fault::of("a send", status);
        for _ in 0..self.count {
            let element = self.buffer.sge(0, self.size).map_err(failed)?;
            end.qp.initiator.send(0, &[element], Flags::empty()).map_err(failed)?;
        }
        (0..self.count).try_for_each(|_| end.completed("a send").map(drop))
    }

    fn receive(&self, end: &mut End<'_, '_>) -> Result<(), Fault> {
        for number in 0..self.count {
            let (_, bytes) = end.received("a message")?;
            if bytes != self.size {
                return Err(Fault::WrongData(format!("message {number} has {bytes} bytes and not {}", self.size)));
            }
        }
        Ok(())
    }

    /// The server's part, but for the disconnect.
    pub fn serve(&self, end: &mut End<'_, '_>) -> Result<(u64, u64), Fault> {
        self.send(end)?;
        self.receive(end)?;
        Ok((self.count.into(), u64::from(self.count) * u64::from(self.size)))
    }

    /// The client's part. The server disconnects.
    pub fn ask(&self, end: &mut End<'_, '_>) -> Result<(), Fault> {
        self.receive(end)?;
        match self.send(end) {
            Err(fault) if end.is_end(&fault) => return Ok(()),
            sent => sent?,
        }
        end.wait_for_the_end()
    }
}

//! Latency and bandwidth between two of this program.
//!
//! The client's private data name what it measures and the size of its messages; the server's, the buffer to use: address, key, and how
//! many messages may wait there. Behind the buffer the server keeps how many messages came, and how many were wrong.

use std::time::{Duration, Instant};

use ndk::{Flags, Mr, Remote, RemoteToken, host::at_dispatch};

use super::{
    fault::Fault,
    line::{End, MESSAGE},
};

/// How private data of this begin.
const MAGIC: [u8; 8] = *b"SNDKWIRE";
/// Messages on their way at most.
pub const DEPTH: u32 = 16;
/// Bytes of messages that may wait at a server.
const ROOM: u32 = 16 << 20;
/// Bytes behind the buffer: messages that came, messages that were wrong.
const STATUS: usize = 16;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Send,
    Write,
    Read,
}

impl Kind {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub kind: Kind,
    pub size: u32,
}

impl Wanted {
    /// Private data for the server.
    pub fn encode(self) -> Vec<u8> {
        let kind = match self.kind {
            Kind::Send => 1,
            Kind::Write => 2,
            Kind::Read => 3,
        };
        [&MAGIC[..], &[kind], &self.size.to_be_bytes()].concat()
    }

    /// What a client's private data say; `None` if it is rping.
    pub fn decode(private: &[u8]) -> Option<Self> {
        let rest = private.strip_prefix(&MAGIC)?;
        let kind = match rest.first()? {
            1 => Kind::Send,
            2 => Kind::Write,
            3 => Kind::Read,
            _ => return None,
        };
        let size = u32::from_be_bytes(*rest.get(1..)?.first_chunk()?);
        (1..=ROOM).contains(&size).then_some(Self { kind, size })
    }

    /// Messages on their way at a time.
    fn depth(self) -> u32 {
        (ROOM / self.size).clamp(1, DEPTH)
    }
}

/// The bytes of a message.
fn data(number: u32, size: u32) -> Vec<u8> {
    #[expect(clippy::cast_possible_truncation, reason = "any byte does")]
    (0..size).map(|index| (index ^ (index >> 8) ^ number.wrapping_mul(31)) as u8).collect()
}

/// The server's side of a measurement.
pub struct Server {
    wanted: Wanted,
    buffer: Mr,
}

impl Server {
    /// Makes the buffer, and posts the receives.
    pub fn new(end: &mut End<'_, '_>, wanted: Wanted) -> Result<Self, Fault> {
        let failed = |status| Fault::of("the server's buffer", status);
        let slots = if wanted.kind == Kind::Send { wanted.depth() } else { 1 };
        let mut buffer = end.region((slots * wanted.size) as usize + STATUS)?;
        if wanted.kind == Kind::Read {
            buffer.write(0, &data(0, wanted.size)).map_err(failed)?;
        }
        let this = Self { wanted, buffer };
        if wanted.kind == Kind::Send {
            (0..slots).try_for_each(|slot| this.post(end, slot as usize))?;
        }
        Ok(this)
    }

    fn post(&self, end: &mut End<'_, '_>, slot: usize) -> Result<(), Fault> {
        let failed = |status| Fault::of("a receive", status);
        let element = self.buffer.sge(slot * self.wanted.size as usize, self.wanted.size).map_err(failed)?;
        at_dispatch(|| end.qp.receiver.receive(slot, &[element])).map_err(failed)
    }

    /// Bytes of a message.
    pub const fn size(&self) -> u32 {
        self.wanted.size
    }

    /// Private data for the client.
    pub fn encode(&self) -> Vec<u8> {
        let remote = self.buffer.remote(0);
        let numbers = [remote.token.to_bits().to_be_bytes(), self.wanted.depth().to_be_bytes()].concat();
        [&MAGIC[..], &remote.address.to_be_bytes(), &numbers].concat()
    }

    fn status_at(&self) -> usize {
        self.buffer.length() - STATUS
    }

    /// Serves until the client has gone; returns how many messages came, and their bytes.
    pub fn serve(&mut self, end: &mut End<'_, '_>) -> Result<(u64, u64), Fault> {
        let failed = |status| Fault::of("the server's buffer", status);
        let (mut count, mut wrong) = (0_u32, 0_u64);
        let mut came = vec![0; self.wanted.size as usize];
        loop {
            match end.received("a message") {
                Err(fault) if end.is_end(&fault) => break,
                // Writes and reads are nothing that the server hears of.
                Err(Fault::Silent(_)) if self.wanted.kind != Kind::Send => {}
                Err(fault) => return Err(fault),
                Ok((slot, bytes)) => {
                    self.buffer.read(slot * came.len(), &mut came).map_err(failed)?;
                    wrong += u64::from(bytes != self.wanted.size || came != data(count, self.wanted.size));
                    count += 1;
                    let status = [u64::from(count).to_be_bytes(), wrong.to_be_bytes()].concat();
                    let at = self.status_at();
                    self.buffer.write(at, &status).map_err(failed)?;
                    self.post(end, slot)?;
                    match end.tell(&[0; MESSAGE]) {
                        Err(fault) if end.is_end(&fault) => break,
                        told => told?,
                    }
                }
            }
        }
        if wrong > 0 {
            return Err(Fault::WrongData(format!("{wrong} of {count} messages")));
        }
        Ok((count.into(), u64::from(count) * u64::from(self.wanted.size)))
    }
}

/// The client's side of a measurement.
pub struct Client {
    wanted: Wanted,
    buffer: Mr,
    remote: Remote,
    depth: u32,
    /// Messages that were sent, of both parts.
    sent: u32,
}

impl Client {
    /// Takes the server's private data.
    pub fn new(end: &End<'_, '_>, wanted: Wanted, private: &[u8]) -> Result<Self, Fault> {
        let no_server =
            || Fault::Other("the peer is no `ndkctl wire serve`: --send, --write and --read need one".to_owned());
        let rest: &[u8; 16] = private.strip_prefix(&MAGIC).and_then(|rest| rest.first_chunk()).ok_or_else(no_server)?;
        let word = |at: usize| u32::from_be_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
        let address = u64::from(word(0)) << 32 | u64::from(word(4));
        let depth = word(12).clamp(1, wanted.depth());
        let buffer = end.region((depth * wanted.size) as usize + STATUS)?;
        let remote = Remote { address, token: RemoteToken::from_bits(word(8)) };
        Ok(Self { wanted, buffer, remote, depth, sent: 0 })
    }

    fn fill(&mut self, slot: u32, number: u32) -> Result<(), Fault> {
        let bytes = data(number, self.wanted.size);
        self.buffer.write((slot * self.wanted.size) as usize, &bytes).map_err(|status| Fault::of("memory", status))
    }

    fn post(&self, end: &mut End<'_, '_>, slot: u32) -> Result<(), Fault> {
        let failed = |status| Fault::of(self.wanted.kind.name(), status);
        let element = [self.buffer.sge((slot * self.wanted.size) as usize, self.wanted.size).map_err(failed)?];
        let context = slot as usize;
        let requests = &mut end.qp.initiator;
        at_dispatch(|| match self.wanted.kind {
            Kind::Send => requests.send(context, &element, Flags::empty()),
            Kind::Write => requests.write(context, &element, self.remote, Flags::empty()),
            Kind::Read => requests.read(context, &element, self.remote, Flags::empty()),
        })
        .map_err(failed)
    }

    /// Waits until one request is done: for a send, that the server has taken it.
    fn done(&self, end: &mut End<'_, '_>) -> Result<(), Fault> {
        end.completed(self.wanted.kind.name())?;
        if self.wanted.kind == Kind::Send {
            end.message("the server's word")?;
        }
        Ok(())
    }

    /// Reads from the server, and compares.
    fn check(&mut self, end: &mut End<'_, '_>, number: u32) -> Result<(), Fault> {
        let (size, what) = (self.wanted.size, self.wanted.kind.name());
        let failed = |status| Fault::of("the check", status);
        let expected = match self.wanted.kind {
            Kind::Read => data(0, size),
            _ => data(number, size),
        };
        if self.wanted.kind == Kind::Write {
            self.buffer.write(0, &vec![!expected[0]; size as usize]).map_err(failed)?;
            let element = self.buffer.sge(0, size).map_err(failed)?;
            end.qp.initiator.read(0, &[element], self.remote, Flags::empty()).map_err(failed)?;
            end.completed("the check")?;
        }
        let mut came = vec![0; size as usize];
        self.buffer.read(0, &mut came).map_err(failed)?;
        let wrong = came.iter().zip(&expected).position(|(came, sent)| came != sent);
        wrong.map_or(Ok(()), |at| Err(Fault::WrongData(format!("{what} {number}, byte {at} of {size}"))))
    }

    /// Requests one at a time. `seen` gets the number and the time of each.
    pub fn one_by_one(
        &mut self,
        end: &mut End<'_, '_>,
        count: u32,
        mut seen: impl FnMut(u32, Duration),
    ) -> Result<(), Fault> {
        // Writes are read back now and then: each one would measure the reads too.
        let every = (count / 16).max(1);
        for number in 1..=count {
            self.fill(0, self.sent)?;
            let begun = Instant::now();
            self.post(end, 0)?;
            self.done(end)?;
            seen(number, begun.elapsed());
            let last = self.sent;
            self.sent += 1;
            if self.wanted.kind == Kind::Read || (self.wanted.kind == Kind::Write && number.is_multiple_of(every)) {
                self.check(end, last)?;
            }
        }
        Ok(())
    }

    /// Requests several at a time; returns how long they took.
    pub fn together(
        &mut self,
        end: &mut End<'_, '_>,
        count: u32,
        mut seen: impl FnMut(u32),
    ) -> Result<Duration, Fault> {
        let first = self.sent;
        if self.wanted.kind != Kind::Send {
            (0..self.depth).try_for_each(|slot| self.fill(slot, first))?;
        }
        let begun = Instant::now();
        let (mut posted, mut done) = (0, 0);
        while done < count {
            while posted < count && posted - done < self.depth {
                let slot = posted % self.depth;
                if self.wanted.kind == Kind::Send {
                    self.fill(slot, first + posted)?;
                }
                self.post(end, slot)?;
                posted += 1;
            }
            self.done(end)?;
            done += 1;
            seen(done);
        }
        let took = begun.elapsed();
        self.sent += count;
        if self.wanted.kind != Kind::Send {
            self.check(end, first)?;
        }
        Ok(took)
    }

    /// Asks the server what came.
    pub fn verify(&self, end: &mut End<'_, '_>) -> Result<(), Fault> {
        if self.wanted.kind != Kind::Send {
            return Ok(());
        }
        let failed = |status| Fault::of("the server's count", status);
        let at = self.buffer.length() - STATUS;
        let status_at = u64::from(self.wanted.depth()) * u64::from(self.wanted.size);
        let element = self.buffer.sge(at, 16).map_err(failed)?;
        end.qp.initiator.read(0, &[element], self.remote.offset(status_at), Flags::empty()).map_err(failed)?;
        end.completed("the server's count")?;
        let mut status = [0; STATUS];
        self.buffer.read(at, &mut status).map_err(failed)?;
        let expected = [u64::from(self.sent).to_be_bytes(), [0; 8]].concat();
        if status[..] == expected[..] {
            return Ok(());
        }
        Err(Fault::WrongData(format!("the server counts {status:?} (messages, wrong ones) after {}", self.sent)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Wanted, data};

    #[test]
    fn what_a_client_wants_survives_its_private_data() {
        for kind in [Kind::Send, Kind::Write, Kind::Read] {
            let wanted = Wanted { kind, size: 70_000 };
            let mut private = wanted.encode();
            assert!(private.len() <= 56, "a REQ has no more");
            private.resize(56, 0);
            assert_eq!(Wanted::decode(&private), Some(wanted));
        }
        assert_eq!(Wanted::decode(&[0; 56]), None, "rping sends none");
        assert_eq!(Wanted::decode(&Wanted { kind: Kind::Send, size: 17 << 20 }.encode()), None);
        assert_eq!(Wanted::decode(b"SNDKWIRE"), None);
    }

    #[test]
    fn messages_differ() {
        assert_ne!(data(0, 64), data(1, 64));
        assert_eq!(data(3, 1000)[..64], data(3, 64)[..]);
    }
}

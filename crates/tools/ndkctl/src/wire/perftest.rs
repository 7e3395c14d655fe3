//! perftest's tests over connections of `RDMA_CM` (`ib_send_bw -R` and the like): what its two sides say to each other.
//!
//! There are two connections. Over the first one the sides agree: version, sizes of buffers and cache lines, MTU, and a record with the key
//! and the address of a buffer, several times over. The second one is measured. In each exchange the client speaks first, with a SEND, and the
//! server answers with as many bytes. Which test it is, the size and the count of messages are not said: both sides have to be told. The bytes
//! of messages are any.
//!
//! Versions 5.70 and later of perftest speak so; from 6.28 on, two of them agree on sizes too, but not with an older one, which this is.

#![expect(
    clippy::cast_possible_truncation,
    reason = "lengths of words, completions of a batch, the number of an MTU: all small"
)]

use std::time::{Duration, Instant};

use clap::ValueEnum;
use ndk::{
    Completion, Connection, Flags, Incoming, Mr, NtStatus, Offer, Remote, RemoteToken,
    host::{at_dispatch, rest},
};

use super::{
    fault::Fault,
    line::{Driving, End, Line, READS},
};

/// Where it listens.
pub const PORT: u16 = 18515;

/// The version that this speaks, as text in 16 bytes; and the oldest one that it understands.
const VERSION: [u8; 16] = *b"6.06\0\0\0\0\0\0\0\0\0\0\0\0";
const OLDEST: f32 = 5.70;

/// Bytes of a buffer in which small messages go round, and of a cache line: numbers that the sides agree on by taking the larger one.
const CYCLE: u32 = 4096;
const CACHE_LINE: u32 = 64;
/// The largest buffer of that kind that a peer may ask for.
const MOST_CYCLE: u32 = 1 << 20;

/// Messages on their way, and receives that wait, as perftest has it.
const DEPTH: u32 = 128;
const RECEIVES: u32 = 512;
/// Of so many messages one has a completion.
const MODERATION: u32 = 100;
/// Completions that are taken at a time.
const BATCH: usize = 16;

/// Bytes of a record.
const RECORD: usize = 56;
/// Receives for what the peer says: it speaks once, and waits.
const WORDS: usize = 4;

/// A test of perftest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Test {
    /// `ib_send_bw`.
    SendBw,
    /// `ib_write_bw`.
    WriteBw,
    /// `ib_read_bw`.
    ReadBw,
    /// `ib_send_lat`.
    SendLat,
    /// `ib_write_lat`.
    WriteLat,
    /// `ib_read_lat`.
    ReadLat,
}

impl Test {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SendBw => "ib_send_bw",
            Self::WriteBw => "ib_write_bw",
            Self::ReadBw => "ib_read_bw",
            Self::SendLat => "ib_send_lat",
            Self::WriteLat => "ib_write_lat",
            Self::ReadLat => "ib_read_lat",
        }
    }

    const fn is_send(self) -> bool {
        matches!(self, Self::SendBw | Self::SendLat)
    }

    /// How often records are exchanged between the connect and the first message.
    const fn handshakes(self) -> u32 {
        match self {
            Self::WriteBw | Self::ReadBw => 3,
            Self::SendBw | Self::SendLat | Self::WriteLat | Self::ReadLat => 4,
        }
    }

    /// The client says how fast it was.
    const fn reports(self) -> bool {
        matches!(self, Self::WriteBw | Self::ReadBw)
    }

    /// The sides say that they have finished.
    const fn says_the_end(self) -> bool {
        !matches!(self, Self::WriteLat)
    }
}

/// A test with what both sides have to be told.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub test: Test,
    /// Bytes of a message.
    pub size: u32,
    /// Messages.
    pub count: u32,
}

/// What a side says of its buffer. The rest of a record - LID, queue pair, PSN, GID - is for the eye when `RDMA_CM` connects.
fn record(remote: Remote) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[4..8].copy_from_slice(&READS.to_be_bytes());
    record[16..20].copy_from_slice(&remote.token.to_bits().to_be_bytes());
    record[24..32].copy_from_slice(&remote.address.to_be_bytes());
    record
}

fn buffer_of(record: &[u8; RECORD]) -> Remote {
    let word = |at: usize| u32::from_be_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
    let address = u64::from(word(24)) << 32 | u64::from(word(28));
    Remote { address, token: RemoteToken::from_bits(word(16)) }
}

/// The number that a version begins with.
fn number_of(version: &[u8]) -> Option<f32> {
    let text = std::str::from_utf8(version.split(|byte| *byte == 0).next()?).ok()?;
    text.trim().parse().ok()
}

/// The first connection.
struct Control<'line, 'run> {
    end: End<'line, 'run>,
    words: Mr,
    is_client: bool,
}

impl<'line, 'run> Control<'line, 'run> {
    fn new(line: &'line Line<'run>, is_client: bool) -> Result<Self, Fault> {
        let end = End::new(line, WORDS as u32)?;
        let words = end.region(RECORD * (WORDS + 1))?;
        let mut this = Self { end, words, is_client };
        (0..WORDS).try_for_each(|slot| this.post(slot))?;
        Ok(this)
    }

    fn post(&mut self, slot: usize) -> Result<(), Fault> {
        let failed = |status| Fault::of("a receive", status);
        let element = self.words.sge(RECORD * (slot + 1), RECORD as u32).map_err(failed)?;
        at_dispatch(|| self.end.qp.receiver.receive(slot, &[element])).map_err(failed)
    }

    fn say(&mut self, word: &[u8]) -> Result<(), Fault> {
        let failed = |status| Fault::of("a word to perftest", status);
        self.words.write(0, word).map_err(failed)?;
        let element = self.words.sge(0, word.len() as u32).map_err(failed)?;
        at_dispatch(|| self.end.qp.initiator.send(0, &[element], Flags::empty())).map_err(failed)?;
        self.end.completed("a word to perftest").map(drop)
    }

    fn hear<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        const WHAT: &str = "perftest's word";
        let (slot, bytes) = self.end.received(WHAT)?;
        if bytes as usize != N {
            let what =
                format!("{WHAT} has {bytes} bytes and not {N}: is it the same test, and of version 5.70 or later?");
            return Err(Fault::WrongData(what));
        }
        let mut word = [0; N];
        self.words.read(RECORD * (slot + 1), &mut word).map_err(|status| Fault::of(WHAT, status))?;
        self.post(slot)?;
        Ok(word)
    }

    /// Waits for the client's next word as long as its test takes: writes and reads are nothing that a server hears of.
    fn outlast<const N: usize>(&mut self, ours: [u8; N]) -> Result<[u8; N], Fault> {
        let theirs = loop {
            match self.hear() {
                Err(Fault::Silent(_)) if !self.end.gone.is_set() => {}
                heard => break heard?,
            }
        };
        self.say(&ours)?;
        Ok(theirs)
    }

    fn exchange<const N: usize>(&mut self, ours: [u8; N]) -> Result<[u8; N], Fault> {
        if self.is_client {
            self.say(&ours)?;
            return self.hear();
        }
        let theirs = self.hear()?;
        self.say(&ours)?;
        Ok(theirs)
    }

    /// What comes before the second connection; returns the bytes that a buffer has at least.
    fn agree(&mut self, path_mtu: u32) -> Result<u32, Fault> {
        let version = self.exchange(VERSION)?;
        if number_of(&version).is_none_or(|version| version < OLDEST) {
            let version = String::from_utf8_lossy(&version).trim_end_matches('\0').to_owned();
            return Err(Fault::Other(format!(
                "the peer's perftest is version {version:?}, and 5.70 is the oldest known"
            )));
        }
        let cycle = u32::from_be_bytes(self.exchange(CYCLE.to_be_bytes())?);
        if cycle > MOST_CYCLE {
            return Err(Fault::WrongData(format!("the peer asks for a buffer of {cycle} bytes")));
        }
        self.exchange(CACHE_LINE.to_be_bytes())?;
        // The number of the MTU, as text: 1 for 256, 5 for 4096.
        let number = path_mtu.ilog2().saturating_sub(7) as u8;
        self.exchange([b'0' + number, 0])?;
        self.exchange([0; RECORD])?;
        Ok(cycle.max(CYCLE))
    }
}

/// The second connection's queue pair, and its buffer: one half is sent, the other one received.
struct Side<'line, 'run> {
    end: End<'line, 'run>,
    buffer: Mr,
    half: usize,
    wanted: Wanted,
    /// The peer's buffer.
    remote: Remote,
}

impl<'line, 'run> Side<'line, 'run> {
    fn new(line: &'line Line<'run>, wanted: Wanted, cycle: u32) -> Result<Self, Fault> {
        let end = End::new(line, RECEIVES)?;
        let half = wanted.size.max(cycle) as usize;
        let buffer = end.region(2 * half)?;
        let mut this =
            Self { end, buffer, half, wanted, remote: Remote { address: 0, token: RemoteToken::from_bits(0) } };
        if wanted.test.is_send() {
            at_dispatch(|| (0..RECEIVES).try_for_each(|_| this.receive()))?;
        }
        Ok(this)
    }

    fn receive(&mut self) -> Result<(), Fault> {
        let failed = |status| Fault::of("a receive", status);
        let element = self.buffer.sge(self.half, self.wanted.size).map_err(failed)?;
        self.end.qp.receiver.receive(0, &[element]).map_err(failed)
    }

    /// Posts a request. At `DISPATCH_LEVEL`, so that several leave together.
    fn post(&mut self, flags: Flags) -> Result<(), Fault> {
        let failed = |status| Fault::of("a request", status);
        let element = [self.buffer.sge(0, self.wanted.size).map_err(failed)?];
        let requests = &mut self.end.qp.initiator;
        match self.wanted.test {
            Test::SendBw | Test::SendLat => requests.send(0, &element, flags),
            Test::WriteBw | Test::WriteLat => requests.write(0, &element, self.remote, flags),
            Test::ReadBw | Test::ReadLat => requests.read(0, &element, self.remote, flags),
        }
        .map_err(failed)
    }

    /// Whether request `number` has a completion.
    const fn flags(&self, number: u32) -> Flags {
        let is_last = number + 1 == self.wanted.count;
        if is_last || (number + 1).is_multiple_of(MODERATION) { Flags::empty() } else { Flags::SILENT }
    }

    /// Exchanges records as often as the test has it.
    fn shake_hands(&mut self, control: &mut Control<'_, '_>) -> Result<(), Fault> {
        let ours = record(self.buffer.remote(self.half));
        control.exchange(ours)?;
        for _ in 0..self.wanted.test.handshakes() {
            self.remote = buffer_of(&control.exchange(ours)?);
        }
        Ok(())
    }

    /// The client's part of a test of bandwidth.
    fn together(&mut self, seen: &mut dyn FnMut(u32)) -> Result<(), Fault> {
        let count = self.wanted.count;
        let (mut posted, mut done) = (0, 0);
        let mut place = [Completion::EMPTY; BATCH];
        while done < count {
            at_dispatch(|| {
                while posted < count && posted - done < DEPTH {
                    let flags = self.flags(posted);
                    self.post(flags)?;
                    posted += 1;
                }
                Ok::<_, Fault>(())
            })?;
            for completion in self.end.some_completed(&mut place, "a request")? {
                completion.ok().map_err(|status| End::fault("a request", status))?;
                done = (done + MODERATION).min(count);
            }
            seen(done);
        }
        Ok(())
    }

    /// Takes messages. `answer` sends one for each.
    fn take(&mut self, count: u32, answer: bool) -> Result<(), Fault> {
        let mut place = [Completion::EMPTY; BATCH];
        let (mut came, mut sent) = (0, 0);
        while came < count {
            let mut failed = Ok(());
            let some = self.end.some_received(&mut place, "a message")?;
            came += some.len() as u32;
            for completion in some {
                if failed.is_ok() {
                    failed = match completion.ok() {
                        Err(status) => Err(End::fault("a message", status)),
                        Ok(_) if completion.bytes() != self.wanted.size => Err(Fault::WrongData(format!(
                            "a message has {} bytes and not {}",
                            completion.bytes(),
                            self.wanted.size
                        ))),
                        Ok(_) => Ok(()),
                    };
                }
            }
            failed?;
            let some = some.len();
            at_dispatch(|| {
                for _ in 0..some {
                    self.receive()?;
                    if answer {
                        let flags = self.flags(sent);
                        self.post(flags)?;
                        sent += 1;
                    }
                }
                Ok::<_, Fault>(())
            })?;
            if answer && !self.flags(sent - 1).contains(Flags::SILENT) {
                self.end.completed("an answer")?;
            }
        }
        Ok(())
    }

    /// The client's part of a test of latency with sends. A sample is half a round trip.
    fn send_and_hear(&mut self, seen: &mut dyn FnMut(u32, Option<Duration>)) -> Result<(), Fault> {
        for number in 0..self.wanted.count {
            let begun = Instant::now();
            let flags = self.flags(number);
            at_dispatch(|| self.post(flags))?;
            self.take(1, false)?;
            seen(number + 1, Some(begun.elapsed() / 2));
            if !flags.contains(Flags::SILENT) {
                self.end.completed("a message")?;
            }
        }
        Ok(())
    }

    /// Reads, one at a time.
    fn one_by_one(&mut self, seen: &mut dyn FnMut(u32, Option<Duration>)) -> Result<(), Fault> {
        for number in 0..self.wanted.count {
            let begun = Instant::now();
            at_dispatch(|| self.post(Flags::empty()))?;
            self.end.completed("a read")?;
            seen(number + 1, Some(begun.elapsed()));
        }
        Ok(())
    }

    /// Either part of a test of latency with writes: the last byte of a message is its number, and who waits looks at that. The server begins.
    /// A sample is half a round trip: from a write to the next one of the peer.
    fn write_and_look(
        &mut self,
        driving: &mut Option<Driving>,
        is_client: bool,
        seen: &mut dyn FnMut(u32, Option<Duration>),
    ) -> Result<(), Fault> {
        let last = self.wanted.size as usize - 1;
        let mut written: Option<Instant> = None;
        for number in 1..=self.wanted.count {
            let mark = number.to_be_bytes()[3];
            if is_client {
                self.look_for(driving, mark)?;
                seen(number, written.map(|written| written.elapsed() / 2));
            }
            written = Some(Instant::now());
            self.buffer.write(last, &[mark]).map_err(|status| Fault::of("memory", status))?;
            at_dispatch(|| self.post(Flags::empty()))?;
            self.end.completed("a write")?;
            if !is_client {
                self.look_for(driving, mark)?;
            }
        }
        Ok(())
    }

    fn look_for(&self, driving: &mut Option<Driving>, mark: u8) -> Result<(), Fault> {
        let at = self.half + self.wanted.size as usize - 1;
        let begun = Instant::now();
        let mut byte = [0];
        loop {
            self.buffer.read(at, &mut byte).map_err(|status| Fault::of("memory", status))?;
            if byte[0] == mark {
                return Ok(());
            }
            match driving {
                Some(driving) => _ = driving.turn(Duration::from_millis(1)),
                None => std::thread::yield_now(),
            }
            self.end.still_there(begun, "the peer's write")?;
        }
    }
}

/// What a client has measured.
pub struct Measured {
    /// How long all messages took together, of a test of bandwidth.
    pub together: Option<Duration>,
    /// How long the second connect took.
    pub connect: Duration,
}

/// Tries again as long as nobody listens yet.
pub fn until_there<T>(
    line: &Line<'_>,
    patience: Duration,
    mut attempt: impl FnMut() -> Result<T, Fault>,
) -> Result<T, Fault> {
    let end_of_patience = Instant::now() + patience;
    loop {
        match attempt() {
            Err(Fault::NoNeighbour(_) | Fault::Refused(_) | Fault::Silent(_)) if Instant::now() < end_of_patience => {
                line.go_on()?;
                std::thread::sleep(AGAIN);
            }
            outcome => return outcome,
        }
    }
}

/// How long a program waits before it asks a peer again that is not there yet.
const AGAIN: Duration = Duration::from_millis(300);
/// How long a server may take from the first connection to the second listener.
const LISTENS: Duration = Duration::from_secs(10);

fn offer() -> Offer<'static> {
    Offer { inbound_reads: READS, outbound_reads: READS, private_data: &[] }
}

/// The client. `seen` gets how many messages are done, and how long the last one took if that is measured.
pub fn ask(
    line: &Line<'_>,
    target: std::net::SocketAddr,
    wanted: Wanted,
    wait: Duration,
    seen: &mut dyn FnMut(u32, Option<Duration>),
) -> Result<Measured, Fault> {
    let (mut control, first) = until_there(line, wait, || {
        let control = Control::new(line, true)?;
        let (connection, _) = line.connect(&control.end.qp, target, &offer(), &control.end.gone)?;
        Ok((control, connection))
    })?;
    let cycle = control.agree(line.path_mtu())?;
    let (mut side, second, connect) = until_there(line, LISTENS, || {
        let side = Side::new(line, wanted, cycle)?;
        let begun = Instant::now();
        let (connection, _) = line.connect(&side.end.qp, target, &offer(), &side.end.gone)?;
        Ok((side, connection, begun.elapsed()))
    })?;
    let mut driving = line.drive(wanted.size);
    side.shake_hands(&mut control)?;
    let begun = Instant::now();

    let is_bandwidth = match wanted.test {
        Test::SendBw | Test::WriteBw | Test::ReadBw => {
            side.together(&mut |done| seen(done, None))?;
            true
        }
        Test::SendLat => side.send_and_hear(seen).map(|()| false)?,
        Test::ReadLat => side.one_by_one(seen).map(|()| false)?,
        Test::WriteLat => side.write_and_look(&mut driving, true, seen).map(|()| false)?,
    };
    let took = begun.elapsed();
    if wanted.test.reports() {
        control.exchange([0; RECORD])?;
        let rate = f64::from(wanted.count) / took.as_secs_f64();
        let bandwidth = rate * f64::from(wanted.size) / f64::from(1 << 20);
        let numbers = [
            u64::from(wanted.size).to_be_bytes(),
            u64::from(wanted.count).to_be_bytes(),
            bandwidth.to_be_bytes(),
            bandwidth.to_be_bytes(),
            (rate / 1e6).to_be_bytes(),
        ];
        numbers.into_iter().try_for_each(|number| control.exchange(number).map(drop))?;
    }
    if wanted.test.says_the_end() {
        control.exchange([0; RECORD])?;
    }
    drop(driving);
    end(&second, &side.end)?;
    end(&first, &control.end)?;
    Ok(Measured { together: is_bandwidth.then_some(took), connect })
}

/// Disconnects, unless the peer has done so first: a server that has finished does.
fn end(connection: &Connection, end: &End<'_, '_>) -> Result<(), Fault> {
    let ended = connection.disconnect().and_then(ndk::Pending::wait);
    ended.or_else(|status| if end.gone.is_set() { Ok(()) } else { Err(Fault::of("disconnect", status)) })
}

/// The server of one test, whose client's first connection has come; `next` waits for the second one. Returns how many messages it knows of:
/// writes and reads are nothing that a server hears of, so there it is what its client says.
pub fn answer(
    line: &Line<'_>,
    wanted: Wanted,
    first: Incoming,
    next: impl FnOnce() -> Result<Incoming, Fault>,
) -> Result<u64, Fault> {
    let accept = |incoming: Incoming, end: &End<'_, '_>| {
        let failed = |status: NtStatus| Fault::of("accept", status);
        let gone = end.gone.clone();
        incoming.accept(&end.qp, &offer(), move || gone.set()).map_err(failed)?.wait().map_err(failed)
    };
    let mut control = Control::new(line, false)?;
    let first = accept(first, &control.end)?;
    let cycle = control.agree(line.path_mtu())?;
    let mut side = Side::new(line, wanted, cycle)?;
    let second = accept(next()?, &side.end)?;
    let mut driving = line.drive(wanted.size);
    let served = (|| {
        side.shake_hands(&mut control)?;
        let mut count = u64::from(wanted.count);
        match wanted.test {
            Test::SendBw => side.take(wanted.count, false)?,
            Test::SendLat => side.take(wanted.count, true)?,
            Test::WriteLat => side.write_and_look(&mut driving, false, &mut |_, _| {})?,
            Test::WriteBw | Test::ReadBw | Test::ReadLat => {}
        }
        if wanted.test.reports() {
            control.outlast([0; RECORD])?;
            control.exchange(u64::from(wanted.size).to_be_bytes())?;
            count = u64::from_be_bytes(control.exchange(count.to_be_bytes())?);
            // Peak, mean, rate: the client's are what was measured.
            (0..3).try_for_each(|_| control.exchange([0; 8]).map(drop))?;
        }
        if wanted.test.says_the_end() {
            control.outlast([0; RECORD])?;
        }
        Ok(count)
    })();
    if served.is_ok() {
        // The client disconnects both.
        side.end.wait_for_the_end()?;
        control.end.wait_for_the_end()?;
    }
    drop(driving);
    for (connection, end) in [(second, &side.end), (first, &control.end)] {
        if !end.gone.is_set() {
            // This side has found something wrong: the peer should know.
            let _ = connection.disconnect().and_then(ndk::Pending::wait);
        }
    }
    served
}

/// Waits for the next connection, while this thread may drive the adapter.
pub fn next(line: &Line<'_>, requests: &std::sync::mpsc::Receiver<Incoming>) -> Result<Incoming, Fault> {
    let begun = Instant::now();
    loop {
        if let Ok(incoming) = requests.try_recv() {
            return Ok(incoming);
        }
        line.go_on()?;
        if begun.elapsed() > line.patience() {
            return Err(Fault::Silent("perftest's second connection".to_owned()));
        }
        rest(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use ndk::{Remote, RemoteToken};

    use super::{OLDEST, RECORD, VERSION, buffer_of, number_of, record};

    #[test]
    fn a_record_has_key_and_address_where_perftest_has_them() {
        let remote = Remote { address: 0x1122_3344_5566_7788, token: RemoteToken::from_bits(0x99AA_BBCC) };
        let bytes = record(remote);
        assert_eq!(bytes[16..20], [0x99, 0xAA, 0xBB, 0xCC]);
        assert_eq!(bytes[24..32], [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
        let read = buffer_of(&bytes);
        assert_eq!((read.address, read.token.to_bits()), (remote.address, remote.token.to_bits()));
        // Five numbers, one of eight bytes at a multiple of eight, a GID, two numbers.
        assert_eq!(5 * 4 + 4 + 8 + 16 + 2 * 4, RECORD);
    }

    #[test]
    fn versions_are_numbers() {
        assert!(number_of(&VERSION).is_some_and(|version| version > OLDEST));
        assert_eq!(number_of(b"5.60\0\0\0\0"), Some(5.60));
        assert_eq!(number_of(b"\0\0\0\0"), None);
        assert_eq!(number_of(b"x.y"), None);
        assert_eq!(number_of(&[0xFF; 16]), None);
    }
}

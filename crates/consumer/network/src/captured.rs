//! A segment whose frames are written to a file that Wireshark reads.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use smoltcp::{
    phy::{PcapLinkType, PcapSink},
    time,
};

use crate::segment::Segment;

/// A segment that writes a capture, in the format pcap: what is sent through it, and what it receives.
pub struct Captured<S> {
    segment: S,
    sink: Mutex<Sink>,
}

/// Where a capture goes, until the first error.
struct Sink {
    file: Box<dyn Write + Send>,
    failed: Option<io::Error>,
}

impl PcapSink for Sink {
    fn write(&mut self, data: &[u8]) {
        if self.failed.is_none() {
            self.failed = self.file.write_all(data).err();
        }
    }
}

impl Sink {
    fn note(&mut self, frame: &[u8]) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.packet(time::Instant::from_micros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX)), frame);
    }

    fn finish(&mut self) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)?;
        self.file.flush()
    }
}

impl<S: Segment> Captured<S> {
    /// Captures to a file, which is overwritten.
    ///
    /// # Errors
    ///
    /// The file cannot be made.
    pub fn to_file(segment: S, path: &Path) -> io::Result<Self> {
        Self::new(segment, Box::new(BufWriter::new(File::create(path)?)))
    }

    /// Captures to what can be written to.
    ///
    /// # Errors
    ///
    /// The header cannot be written.
    pub fn new(segment: S, file: Box<dyn Write + Send>) -> io::Result<Self> {
        let mut sink = Sink { file, failed: None };
        sink.global_header(PcapLinkType::Ethernet);
        sink.failed.take().map_or(Ok(()), Err)?;
        Ok(Self { segment, sink: Mutex::new(sink) })
    }

    fn note(&self, frame: &[u8]) {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner).note(frame);
    }

    /// Writes what is not yet in the file.
    ///
    /// # Errors
    ///
    /// The first error since the last call: frames after it are missing.
    pub fn finish(&self) -> io::Result<()> {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner).finish()
    }

    /// What is captured.
    #[must_use]
    pub const fn inner(&self) -> &S {
        &self.segment
    }
}

impl<S: Segment> Segment for Captured<S> {
    fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.note(frame);
        self.segment.send(frame)
    }

    fn send_all(&self, frames: &[&[u8]]) -> io::Result<()> {
        for frame in frames {
            self.note(frame);
        }
        self.segment.send_all(frames)
    }

    fn receive(&self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        self.segment.receive(patience, &mut |frame| {
            self.note(frame);
            take(frame);
        })
    }

    fn longest(&self) -> usize {
        self.segment.longest()
    }

    fn describe(&self) -> String {
        self.segment.describe()
    }
}

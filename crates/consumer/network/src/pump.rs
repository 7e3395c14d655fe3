//! A thread that brings frames in.

use std::{
    io,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::Segment;

/// How long one look at the segment takes at most: how late the end is noticed.
const LOOK: Duration = Duration::from_millis(20);

/// Brings the frames of a segment in, on a thread of its own, until it is finished or dropped.
pub struct Pump {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Pump {
    /// Gives `take` each frame that comes.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub fn start(segment: Arc<dyn Segment>, mut take: impl FnMut(&[u8]) + Send + 'static) -> io::Result<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let over = ends.clone();
        let thread = thread::Builder::new().name("frames".to_owned()).spawn(move || {
            while !over.load(Acquire) {
                segment.receive(LOOK, &mut take)?;
            }
            Ok(())
        })?;
        Ok(Self { ends, thread: Some(thread) })
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// The segment has failed, and nothing has come in since; or `take` has panicked.
    pub fn finish(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.ends.store(true, Release);
        let panicked = |_| Err(io::Error::other("the thread for frames has panicked"));
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or_else(panicked))
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        // Who wants to know how it went finishes it.
        let _ = self.end();
    }
}

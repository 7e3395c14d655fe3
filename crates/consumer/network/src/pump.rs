//! A thread that brings frames in.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::Segment;

/// How long one look at the segment takes at most: how late the end is noticed.
const LOOK: Duration = Duration::from_millis(20);

/// Brings the frames of a segment in, on a thread of its own, until it is finished or dropped.
pub struct Pump {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ends: bool,
    /// Somebody else takes the frames.
    is_aside: bool,
    /// The thread does not look at the segment.
    rests: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits while somebody else takes the frames. Returns false when it is to end.
    fn goes_on(&self) -> bool {
        let mut state = self.lock();
        while state.is_aside && !state.ends {
            state.rests = true;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.rests = state.ends;
        !state.ends
    }
}

/// Says that the thread has ended, however it did: nobody has to wait for it then.
struct Resting<'shared>(&'shared Shared);

impl Drop for Resting<'_> {
    fn drop(&mut self) {
        self.0.change(|state| (state.ends, state.rests) = (true, true));
    }
}

/// While this lives, a pump leaves the frames to whoever has it.
pub struct Aside(Arc<Shared>);

impl Drop for Aside {
    fn drop(&mut self) {
        self.0.change(|state| state.is_aside = false);
    }
}

impl Pump {
    /// Gives `take` each frame that comes.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub fn start(segment: Arc<dyn Segment>, mut take: impl FnMut(&[u8]) + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let thread = thread::Builder::new().name("frames".to_owned()).spawn(move || {
            let _resting = Resting(&own);
            while own.goes_on() {
                segment.receive(LOOK, &mut take)?;
            }
            Ok(())
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Lets the caller take the frames: when this returns, the thread does not look at the segment, until what it returns is dropped.
    /// `None` if somebody has that already. Takes as long as a look at the segment does, 20 milliseconds at most.
    #[must_use]
    pub fn aside(&self) -> Option<Aside> {
        let mut state = self.shared.lock();
        if std::mem::replace(&mut state.is_aside, true) {
            return None;
        }
        while !state.rests {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        Some(Aside(self.shared.clone()))
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
        self.shared.change(|state| state.ends = true);
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

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::SeqCst},
        },
        time::{Duration, Instant},
    };

    use super::Pump;
    use crate::{Impairment, Segment, memory};

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn who_has_the_pump_aside_gets_the_frames_and_the_pump_goes_on_behind_it() {
        let [near, far] = memory::pair(Impairment::default(), 1);
        let (near, far) = (near, Arc::new(far));
        let pumped = Arc::new(AtomicUsize::new(0));
        let count = pumped.clone();
        let pump = Pump::start(far.clone(), move |_| {
            count.fetch_add(1, SeqCst);
        })
        .expect("a thread");
        let wait_for = |frames| {
            let begun = Instant::now();
            while pumped.load(SeqCst) < frames {
                assert!(begun.elapsed() < PATIENCE, "{frames} frames");
                std::thread::yield_now();
            }
        };
        for round in 1..=3 {
            near.send(&[0; 60]).expect("a segment");
            wait_for(round);
            let aside = pump.aside().expect("nobody has it");
            assert!(pump.aside().is_none(), "once");
            near.send(&[0; 60]).expect("a segment");
            assert_eq!(far.receive(PATIENCE, &mut |_| {}).expect("a segment"), 1, "the frame is still there");
            assert_eq!(pumped.load(SeqCst), round);
            drop(aside);
        }
        pump.finish().expect("it has not failed");
    }

    #[test]
    fn a_pump_ends_while_it_is_aside() {
        let [_near, far] = memory::pair(Impairment::default(), 1);
        let pump = Pump::start(Arc::new(far), |_| {}).expect("a thread");
        let aside = pump.aside();
        pump.finish().expect("it has not failed");
        drop(aside);
    }
}

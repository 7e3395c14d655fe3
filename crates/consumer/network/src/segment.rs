//! What all segments have in common.

use std::{io, sync::Arc, time::Duration};

/// An Ethernet segment, from one of its ends. Any thread may send; one at a time should receive.
pub trait Segment: Send + Sync {
    /// Puts a frame onto the segment. It may be lost there: an error means that the end itself does not work.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a frame longer than [`longest`](Self::longest); otherwise what the system says.
    fn send(&self, frame: &[u8]) -> io::Result<()>;

    /// Puts frames onto the segment, in this order: with one system call for many where the system can.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send); frames before the one that failed are on their way.
    fn send_all(&self, frames: &[&[u8]]) -> io::Result<()> {
        frames.iter().try_for_each(|frame| self.send(frame))
    }

    /// Waits for a frame, at most so long, and gives `take` it and those that are there with it. Returns how many; none means that
    /// the time has run out. With no time it takes what is there.
    ///
    /// # Errors
    ///
    /// What the system says.
    fn receive(&self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<usize>;

    /// Bytes of the longest frame, without a frame check sequence.
    fn longest(&self) -> usize;

    /// What it is, for people: `VXLAN 42 from 0.0.0.0:4789 to 192.0.2.1:4789`.
    fn describe(&self) -> String;
}

/// Passes the trait's functions on to what is pointed to.
macro_rules! pass_on {
    ($pointer:ident) => {
        impl<S: Segment + ?Sized> Segment for $pointer<S> {
            fn send(&self, frame: &[u8]) -> io::Result<()> {
                (**self).send(frame)
            }

            fn send_all(&self, frames: &[&[u8]]) -> io::Result<()> {
                (**self).send_all(frames)
            }

            fn receive(&self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
                (**self).receive(patience, take)
            }

            fn longest(&self) -> usize {
                (**self).longest()
            }

            fn describe(&self) -> String {
                (**self).describe()
            }
        }
    };
}
pass_on!(Arc);
pass_on!(Box);

/// The error for a frame that does not fit.
pub fn too_long(frame: &[u8], longest: usize) -> io::Error {
    let what = format!("a frame of {} bytes; the segment takes {longest}", frame.len());
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

//! A cable made of a function.

use engine::wire::Cable;

/// Frames that the function gets with one call. A wire sends fewer at a time.
const BATCH: usize = 32;

/// A [`Cable`] that is a function which sends frames, in their order: for example `Segment::send_all` of the crate `network`.
///
/// The function is called as [`Cable::send_all`] is, with 1 to 32 frames. What it cannot send is lost, as on any wire.
///
/// ```
/// use std::sync::mpsc;
///
/// use ndk::host::{Cable, Outlet};
///
/// let (sender, frames) = mpsc::channel();
/// let cable = Outlet(move |some: &[&[u8]]| some.iter().for_each(|frame| drop(sender.send(frame.to_vec()))));
/// cable.send_all(&mut [&[1][..], &[2]].into_iter());
/// assert_eq!(frames.try_iter().collect::<Vec<_>>(), [[1], [2]]);
/// ```
pub struct Outlet<F>(pub F);

impl<F: Fn(&[&[u8]]) + Send + Sync + 'static> Cable for Outlet<F> {
    fn send(&self, frame: &[u8]) {
        (self.0)(&[frame]);
    }

    fn send_all(&self, frames: &mut dyn Iterator<Item = &[u8]>) {
        let mut some: [&[u8]; BATCH] = [&[]; BATCH];
        loop {
            let count = some.iter_mut().zip(&mut *frames).map(|(place, frame)| *place = frame).count();
            if count > 0 {
                (self.0)(&some[..count]);
            }
            if count < BATCH {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, vec::Vec};

    use super::{BATCH, Cable, Outlet};

    /// How many frames each call of the function has had, of so many, which have to come whole and in order.
    fn calls(frames: usize) -> Vec<usize> {
        let (sender, calls) = mpsc::channel();
        let cable = Outlet(move |some: &[&[u8]]| {
            sender.send(some.iter().map(|frame| frame.to_vec()).collect::<Vec<_>>()).expect("the test is there");
        });
        let sent: Vec<[u8; 2]> = (0..frames).map(|number| u16::try_from(number).expect("few").to_be_bytes()).collect();
        cable.send_all(&mut sent.iter().map(<[u8; 2]>::as_slice));
        drop(cable);
        let calls: Vec<_> = calls.iter().collect();
        assert_eq!(calls.concat(), sent);
        calls.iter().map(Vec::len).collect()
    }

    #[test]
    fn each_frame_goes_once_and_in_order() {
        assert_eq!(calls(0), [0; 0]);
        assert_eq!(calls(1), [1]);
        assert_eq!(calls(BATCH), [BATCH]);
        assert_eq!(calls(2 * BATCH + 1), [BATCH, BATCH, 1]);
    }
}

//! What goes as one where the system takes it apart, and one by one where it does not.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// Sends all items, in their order. `join` finds those at the front that can go as one, and says how many they are; `together` sends them,
/// and returns false if the system does not take them so: from then on nothing goes as one. What goes by itself has `alone`, up to
/// `batch` items with one call.
///
/// # Errors
///
/// The first of `together` and `alone`.
pub fn send<'items, T, Joined>(
    items: &'items [T],
    takes_apart: &AtomicBool,
    batch: usize,
    join: impl Fn(&'items [T]) -> Option<(Joined, usize)>,
    together: impl Fn(&Joined) -> io::Result<bool>,
    alone: impl Fn(&[T]) -> io::Result<()>,
) -> io::Result<()> {
    let join = |items| if takes_apart.load(Relaxed) { join(items) } else { None };
    let (mut rest, mut next) = (items, join(items));
    while !rest.is_empty() {
        let count = if let Some((joined, count)) = next.take() {
            if !together(&joined)? {
                // One by one from now on, these too.
                takes_apart.store(false, Relaxed);
                continue;
            }
            count
        } else {
            // Those before the next ones that can go as one.
            let mut count = 1;
            while count < rest.len().min(batch) {
                next = join(&rest[count..]);
                if next.is_some() {
                    break;
                }
                count += 1;
            }
            alone(&rest[..count])?;
            count
        };
        rest = &rest[count..];
        next = next.or_else(|| join(rest));
    }
    Ok(())
}

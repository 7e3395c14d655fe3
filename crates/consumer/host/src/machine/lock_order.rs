//! Checks the order of spin locks, as Linux' lockdep and Driver Verifier do: it learns the order while locks are used.
//!
//! A thread that acquires a lock while it holds others states an order. Locks of different classes are ordered by class. A cycle
//! of orders is a deadlock, even if no timing has shown it yet. Locks of one class are ordered one by one, as far as the table
//! of recent pairs remembers.

use std::{
    cell::Cell,
    ops::Range,
    panic::Location,
    sync::{Mutex, PoisonError},
};

use super::{
    rules::{Rule, broken},
    spin_lock::LockName,
    thread::{HeldLock, ThreadState},
};

/// A thread acquired `second` while it held `first`.
#[derive(Clone, Copy)]
struct Order {
    first: &'static str,
    second: &'static str,
    first_place: &'static Location<'static>,
    second_place: &'static Location<'static>,
}

/// Two locks of one class, in the order in which they were acquired.
#[derive(Clone, Copy)]
struct Pair {
    class: &'static str,
    first: u64,
    second: u64,
    place: &'static Location<'static>,
}

/// How many pairs are remembered.
const PAIRS: usize = 1024;

struct Known {
    /// Every order between classes that was seen. There are few: one for each nesting of critical sections in the program.
    classes: Vec<Order>,
    /// The last pairs that were seen. A new pair replaces an older one in its slot.
    pairs: [Option<Pair>; PAIRS],
}

/// Orders of classes that a thread remembers. A power of two.
const REMEMBERED: usize = 64;

/// Two classes, in the order in which locks of them were acquired.
type Classes = (&'static str, &'static str);

thread_local! {
    /// Orders that are in the table, so that a thread does not wait for the table each time: orders of classes are never forgotten.
    static SEEN: [Cell<Option<Classes>>; REMEMBERED] = const { [const { Cell::new(None) }; REMEMBERED] };
}

/// Runs `work` on the place where this thread remembers an order, if it does.
fn remembered<U>((first, second): Classes, work: impl FnOnce(&Cell<Option<Classes>>) -> U) -> U {
    // Names of types lie side by side, so their addresses differ in the lower bits.
    let mixed = first.as_ptr().addr().wrapping_mul(31) ^ second.as_ptr().addr();
    SEEN.with(|seen| work(&seen[(mixed ^ mixed >> 6) % REMEMBERED]))
}

/// Returns true if this thread knows that the order is in the table. By address: one name at two addresses is looked up more often, not
/// wrongly.
fn has_seen(classes: Classes) -> bool {
    let is = |(first, second): Classes| std::ptr::eq(first, classes.0) && std::ptr::eq(second, classes.1);
    remembered(classes, |place| place.get().is_some_and(is))
}

/// One table for all machines: lock classes belong to the program.
static KNOWN: Mutex<Known> = Mutex::new(Known { classes: Vec::new(), pairs: [None; PAIRS] });

/// Checks that the current thread may acquire `name` while it holds what it holds.
pub fn check(state: &ThreadState, name: LockName, place: &'static Location<'static>) {
    for held in state.held() {
        let is_pair = held.name.class == name.class;
        if !is_pair && has_seen((held.name.class, name.class)) {
            continue;
        }
        let conflict = {
            let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
            if is_pair { known.pair(held, name, place) } else { known.class(held, name, place) }
        };
        if let Some((first, second)) = conflict {
            broken(
                Rule::LockOrder,
                format_args!(
                    "{name} acquired at {place} while holding {} from {}; the other order was seen: {first}, then {second}",
                    held.name, held.place
                ),
            );
        }
    }
}

/// Forgets the pairs of the locks of `class` with these numbers: they are gone, and other locks may get their numbers.
pub fn forget(class: &str, instances: &Range<u64>) {
    let is_gone =
        |pair: &Pair| (instances.contains(&pair.first) || instances.contains(&pair.second)) && pair.class == class;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    for place in &mut known.pairs {
        place.take_if(|pair| is_gone(pair));
    }
}

/// The two places that prove the other order.
type Conflict = (&'static Location<'static>, &'static Location<'static>);

impl Known {
    fn class(&mut self, held: HeldLock, name: LockName, place: &'static Location<'static>) -> Option<Conflict> {
        let (first, second) = (held.name.class, name.class);
        let remember = || remembered((first, second), |place| place.set(Some((first, second))));
        if self.classes.iter().any(|order| order.first == first && order.second == second) {
            remember();
            return None;
        }
        if let Some(order) = self.path(second, first) {
            return Some((order.first_place, order.second_place));
        }
        // Without memory the order stays unknown: better than to end the program inside a test of failing allocations.
        if self.classes.try_reserve(1).is_ok() {
            self.classes.push(Order { first, second, first_place: held.place, second_place: place });
            remember();
        }
        None
    }

    /// The first step of a path from `from` to `to`, if there is one.
    fn path(&self, from: &str, to: &str) -> Option<Order> {
        // The orders known so far contain no circle, so this comes to an end.
        let steps = self.classes.iter().filter(|order| order.first == from);
        steps.copied().find(|order| order.second == to || self.path(order.second, to).is_some())
    }

    fn pair(&mut self, held: HeldLock, name: LockName, place: &'static Location<'static>) -> Option<Conflict> {
        let (first, second) = (held.name.instance, name.instance);
        let mixed = first.min(second).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ first.max(second);
        let slot = &mut self.pairs[usize::try_from(mixed % PAIRS as u64).unwrap_or(0)];
        if let Some(pair) = *slot
            && pair.class == name.class
            && pair.first == second
            && pair.second == first
        {
            return Some((pair.place, pair.place));
        }
        *slot = Some(Pair { class: name.class, first, second, place });
        None
    }
}

//! Objects of the kernel on the stack: an event that is local to a function is gone when the function has returned.
//!
//! Nobody tells the kernel when a function of a driver returns. But when a driver calls a routine, everything below its stack pointer is
//! gone, and when it returns to the kernel, everything that was its. What is gone is noted then; a use of it afterwards, by the completion
//! of a request that was not waited for, is a broken rule.

use std::cell::{Cell, RefCell};

use crate::{sites, state};

thread_local! {
    /// Where the drivers' part of the stack begins; zero while no driver's code runs.
    static TOP: Cell<usize> = const { Cell::new(0) };
    /// Objects of the kernel in that part, and not known to be gone.
    static OBJECTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// An address of the stack that is a little below the caller's.
#[inline(never)]
fn here() -> usize {
    let local = 0_u8;
    (&raw const local).addr()
}

/// A driver is called. Ends it with [`Entered::left`].
pub struct Entered {
    top: usize,
    before: usize,
}

impl Entered {
    /// The kernel is about to call a driver.
    pub fn new() -> Self {
        let (top, before) = (here(), TOP.get());
        if before == 0 {
            TOP.set(top);
        }
        Self { top, before }
    }

    /// The driver has returned: what it had on the stack is gone.
    pub fn left(self) {
        gone_below(self.top);
        TOP.set(self.before);
    }
}

/// Returns true for an address in the drivers' part of this thread's stack.
pub fn is_here(address: usize) -> bool {
    (here()..TOP.get()).contains(&address)
}

/// Where the drivers' part of this thread's stack begins; a little above the caller if no driver's code runs.
pub fn top() -> usize {
    let top = TOP.get();
    if top == 0 { here() } else { top }
}

/// An object was initialised. Returns true if it lies on this thread's stack.
pub fn note(address: usize) -> bool {
    let is_here = is_here(address);
    if is_here {
        OBJECTS.with_borrow_mut(|objects| {
            if !objects.contains(&address) {
                objects.push(address);
            }
        });
    }
    is_here
}

/// A driver calls a routine: what lies below its stack pointer is gone.
pub fn check(routine: &str) {
    if OBJECTS.with_borrow(Vec::is_empty) {
        return;
    }
    gone_below(sites::stack_of_caller(routine).unwrap_or_else(here));
}

fn gone_below(stack: usize) {
    let gone: Vec<usize> =
        OBJECTS.with_borrow_mut(|objects| objects.extract_if(.., |address| *address < stack).collect());
    if !gone.is_empty() {
        let state = state::current();
        state.watching().for_each(|part| part.stack_is_gone(&state, &gone));
    }
}

//! What is inside of an adapter: sends that are not complete, received frames that have not come back, calls that run.

/// Where an adapter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open,
    /// Closed when the last one has left.
    Closing,
}

/// The gate of an adapter: closed at first, open between restart and pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    state: State,
    inside: u32,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A gate that is closed.
    #[must_use]
    pub const fn new() -> Self {
        Self { state: State::Closed, inside: 0 }
    }

    /// Lets things in.
    pub const fn open(&mut self) {
        self.state = State::Open;
    }

    /// Lets nothing in any more. True if nothing is inside: the pause is complete. Otherwise [`Gate::leave`] says when it is.
    #[must_use]
    pub const fn close(&mut self) -> bool {
        self.state = if self.inside == 0 { State::Closed } else { State::Closing };
        self.inside == 0
    }

    /// Returns true if things are let in.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// So many come in. False, and nothing is inside of them, if the gate is not open.
    #[must_use]
    pub const fn enter(&mut self, count: u32) -> bool {
        if !self.is_open() {
            return false;
        }
        self.inside += count;
        true
    }

    /// So many leave that came in. True if the pause is complete by this, which is said once.
    ///
    /// # Panics
    ///
    /// If fewer are inside.
    #[must_use]
    pub const fn leave(&mut self, count: u32) -> bool {
        assert!(count <= self.inside, "more leave than came in");
        self.inside -= count;
        let complete = self.inside == 0 && matches!(self.state, State::Closing);
        if complete {
            self.state = State::Closed;
        }
        complete
    }

    /// How many are inside.
    #[must_use]
    pub const fn inside(&self) -> u32 {
        self.inside
    }
}

#[cfg(test)]
mod tests {
    use super::Gate;

    #[test]
    fn a_pause_is_complete_when_the_last_one_leaves_and_only_once() {
        let mut gate = Gate::new();
        assert!(!gate.enter(1), "closed at first");
        assert_eq!(gate, Gate::default());
        gate.open();
        assert!(gate.enter(3));
        assert!(!gate.close());
        assert!(!gate.enter(1), "it closes");
        assert!(!gate.leave(2));
        assert_eq!(gate.inside(), 1);
        assert!(gate.leave(1));
        assert_eq!(gate.inside(), 0);
        gate.open();
        assert!(gate.enter(1));
        assert!(!gate.leave(1), "no pause was asked for");
        assert!(gate.close(), "complete at once");
    }

    #[test]
    #[should_panic(expected = "more leave than came in")]
    fn who_is_not_inside_cannot_leave() {
        let mut gate = Gate::new();
        gate.open();
        let _ = gate.leave(1);
    }
}

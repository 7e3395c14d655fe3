//! One at a time, and once more if somebody asked meanwhile.

/// Whose turn it is to do something that nobody else may do at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    taken: bool,
    again: bool,
}

impl Turn {
    /// Nobody's.
    #[must_use]
    pub const fn new() -> Self {
        Self { taken: false, again: false }
    }

    /// Takes the turn. False if somebody has it, who then does everything once more.
    #[must_use]
    pub const fn begin(&mut self) -> bool {
        if self.taken {
            self.again = true;
            return false;
        }
        self.taken = true;
        true
    }

    /// Returns true if somebody has it.
    #[must_use]
    pub const fn is_taken(self) -> bool {
        self.taken
    }

    /// Gives the turn back. True if somebody asked for it meanwhile.
    #[must_use]
    pub const fn end(&mut self) -> bool {
        let again = self.again;
        *self = Self::new();
        again
    }
}

#[cfg(test)]
mod tests {
    use super::Turn;

    #[test]
    fn who_comes_meanwhile_is_not_forgotten() {
        let mut turn = Turn::new();
        assert!(!turn.is_taken());
        assert!(turn.begin());
        assert!(turn.is_taken());
        assert!(!turn.begin());
        assert!(turn.end());
        assert!(!turn.is_taken());
        assert!(turn.begin());
        assert!(!turn.end());
    }
}

//! The ports that the provider picks when a consumer gives none (`NDKPI 7.7.1`).

use alloc::boxed::Box;

use fallible::{AllocError, try_slice};

/// The first ephemeral port. The last is 65535.
pub const FIRST: u16 = 49152;
const PORTS: usize = u16::MAX as usize - FIRST as usize + 1;
const WORDS: usize = PORTS / u64::BITS as usize;

/// The ephemeral ports of one address that are in use. A bit for each: finding a free one takes a bounded time.
pub(super) struct EphemeralPorts {
    used: Box<[u64]>,
    /// Where the next search begins: a port that became free is used again as late as possible.
    next: usize,
}

impl EphemeralPorts {
    pub fn try_new() -> Result<Self, AllocError> {
        Ok(Self { used: try_slice(WORDS, |_| 0)?, next: 0 })
    }

    /// Finds a free port. It stays free until it is [taken](EphemeralPorts::take).
    pub fn find(&mut self) -> Option<u16> {
        let (first, bit) = (self.next / u64::BITS as usize, self.next % u64::BITS as usize);
        // The word of the first port is looked at twice: from that port on, and at the end as a whole.
        for step in 0..=WORDS {
            let word = (first + step) % WORDS;
            let skipped = if step == 0 { !(u64::MAX << bit) } else { 0 };
            let free = !(self.used[word] | skipped);
            if free != 0 {
                let index = word * u64::BITS as usize + free.trailing_zeros() as usize;
                self.next = index + 1;
                // An index below `PORTS`.
                return u16::try_from(index).ok().map(|index| FIRST + index);
            }
        }
        None
    }

    /// Notes that `port` is in use, or free again. Other ports than these are ignored.
    pub fn take(&mut self, port: u16, used: bool) {
        let Some(index) = port.checked_sub(FIRST).map(usize::from) else { return };
        let (word, bit) = (index / u64::BITS as usize, index % u64::BITS as usize);
        if used {
            self.used[word] |= 1 << bit;
        } else {
            self.used[word] &= !(1 << bit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EphemeralPorts, FIRST, PORTS};

    #[test]
    fn every_port_is_found_once_and_a_freed_one_last() {
        let mut ports = EphemeralPorts::try_new().expect("memory");
        for index in 0..PORTS {
            let port = ports.find().expect("a free port");
            assert_eq!(usize::from(port - FIRST), index);
            ports.take(port, true);
            if index == 10 {
                ports.take(FIRST + 3, false);
            }
        }
        assert_eq!(ports.find(), Some(FIRST + 3));
        ports.take(FIRST + 3, true);
        assert_eq!(ports.find(), None);
        ports.take(u16::MAX, false);
        assert_eq!(ports.find(), Some(u16::MAX));
    }

    #[test]
    fn the_search_goes_round_to_ports_before_its_beginning_in_the_same_word() {
        let mut ports = EphemeralPorts::try_new().expect("memory");
        for index in 0..PORTS {
            ports.take(FIRST + u16::try_from(index).expect("a port"), true);
        }
        ports.take(FIRST + 70, false);
        assert_eq!(ports.find(), Some(FIRST + 70));
        // The next search begins behind it.
        assert_eq!(ports.find(), Some(FIRST + 70));
    }

    #[test]
    fn a_port_that_was_given_back_is_not_the_next() {
        let mut ports = EphemeralPorts::try_new().expect("memory");
        let first = ports.find().expect("a free port");
        ports.take(first, true);
        ports.take(first, false);
        assert_eq!(ports.find(), Some(first + 1));
    }

    #[test]
    fn other_ports_do_not_count() {
        let mut ports = EphemeralPorts::try_new().expect("memory");
        ports.take(0, true);
        ports.take(FIRST - 1, true);
        assert_eq!(ports.find(), Some(FIRST));
    }
}

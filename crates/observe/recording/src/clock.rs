//! From ticks to time.

/// Ticks, and the time then.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    pub ticks: u64,
    pub time: u64,
}

/// What says when something was.
#[derive(Debug)]
pub struct Clock {
    /// By ticks, the times as well.
    pairs: Vec<Pair>,
    /// So many ticks are a unit of time, and both begin together; 0: only the pairs are known.
    unit: u64,
}

impl Clock {
    pub fn new(mut pairs: Vec<Pair>, unit: u64) -> Self {
        pairs.sort_by_key(|pair| pair.ticks);
        // The ticks were read first: the time may be too late, if the thread was held up between.
        let mut latest = u64::MAX;
        for pair in pairs.iter_mut().rev() {
            latest = latest.min(pair.time);
            pair.time = latest;
        }
        Self { pairs, unit }
    }

    /// The time at these ticks: between two pairs by how far it is from them, behind the last one by how far that is from the first.
    pub fn time(&self, ticks: u64) -> u64 {
        if let Some(time) = ticks.checked_div(self.unit) {
            return time;
        }
        let next = self.pairs.partition_point(|pair| pair.ticks <= ticks);
        let Some(before) = next.checked_sub(1).and_then(|last| self.pairs.get(last)) else {
            return self.pairs.first().map_or(0, |first| first.time);
        };
        let (from, to) = match (self.pairs.get(next), self.pairs.first()) {
            (Some(after), _) => (before, after),
            (None, Some(first)) => (first, before),
            (None, None) => return before.time,
        };
        let span = u128::from(to.ticks - from.ticks).max(1);
        let since = u128::from(ticks - before.ticks) * u128::from(to.time - from.time) / span;
        before.time.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, Pair};

    fn pairs<const N: usize>(pairs: [(u64, u64); N]) -> Vec<Pair> {
        pairs.map(|(ticks, time)| Pair { ticks, time }).to_vec()
    }

    #[test]
    fn the_time_between_pairs_is_between_theirs() {
        let clock = Clock::new(pairs([(3000, 30), (1000, 10), (2000, 10)]), 0);
        let times = [0, 1000, 1500, 2000, 2500, 3000, 4000, u64::MAX].map(|ticks| clock.time(ticks));
        assert_eq!(times[..7], [10, 10, 10, 10, 20, 30, 40]);
        assert!(times[7] > 40);
    }

    #[test]
    fn who_was_held_up_between_ticks_and_time_is_not_believed() {
        let clock = Clock::new(pairs([(1000, 10), (2000, 500), (3000, 30)]), 0);
        assert_eq!([1500, 2000, 2500].map(|ticks| clock.time(ticks)), [20, 30, 30]);
    }

    #[test]
    fn with_a_unit_the_time_is_exact() {
        let clock = Clock::new(pairs([(1000, 10)]), 16);
        assert_eq!([0, 15, 16, 33].map(|ticks| clock.time(ticks)), [0, 0, 1, 2]);
        assert_eq!(Clock::new(Vec::new(), 0).time(5), 0);
    }
}

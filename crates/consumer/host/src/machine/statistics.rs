//! Counters of a machine.

/// Counters of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// One for each processor.
    pub processors: Vec<ProcessorStatistics>,
    /// How many timers have expired.
    pub timers_fired: u64,
    /// How many choices a seeded machine has made; zero with threads.
    pub steps: u64,
    /// The most registered bytes that one DPC has copied.
    pub most_copied: usize,
}

impl Statistics {
    /// The number of DPCs on all processors.
    #[must_use]
    pub fn dpcs_run(&self) -> u64 {
        self.processors.iter().map(|processor| processor.dpcs_run).sum()
    }
}

/// Counters of a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorStatistics {
    /// How many DPCs it has run.
    pub dpcs_run: u64,
    /// The length of its longest queue.
    pub longest_queue: usize,
}

//! Which of the things that can fail do: allocations, registrations, objects of the framework and the like.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What is to fail in the runs of a seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Faults {
    /// Nothing: one run.
    #[default]
    None,
    /// Each thing in a run of its own: a run without a failure, one in which the first thing that can fail does, one for the second, and
    /// so on, until there are no more.
    EachCall,
    /// One run in which the first thing at each call site fails.
    EachSite,
    /// One run in which the thing with this number fails, the first being 1.
    Nth(u64),
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "each-call" => Ok(Self::EachCall),
            "each-site" => Ok(Self::EachSite),
            _ => text.parse().ok().filter(|&number| number > 0).map(Self::Nth).ok_or_else(|| {
                format!(
                    "`{text}` is no choice of failures: write `none`, `each-call`, `each-site`, or the number of one"
                )
            }),
        }
    }
}

/// What is to fail in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunFaults {
    /// Nothing.
    None,
    /// The thing with this number; 1 is the first.
    Nth(u64),
    /// The first thing at each call site.
    EachSite,
}

/// Runs of one seed: with [`Faults::EachCall`] those with the failures `first`, `first + stride` and so on, 0 being none; else one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Portion {
    /// The seed.
    pub seed: u64,
    /// The number of the first failure.
    pub first: u64,
    /// The distance from one failure to the next.
    pub stride: u64,
}

impl Portion {
    /// The portions in which workers take the runs of a seed: one for each of `jobs` workers, if it has many runs.
    pub fn of(seed: u64, faults: Faults, jobs: usize) -> impl Iterator<Item = Self> {
        let stride = if faults == Faults::EachCall { u64::try_from(jobs.max(1)).unwrap_or(1) } else { 1 };
        (0..stride).map(move |first| Self { seed, first, stride })
    }

    /// What fails in the first run of the portion.
    #[must_use]
    pub const fn plan(&self, faults: Faults) -> RunFaults {
        match faults {
            Faults::None => RunFaults::None,
            Faults::EachSite => RunFaults::EachSite,
            Faults::Nth(number) => RunFaults::Nth(number),
            Faults::EachCall if self.first == 0 => RunFaults::None,
            Faults::EachCall => RunFaults::Nth(self.first),
        }
    }

    /// Returns true if this is the first run of its seed: with failures of each call, the one without a failure.
    #[must_use]
    pub const fn is_first(&self, faults: Faults) -> bool {
        matches!((faults, self.first), (Faults::None | Faults::EachSite | Faults::Nth(_), _) | (Faults::EachCall, 0))
    }

    /// What is left of it when its first run is over. `failed` says if anything has failed in it: if not, there is no later thing that
    /// could.
    #[must_use]
    pub const fn rest(&self, faults: Faults, failed: bool) -> Option<Self> {
        match faults {
            Faults::EachCall if failed || self.first == 0 => {
                Some(Self { seed: self.seed, first: self.first + self.stride, stride: self.stride })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Faults, Portion, RunFaults};

    #[test]
    fn each_failure_is_in_one_portion() {
        let mut seen = Vec::new();
        for portion in Portion::of(7, Faults::EachCall, 3) {
            let mut left = Some(portion);
            while let Some(run) = left {
                assert_eq!(run.seed, 7);
                // There are four things that can fail.
                let failed = (1..=4).contains(&run.first);
                if failed || run.first == 0 {
                    seen.push(run.plan(Faults::EachCall));
                }
                left = run.rest(Faults::EachCall, failed);
            }
        }
        seen.sort_by_key(|plan| if let RunFaults::Nth(number) = plan { *number } else { 0 });
        assert_eq!(seen, [RunFaults::None, RunFaults::Nth(1), RunFaults::Nth(2), RunFaults::Nth(3), RunFaults::Nth(4)]);
    }

    #[test]
    fn other_choices_are_one_run() {
        for (text, plan) in [("none", RunFaults::None), ("each-site", RunFaults::EachSite), ("9", RunFaults::Nth(9))] {
            let faults: Faults = text.parse().expect("a choice");
            let portions: Vec<_> = Portion::of(1, faults, 2).collect();
            let [portion] = portions[..] else { panic!("one") };
            assert_eq!((portion.plan(faults), portion.rest(faults, true)), (plan, None));
        }
        for wrong in ["", "0", "all", "-1"] {
            let said = wrong.parse::<Faults>().expect_err(wrong);
            assert!(said.contains("each-call") && !said.contains('\n'), "{said}");
        }
    }
}

//! What became of a run: for people, for programs, for CI.

use std::{collections::BTreeMap, fmt, io::Write, time::Duration};

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use serde::Serialize;

/// What was found with a seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule that was broken; `script` for a step that ended otherwise than the script says, `crash` for an end without a rule,
    /// `no-end` for no end.
    pub rule: String,
    /// What was seen.
    pub words: String,
    /// The number of the step in which it was seen, from 0.
    pub step: Option<usize>,
    /// The end of what the process wrote to its standard error.
    pub output: String,
}

/// What became of a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// A number that depends on every choice of the seed, if it passed.
    pub hash: Option<u64>,
    /// What was found.
    pub finding: Option<Finding>,
    /// How long it took.
    pub took: Duration,
}

/// What became of all seeds.
#[derive(Clone, Debug)]
pub struct Results {
    /// What was run, for the reports.
    pub name: String,
    /// The outcomes, in the order of the seeds.
    pub outcomes: Vec<Outcome>,
    /// How long it took.
    pub took: Duration,
}

#[derive(Serialize)]
struct Json<'results> {
    name: &'results str,
    seeds: usize,
    passed: usize,
    failed: usize,
    seconds: f64,
    rules: BTreeMap<&'results str, usize>,
    findings: Vec<JsonFinding<'results>>,
}

#[derive(Serialize)]
struct JsonFinding<'results> {
    seed: u64,
    #[serde(flatten)]
    finding: &'results Finding,
}

impl Results {
    /// What was found, with its seeds.
    pub fn findings(&self) -> impl Iterator<Item = (u64, &Finding)> {
        self.outcomes.iter().filter_map(|outcome| Some((outcome.seed, outcome.finding.as_ref()?)))
    }

    /// Each rule that was broken, and how many seeds found it.
    #[must_use]
    pub fn rules(&self) -> BTreeMap<&str, usize> {
        let mut rules = BTreeMap::new();
        for (_, finding) in self.findings() {
            *rules.entry(finding.rule.as_str()).or_insert(0) += 1;
        }
        rules
    }

    /// 0 if nothing was found, else 1: as `docs/ndkctl.md` has it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        u8::from(self.findings().next().is_some())
    }

    /// One JSON value.
    ///
    /// # Errors
    ///
    /// What the writer says.
    pub fn write_json(&self, mut to: impl Write) -> std::io::Result<()> {
        let failed = self.findings().count();
        let json = Json {
            name: &self.name,
            seeds: self.outcomes.len(),
            passed: self.outcomes.len() - failed,
            failed,
            seconds: self.took.as_secs_f64(),
            rules: self.rules(),
            findings: self.findings().map(|(seed, finding)| JsonFinding { seed, finding }).collect(),
        };
        serde_json::to_writer_pretty(&mut to, &json)?;
        writeln!(to)
    }

    /// JUnit's format: a test case for each seed.
    ///
    /// # Errors
    ///
    /// One line, if it cannot be written.
    pub fn write_junit(&self, to: impl Write) -> Result<(), String> {
        let mut suite = TestSuite::new(self.name.as_str());
        for outcome in &self.outcomes {
            let status = outcome.finding.as_ref().map_or_else(TestCaseStatus::success, |finding| {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                status.set_type(finding.rule.as_str()).set_message(finding.words.as_str());
                status.set_description(finding.output.as_str());
                status
            });
            let mut case = TestCase::new(format!("seed {}", outcome.seed), status);
            case.set_classname(self.name.as_str()).set_time(outcome.took);
            suite.add_test_case(case);
        }
        let mut report = Report::new("ndkctl run");
        report.set_time(self.took).add_test_suite(suite);
        report.serialize(to).map_err(|error| error.to_string())
    }
}

/// For people: each rule with its first seed, and how to see it again.
impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seeds, failed) = (self.outcomes.len(), self.findings().count());
        for (rule, count) in self.rules() {
            let Some((seed, finding)) = self.findings().find(|(_, finding)| finding.rule == rule) else { continue };
            writeln!(f, "{rule}: {}", finding.words)?;
            writeln!(f, "    {count} of {seeds} seeds; again with --seeds {seed}")?;
        }
        write!(f, "{}: {} of {seeds} seeds passed, in {:.1} s", self.name, seeds - failed, self.took.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Finding, Outcome, Results};

    fn results() -> Results {
        let took = Duration::from_millis(1500);
        let finding = |words: &str| {
            Some(Finding {
                rule: "pool-leak".to_owned(),
                words: words.to_owned(),
                step: Some(2),
                output: "a\u{1}b".to_owned(),
            })
        };
        let outcomes = vec![
            Outcome { seed: 1, hash: Some(9), finding: None, took },
            Outcome { seed: 2, hash: None, finding: finding("one <block>"), took },
            Outcome { seed: 3, hash: None, finding: finding("two"), took },
        ];
        Results { name: "consumer".to_owned(), outcomes, took }
    }

    #[test]
    fn people_see_each_rule_once_with_a_seed() {
        let text = results().to_string();
        assert_eq!(
            text,
            "pool-leak: one <block>\n    2 of 3 seeds; again with --seeds 2\nconsumer: 1 of 3 seeds passed, in 1.5 s"
        );
        assert_eq!(results().exit_code(), 1);
        let clean = Results { outcomes: results().outcomes[..1].to_vec(), ..results() };
        assert_eq!((clean.exit_code(), clean.rules().len()), (0, 0));
    }

    #[test]
    fn programs_see_counts_and_findings() {
        let mut json = Vec::new();
        results().write_json(&mut json).expect("it is written");
        let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        assert_eq!((&json["passed"], &json["failed"], &json["rules"]["pool-leak"]), (&1.into(), &2.into(), &2.into()));
        assert_eq!((&json["findings"][0]["seed"], &json["findings"][0]["step"]), (&2.into(), &2.into()));
        assert_eq!(json["findings"][1]["words"], "two");
    }

    #[test]
    fn ci_sees_a_case_for_each_seed() {
        let mut xml = Vec::new();
        results().write_junit(&mut xml).expect("it is written");
        let xml = String::from_utf8(xml).expect("text");
        assert!(xml.contains(r#"tests="3""#) && xml.contains(r#"failures="2""#), "{xml}");
        assert!(xml.contains("seed 2") && xml.contains("one &lt;block&gt;"), "{xml}");
        assert!(!xml.contains('\u{1}'), "characters that XML does not have");
    }
}

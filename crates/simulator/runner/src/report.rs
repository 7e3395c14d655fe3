//! What became of a run: for people, for programs, for CI.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::Write,
    time::Duration,
};

#[cfg(feature = "junit")]
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
    /// The machine, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Places in images that the words and the output name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<ImageOffset>,
    /// The end of what the process wrote to its standard error.
    pub output: String,
}

impl Finding {
    /// A finding without an output.
    #[must_use]
    pub fn new(rule: impl Into<String>, words: impl Into<String>, step: Option<usize>) -> Self {
        let (machine, places, output) = (None, Vec::new(), String::new());
        Self { rule: rule.into(), words: words.into(), step, machine, places, output }
    }
}

impl Finding {
    /// The machine in front of what was seen there, if there are several.
    fn on(&self) -> String {
        self.machine.as_ref().map_or_else(String::new, |machine| format!("{machine}: "))
    }

    /// The places of which more is known than the offset, each on a line.
    fn write_places(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in self.places.iter().filter(|place| place.function.is_some() || place.file.is_some()) {
            writeln!(f, "    {}{place}", self.on())?;
        }
        Ok(())
    }
}

/// A place in an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageOffset {
    /// The image, as the words name it.
    pub image: String,
    /// The offset from its beginning in memory.
    pub offset: u32,
    /// It is behind a call, which returns there.
    #[serde(skip)]
    pub is_return: bool,
    /// The function, if debugging information tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The file of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

impl fmt::Display for ImageOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x}", self.image, self.offset)?;
        if let Some(function) = &self.function {
            write!(f, " {function}")?;
        }
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, " ({file}:{line})"),
            (Some(file), None) => write!(f, " ({file})"),
            _ => Ok(()),
        }
    }
}

/// What became of a run: of a seed, or of one with a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The number of what was to fail.
    pub fault: Option<u64>,
    /// A number that depends on every choice of the seed, if it passed.
    pub hash: Option<u64>,
    /// What was found. More than one only of several machines.
    pub findings: Vec<Finding>,
    /// Where the machines stood on which nothing was found, when another one has ended the run.
    pub stood: Vec<Stood>,
    /// How long it took.
    pub took: Duration,
}

/// Where a machine stood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stood {
    /// Its name.
    pub machine: String,
    /// In words.
    pub words: String,
}

impl Outcome {
    /// That of a run without findings.
    #[must_use]
    pub const fn new(seed: u64, fault: Option<u64>, took: Duration) -> Self {
        Self { seed, fault, hash: None, findings: Vec::new(), stood: Vec::new(), took }
    }
}

/// What became of all runs.
#[derive(Clone, Debug)]
pub struct Results {
    /// What was run, for the reports.
    pub name: String,
    /// The outcomes, in the order of the seeds and failures.
    pub outcomes: Vec<Outcome>,
    /// How long it took.
    pub took: Duration,
}

#[derive(Serialize)]
struct Json<'results> {
    name: &'results str,
    seeds: usize,
    runs: usize,
    passed: usize,
    failed: usize,
    seconds: f64,
    rules: BTreeMap<&'results str, usize>,
    findings: Vec<JsonFinding<'results>>,
}

#[derive(Serialize)]
struct JsonFinding<'results> {
    seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<u64>,
    #[serde(flatten)]
    finding: &'results Finding,
}

impl Results {
    /// What was found, with its seeds.
    pub fn findings(&self) -> impl Iterator<Item = (u64, &Finding)> {
        self.outcomes.iter().flat_map(|outcome| outcome.findings.iter().map(|finding| (outcome.seed, finding)))
    }

    /// How many seeds there were.
    #[must_use]
    pub fn seeds(&self) -> usize {
        self.outcomes.chunk_by(|one, other| one.seed == other.seed).count()
    }

    /// Each rule that was broken, and how many runs found it.
    #[must_use]
    pub fn rules(&self) -> BTreeMap<&str, usize> {
        let mut rules = BTreeMap::new();
        for outcome in &self.outcomes {
            let found: BTreeSet<_> = outcome.findings.iter().map(|finding| finding.rule.as_str()).collect();
            for rule in found {
                *rules.entry(rule).or_insert(0) += 1;
            }
        }
        rules
    }

    /// How many runs there were in which something was found.
    fn failed(&self) -> usize {
        self.outcomes.iter().filter(|outcome| !outcome.findings.is_empty()).count()
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
        let failed = self.failed();
        let json = Json {
            name: &self.name,
            seeds: self.seeds(),
            runs: self.outcomes.len(),
            passed: self.outcomes.len() - failed,
            failed,
            seconds: self.took.as_secs_f64(),
            rules: self.rules(),
            findings: self
                .outcomes
                .iter()
                .flat_map(|outcome| {
                    let of = |finding| JsonFinding { seed: outcome.seed, fault: outcome.fault, finding };
                    outcome.findings.iter().map(of)
                })
                .collect(),
        };
        serde_json::to_writer_pretty(&mut to, &json)?;
        writeln!(to)
    }

    /// JUnit's format: a test case for each run.
    ///
    /// # Errors
    ///
    /// One line, if it cannot be written.
    #[cfg(feature = "junit")]
    pub fn write_junit(&self, to: impl Write) -> Result<(), String> {
        let mut suite = TestSuite::new(self.name.as_str());
        for outcome in &self.outcomes {
            let status = outcome.findings.first().map_or_else(TestCaseStatus::success, |finding| {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                status.set_type(finding.rule.as_str()).set_message(format!("{}{}", finding.on(), finding.words));
                let described = outcome.findings.iter().map(|finding| {
                    let places: Vec<_> = finding.places.iter().map(ToString::to_string).collect();
                    format!(
                        "{}{}: {}\n{}\n{}",
                        finding.on(),
                        finding.rule,
                        finding.words,
                        places.join("\n"),
                        finding.output
                    )
                });
                status.set_description(described.collect::<Vec<_>>().join("\n"));
                status
            });
            let mut case = TestCase::new(outcome.to_string(), status);
            case.set_classname(self.name.as_str()).set_time(outcome.took);
            suite.add_test_case(case);
        }
        let mut report = Report::new("ndkctl run");
        report.set_time(self.took).add_test_suite(suite);
        report.serialize(to).map_err(|error| error.to_string())
    }
}

/// The seed, and what was to fail.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}", self.seed)?;
        self.fault.map_or(Ok(()), |fault| write!(f, ", failure {fault}"))
    }
}

/// For people: each rule with its first run, and how to see it again.
impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (runs, failed) = (self.outcomes.len(), self.failed());
        let what = if self.outcomes.iter().any(|outcome| outcome.fault.is_some()) { "runs" } else { "seeds" };
        for (rule, count) in self.rules() {
            let first = self.outcomes.iter().find_map(|outcome| {
                let finding = outcome.findings.iter().find(|finding| finding.rule == rule)?;
                Some((outcome, finding))
            });
            let Some((outcome, finding)) = first else { continue };
            writeln!(f, "{rule}: {}{}", finding.on(), finding.words)?;
            finding.write_places(f)?;
            for other in outcome.findings.iter().filter(|other| *other != finding) {
                writeln!(f, "    {}{}: {}", other.on(), other.rule, other.words)?;
                other.write_places(f)?;
            }
            for Stood { machine, words } in &outcome.stood {
                writeln!(f, "    {machine}: {words}")?;
            }
            write!(f, "    {count} of {runs} {what}; again with --seeds {}", outcome.seed)?;
            if let Some(fault) = outcome.fault {
                write!(f, " --faults {fault}")?;
            }
            writeln!(f)?;
        }
        write!(f, "{}: {} of {runs} {what} passed, in {:.1} s", self.name, runs - failed, self.took.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Finding, Outcome, Results};

    fn results() -> Results {
        let took = Duration::from_millis(1500);
        let finding =
            |words: &str| vec![Finding { output: "a\u{1}b".to_owned(), ..Finding::new("pool-leak", words, Some(2)) }];
        let outcomes = vec![
            Outcome { hash: Some(9), ..Outcome::new(1, None, took) },
            Outcome { findings: finding("one <block>"), ..Outcome::new(2, None, took) },
            Outcome { findings: finding("two"), ..Outcome::new(3, None, took) },
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

    #[cfg(feature = "junit")]
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

//! `ndkctl faults`: what can go wrong as NDKPI allows, and what of it goes wrong in front of the driver's adapters.

use std::{fmt::Write, sync::Arc};

use clap::Args;
use conformance::host::{Interposed, Layer};
use control::client::Refusal;
use host::{HostOs, note, say};
use interpose::faults::{Faults, Kind, Plan, Rule, Tally};
use serde::Serialize;

use crate::{
    End,
    driver::{ELSEWHERE, Of, open_provider},
    fault_rule::{parse, shown},
    output::{align_right, print_json, print_table, table},
    size::parse_seed,
};

/// `ndkctl faults`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Without an option, shows the rules in force. They apply to adapters opened afterwards, until the driver is \
                        loaded again.\n\
                        A rule is FAULT[,KEY=VALUE]...: function=NdkSend, object=CQ or CQ:3, consumer=1, nth=5 or every=2 or \
                        chance=1000 (of a million), status=STATUS_IO_TIMEOUT, delay=100 or 100..500 or ~200 (microseconds).\n\
                        Exit code: 0 for success, 1 if the command failed, 2 for a wrong argument."
)]
pub struct FaultsArgs {
    /// List the failures, each with the rule that allows it
    #[arg(long)]
    pub list: bool,
    /// Print the list as the document docs/faults.md
    #[arg(long, conflicts_with = "list")]
    pub markdown: bool,
    /// Replace the rules in force by this one; up to eight times, and the first that applies wins (Windows)
    #[arg(long, value_name = "RULE", value_parser = parse, conflicts_with_all = ["list", "markdown"])]
    pub rule: Vec<Rule>,
    /// Seed of chances and delays; decimal, or hexadecimal after 0x
    #[arg(long, default_value = "0", value_name = "SEED", value_parser = parse_seed, allow_negative_numbers = true)]
    pub seed: u64,
    /// Stop injecting failures (Windows)
    #[arg(long, conflicts_with_all = ["list", "markdown", "rule"])]
    pub off: bool,
    #[command(flatten)]
    pub of: Of,
    /// Print the result as JSON
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
}

/// A fault, for a program.
#[derive(Debug, Serialize)]
struct FaultJson {
    name: &'static str,
    what: &'static str,
    operations: &'static str,
    section: &'static str,
    rule: &'static str,
}

/// A rule in force, for a program.
#[derive(Debug, Serialize)]
struct RuleJson {
    rule: String,
    calls: u64,
    made: u64,
}

/// The plan in force, for a program.
#[derive(Debug, Serialize)]
struct PlanJson {
    seed: u64,
    rules: Vec<RuleJson>,
}

/// Runs the command.
///
/// # Errors
///
/// The reason, in one line.
pub fn run(args: &FaultsArgs) -> Result<End, String> {
    if args.markdown {
        say!("{}", document().trim_end());
        return Ok(End::Good);
    }
    if args.list {
        return list(args.json);
    }
    if !cfg!(windows) {
        note!("ndkctl faults: {ELSEWHERE}; `ndkctl selftest --fault RULE` has them on any host, `--list` shows them");
        return Ok(End::Refused);
    }
    let opened = open_provider(args.of)?;
    let (driver, refused) = (&opened.driver, |refusal| opened.refused(refusal));
    if args.off || !args.rule.is_empty() {
        let plan = plan(args.seed, &args.rule)?;
        driver.set_fault_plan(&plan.to_bytes()).map_err(refused)?;
    }
    let (bytes, counts) = driver.fault_plan().map_err(refused)?;
    let plan = Plan::from_bytes(&bytes).map_err(|_| refused(Refusal::Nonsense))?;
    let rules = plan.rules().zip(counts);
    let rules = rules.map(|(rule, [calls, made])| RuleJson { rule: shown(rule), calls, made }).collect();
    if !args.json {
        say!("the driver {}:", opened.name.name());
    }
    show(&PlanJson { seed: plan.seed, rules }, args.json)?;
    Ok(End::Good)
}

/// The plan with these rules.
///
/// # Errors
///
/// There are too many.
pub fn plan(seed: u64, rules: &[Rule]) -> Result<Plan, String> {
    let with = |plan: Plan, rule: &Rule| plan.with(*rule);
    rules.iter().try_fold(Plan::new(seed), with).map_err(|wrong| wrong.to_string())
}

fn show(plan: &PlanJson, json: bool) -> Result<(), String> {
    if json {
        return print_json(plan);
    }
    if plan.rules.is_empty() {
        say!("Nothing goes wrong on purpose.");
        return Ok(());
    }
    let mut rows = table(&["rule", "calls", "happened"]);
    for RuleJson { rule, calls, made } in &plan.rules {
        rows.add_row([rule.clone(), calls.to_string(), made.to_string()]);
    }
    (1..3).for_each(|column| align_right(&mut rows, column));
    print_table(&rows);
    say!("seed {}", plan.seed);
    Ok(())
}

fn list(json: bool) -> Result<End, String> {
    let all = Kind::ALL.iter().map(|kind| kind.page());
    if json {
        let fault = |page: &interpose::faults::Page| FaultJson {
            name: page.name,
            what: page.what,
            operations: page.operations,
            section: page.section,
            rule: page.rule,
        };
        print_json(&all.map(fault).collect::<Vec<_>>())?;
        return Ok(End::Good);
    }
    let mut rows = table(&["fault", "section", "what happens", "to what"]);
    for page in all {
        rows.add_row([page.name, page.section, page.what, page.operations]);
    }
    print_table(&rows);
    Ok(End::Good)
}

/// The table, as a document.
fn document() -> String {
    let mut text = String::from(
        "# Faults\n\nWritten by `ndkctl faults --markdown`. How to let them happen is in [adviser](adviser.md). Each is something \
         that NDKPI allows a\nprovider, its adapter or its network, so a consumer has to get along with it.\n\n| fault | what \
         happens | to what | section |\n|---|---|---|---|\n",
    );
    for kind in Kind::ALL {
        let page = kind.page();
        let _ = writeln!(text, "| `{}` | {} | {} | {} |", page.name, page.what, page.operations, page.section);
    }
    text.push_str("\n## The rules that allow them\n\n");
    for kind in Kind::ALL {
        let page = kind.page();
        let _ = writeln!(text, "- `{}` ({}): {}", page.name, page.section, page.rule);
    }
    text
}

/// The layer of `ndkctl selftest --fault`, and what counts.
///
/// # Errors
///
/// There is no memory, or there are too many rules.
pub fn layer(seed: u64, rules: &[Rule]) -> Result<(Layer, fallible::Arc<Tally>), String> {
    let tally = fallible::Arc::try_new(Tally::new(plan(seed, rules)?)).map_err(|error| error.to_string())?;
    let kept = tally.clone();
    let layer: Layer = Arc::new(move |platform| {
        let kept = kept.clone();
        let make = move |os: &HostOs| Faults::new(os.clone(), kept.clone());
        Box::new(Interposed::new(platform, Box::new(make)))
    });
    Ok((layer, tally))
}

/// Shows for each rule how many calls it might have applied to, and how often it has happened.
///
/// # Errors
///
/// What [`show`] says.
pub fn summarize(seed: u64, rules: &[Rule], counts: &[[u64; 2]]) -> Result<(), String> {
    let rules = rules.iter().zip(counts).map(|(rule, &[calls, made])| RuleJson { rule: shown(rule), calls, made });
    say!();
    show(&PlanJson { seed, rules: rules.collect() }, false)
}

#[cfg(test)]
mod tests {
    use super::{FaultJson, PlanJson, RuleJson, document};
    use crate::schema;

    #[test]
    fn the_document_is_what_the_command_prints() {
        let kept = include_str!("../../../../docs/faults.md").replace("\r\n", "\n");
        assert_eq!(kept.trim_end(), document().trim_end(), "ndkctl faults --markdown > docs/faults.md");
    }

    #[test]
    fn json_is_as_the_schema_says() {
        let page = interpose::faults::Kind::Late.page();
        let fault = FaultJson {
            name: page.name,
            what: page.what,
            operations: page.operations,
            section: page.section,
            rule: page.rule,
        };
        schema::check("faults --list", &serde_json::to_value([fault]).expect("JSON"));
        let plan = PlanJson { seed: 7, rules: vec![RuleJson { rule: "early,every=1".to_owned(), calls: 3, made: 2 }] };
        schema::check("faults", &serde_json::to_value(plan).expect("JSON"));
    }
}

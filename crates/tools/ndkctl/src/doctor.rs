//! `ndkctl doctor`: what stands between this machine and a working SoftNDK.

use std::{env, path::Path};

use clap::Args;
use host::say;
use install::{Check, Verdict};

use crate::{
    End,
    output::{print_json, print_table, table},
};

/// `ndkctl doctor`.
#[derive(Clone, Copy, Debug, Args)]
#[command(
    after_help = "Changes nothing. Exit code: 0 if nothing stands in the way, 1 if something does, 2 for a wrong argument."
)]
pub struct Doctor {
    /// Print the checks as JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
///
/// # Errors
///
/// The reason, in one line.
pub fn run(args: Doctor) -> Result<End, String> {
    let checks = install::this()
        .map_or_else(|| install::elsewhere(env::consts::OS, has_program("wine")), |machine| install::examine(&machine));
    if args.json {
        print_json(&checks)?;
    } else {
        print(&checks);
    }
    let bad = checks.iter().any(|check| check.verdict == Verdict::Bad);
    Ok(if bad { End::Bad } else { End::Good })
}

/// Returns true if a folder of `PATH` has this program.
fn has_program(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder: std::path::PathBuf| Path::is_file(&folder.join(name)))
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "good",
        Verdict::Bad => "bad",
        Verdict::Notice => "note",
        Verdict::Unknown => "unknown",
        Verdict::Skipped => "skipped",
    }
}

fn print(checks: &[Check]) {
    let mut list = table(&["check", "", "found", "what to do"]);
    for check in checks {
        let remedy = check.remedy.as_deref().unwrap_or_default();
        list.add_row([&check.name, word(check.verdict), &check.found, remedy]);
    }
    print_table(&list);
    let bad = checks.iter().filter(|check| check.verdict == Verdict::Bad).count();
    say!("{} checks, {bad} in the way", checks.len());
}

#[cfg(test)]
mod tests {
    use super::has_program;
    use crate::schema;

    #[test]
    fn what_programs_get_is_as_documented() {
        for wine in [false, true] {
            schema::check("doctor", &serde_json::to_value(install::elsewhere("linux", wine)).expect("JSON"));
        }
    }

    #[test]
    fn programs_are_looked_for_where_shells_look() {
        assert!(!has_program("no such program"));
        if cfg!(unix) {
            assert!(has_program("sh"));
        }
    }
}

//! Widths, colours and completions (`docs/ndkctl.md`).

use std::process::{Command, Output};

use crate::{good, text};

/// The output of a run that succeeds, with these variables in its environment and no others that it looks at.
fn with(variables: &[(&str, &str)], arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ndkctl"));
    for name in ["COLUMNS", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    let Output { status, stdout, stderr } =
        command.envs(variables.iter().copied()).args(arguments).output().expect("the program runs");
    assert!(status.success(), "{arguments:?}: {}", text(&stderr));
    text(&stdout)
}

#[test]
fn tables_are_as_wide_as_asked_for_at_most() {
    for arguments in [
        &["selftest", "--list"][..],
        &["info", "--memory"],
        &["adapters"],
        &["doctor"],
        &["counters"],
        &["netstat"],
        &["nd2", "info"],
        &["nd2-selftest", "--list"],
        &["nd2-selftest", "--filter", "arm"],
    ] {
        for (variables, most) in [(&[("COLUMNS", "80")][..], 80), (&[], 120), (&[("COLUMNS", "wide")], 120)] {
            let shown = with(variables, arguments);
            let widest = shown.lines().map(|line| line.chars().count()).max().expect("lines");
            assert!(widest <= most, "{arguments:?}: {widest} columns with {variables:?}\n{shown}");
        }
    }
    // Numbers stay whole, also where there is no room for them.
    for (columns, arguments) in [("30", &["counters"][..]), ("20", &["info"]), ("40", &["ping", "--count", "1000"])] {
        let narrow = with(&[("COLUMNS", columns)], arguments);
        let broken = narrow
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty() && line.len() < 3 && line.bytes().all(|byte| byte.is_ascii_digit()));
        assert_eq!(broken, None, "{arguments:?} in {columns} columns\n{narrow}");
    }
    // What is wrapped is not lost, and names stay whole.
    let narrow = with(&[("COLUMNS", "80")], &["selftest", "--list"]);
    let words = |columns| {
        let shown = with(&[("COLUMNS", columns)], &["selftest", "--list", "--filter", "version"]);
        let mut words: Vec<_> = shown.split_whitespace().map(str::to_owned).collect();
        words.sort();
        words
    };
    assert_eq!(words("120"), words("1000"));
    for line in with(&[("COLUMNS", "80")], &["selftest", "--list", "--json"]).lines() {
        let Some(name) = line.trim().strip_prefix("\"name\": \"") else { continue };
        let name = name.trim_end_matches(['"', ',']);
        assert!(narrow.contains(name), "{name}");
    }
}

#[test]
fn no_color_takes_colours_away() {
    let selftest = |variables: &[(&str, &str)]| with(variables, &["selftest", "--filter", "arm.any"]);
    assert!(selftest(&[("CLICOLOR_FORCE", "1")]).contains('\u{1b}'), "somebody has asked for colours");
    assert!(!selftest(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).contains('\u{1b}'));
    assert!(selftest(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "")]).contains('\u{1b}'), "an empty value does not count");
    assert!(!selftest(&[]).contains('\u{1b}'), "colours in a pipe");
}

#[test]
fn the_consumer_in_ping_breaks_no_rule() {
    let file = std::env::temp_dir().join(format!("ndkctl-ping-{}.ndkrec", std::process::id()));
    let path = file.to_str().expect("UTF-8");
    // 20 sends of each side: the last ones are not in the rhythm of the signalled ones.
    good(&["ping", "--count", "20", "--record", path]);
    good(&["replay", path, "--advise"]);
    std::fs::remove_file(file).expect("the recording");
}

#[test]
fn shells_complete_commands_and_arguments() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = good(&["completions", shell]);
        for word in ["ndkctl", "selftest", "nd2-selftest", "doctor", "uninstall", "settings", "deterministic"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[cfg(unix)]
#[test]
fn bash_understands_its_completions() {
    let script = good(&["completions", "bash"]);
    // `COMP_WORDS` as bash sets it for `ndkctl self<Tab>`.
    let complete = "COMP_WORDS=(ndkctl self); COMP_CWORD=1; _ndkctl ndkctl self ndkctl; echo \"${COMPREPLY[@]}\"";
    let Ok(output) = Command::new("bash").args(["-c", &format!("{script}\n{complete}")]).output() else {
        println!("not checked: there is no bash");
        return;
    };
    assert_eq!(text(&output.stdout).trim(), "selftest", "{}", text(&output.stderr));
}

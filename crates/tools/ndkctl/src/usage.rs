//! Answers to a wrong command line: one line that says what is allowed.

use std::{error::Error as _, ffi::OsString, process::ExitCode};

use clap::{
    CommandFactory, Error,
    error::{ContextKind, ContextValue, ErrorKind},
};
use host::note;

use crate::{USAGE, args::Cli};

/// Prints the help, with what to try first.
pub fn print_help() {
    // A closed pipe is nobody to tell.
    let _ = Cli::command().print_help();
}

/// Prints the help of the command that the words after `help` name, or one line that says which commands there are.
pub fn help(words: &[String]) -> ExitCode {
    let mut innermost = Cli::command();
    // Its usage has the names of the commands around it then.
    innermost.build();
    let mut name = "ndkctl".to_owned();
    for word in words {
        let Some(found) = innermost.find_subcommand(word).cloned() else {
            note!("{name}: there is no command {word}; allowed: {}", allowed(&innermost));
            return ExitCode::from(USAGE);
        };
        name = format!("{name} {}", found.get_name());
        innermost = found;
    }
    // A closed pipe is nobody to tell.
    let _ = innermost.print_long_help();
    ExitCode::SUCCESS
}

/// The commands below `command`, in words also if there are none.
fn allowed(command: &clap::Command) -> String {
    let names = subcommands(command);
    if names.is_empty() { "none".to_owned() } else { names }
}

/// Prints what was asked for, or one line that says what is wrong and what is allowed.
pub fn refuse(error: &Error, arguments: &[OsString]) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A closed pipe is nobody to tell.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    note!("{}", one_line(error, arguments));
    ExitCode::from(USAGE)
}

/// The error in one line.
fn one_line(error: &Error, arguments: &[OsString]) -> String {
    let command = Cli::command();
    let words = || arguments.iter().skip(1).filter_map(|word| word.to_str());
    // The innermost command that the words name: `driver install`.
    let (mut innermost, mut name) = (&command, "ndkctl".to_owned());
    for word in words() {
        let Some(subcommand) = innermost.find_subcommand(word) else { continue };
        innermost = subcommand;
        name = format!("{name} {}", subcommand.get_name());
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        Some(value) => value.to_string(),
        None => String::new(),
    };
    let value = || {
        let value = text(ContextKind::InvalidValue);
        if value.is_empty() { "empty".to_owned() } else { value }
    };
    let what = match error.kind() {
        ErrorKind::UnknownArgument => {
            let flags: Vec<_> = innermost
                .get_arguments()
                .filter_map(|argument| argument.get_long().map(|long| format!("--{long}")))
                .collect();
            let allowed = if flags.is_empty() { subcommands(innermost) } else { flags.join(", ") };
            format!("there is no argument {}; allowed: {allowed}", text(ContextKind::InvalidArg))
        }
        ErrorKind::InvalidSubcommand => {
            format!("there is no command {}; allowed: {}", text(ContextKind::InvalidSubcommand), subcommands(innermost))
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            format!("a command is missing; allowed: {}", subcommands(innermost))
        }
        ErrorKind::InvalidValue => {
            let argument = text(ContextKind::InvalidArg);
            let allowed = text(ContextKind::ValidValue);
            if allowed.is_empty() {
                format!("{argument} needs a value")
            } else {
                format!("{argument} cannot be {}; allowed: {allowed}", value())
            }
        }
        ErrorKind::ValueValidation => {
            let argument = text(ContextKind::InvalidArg);
            let allowed = error.source().map(ToString::to_string).unwrap_or_default();
            format!("{argument} cannot be {}: {allowed}", value())
        }
        _ => {
            let rendered = error.render().to_string();
            let first = rendered.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
            first.split_whitespace().collect::<Vec<_>>().join(" ")
        }
    };
    format!("{name}: {what}")
}

/// The commands below `command` that its help shows.
fn subcommands(command: &clap::Command) -> String {
    let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    shown.map(|subcommand| subcommand.get_name().to_owned()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::{CommandFactory, Parser};

    use super::one_line;
    use crate::{args::Cli, schema};

    fn refused(words: &[&str]) -> String {
        let arguments: Vec<_> = std::iter::once("ndkctl").chain(words.iter().copied()).map(OsString::from).collect();
        let error = Cli::try_parse_from(&arguments).expect_err("a wrong command line");
        one_line(&error, &arguments)
    }

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    /// The commands below `command` that have the switch `--json`, by the words that call them.
    fn with_json(command: &clap::Command, words: &str, found: &mut Vec<String>) {
        for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
            let words = format!("{words} {}", subcommand.get_name()).trim_start().to_owned();
            let mut arguments = subcommand.get_arguments();
            if arguments.any(|argument| argument.get_id() == "json" && !argument.get_action().takes_values()) {
                found.push(words.clone());
            }
            with_json(subcommand, &words, found);
        }
    }

    #[test]
    fn every_command_with_json_has_a_definition() {
        let mut commands = Vec::new();
        with_json(&Cli::command(), "", &mut commands);
        assert!(commands.len() >= 9, "{commands:?}");
        for command in commands {
            assert!(schema::definitions()[&command].is_object(), "`{command}` is not in docs/ndkctl.schema.json");
        }
    }

    #[test]
    fn every_refusal_is_one_line_that_says_what_is_allowed() {
        for (words, part) in [
            (&["selftest", "--flter", "arm"][..], "--filter"),
            (&["selftset"], "selftest, ping"),
            (&["ping", "--size", "0"], "1 to 1G"),
            (&["ping", "--size", "9G"], "1 to 1G"),
            (&["ping", "--count", "-5"], "1 to 100000000"),
            (&["ping", "--notify", "sometimes"], "poll, any, solicited"),
            (&["ping", "--notify"], "--notify"),
            (&["selftest", "--completion", "x"], "inline, pending, early, mixed"),
            (&["selftest", "--processors", "65"], "1 to 64"),
            (&["selftest", "--seed", "z"], "hexadecimal"),
            (&["selftest", "--markdown"], "--list"),
            (&["info", "extra"], "--memory"),
            (&["driver", "instal"], "install, uninstall, status, run, agent, settings"),
            (&["driver", "install", "--dry"], "--dry-run"),
            (&["driver"], "install, uninstall"),
        ] {
            let line = refused(words);
            assert!(line.contains(part), "{words:?}: {line}");
            assert!(!line.contains('\n'), "{words:?}: {line}");
        }
    }
}

//! The command that repeats one case of a run, with all that was special about the run.

use std::fmt::Write as _;

use conformance::Case;
use provider::Profile;

use super::completion;
use crate::{
    args::{Locks, Nic, Selftest},
    fault_rule,
};

/// The command.
pub fn again(args: &Selftest, case: &Case, seed: u64) -> String {
    let mut words = String::from("ndkctl selftest");
    let mut add = |flag: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = match value {
            "" => write!(words, " {flag}"),
            value if value.contains([' ', '~', '*', '&', ';', '(', ')']) => write!(words, " {flag} \"{value}\""),
            value => write!(words, " {flag} {value}"),
        };
    };
    if args.driver {
        add("--driver", "");
        for (flag, name) in [("--interface", &args.interface), ("--peer", &args.peer)] {
            if let Some(name) = name {
                add(flag, name);
            }
        }
        if args.hostile {
            add("--hostile", "");
        }
    }
    add("--filter", case.name);
    add("--seed", &seed.to_string());
    if args.driver {
        if let Some(major) = args.ndkpi {
            add("--ndkpi", &major.version().Major.to_string());
        }
    } else {
        machine(args, &mut add);
    }
    for rule in &args.fault {
        add("--fault", &fault_rule::shown(rule));
    }
    if args.advise {
        add("--advise", "");
    }
    words
}

/// The flags of a machine on the host.
fn machine(args: &Selftest, add: &mut impl FnMut(&str, &str)) {
    add("--completion", &completion(args));
    if let Ok(version) = super::version(args) {
        add("--ndkpi", &version.Major.to_string());
    }
    if args.machine.profile.0 != Profile::Own {
        add("--profile", args.machine.profile.0.name());
    }
    if args.deterministic {
        add("--deterministic", "");
    }
    if args.machine.nic == Nic::Direct {
        add("--nic", "direct");
    }
    if args.machine.locks == Locks::Plain {
        add("--locks", "plain");
    }
    if args.machine.rotate_tokens {
        add("--rotate-tokens", "");
    }
    if let Some(processors) = args.machine.processors {
        add("--processors", &processors.to_string());
    }
    if args.machine.wire {
        add("--wire", "");
    }
    if let Some(lost) = args.machine.lose {
        add("--lose", &format!("{}.{}", lost / 10, lost % 10));
    }
}

#[cfg(test)]
mod tests {
    use conformance::cases;

    use super::again;
    use crate::selftest::{choice::choose, tests::selftest};

    /// The words of a command as a shell takes them apart.
    fn words(line: &str) -> Vec<String> {
        let parts = line.split('"').enumerate();
        parts
            .flat_map(|(index, part)| match index % 2 {
                0 => part.split_whitespace().map(str::to_owned).collect(),
                _ => vec![part.to_owned()],
            })
            .collect()
    }

    #[test]
    fn the_command_is_the_run_of_that_case() {
        let case = cases::all().nth(30).expect("a case");
        for options in [
            &[][..],
            &["--deterministic", "--ndkpi", "1", "--profile", "minimum", "--processors", "3"],
            &["--nic", "direct", "--locks", "plain", "--rotate-tokens", "--completion", "early", "--advise"],
            &["--fault", "late,function=NdkConnect,chance=300000,delay=~200", "--fault", "early,every=2"],
            &["--wire", "--lose", "1.5"],
            &["--driver", "--ndkpi", "2", "--fault", "early,nth=3"],
            &["--driver", "--interface", "Ethernet 3", "--peer", "192.0.2.7", "--hostile"],
        ] {
            let args = selftest(options);
            let line = again(&args, case, 77);
            let words = words(&line);
            assert_eq!(words[..2], ["ndkctl", "selftest"]);
            let back = selftest(&words[2..].iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(choose(&back).expect("a case").iter().map(|case| case.name).collect::<Vec<_>>(), [case.name]);
            assert_eq!(back.seed, 77, "{line}");
            // What is not the choice of the case is as it was.
            assert_eq!(again(&back, case, 77), line);
            let machine = |args: &crate::args::Selftest| {
                format!(
                    "{:?} {:?} {} {:?}",
                    args.machine,
                    args.fault,
                    args.deterministic,
                    (&args.interface, &args.peer)
                )
            };
            assert_eq!(machine(&back), machine(&args), "{line}");
            assert_eq!((back.driver, back.hostile, back.advise), (args.driver, args.hostile, args.advise), "{line}");
        }
    }
}

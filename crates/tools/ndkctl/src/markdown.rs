//! The cases as a document.

use std::fmt::Write as _;

use conformance::{
    Case,
    cases::{SINCE_1_2, SINCE_2_1},
};

const BEGINNING: &str = "\
# What the conformance suite checks

Generated: `cargo run -- selftest --list --markdown > docs/conformance.md`. A test fails when it is out of date.

Each case checks one rule of NDKPI as an NDK consumer sees it. It uses the dispatch tables only, so it runs on any `NDK_ADAPTER`. The
section is that of the rule in `docs/reference`. Where the documentation leaves something open, the case says *Open* and reports what
the provider does; that is not a failure. Apart from its own rule, every case also fails on any of these: two concurrent callbacks of one
completion queue, a callback of an unarmed or closed queue, a completion that comes twice or never, a close that completes
before what depends on it, a callback while a lock is held.

## How to read a result

| result | what it means | what a vendor should do |
|---|---|---|
| passed | The rule holds. | Nothing. |
| failed | The provider broke the rule. The report says what was done, expected and seen, and has the command that repeats the case with \
the same seed, faults and options. | Read the section that the case names. Then fix the provider, or report a mistake in the suite with the section that \
says otherwise. |
| observed | The documentation leaves this open, and the report says what the provider does. Never a failure. | Check once whether \
each observation is intended. Keep the report and compare the next one with it: a change without a reason is a regression. \
[Decisions](decisions.md) says what SoftNDK does. |
| skipped | The rule does not apply, for the reason shown: the adapter lacks a flag, a limit is too small, its version is too old, the \
case needs two ports, or it makes calls that a correct consumer never makes. | Check that the reason is true of your adapter. |
| inconclusive | Nothing is known about the rule: what the case needs first, such as an open adapter and a connection, has failed. | \
Find out why, as the report says what failed; a case of that rule fails too, or the machine is out of something. |

A run is good if nothing failed and nothing was inconclusive. `OPEN` of the `ALL` cases look at open points, and others report an observation when they meet one.

Each case starts with a new adapter and closes everything it created, so any case can run alone.
The exit code is 0 if the run is good, 1 if not, 2 for a wrong argument, 130 after Ctrl-C.

## Working on one case

These work on the host and with `--driver`:

| argument | what it does |
|---|---|
| `--filter PART` | only cases whose name or section contains this; a whole name is this case only |
| `--exclude FILE` | leaves out the cases and themes that the file names, one on a line, with remarks after `#`: what is known to fail |
| `--from CASE` | leaves out the cases before this one |
| `--list` | shows the cases that the arguments choose |
| `--seed N`, `--repeat N` | the random numbers; each repetition has the next seed |
| `--ndkpi MAJOR` | opens the adapter with this major version |
| `--fault RULE` | lets something go wrong ([faults](faults.md)); its counters begin anew with each case; not with `--interface` |
| `--record FILE`, `--timeline FILE` | records the first case that fails, or the last one; not with `--interface`: the recorder is SoftNDK's |
| `--advise` | has the [adviser](adviser.md) of `softndk` look at what the cases do, whatever its setting is, and says what it has found; not with `--interface`: the adviser is SoftNDK's |
| `--progress FILE` | keeps in the file which case is running |
| `--resume` | goes on with a run that ended without a word |

The line `again` of a failure is the command that repeats exactly that case.

A provider that crashes the machine does not end the work. Before each case its name is written to the progress file and flushed to the
disk; with `--driver` always, by default to `ndkctl-selftest.progress` in the folder for temporary files. After the restart,
`ndkctl selftest --resume` (with `--progress FILE` if that was given) says which case was running, counts it as failed, and runs those
behind it with the arguments of that run. Results and exit code are those of the whole run. With `--driver` each case is a run of the
driver of its own.

## For programs

- `--json` prints the results on the standard output: what was tested where (`adapter` with the version of NDKPI that it reports and, if
  it says it, its driver's version; `host`, `profile`, `faults`), the counts, and for each case `name`, `section`, `does`, `expects`,
  `outcome`, `text`, `micros`, `seed` and `again`.
- `--junit FILE` writes them in JUnit format for CI systems. A theme is a test suite, with the same facts as properties. An observed case
  is a success with the observation in `system-out`; a skipped one has its reason as message; an inconclusive one is an error.
- `ndkctl report RESULTS.json --html FILE` makes a page of them that needs nothing else, and
  `ndkctl report NEW.json --baseline OLD.json` says what has changed ([ndkctl](ndkctl.md#reports)).

## On any vendor's adapter

You need a Windows machine with the adapter, test signing on, and the driver `ndktest`. [Install on a VM](windows-vm.md) describes how to
build and install it, in sections 2 to 4; they apply to a physical machine as well. As an administrator:

    ndkctl adapters                                                 lists the interfaces and their NDK capabilities
    ndkctl selftest --driver --interface \"Ethernet 3\"               by alias, index or local address
    ndkctl selftest --driver --interface \"Ethernet 3\" --peer \"Ethernet 4\"

The driver opens the adapter through Winsock Kernel, like every kernel consumer. Many NICs cannot connect to themselves. For those,
`--peer` names a second port that the first can reach by a cable or a switch, or an address of that port; there must be a route to it.
The second port may be one of another machine, on which `ndkctl driver agent` runs: `--peer @192.0.2.2`, with an address of that machine
([how](windows-vm.md#the-suite-with-one-end-on-each-machine)).
The suite adapts to hardware: it uses fewer elements and less private data where the adapter has less, and skips cases that need inline
data, shared receive queues or a newer NDKPI than the adapter has.

Such a run leaves out calls that a correct consumer never makes, such as those with null pointers. `--hostile` includes them; a driver
that trusts its consumers then crashes the machine. Without `--interface` the suite runs on SoftNDK, which survives them.

**We have not tested any vendor's adapter.** This has run only in a simulated kernel ([simulated-kernel](simulated-kernel.md)), and
on the host with the limits of hardware.

## Versions

A case that needs more than NDKPI 1.1 is skipped on an older adapter.

| NDKPI | Windows Server | cases that need it |
|---|---|---|
| 1.1 | 2012 | the others |
| 1.2 | 2012 R2 | SINCE_1_2 |
| 2.0 | 2016 | none; it adds `RdmaTechnology`, which `version.information-makes-sense` checks |
| 2.1 | 2022 | SINCE_2_1 |

The drivers themselves need Windows 10 version 2004 or Server 2022.

## Microsoft's own tests

Microsoft certifies adapters with its Windows Hardware Lab Kit. This suite does not replace the kit and contains nothing from it: it was
written from public documentation. Use it before: it runs in minutes on one machine, names the broken rule, and can repeat a case with the
same random numbers. An adapter that passes here may still fail there.
";

/// All cases, by theme.
pub fn document(cases: &[&'static Case]) -> String {
    let open = cases.iter().filter(|case| case.expects.contains("Open")).count();
    let listed = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let mut text = BEGINNING
        .replace("`OPEN`", &open.to_string())
        .replace("`ALL`", &cases.len().to_string())
        .replace("SINCE_1_2", &listed(SINCE_1_2))
        .replace("SINCE_2_1", &listed(SINCE_2_1));
    let mut theme = "";
    for case in cases {
        if case.theme() != theme {
            theme = case.theme();
            let count = cases.iter().filter(|other| other.theme() == theme).count();
            // Writing to a string cannot fail.
            let _ =
                write!(text, "\n## `{theme}` ({count})\n\n| case | section | does | expects |\n|---|---|---|---|\n");
        }
        let rule = case.name.split_once('.').map_or(case.name, |(_, rule)| rule);
        let _ = writeln!(text, "| `{rule}` | {} | {} | {} |", case.section, case.does, case.expects);
    }
    let _ = write!(text, "\n{} cases.\n", cases.len());
    text
}

#[cfg(test)]
mod tests {
    use conformance::cases;

    use super::document;

    #[test]
    fn the_document_in_the_repository_is_up_to_date() {
        let written = include_str!("../../../../docs/conformance.md").replace("\r\n", "\n");
        let generated = document(&cases::all().collect::<Vec<_>>());
        let differs = written.lines().zip(generated.lines()).find(|(written, generated)| written != generated);
        assert!(
            written == generated,
            "docs/conformance.md is out of date: cargo run -- selftest --list --markdown > docs/conformance.md; \
             first difference: {differs:?}"
        );
    }

    #[test]
    fn nothing_breaks_a_row() {
        for case in cases::all() {
            for text in [case.name, case.section, case.does, case.expects] {
                assert!(!text.contains(['|', '\n']), "{}: {text}", case.name);
                assert!(!text.contains("  "), "{}: {text}", case.name);
            }
        }
    }
}

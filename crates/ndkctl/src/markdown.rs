//! The cases as a document.

use std::fmt::Write as _;

use conformance::{
    Case,
    cases::{SINCE_1_2, SINCE_2_1},
};

const BEGINNING: &str = "\
# What the conformance suite checks

Generated: `cargo run --release -- selftest --list --markdown > docs/conformance.md`. A test fails when it is out of date.

Each case is one rule of NDKPI as an NDK consumer sees it, checked through dispatch tables only, so on any `NDK_ADAPTER`. A
section names the sheet in `docs/reference` in which the rule stands. Where the documentation leaves something open, the case
says *Open* and reports what the provider does; that is no failure. Besides its own rule, every case fails on a *fault*: two
callbacks of one completion queue at a time, a callback of an unarmed or closed queue, a completion that comes twice or never,
a close that completes before what depends on it, a callback while a lock is held.

## How to read a result

| result | what it means | what a vendor does with it |
|---|---|---|
| passed | The rule holds. | Nothing. |
| failed | The provider did something else than the rule says. The report has what was done, what was expected and what was seen, \
and the seed with which the case runs again. | Reads the section that the case names, and then corrects the provider, or reports \
a mistake of the suite with the section that says otherwise. |
| observed | The documentation leaves it open: this is what the provider does. It is never a failure. | Looks at each once and \
decides whether that is meant, then keeps the report and compares the next one with it: an observation that changes without a \
reason is a regression. What SoftNDK does is in [decisions](decisions.md). |
| skipped | The rule does not apply here, for the reason that is shown: a flag that the adapter does not have, a limit that is too \
small, a version that is too old, one port where the case wants two, something that a correct consumer never does. | Looks that \
the reason is true of the adapter. |

A run is good if nothing has failed. `OPEN` of the `ALL` cases look at what is open, and more report an observation when they find
what the documentation does not decide.

Each case begins with a new adapter and closes all that it has made, so one can be run by itself: `ndkctl selftest --filter arm`.
The exit code is 0 if no case failed, 1 if one did, 2 for a wrong argument, 130 after Ctrl-C. For programs:

- `--json` prints the results on the standard output: the counts, and for each case `name`, `section`, `does`, `expects`,
  `outcome`, `text`, `micros` and `seed`.
- `--junit FILE` writes them in the format of JUnit, which every CI reads. A theme is a test suite; an observed case is a success
  whose `system-out` is the observation; a skipped one has its reason as message.

## On any vendor's adapter

On Windows, with the driver `ndktest` installed ([windows-vm](windows-vm.md)):

    ndkctl adapters                                                 which interfaces have NDK, and with what
    ndkctl selftest --driver --interface \"Ethernet 3\"               by alias, index or local address
    ndkctl selftest --driver --interface \"Ethernet 3\" --peer \"Ethernet 4\"

The driver opens the adapter as every kernel consumer does, through Winsock Kernel. Many NICs do not connect to themselves: then
`--peer` names a second port that the first can reach, by a cable or a switch, and an address of it to which there is a route.
Hardware is not expected to be SoftNDK: fewer elements and less private data, no inline data, no shared receive queues, reads that
need the read sink right, and NDKPI 1.1 to 2.0 are skipped or adapted to.

Cases that do what a correct consumer never does, such as passing null pointers, are left out unless `--hostile` is given. A driver
that trusts its consumers crashes the machine then. Without `--interface` the provider is SoftNDK, which bears them.

No vendor's adapter has been tested by this project yet: this has run in a simulated kernel only
([simulated-kernel](simulated-kernel.md)), and on providers with the limits of hardware on a host.

## Versions

A case that needs more than NDKPI 1.1 is skipped on an adapter without it.

| NDKPI | Windows Server | cases that need it |
|---|---|---|
| 1.1 | 2012 | the others |
| 1.2 | 2012 R2 | SINCE_1_2 |
| 2.0 | 2016 | none: it adds `RdmaTechnology`, which `version.information-makes-sense` looks at |
| 2.1 | 2022 | SINCE_2_1 |

The drivers themselves need Windows 10 version 2004 or Server 2022.

## Microsoft's own tests

Microsoft certifies adapters with the tests of its Windows Hardware Lab Kit. This suite does not take their place and has nothing
of them: it was written from public documentation. It is for the time before: it runs in minutes on one machine, names the rule
that is broken, and runs the case again with the same numbers. What passes here may fail there, and a logo needs the kit.
";

/// All of them, by theme.
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
            let _ = write!(
                text,
                "\n## `{theme}` ({count})\n\n| case | section | what is done | what is expected |\n|---|---|---|---|\n"
            );
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
        let written = include_str!("../../../docs/conformance.md").replace("\r\n", "\n");
        let generated = document(&cases::all().collect::<Vec<_>>());
        let differs = written.lines().zip(generated.lines()).find(|(written, generated)| written != generated);
        assert!(
            written == generated,
            "docs/conformance.md is out of date: cargo run --release -- selftest --list --markdown > docs/conformance.md; \
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

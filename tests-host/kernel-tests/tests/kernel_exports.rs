//! What images can import is what the simulated kernel defines.

extern crate wdk_bindings as wdk_sys;

use std::collections::BTreeSet;

use image_loader::{
    framework::{self, FUNCTIONS},
    routines::{LIBRARY, SIMULATED, VARIABLES},
};
use sources::{code_of, files, words};

/// The functions that the crate defines as symbols of their own names.
fn defined() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in files("crates/simulator/simulated-kernel/src", &["rs"]) {
        let code = code_of(&source.text);
        let mut lines = code.lines();
        while lines.any(|line| line.trim() == "#[unsafe(no_mangle)]") {
            let definition = lines.next().unwrap_or_default();
            if words(definition).any(|word| word == "static") {
                continue;
            }
            let mut words = words(definition).skip_while(|&word| word != "fn").skip(1);
            // The names that a macro is given are where it is used.
            if definition.contains("fn $") {
                continue;
            }
            // What is called by drivers that are linked with the kernel, and by no image.
            let Some(name) = words.next().filter(|name| !name.starts_with("Simulated")) else { continue };
            assert!(names.insert(name.to_owned()), "{name} is defined twice, also in {}", source.path);
        }
        for name in given_to_macros(&code) {
            assert!(names.insert(name.to_owned()), "{name} is defined twice, also in {}", source.path);
        }
    }
    names
}

/// The names of routines that a file gives to its macros that define them.
fn given_to_macros(code: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for definition in code.split("\nmacro_rules! ").skip(1) {
        let body = definition.split("\n}").next().unwrap_or_default();
        if !body.contains("#[unsafe(no_mangle)]") {
            continue;
        }
        let name = words(body).next().expect("a macro has a name");
        let uses: Vec<_> = code.split(&format!("\n{name}!(")).skip(1).collect();
        assert!(!uses.is_empty(), "{name} is not used");
        let given = uses.into_iter().flat_map(|used| words(used.split(')').next().unwrap_or_default()));
        // Constants are all in capitals.
        names.extend(given.filter(|word| word.contains(char::is_lowercase)));
    }
    names
}

#[test]
fn every_routine_that_is_defined_can_be_imported() {
    let listed: BTreeSet<String> =
        SIMULATED.iter().flat_map(|(_, names)| names.iter().map(|&name| name.to_owned())).collect();
    assert!(listed.len() > 100, "{} routines", listed.len());
    assert_eq!(defined(), listed, "crates/simulator/image-loader/src/routines.rs has a line for each");
}

#[test]
fn a_name_is_listed_once_and_in_order() {
    for (module, names) in SIMULATED {
        assert!(names.is_sorted() && *module == module.to_lowercase(), "{module}");
    }
    let plain: BTreeSet<&str> = LIBRARY.iter().map(|(name, _)| *name).chain(VARIABLES.iter().copied()).collect();
    assert_eq!(plain.len(), LIBRARY.len() + VARIABLES.len());
    let simulated = SIMULATED.iter().flat_map(|(_, names)| names.iter());
    assert_eq!(simulated.filter(|&&name| plain.contains(name)).count(), 0, "a routine is one or the other");
}

/// What tests call, declarations aside: the words in front of a parenthesis, and those that are given to a macro that calls them.
fn called_by_tests(folders: &[&str], extensions: &[&str]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in folders.iter().flat_map(|folder| files(folder, extensions)) {
        let code = code_of(&source.text);
        for (place, _) in code.match_indices('(') {
            let before = &code[..place];
            let start = before.rfind(|letter: char| !letter.is_alphanumeric() && letter != '_').map_or(0, |at| at + 1);
            // A declaration in Rust, or in C of what is imported.
            let line = before[..start].rsplit('\n').next().unwrap_or_default();
            if !before[..start].ends_with("fn ") && !line.starts_with("IMPORT ") {
                names.insert(before[start..].to_owned());
            }
        }
        names.extend(given_to_callers(&code).into_iter().map(str::to_owned));
    }
    names
}

/// The names that are given to macros of a file which call what they are given: `$name:ident` among their parameters, `$name(` in their bodies.
fn given_to_callers(code: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for definition in code.split("\nmacro_rules! ").skip(1) {
        let definition = definition.split("\n}").next().unwrap_or_default();
        let Some((parameters, body)) = definition.split_once("=> {") else { continue };
        let Some((name, parameters)) = parameters.split_once(" {") else { continue };
        let calls = |parameter: &str| body.contains(&format!("call!(${parameter}("));
        let parameters: Vec<&str> = parameters.split('$').skip(1).filter_map(|one| one.split(':').next()).collect();
        for used in code.split(&format!("\n{name}!(")).skip(1) {
            let given = words(used.split(')').next().unwrap_or_default());
            names.extend(parameters.iter().zip(given).filter(|(one, _)| calls(one)).map(|(_, given)| given));
        }
    }
    names
}

/// Where the simulation's own tests are.
const TESTS: [&str; 3] = [
    "tests-host/kernel-tests/tests/ndis_rules",
    "tests-host/kernel-tests/tests/wdm_rules",
    "tests-host/kernel-tests/tests/kernel_rules",
];

/// What the entry point of every image calls, in the static library that it is linked with: it comes before the driver's own code.
const OF_EVERY_IMAGE: [&str; 2] = ["WdfVersionBind", "WdfVersionUnbind"];

#[test]
fn each_routine_has_a_test_of_the_simulation_that_calls_it() {
    let mut called = called_by_tests(&TESTS, &["rs"]);
    // A driver in C, whose image asks for an address by name: what is linked in has none.
    called.extend(called_by_tests(&["tests-host/driver-images/probe"], &["c"]));
    let all = SIMULATED.iter().flat_map(|(_, names)| names.iter().copied());
    let missing: Vec<_> = all.filter(|name| !called.contains(*name) && !OF_EVERY_IMAGE.contains(name)).collect();
    assert!(missing.is_empty(), "no test of the simulation's own calls {missing:?}");
}

#[test]
fn a_name_that_is_only_declared_or_named_is_not_called() {
    let code = r"fn KeOne(); use KeTwo; KeThree(1); call!(KeFour(2))
macro_rules! kind {
    ($module:ident: $declared:ident, $called:ident) => {
        fn $declared();
        call!($called(1))
    };
}
kind!(x: KeFive, KeSix);
";
    assert_eq!(given_to_callers(code), ["KeSix"]);
}

#[test]
fn the_functions_of_the_framework_have_the_names_of_their_places() {
    use wdk_sys::_WDFFUNCENUM as index;
    for (place, name) in [
        (index::WdfControlDeviceInitAllocateTableIndex, "WdfControlDeviceInitAllocate"),
        (index::WdfIoQueueCreateTableIndex, "WdfIoQueueCreate"),
        (index::WdfObjectCreateTableIndex, "WdfObjectCreate"),
        (index::WdfRequestCompleteWithInformationTableIndex, "WdfRequestCompleteWithInformation"),
        (index::WdfSpinLockReleaseTableIndex, "WdfSpinLockRelease"),
    ] {
        let place = usize::try_from(place).expect("an index");
        assert_eq!(FUNCTIONS[place], name);
    }
    assert_eq!(FUNCTIONS.iter().collect::<BTreeSet<_>>().len(), FUNCTIONS.len(), "each name once");
}

/// The routines in the first columns of the tables of what is enforced: what is in backticks there.
fn in_the_tables() -> Vec<String> {
    let path = sources::root().join("docs/simulated-kernel.md");
    let text = std::fs::read_to_string(path).expect("the document");
    let (_, rest) = text.split_once("\n## What each routine enforces\n").expect("the section");
    let section = rest.split("\n## ").next().expect("its end");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.flat_map(|row| {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        assert!(columns.len() == 5 && columns[2..4].iter().all(|words| !words.is_empty()), "{row}");
        columns[1].split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    })
    .collect()
}

/// The functions of the framework's table that are simulated.
fn of_the_framework() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in files("crates/simulator/simulated-kernel/src/wdf", &["rs"]) {
        let code = code_of(&source.text);
        for line in code.lines().filter(|line| line.contains("fn Wdf")) {
            names.extend(words(line).skip_while(|&word| word != "fn").nth(1).map(str::to_owned));
        }
    }
    assert!(names.len() > 50, "{} functions", names.len());
    names
}

/// The functions of the tables of Winsock Kernel: what those of its provider and of its sockets have.
fn of_winsock_kernel() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in files("crates/abi/ndis/src", &["rs"]).iter().filter(|source| source.path.contains("/wsk")) {
        let code = code_of(&source.text);
        let fields =
            code.lines().filter_map(|line| line.trim().strip_prefix("pub Wsk")?.split_once(": Option<PFN_WSK"));
        names.extend(fields.map(|(name, _)| format!("Wsk{name}")).filter(|name| !name.ends_with("Event")));
    }
    assert!(names.len() > 10, "{} functions", names.len());
    names
}

#[test]
fn the_functions_of_the_framework_that_are_simulated_are_listed() {
    let listed: BTreeSet<String> = framework::SIMULATED.iter().map(|&name| name.to_owned()).collect();
    let bound = ["WdfVersionBind", "WdfVersionUnbind"].map(str::to_owned);
    let defined: BTreeSet<String> = of_the_framework().into_iter().filter(|name| !bound.contains(name)).collect();
    assert_eq!(defined, listed, "crates/simulator/image-loader/src/framework.rs has a line for each");
    assert!(framework::SIMULATED.is_sorted());
    assert_eq!(framework::find(116), Some(("WdfDriverCreate", true)));
    assert_eq!(framework::find(10_000), None);
}

#[test]
fn every_routine_has_a_row_of_what_is_enforced() {
    let rows = in_the_tables();
    let sent = |name: &String| ["OID_", "IRP_MN_", "Miniport"].iter().any(|beginning| name.starts_with(beginning));
    let (requests, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(sent);
    let listed: BTreeSet<String> = rows.iter().cloned().collect();
    assert_eq!(rows.len(), listed.len(), "each has one row");
    let exported = SIMULATED.iter().flat_map(|(_, names)| names.iter().map(|&name| name.to_owned()));
    let wanted: BTreeSet<String> = exported.chain(of_the_framework()).chain(of_winsock_kernel()).collect();
    let missing: Vec<_> = wanted.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&wanted).collect();
    assert!(missing.is_empty() && gone.is_empty(), "docs/simulated-kernel.md lacks {missing:?}, and has {gone:?}");
    let sources: String =
        files("crates/simulator/simulated-kernel/src", &["rs"]).iter().map(|source| code_of(&source.text)).collect();
    for request in requests {
        assert!(words(&sources).any(|word| word == request), "nothing in the simulation is about {request}");
    }
}

//! What the layers of the engine may know of each other, and of NDKPI (`docs/architecture.md`).

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use sources::{Source, code_of, files, words};
use syn::{Item, UseTree};

mod kernel_layers;

/// Returns true for a name of the interface: `NDK_CQ`, `NdkOs`, `ndkpi`.
fn is_of_ndkpi(word: &str) -> bool {
    word == "ndkpi"
        || word.starts_with("NDK")
        || word.strip_prefix("Ndk").is_some_and(|rest| rest.starts_with(char::is_uppercase))
}

/// The names of NDKPI in a source, comments aside: those cite it.
fn names_of_ndkpi(source: &str) -> BTreeSet<String> {
    words(&code_of(source)).filter(|word| is_of_ndkpi(word)).map(str::to_owned).collect()
}

#[test]
fn the_engine_names_nothing_of_ndkpi() {
    let mut sources = files("crates/provider/engine/src", &["rs"]);
    assert!(sources.len() > 50, "{} sources of the engine", sources.len());
    sources.extend(files("crates/provider/engine", &["toml"]));
    assert!(sources.iter().any(|source| source.path == "crates/provider/engine/Cargo.toml"));
    for Source { path, text } in sources {
        // Tests look at what consumers see.
        let product = text.split("dev-dependencies]").next().expect("a beginning");
        assert_eq!(names_of_ndkpi(product), BTreeSet::new(), "names of NDKPI in {path}");
    }
}

#[test]
fn a_name_of_ndkpi_is_seen_in_code_and_not_in_comments() {
    let source =
        "use ndkpi::NtStatus; // ndkpi\n/// `NDK_FN_SEND`\nlet flags = NDK_OP_FLAG_DEFER;\nNdkOs::new(Ndkless);";
    let names = ["NDK_OP_FLAG_DEFER", "NdkOs", "ndkpi"];
    assert_eq!(names_of_ndkpi(source), names.map(str::to_owned).into());
}

/// The modules of the crate that an import names, if it begins with `crate`.
fn imported(tree: &UseTree, modules: &mut BTreeSet<String>) {
    let UseTree::Path(path) = tree else { return };
    if path.ident == "crate" {
        first_names(&path.tree, modules);
    }
}

fn first_names(tree: &UseTree, names: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => drop(names.insert(path.ident.to_string())),
        UseTree::Name(name) => drop(names.insert(name.ident.to_string())),
        UseTree::Rename(rename) => drop(names.insert(rename.ident.to_string())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| first_names(tree, names)),
        UseTree::Glob(_) => panic!("`use crate::*` says nothing of what is used"),
    }
}

/// The modules that a source of the engine imports or names with `crate::` in its code.
fn used(source: &Source) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    for item in syn::parse_file(&source.text).expect("Rust").items {
        if let Item::Use(item) = item {
            imported(&item.tree, &mut modules);
        }
    }
    for rest in code_of(&source.text).split("crate::").skip(1) {
        modules.extend(
            words(
                rest.split(|character: char| !character.is_alphanumeric() && character != '_')
                    .next()
                    .unwrap_or_default(),
            )
            .map(str::to_owned),
        );
    }
    modules
}

/// The modules that each of `sources` uses, by the module that it belongs to: the first name of its path in the crate.
fn edges(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let mut edges = BTreeMap::<String, BTreeSet<String>>::new();
    for source in sources {
        let path = source.path.strip_prefix("crates/provider/engine/src/").expect("a source of the engine");
        let module = path.split(['/', '.']).next().expect("a first name");
        edges.entry(module.to_owned()).or_default().extend(used(source).into_iter().filter(|used| used != module));
    }
    edges
}

/// The modules on a way from `module` back to it; empty if there is none.
fn cycle(edges: &BTreeMap<String, BTreeSet<String>>, module: &str) -> Vec<String> {
    let mut ways = vec![vec![module.to_owned()]];
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop() {
        for next in way.last().and_then(|last| edges.get(last)).into_iter().flatten() {
            let longer = [way.clone(), vec![next.clone()]].concat();
            if next == module {
                return longer;
            }
            if seen.insert(next.clone()) {
                ways.push(longer);
            }
        }
    }
    Vec::new()
}

#[test]
fn no_module_of_the_engine_uses_itself_through_others() {
    let edges = edges(&files("crates/provider/engine/src", &["rs"]));
    for module in ["cq", "qp", "nic", "connection", "memory", "ring"] {
        assert!(edges.contains_key(module), "there is a module {module}");
    }
    assert!(edges["qp"].contains("cq") && edges["qp"].contains("nic"), "{edges:?}");
    // The root names what the modules make together, and every module its status codes.
    for module in edges.keys().filter(|module| *module != "lib") {
        assert_eq!(cycle(&edges, module), Vec::<String>::new());
    }
}

#[test]
fn a_cycle_is_found() {
    let source =
        |path: &str, text: &str| Source { path: format!("crates/provider/engine/src/{path}"), text: text.to_owned() };
    let edges = edges(&[
        source("cq/mod.rs", "use crate::{memory, os::Os};"),
        source("memory.rs", "fn f() { crate::qp::post(); }"),
        source("qp/post.rs", "use crate::cq::Cq;"),
    ]);
    assert_eq!(cycle(&edges, "cq"), ["cq", "memory", "qp", "cq"]);
    assert_eq!(cycle(&edges, "os"), Vec::<String>::new());
}

/// The folders of `crates`, the lowest first: a crate may use those of its own folder and of folders before it.
const ROLES: [&str; 9] = ["abi", "provider", "observe", "consumer", "suite", "nd2", "drivers", "simulator", "tools"];

/// What cargo says of the packages of the workspace.
fn metadata() -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(sources::root())
        .output()
        .expect("cargo runs");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The crates of the workspace: name, role, and what they need when they are not tested.
fn crates() -> Vec<(String, String, Vec<String>)> {
    let metadata = metadata();
    let word = |value: &serde_json::Value| value.as_str().expect("a name").to_owned();
    let packages = metadata["packages"].as_array().expect("packages").iter();
    packages
        .filter_map(|package| {
            let folders: Vec<_> = package["manifest_path"].as_str()?.rsplit(['/', '\\']).skip(1).collect();
            let [folder, role, "crates", ..] = folders[..] else { return None };
            assert_eq!(folder, word(&package["name"]), "a crate's folder has its name");
            let needs = package["dependencies"].as_array()?.iter().filter(|needed| needed["kind"] != "dev");
            Some((folder.to_owned(), role.to_owned(), needs.map(|needed| word(&needed["name"])).collect()))
        })
        .collect()
}

#[test]
fn a_crate_uses_its_own_folder_and_those_below() {
    let crates = crates();
    let height = |role: &str| ROLES.iter().position(|known| *known == role).expect("a role that is listed");
    let roles: BTreeMap<_, _> = crates.iter().map(|(name, role, _)| (name.as_str(), role.as_str())).collect();
    assert_eq!(roles.values().collect::<BTreeSet<_>>(), ROLES.iter().collect(), "every folder has crates");
    let mut arrows = 0;
    for (name, role, needs) in &crates {
        for (needed, below) in needs.iter().filter_map(|needed| Some((needed, roles.get(needed.as_str())?))) {
            assert!(height(below) <= height(role), "{role}/{name} uses {below}/{needed}, which is above it");
            arrows += 1;
        }
    }
    assert!(arrows > 100, "{arrows} uses were seen");
}

#[test]
fn every_folder_of_crates_says_what_it_is() {
    for role in ROLES {
        let path = sources::root().join("crates").join(role).join("README.md");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for (name, _, _) in crates().iter().filter(|(_, of, _)| of == role) {
            assert!(text.contains(&format!("[{name}]({name})")), "crates/{role}/README.md does not name {name}");
        }
    }
}

/// A proof that is somewhere else is not read, and not changed when its place changes.
fn refers_elsewhere(line: &str) -> bool {
    line.split_once("// SAFETY: ").is_some_and(|(_, proof)| ["as above.", "as before.", "see above."].contains(&proof))
}

#[test]
fn a_safety_comment_says_why() {
    let (mut proofs, mut wrong) = (0, Vec::new());
    for Source { path, text } in
        ["crates", "examples", "tests-host", "xbuild"].iter().flat_map(|folder| files(folder, &["rs"]))
    {
        for (index, line) in text.lines().enumerate() {
            proofs += usize::from(line.contains("// SAFETY: "));
            if refers_elsewhere(line) {
                wrong.push(format!("{path}:{}", index + 1));
            }
        }
    }
    assert!(proofs > 3000, "{proofs} proofs");
    assert!(wrong.is_empty(), "a proof has to stand where it is needed:\n{}", wrong.join("\n"));
    assert!(refers_elsewhere(&["        // SAFETY:", "as above."].join(" ")));
    assert!(!refers_elsewhere("    // SAFETY: as above; only the slot is read."));
}

/// Does any of these sources have a unit test?
fn has_tests(sources: &[Source]) -> bool {
    sources.iter().any(|source| code_of(&source.text).contains("#[test]"))
}

/// Does any of these sources have an example that rustdoc compiles, in a block of its documentation?
fn has_examples(sources: &[Source]) -> bool {
    let fence = |line: &str| {
        let line = line.trim_start();
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
        text.trim_start().strip_prefix("```").map(str::to_owned)
    };
    sources.iter().any(|source| {
        // Every second fence ends a block.
        let mut fences = source.text.lines().filter_map(fence).step_by(2);
        fences.any(|language| ["", "no_run", "rust", "should_panic", "compile_fail"].contains(&&*language))
    })
}

/// Cargo believes what a manifest says: tests of a library with `test = false` never run, and one that has none is built again for nothing.
#[test]
fn a_library_says_whether_it_has_tests_and_examples() {
    let mut libraries = 0;
    for package in metadata()["packages"].as_array().expect("packages") {
        let targets = package["targets"].as_array().expect("targets").iter();
        for target in targets.filter(|target| target["kind"].to_string().contains("lib")) {
            let root = sources::root().canonicalize().expect("the repository");
            let source = std::path::PathBuf::from(target["src_path"].as_str().expect("a path"));
            let folder = source.parent().and_then(|folder| folder.canonicalize().ok()).expect("a folder of sources");
            let manifest = std::path::Path::new(package["manifest_path"].as_str().expect("a path"));
            // The copies of broken providers have the sources of others.
            if !folder.starts_with(manifest.parent().and_then(|own| own.canonicalize().ok()).expect("a folder")) {
                continue;
            }
            let folder = folder.strip_prefix(&root).expect("a folder of the repository");
            let sources = files(&folder.to_string_lossy(), &["rs"]);
            let name = package["name"].as_str().expect("a name");
            let said = (target["test"] == true, target["doctest"] == true);
            assert_eq!(said, (has_tests(&sources), has_examples(&sources)), "[lib] of {name}: test, doctest");
            libraries += 1;
        }
    }
    assert!(libraries > 30, "{libraries} libraries were seen");
}

/// Tests that a chore of their own builds: for Windows (`cargo xtask images`), and with loom's atomics (`cargo xtask loom`).
fn are_of_a_chore(package: &str, test: &str) -> bool {
    package == "driver-images" || test.starts_with("loom_")
}

/// A test that no command names never runs.
#[test]
fn the_tests_of_a_package_are_those_of_cargo_test_or_of_cargo_xtask_test() {
    let metadata = metadata();
    let source = |name: &str| std::fs::read_to_string(sources::root().join("crates/tools/xtask/src").join(name));
    let (chore, ci) = (source("test.rs").expect("the chore"), source("ci.rs").expect("its steps"));
    let (mut first, mut rest) = (0, 0);
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let is_first = metadata["workspace_default_members"].as_array().expect("members").contains(&package["id"]);
        let is_rest = chore.contains(&format!("\n    \"{name}\",\n"));
        let is_of_the_night = ci.contains(&format!("\"cargo test -p {name}\""));
        let is_copy = package["manifest_path"].to_string().contains("copies");
        let targets = package["targets"].as_array().expect("targets").iter();
        let is_of_a_chore = |test: &str| is_copy || are_of_a_chore(name, test);
        for target in targets.filter(|target| !is_of_a_chore(target["name"].as_str().expect("a name"))) {
            let kind = target["kind"].to_string();
            let is_test = kind.contains("\"test\"");
            // Whatever else has tests says so. A test that does not want to be among the first ones says that.
            if is_test || target["test"] == true && kind.contains("lib") {
                let is_run = is_rest || is_of_the_night || is_first && target["test"] == true;
                assert!(
                    is_run,
                    "nothing runs {} of {name}: cargo xtask test may, or cargo xtask ci --night",
                    target["name"]
                );
                assert!(!(is_first && is_rest && target["test"] == true), "{} of {name} runs twice", target["name"]);
                *if is_rest { &mut rest } else { &mut first } += 1;
            }
        }
    }
    assert!(first > 40 && rest > 30, "{first} and {rest} test programs were seen");
}

#[test]
fn tests_and_examples_of_a_library_are_seen() {
    let source = |text: &str| [Source { path: "lib.rs".to_owned(), text: text.to_owned() }];
    assert!(has_tests(&source("#[cfg(test)]\nmod tests {\n    #[test]\n    fn one() {}\n}")));
    assert!(!has_tests(&source("// An attribute such as #[test]\nfn one() {}")));
    assert!(has_examples(&source("//! Such as\n//!\n//! ```\n//! one();\n//! ```\n")));
    assert!(has_examples(&source("    /// ```no_run\n    /// one();\n    /// ```\n")));
    assert!(!has_examples(&source("/// ```text\n/// one\n/// ```\n// ```\n")));
}
